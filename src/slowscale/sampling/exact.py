"""Exact results: the ideal real-valued output, correctly rounded, with probability 1.

A result is the floor of a real number, given by a formula of a random variate and of exact values. Tier 1 evaluates the
formula on arrays of float balls. If both ends of a ball have the same floor, that floor is right whatever the bits not
yet drawn. Tier 2 processes the remaining values one by one in Arb balls: it draws more bits of the same uniforms, and
doubles the precision until the floors are certain. Whether a candidate is accepted is decided in the same way.

`Choice` draws from a finite distribution with probabilities proportional to exp(−cost) in the same way. The cumulative
sums of the weights are computed in Arb balls, and a uniform real is located among them; no weight underflows.
"""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from slowscale.core.errors import SlowscaleError
from slowscale.core.parameters import CHUNK
from slowscale.sampling.balls import Ball, lift_ball, uniform_balls
from slowscale.sampling.bits import Bits, Rows, Stream, Words
from slowscale.sampling.samplers import Lift, Number, Sampler

T = TypeVar("T")
Integers = npt.NDArray[Any]  # int64, or object if a number does not fit

# Up to this many values, starting up arrays takes longer than tier 2.
FEW_VALUES = 4
# With a fair source, every decision is reached long before this many bits are used.
MOST_RANDOM_BITS = 1 << 16


class Task(ABC):
    """A computation to carry out on each draw of a sampler."""

    outputs: ClassVar[int]  # the number of floors
    sampler: Sampler  # draws the variate
    extra_uniforms: int  # how many uniforms are needed besides the sampler's

    @abstractmethod
    def finish(self, variate: Number, extra_uniforms: list[Number], rows: Any, lift: Lift) -> list[Number]:
        """Return the numbers that, rounded down, are the results, for the given rows (indices, or one index)."""


def draw(task: Task, count: int, bits: Bits) -> list[Integers]:
    """Return, for each output of the task, the floors of `count` independent draws.

    Every row has its own bits, so that its result does not depend on the other rows.
    """
    out = [np.zeros(count, np.int64) for _ in range(task.outputs)]
    tier2_results: list[dict[int, int]] = [{} for _ in range(task.outputs)]
    rows, attempt = np.arange(count), 0
    with np.errstate(all="ignore"):  # NaN is never certain, and is left to tier 2
        while rows.size:
            chunks = [rows[start : start + CHUNK] for start in range(0, rows.size, CHUNK)]
            rows = np.concatenate([_attempt(task, some, attempt, bits, out, tier2_results) for some in chunks])
            attempt += 1
    return [_with_tier2_results(floors, more) for floors, more in zip(out, tier2_results, strict=True)]


def _attempt(
    task: Task, rows: Rows, attempt: int, bits: Bits, out: list[Integers], tier2_results: list[dict[int, int]]
) -> Rows:
    """Attempt to draw some rows, and return those whose candidates are rejected."""
    sampler = task.sampler
    words = bits.words(rows, attempt, sampler.uniforms + task.extra_uniforms + sampler.signed)
    if rows.size <= FEW_VALUES:
        places = enumerate(rows.tolist())
        left = [row for i, row in places if not _exactly(task, row, attempt, bits, words[:, i], tier2_results)]
        return np.array(left, np.intp)
    used = list(words[: sampler.uniforms])
    candidate, margins = sampler.attempt([uniform_balls(word) for word in used], used, lift_ball)
    accepted = _accepted(task, margins, words, rows, attempt, bits)
    variate = sampler.variate(candidate, lift_ball)
    if sampler.signed:
        variate = Ball(variate.mid * _signs(words[-1]), variate.rad)
    extra = [uniform_balls(word) for word in words[sampler.uniforms :][: task.extra_uniforms]]
    numbers = task.finish(variate, extra, rows, lift_ball)
    certain = np.ones(rows.size, bool)
    for number, floors in zip(numbers, out, strict=True):
        radius = number.inflated()
        floor = np.floor(number.mid - radius)
        # From 2^50 on the radius is at least 1, so that such floors are left to tier 2.
        certain &= (floor == np.floor(number.mid + radius)) & (radius >= 0)
        # Floors of rejected candidates and uncertain ones are replaced later.
        floors[rows if attempt else slice(rows[0], rows[-1] + 1)] = floor
    for i in np.flatnonzero(accepted & ~certain).tolist():
        _exactly(task, int(rows[i]), attempt, bits, words[:, i], tier2_results)
    rejected: Rows = rows[~accepted]
    return rejected


def _exactly(task: Task, row: int, attempt: int, bits: Bits, words: Words, tier2_results: list[dict[int, int]]) -> bool:
    """Draw a single value by tier 2, which is faster than tier 1 for few values; return whether it was accepted."""
    streams = [Stream(word, bits, row, attempt, place) for place, word in enumerate(words.tolist())]
    uniforms, extra = streams[: task.sampler.uniforms], streams[task.sampler.uniforms :][: task.extra_uniforms]
    sign = float(_signs(words[-1])) if task.sampler.signed else 1.0
    floors = exact_floors(task, uniforms, sign, extra, row)
    for k, floor in enumerate(floors):
        tier2_results[k][row] = floor
    return bool(floors)


def _signs(words: Any) -> Any:
    """Return the signs of words: the lowest bit decides."""
    return (words & np.uint64(1)).astype(np.float64) * 2.0 - 1.0


def _accepted(
    task: Task, margins: list[Ball], words: Words, rows: Rows, attempt: int, bits: Bits
) -> npt.NDArray[np.bool_]:
    """Return which candidates are accepted. Where arrays cannot decide, tier 2 does."""
    good, bad = np.ones(rows.size, bool), np.zeros(rows.size, bool)
    for margin in margins:
        radius = margin.inflated()
        good &= (margin.mid > radius) & (radius >= 0)
        bad |= (margin.mid < -radius) & (radius >= 0)
    for i in np.flatnonzero(~(good | bad)).tolist():
        used = words[: task.sampler.uniforms, i].tolist()
        streams = [Stream(word, bits, int(rows[i]), attempt, place) for place, word in enumerate(used)]
        good[i] = exact_acceptance(task.sampler, streams)
    return good


def _with_tier2_results(floors: Integers, tier2_results: dict[int, int]) -> Integers:
    """Return the floors with the results of tier 2 inserted, as Python integers if any exceeds 64 bits."""
    if any(not -(2**63) <= value < 2**63 for value in tier2_results.values()):
        floors = floors.astype(object)
    for row, value in tier2_results.items():
        floors[row] = value
    return floors


def exact_acceptance(sampler: Sampler, streams: list[Stream]) -> bool:
    """Return whether a candidate is accepted, drawing as many bits as the decision needs."""

    def decide(bits: int) -> bool | None:
        _, margins = sampler.attempt(*_uniforms(streams, bits), lift_arb)
        if any(margin < 0 for margin in margins):
            return False
        return True if all(margin > 0 for margin in margins) else None

    return _decide_with_enough_bits(decide)


def exact_floors(task: Task, streams: list[Stream], sign: float, extra: list[Stream], row: int) -> list[int]:
    """Return the floors for one draw, using as many bits as needed; an empty list if the candidate is rejected."""

    def decide(bits: int) -> list[int] | None:
        candidate, margins = task.sampler.attempt(*_uniforms(streams, bits), lift_arb)
        if any(margin < 0 for margin in margins):
            return []
        if not all(margin > 0 for margin in margins):
            return None
        numbers = task.finish(
            task.sampler.variate(candidate, lift_arb) * sign, _uniforms(extra, bits)[0], row, lift_arb
        )
        floors = [number.floor().unique_fmpz() for number in numbers]
        return None if any(floor is None for floor in floors) else [int(floor) for floor in floors]

    return _decide_with_enough_bits(decide)


def upper_logarithm(formula: Callable[[Lift], Number]) -> float:
    """Return a number that is not below ln |x| of the value x of a formula; NaN if no bound is known."""
    return at_precision(256, lambda: math.nextafter(float(formula(lift_arb).abs_upper().log()), math.inf))


def exact_bounds(formula: Callable[[Lift], Number], unit: Fraction) -> tuple[int, int]:
    """Return two whole numbers of units close to the value of a formula: one not above it and one not below it."""

    def ends() -> tuple[Any, Any]:
        number = formula(lift_arb) * lift_arb(1 / unit)
        return number.lower().floor().unique_fmpz(), number.upper().ceil().unique_fmpz()

    bits = 256
    while True:
        low, high = at_precision(bits, ends)
        if low is not None and high is not None and (high - low <= 2 or bits >= MOST_RANDOM_BITS):
            return int(low), int(high)
        if bits >= MOST_RANDOM_BITS:
            raise SlowscaleError("the ends of an interval", "have too many digits to be computed", code="too-large")
        bits *= 2


# Arb has one working precision for the whole process. A formula may compute constants at another precision.
_ARB_LOCK = threading.RLock()


def _new_lock_after_fork() -> None:
    """Replace the lock in a forked child: a thread that does not exist in the child may hold the inherited one."""
    global _ARB_LOCK
    _ARB_LOCK = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_new_lock_after_fork)


def at_precision(bits: int, formula: Callable[[], T]) -> T:
    """Return the value of a formula of Arb numbers, with this working precision."""
    from flint import ctx

    with _ARB_LOCK, ctx.workprec(bits):
        return formula()


def _decide_with_enough_bits(decide: Callable[[int], T | None]) -> T:
    """Return the decision of `decide` once it is certain, doubling the number of bits each time."""
    bits = 128
    while bits <= MOST_RANDOM_BITS:
        decision = at_precision(bits + 64, partial(decide, bits))
        if decision is not None:
            return decision
        bits *= 2
    raise SlowscaleError("the source of random bits", "does not appear to be random", code="not-random")


def _uniforms(streams: list[Stream], bits: int) -> tuple[list[Number], list[int]]:
    """Return the uniforms as Arb balls with the given number of bits, and their first words."""
    from flint import arb

    balls = []
    for stream in streams:
        value, known = stream.known(bits)
        half = arb(2) ** -(known + 1)
        balls.append(arb((2 * value + 1) * half, half))
    return balls, [stream.word for stream in streams]


def lift_arb(value: int | float | Fraction) -> Number:
    """Return an exact number as an Arb ball."""
    from flint import arb, fmpq

    return arb(fmpq(value.numerator, value.denominator)) if isinstance(value, Fraction) else arb(value)


class Choice:
    """A distribution on 0, 1, 2…: the probability of i is proportional to exp(−costs[i]).

    >>> from slowscale.sampling.bits import Bits
    >>> Choice([Fraction(10**9), Fraction(0), Fraction(10**9)]).draw(Bits.of(None))
    1
    """

    def __init__(self, costs: Sequence[Fraction]) -> None:
        least = min(costs)
        self._costs = [cost - least for cost in costs]
        self._ends: dict[int, list[Number]] = {}  # the cumulative sums of the weights, by the number of bits

    def draw(self, bits: Bits, row: int = 0) -> int:
        """Return one draw, by as many bits of a row as it needs."""
        stream = Stream(int(bits.words(np.array([row]), 0, 1)[0, 0]), bits, row, 0, 0)
        return _decide_with_enough_bits(lambda bits: self._place(stream, bits))

    def _place(self, stream: Stream, bits: int) -> int | None:
        """Return the place of the uniform among the cumulative sums, or None if it is not certain yet."""
        ends = self._cumulative(bits)
        (uniform,), _ = _uniforms([stream], bits)
        at = uniform * ends[-1]
        low, high = 0, len(ends) - 1
        while low < high:
            middle = (low + high) // 2
            if at < ends[middle]:
                high = middle
            elif at > ends[middle]:
                low = middle + 1
            else:
                return None
        return low

    def _cumulative(self, bits: int) -> list[Number]:
        if bits not in self._ends:
            from flint import arb

            weights: dict[Fraction, Any] = {}
            total, ends = arb(0), []
            for cost in self._costs:
                if cost not in weights:
                    weights[cost] = (-lift_arb(cost)).exp()
                total = total + weights[cost]
                ends.append(total)
            self._ends[bits] = ends
        return self._ends[bits]
