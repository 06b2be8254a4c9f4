"""Calibration: one search for every mechanism, target and parameter.

The free parameter is searched outwards from 1 over its whole declared domain, decade by decade, for an interval in
which the target is crossed; the solution is then refined within it. Nothing is assumed about the shape in between, so
a target is reported as out of reach only after the whole domain has been searched.

A tight loss has no closed form, so the search for it starts where the closed form of the policy meets the target, and
needs few evaluations.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from slowscale.core.errors import CalibrationError, ParameterError, ParameterTypeError, ScaleWarning, Shown
from slowscale.core.numbers import format_number
from slowscale.core.parameters import as_number, check_flag, domains, level_quantile
from slowscale.policy import Policy, number
from slowscale.policy.base import PURE

if TYPE_CHECKING:
    from slowscale.mechanisms.base import Mechanism


M = TypeVar("M", bound="Mechanism")

# The largest relative difference from the target that counts as meeting it.
TARGET_TOLERANCE = 1e-9
# How far a tight loss may stay below the target. It is wider, because tight losses are computed to 0.1 % only.
TIGHT_TOLERANCE = 2e-3

# Accountings: the PRzCDP loss of a mechanism m is that of the closed form m.policy, or of m.tight_policy.
CLOSED, TIGHT = "closed", "tight"
ACCOUNTINGS = (CLOSED, TIGHT)
ACCOUNTING = TIGHT  # the default of every `accounting`: the smallest proven loss
# The largest target that the default scale σ = 1 of the polylog is used for. With p = 2, half of the noise is then
# within 1.09 % of the standard deviation; the paper's have up to 7,212. For larger ones the scale must be given.
WIDEST = 1e4
# If half of the noise is within this share of the target, and the scale was not given, the result is reported.
NARROW_SHARE = 0.01
# A standard error that is this many times the size asked for is reported.
MOST_ERROR = 1e12
# A solution that is this many times beyond the typical values of its parameter is reported.
FAR = 1e6
LEVEL = 0.95  # the level of the interval, unless another one is given
# Where the scale of a polylog comes from, in words.
SCALE_GIVEN, SCALE_SOLVED, SCALE_FROM_AT, SCALE_DEFAULT = "as given", "solved for", "from at", "the default"
SCALE_MEANING = (
    "sigma is the size up to which the loss of a record grows in proportion to its size; beyond it, the loss grows "
    "like a power of the logarithm"
)

# Whether mechanisms are built that nobody asked for, so that their parameters are not reported.
_searching: ContextVar[bool] = ContextVar("searching", default=False)


def check_accounting(accounting: Any) -> str:
    """Return the name of an accounting, or raise."""
    if not isinstance(accounting, str) or accounting not in ACCOUNTINGS:
        raise ParameterError(
            "accounting",
            allowed=f'"{TIGHT}", which charges m.tight_policy of a mechanism m, or "{CLOSED}", which charges m.policy',
            given=accounting,
        )
    return accounting


@dataclass(frozen=True)
class Target:
    """The target of a calibration: a standard deviation, a half-width of the interval, or a loss."""

    name: str
    value: float
    at: float | None
    policy: str = CLOSED  # that the loss is one of: CLOSED or TIGHT for a PRzCDP policy, PURE for the PRDP policy
    level: float = LEVEL

    @classmethod
    def of(
        cls,
        mechanism: type["Mechanism"],
        *,
        std: float | None,
        interval: float | None,
        level: float,
        loss: float | None,
        at: float | None,
        pure: bool,
        accounting: str,
    ) -> "Target":
        """Return the target, or raise unless exactly one is given and everything it needs."""
        given = [(n, v) for n, v in (("std", std), ("interval", interval), ("loss", loss)) if v is not None]
        if len(given) != 1:
            raise ParameterTypeError(
                "the target",
                allowed="exactly one of `std`, `interval` and `loss`",
                code="conflict" if given else "missing",
                given=Shown(" and ".join(f"`{name}`" for name, _ in given) or "none"),
            )
        ((name, wanted),) = given
        value = as_number(name, wanted, "a finite number > 0")
        if not 0 < value < math.inf:
            raise ParameterError(name, allowed="a finite number > 0", given=wanted)
        if at is None and (name == "loss" or mechanism._error_grows):
            meaning = "record value that is to have this loss" if name == "loss" else f"sum that is to have this {name}"
            raise ParameterTypeError("at", "is missing", code="missing", remedy=f"give the {meaning}")
        if at is not None and not 0 <= as_number("at", at, "a finite number >= 0") < math.inf:
            raise ParameterError("at", allowed="a finite number >= 0", given=at)
        level_quantile(level)  # raises unless it is a level
        if level != LEVEL and name != "interval":
            given_with = Shown(f"{level} with `{name}`")
            remedy = "remove it"
            raise ParameterTypeError(
                "level", "is used only with `interval`", code="conflict", given=given_with, remedy=remedy
            )
        check_flag("pure", pure)
        check_accounting(accounting)
        if accounting != ACCOUNTING and name != "loss":
            given_with = Shown(f"{accounting!r} with `{name}`")
            remedy = "remove it"
            raise ParameterTypeError(
                "accounting", "is used only with `loss`", code="conflict", given=given_with, remedy=remedy
            )
        if accounting != ACCOUNTING and pure:
            problem = "asks for a PRDP loss, and `accounting` is about PRzCDP losses"
            raise ParameterTypeError("pure", problem, code="conflict", remedy="give one of the two")
        tight = accounting == TIGHT or not mechanism._closed_form
        return cls(name, value, at, PURE if pure else TIGHT if tight and name == "loss" else CLOSED, float(level))

    def achieved(self, mechanism: "Mechanism") -> float:
        """Return the standard deviation, the half-width or the loss that a mechanism has."""
        at: Any = self.at  # None only where the error is constant; a loss is never asked for without a size
        if self.name == "std":
            return float(mechanism.std(at))
        if self.name == "interval":
            low, high = mechanism.prediction_interval(at if mechanism._error_grows else 0.0, self.level)
            return float(high / 2 - low / 2)
        if self.policy == TIGHT:
            # The policy is what is charged. It is read from a curve that takes long to compute, lies at most by its
            # precision above the single values, and never above the closed form. Exact policies have no precision.
            above = 1 + getattr(mechanism.tight_policy, "precision", 0.0)
            return float(min(_closed_form(mechanism)(at), above * mechanism.tight_loss(at)))
        policy = mechanism.pure_policy if self.policy == PURE else _closed_form(mechanism)
        if policy is None:
            problem = f"must be False, because {type(mechanism).__name__} has no PRDP policy"
            raise ParameterTypeError("pure", problem, code="unsupported")
        return float(policy(at))

    def __str__(self) -> str:
        kind = "tight loss" if self.policy == TIGHT else self.name
        return f"{kind} = {number(self.value)}{'' if self.at is None else f' at {number(self.at)}'}"


def _closed_form(mechanism: "Mechanism") -> Policy:
    """Return the policy, or if it is a tight one that is read from a curve, the closed form above it."""
    return mechanism.policy.upper or mechanism.policy


def calibrate(cls: type[M], target: Target, free: str | None, fixed: dict[str, Any]) -> M:
    """Return the mechanism that meets the target; see `Mechanism.calibrate`."""
    free = _free_parameter(cls, free, fixed)
    declared = domains(cls)
    for parameter, value in fixed.items():
        if parameter in declared and not (value is None and declared[parameter].optional):
            declared[parameter].check(parameter, value)
    low, high = cls._range(free, fixed)

    def build(coordinate: float) -> M:
        with without_warnings():
            return cls(**fixed, **{free: min(low + math.exp(coordinate), high)})

    start = None
    if target.policy == TIGHT:
        tried = build(_first(low, high))
        if tried.tight_policy == tried.policy and tried.policy.upper is None:  # the closed form is exact
            target = replace(target, policy=CLOSED)
    if target.policy == TIGHT:
        with suppress(CalibrationError):  # a tight loss may be in reach although the closed form is not
            start = _solve(cls, replace(target, policy=CLOSED), free, build, low, high)
    return build(_solve(cls, target, free, build, low, high, start))


def check_default_scale(target: Target) -> None:
    """Raise if a target for the error is too large for the default scale 1 of the polylog, which was not given."""
    if target.name != "loss" and target.value > WIDEST:
        raise ParameterError(
            target.name,
            f"is too large for the default scale `sigma` = 1, which is used up to {WIDEST:,.0f}: most of the noise "
            "would be tiny, and a little of it huge",
            code="too-large",
            given=Shown(format_number(target.value)),
            remedy="give `sigma`, about the size of a typical record, or `at`, which sigma is then set to. "
            f"({SCALE_MEANING[0].upper()}{SCALE_MEANING[1:]}.)",
        )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Build mechanisms without reports on their parameters: in a search, or where they are read back."""
    token = _searching.set(True)
    try:
        yield
    finally:
        _searching.reset(token)


def _too_large(mechanism: "Mechanism") -> Iterator[tuple[str, str]]:
    """Yield the parameters above the usual values that are declared for them, each with the fact in words."""
    for name, domain in domains(type(mechanism)).items():
        if domain.most_usual < math.inf and getattr(mechanism, name) > domain.most_usual:
            yield (
                name,
                f"{name} = {number(getattr(mechanism, name))} of {mechanism} is far above usual values, which are at "
                f"most {number(domain.most_usual)}: the noise is much smaller than its scale",
            )


def _without_moments(mechanism: "Mechanism") -> Iterator[str]:
    """Yield a sentence on the moments that the noise does not have, if there are such."""
    if missing := mechanism._missing_moments:
        yield (
            f"the noise of {mechanism} has {missing}: some results will be wrong by very much, and averages of results "
            "do not settle. The intervals are valid. Use a larger d or p, another noise, or another mechanism"
        )


def report_unusual(mechanism: "Mechanism", stacklevel: int) -> None:
    """Warn of parameters above usual values and of missing moments, unless the mechanism is only tried."""
    if _searching.get():
        return
    for words in _without_moments(mechanism):
        warnings.warn(words, ScaleWarning, stacklevel=stacklevel + 1)
    for name, words in _too_large(mechanism):
        remedy = f"{name} is not a standard deviation; for one, give std and at instead"
        warnings.warn(f"{words}. {remedy}", ScaleWarning, stacklevel=stacklevel + 1)


def calibration_warnings(
    found: "Mechanism", target: Target, free: str | None, fixed: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the first warning about the result of a calibration, if there is one."""
    solved = _free_parameter(type(found), free, dict(fixed))
    source = found._scale_source(fixed, target, free)
    sigma = float(getattr(found, "sigma", math.nan))
    size = 0.0 if target.at is None else float(target.at)
    if size > 0:
        with np.errstate(over="ignore", invalid="ignore"):  # noise beyond all floats is reported as well
            error = float(found.std(size))
            if not math.isfinite(error):
                low, high = found.prediction_interval(size, LEVEL)
                error = float(high / 2 - low / 2)
        if error > MOST_ERROR * size:
            ask = "a larger loss" if target.name == "loss" else f"a smaller {target.name}"
            scale = ", or give a larger scale sigma" if source == SCALE_DEFAULT else ""
            yield (
                f"the noise of {found} is absurdly large: its standard error is {format_number(error)} for a size of "
                f"{format_number(size)}. Ask for {ask}{scale}, or use another mechanism"
            )
            return
    if source in (SCALE_FROM_AT, SCALE_DEFAULT) and target.name != "loss":
        half = found.prediction_interval(0.0, 0.5)[1]
        if half < NARROW_SHARE * target.value:
            yield (
                f"{target.name} = {format_number(target.value)} comes from a little noise that is huge: with the scale "
                f"sigma = {format_number(sigma)}, {source}, half of the noise is within ±{format_number(half)}, less "
                "than 1 % of the target. Give sigma, about the size of a typical record, or a larger at for it"
            )
            return
    if target.name == "interval" and found._error_grows:
        low, high = found.prediction_interval(size, target.level)
        if not low <= size <= high:
            yield (
                f"the interval of {found} at the level {number(target.level)} for a sum of {format_number(size)} is "
                f"from {format_number(low)} to {format_number(high)}, and does not contain the sum itself: half of its "
                "length is the target, but results are not near the sum. Ask for a smaller interval or a higher level, "
                'or use estimator="median"'
            )
            return
    for words in _without_moments(found):
        yield words
        return
    for _, words in _too_large(found):
        yield (
            f"{words}{'' if source is None else f', sigma = {format_number(sigma)} ({source})'}. Give a smaller scale, "
            "about the size of a typical record, or check the target"
        )
        return
    domain = domains(type(found)).get(solved)
    if domain is None:
        return
    value, (low, high) = float(getattr(found, solved)), domain.typical
    if value > FAR * high or (low > 0 and value < low / FAR):
        yield (
            f"{solved} = {number(value)} of {found} is far from usual values, {number(low)} to {number(high)}; check "
            "the target and the other parameters"
        )


def _solve(
    cls: type[M],
    target: Target,
    free: str,
    build: Callable[[float], M],
    low: float,
    high: float,
    start: float | None = None,
) -> float:
    """Return the coordinate ln(value − low) of the free parameter that meets the target, searched from `start` on."""

    @cache
    def excess(coordinate: float) -> float:
        """Return ln(achieved/target), clipped so that infinite and zero values keep their sign."""
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # at the ends of the range
                value = target.achieved(build(coordinate))
        except ParameterError:  # floats cannot represent a mechanism with these parameters
            return math.nan
        if math.isnan(value):
            return math.nan
        ratio = value / target.value  # its logarithm has the right sign even if value and target are neighbours
        return min(700.0, math.log(ratio)) if ratio > 0 else -700.0

    target.achieved(build(_first(low, high)))  # raises if a value in `fixed`, or `at`, is not allowed
    coordinates, first = _decades(high - low, start), start or 0.0
    if target.name == "interval" and cls._error_grows and free == "sigma":
        coordinates = _up_to_the_first(excess, coordinates)
        first = coordinates[0]
    refine = _refine_below if target.policy == TIGHT else _refine
    attempts: list[float] = []
    for left, right in _crossings(excess, coordinates, first):
        solution, met = refine(excess, left, right)
        if met:
            return solution
        attempts.append(solution)
    if attempts:
        others = ", ".join(name for name in cls._free if name != free)
        nearest = target.achieved(build(min(attempts, key=lambda solution: abs(excess(solution)))))
        raise CalibrationError(
            target.name,
            f"cannot be met by {cls.__name__}: it jumps between two neighbouring values of {free}, and {nearest:.10g} "
            "is the nearest",
            code="jump",
            given=Shown(number(target.value)),
            remedy=f"solve for another parameter with `free`, one of {others}" if others else None,
        )
    seen = [value for value in map(excess, coordinates) if not math.isnan(value)]
    raise CalibrationError(
        target.name,
        f"cannot be met by {cls.__name__} with {free} > {number(low)}"
        f"{('' if high == math.inf else f' and <= {number(high)}')}: {_attainable(target, min(seen), max(seen))}",
        code="unreachable",
        given=Shown(target),
    )


def _first(low: float, high: float) -> float:
    """Return the coordinate that is tried first."""
    return min(0.0, math.log(high - low))


def _refine(excess: Callable[[float], float], left: float, right: float) -> tuple[float, bool]:
    """Return the place between two points at which the target is crossed, and whether it is met there."""
    from scipy.optimize import brentq

    solution = left if left == right else float(brentq(excess, left, right, xtol=1e-15, rtol=1e-15))
    return solution, abs(excess(solution)) <= TARGET_TOLERANCE


def _refine_below(excess: Callable[[float], float], left: float, right: float) -> tuple[float, bool]:
    """Return the place nearest to the crossing at which the target is not exceeded, and whether it is met there.

    A tight loss may jump by its own precision, so the sides of the crossing differ.
    """
    from scipy.optimize import brentq

    tried = [left, right]

    def recorded(x: float) -> float:
        tried.append(x)
        return excess(x)

    if left != right:
        # The root is not used: of the places that were tried, the result is the best one that keeps the promise.
        brentq(recorded, left, right, xtol=1e-7, rtol=1e-12)
    solution = max((x for x in tried if excess(x) <= 0), key=excess)
    return solution, excess(solution) >= -TIGHT_TOLERANCE


def _free_parameter(cls: type["Mechanism"], free: str | None, fixed: dict[str, Any]) -> str:
    """Return the name of the parameter to solve for, or raise unless all others are given or have a default."""
    parameters = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    for name in fixed:
        if name not in parameters:
            problem = f"is not a parameter of {cls.__name__}"
            remedy = f"choose among {', '.join(parameters)}"
            raise ParameterTypeError(name, problem, code="unknown-name", allowed=tuple(parameters), remedy=remedy)
    candidates = [name for name in cls._free if name not in fixed]
    if not candidates:
        remedy = f"drop {' or '.join(f'`{name}`' for name in cls._free)}"
        raise ParameterTypeError(f"no parameter of {cls.__name__}", "is left to solve for", code="fixed", remedy=remedy)
    if free is None:
        free = candidates[0]
    if free not in candidates:
        raise ParameterTypeError("free", allowed=tuple(candidates), given=free)
    for name, f in parameters.items():
        if f.default is MISSING and name not in fixed and name != free:
            raise ParameterTypeError(name, "is missing", code="missing", remedy=f"give it to solve for `{free}`")
    return free


def _decades(room: float, start: float | None = None) -> list[float]:
    """Return the logs of the distances from the lower end to evaluate: half-decades, and wider steps far out."""
    decades = [*range(-300, -40, 5), *(i / 2 for i in range(-80, 81)), *range(45, 301, 5)]
    top = math.log(min(room, 1e300))
    found = {math.log(10) * i for i in decades if math.log(10) * i < top} | {top}
    return sorted(found if start is None else found | {min(start, top)})


def _crossings(
    excess: Callable[[float], float], coordinates: list[float], start: float = 0.0
) -> Iterator[tuple[float, float]]:
    """Yield the intervals in which the target is crossed, those nearest to the start first."""
    intervals = sorted(pairwise(coordinates), key=lambda ends: abs(ends[0] + ends[1] - 2 * start))
    for left, right in intervals:
        if excess(left) == 0 or excess(right) == 0:
            yield (left, left) if excess(left) == 0 else (right, right)
        elif excess(left) * excess(right) < 0:
            yield left, right


def _up_to_the_first(excess: Callable[[float], float], known: list[float]) -> list[float]:
    """Return coordinates of σ up to the first at which an interval is long enough; if none is, up to the longest one.

    The interval of a transformation is proportional to σ while σ is small. With the mean-unbiased estimator it can
    shrink again for large σ, while it moves away from the sum: the log, for instance, has intervals of any length far
    below the sum. The first solution is wanted, so local peaks between the coordinates are added.
    """
    places: list[float] = []
    for after in known[_proportional(excess, known) :]:
        if math.isnan(excess(after)):
            continue
        places.append(after)
        if len(places) > 2 and excess(places[-3]) <= excess(places[-2]) >= excess(after):
            places.insert(-1, _peak(excess, places[-3], after))
            places.sort()
        if excess(places[0]) < 0 <= max(map(excess, places[-3:])):
            return places
    every = sorted({*(x for x in known if not math.isnan(excess(x))), *places})
    return every[: 1 + max(range(len(every)), key=lambda i: excess(every[i]))]


def _proportional(excess: Callable[[float], float], known: list[float]) -> int:
    """Return the index of a coordinate below which the target is not met, because lengths are proportional to σ."""
    start = min(range(len(known)), key=lambda i: abs(known[i]))
    for i in range(start, 0, -1):
        step = known[i] - known[i - 1]
        if excess(known[i]) < 0 and abs(excess(known[i]) - excess(known[i - 1]) - step) < 1e-3 * step:
            return i - 1
    return 0


def _peak(excess: Callable[[float], float], left: float, right: float) -> float:
    """Return the place between two others at which the excess is largest."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(lambda x: -excess(x), bounds=(left, right), method="bounded", options={"xatol": 1e-9})
    return float(found.x)


def _attainable(target: Target, lowest: float, highest: float) -> str:
    """Return in words which values can be met, given the least and the largest ln(achieved/target)."""
    low, high = target.value * math.exp(lowest), target.value * math.exp(min(highest, 600))
    if lowest == highest:
        return f"the only {target.name} possible is {0 if lowest == -700 else number(low)}"
    if lowest <= -700 or low < 1e-12 * target.value:
        return f"the largest {target.name} possible is {number(high)}"
    if high > 1e12 * target.value:
        return f"the smallest {target.name} possible is {number(low)}"
    return f"the {target.name} can be from {number(low)} to {number(high)}"


def charged_policy(mechanism: "Mechanism", accounting: str) -> Policy:
    """Return what a record loses through a mechanism by an accounting: every charge and every preview uses this.

    >>> from slowscale import Gaussian
    >>> charged_policy(Gaussian(sigma=10), "tight") == Gaussian(sigma=10).policy  # it is tight already
    True
    """
    return mechanism.tight_policy if accounting == TIGHT else mechanism.policy


def closed_form(mechanism: "Mechanism | None", accounting: str) -> Policy | None:
    """Return the closed form of a mechanism, for comparison, if an accounting charges another policy; else None."""
    if mechanism is None or accounting != TIGHT or mechanism.tight_policy == mechanism.policy:
        return None
    return mechanism.policy


def notion_in_words(notion: str, accounting: str) -> str:
    """Return a privacy notion, with the accounting if it is not the default: "PRzCDP, closed-form accounting"."""
    return notion if accounting == ACCOUNTING else f"{notion}, {accounting_in_words(accounting)}"


def accounting_in_words(accounting: str) -> str:
    """Return the name of an accounting in a sentence: "tight accounting" or "closed-form accounting"."""
    return f"{'closed-form' if accounting == CLOSED else accounting} accounting"
