"""Calibration: one search for every mechanism, target and parameter.

The free parameter is searched outwards from 1 over its whole declared domain, decade by decade, for an interval in
which the target is crossed; the solution is then refined within it. Nothing is assumed about the shape in between, so
a target is reported as out of reach only after the whole domain has been searched.

A tight loss has no closed form, so the search for it starts where the closed form of the policy meets the target, and
needs few evaluations.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from slowscale.errors import CalibrationError, ParameterError, ParameterTypeError
from slowscale.figures import figure
from slowscale.parameters import as_number, check_flag, domains, level_quantile
from slowscale.policy import Policy, number
from slowscale.policy.base import PURE

if TYPE_CHECKING:
    from slowscale.mechanisms.base import Mechanism

M = TypeVar("M", bound="Mechanism")

# The largest relative difference from the target that counts as meeting it.
TARGET_TOLERANCE = 1e-9
# How far a tight loss may stay below the target. It is wider, because tight losses are computed to 0.1 % only.
TIGHT_TOLERANCE = 2e-3

CLOSED, TIGHT = "closed", "tight"  # which PRzCDP policy the target loss is one of; or PURE for the PRDP policy
POLICIES = (CLOSED, TIGHT)
# A target that is this many times the scale, if the scale was not given, is reported. The paper's have up to 7,212.
WIDEST = 1e5
# A standard error that is this many times the size asked for is reported.
MOST_ERROR = 1e12
# A solution that is this many times beyond the typical values of its parameter is reported.
FAR = 1e6
LEVEL = 0.95  # the level of the interval, unless another one is given


@dataclass(frozen=True)
class Target:
    """What a mechanism is to achieve: a standard deviation, a half-width of its interval, or a loss."""

    name: str
    value: float
    at: float | None
    policy: str = CLOSED
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
        policy: str,
    ) -> "Target":
        """Return the target, or raise unless exactly one is given and everything it needs."""
        given = [(n, v) for n, v in (("std", std), ("interval", interval), ("loss", loss)) if v is not None]
        if len(given) != 1:
            raise ParameterTypeError("give one target: std=…, interval=… or loss=…")
        ((name, wanted),) = given
        value = as_number(name, wanted, "a finite number > 0")
        if not 0 < value < math.inf:
            raise ParameterError(f"{name} must be a finite number > 0, got {wanted}")
        if at is None and (name == "loss" or mechanism._error_grows):
            meaning = "record value that is to have this loss" if name == "loss" else f"sum that is to have this {name}"
            raise ParameterTypeError(f"at must be given: the {meaning}")
        level_quantile(level)  # raises unless it is a level
        if level != LEVEL and name != "interval":
            raise ParameterTypeError(f"level is used only with interval=…, got level={level} with {name}=…; remove it")
        check_flag("pure", pure)
        if policy not in POLICIES:
            raise ParameterError(f"policy must be {' or '.join(map(repr, POLICIES))}, got {policy!r}")
        if policy == TIGHT and name != "loss":
            raise ParameterTypeError(f"policy={TIGHT!r} is used only with loss=…, got {name}=…; remove policy")
        if policy == TIGHT and pure:
            raise ParameterTypeError(
                f"policy={TIGHT!r} is a PRzCDP policy, but pure=True asks for a PRDP loss; give one of the two"
            )
        tight = policy == TIGHT or not (mechanism._closed_form or pure)
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
            raise ParameterTypeError(f"pure must be False: {type(mechanism).__name__} has no PRDP policy")
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
        return cls(**fixed, **{free: min(low + math.exp(coordinate), high)})

    start = None
    if target.policy == TIGHT:
        with suppress(CalibrationError):  # a tight loss may be in reach although the closed form is not
            start = _solve(cls, replace(target, policy=CLOSED), free, build, low, high)
    return build(_solve(cls, target, free, build, low, high, start))


def doubts(found: "Mechanism", target: Target, free: str | None, fixed: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is strange about the result of a calibration, in words."""
    solved = _free_parameter(type(found), free, dict(fixed))
    default = {f.name: f.default for f in fields(found)}.get("sigma", MISSING)  # type: ignore[arg-type]
    sigma, unstated = float(getattr(found, "sigma", math.nan)), "sigma" not in fixed and solved != "sigma"
    is_default = unstated and default == sigma
    if is_default and target.name != "loss" and target.value > WIDEST * sigma:
        half = found.prediction_interval(0.0, 0.5)[1]
        yield (
            f"{target.name} = {number(target.value)} is {figure(target.value / sigma)} times the scale sigma = "
            f"{number(sigma)}, which was not given: half of the noise is then within ±{figure(half)}, and a little of "
            "it is huge. Give sigma, about the size of a typical record, or at, which sigma is then set to"
        )
        return
    size = 0.0 if target.at is None else float(target.at)
    if size > 0:
        with np.errstate(over="ignore", invalid="ignore"):  # noise beyond all floats is reported as well
            error = float(found.std(size))
            if not math.isfinite(error):
                low, high = found.prediction_interval(size, LEVEL)
                error = float(high / 2 - low / 2)
        if error > MOST_ERROR * size:
            scale = ", or give a larger scale sigma" if is_default else ""
            yield (
                f"the noise of {found} is absurdly large: its standard error is {figure(error)} for a size of "
                f"{figure(size)}. Ask for a larger loss{scale}, or use another mechanism"
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

    target.achieved(build(min(0.0, math.log(high - low))))  # raises if a value in `fixed`, or `at`, is not allowed
    coordinates = _decades(high - low, start)
    refine = _refine_below if target.policy == TIGHT else _refine
    attempts: list[float] = []
    for left, right in _crossings(excess, coordinates, start or 0.0):
        solution, met = refine(excess, left, right)
        if met:
            return solution
        attempts.append(solution)
    if attempts:
        nearest = target.achieved(build(min(attempts, key=lambda solution: abs(excess(solution)))))
        raise CalibrationError(
            f"{target.name} = {number(target.value)} cannot be met by {cls.__name__}: between two neighbouring values "
            f"of {free} it jumps, and {nearest:.10g} is the nearest. Solve for another parameter with free=…, "
            f"one of {', '.join(n for n in cls._free if n != free)}"
        )
    seen = [value for value in map(excess, coordinates) if not math.isnan(value)]
    raise CalibrationError(
        f"{target} cannot be met by {cls.__name__} with {free} > {number(low)}"
        f"{'' if high == math.inf else f' and <= {number(high)}'}: "
        f"{_attainable(target, min(seen), max(seen))}"
    )


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
            raise ParameterTypeError(f"{cls.__name__} has no parameter {name!r}; it has {', '.join(parameters)}")
    candidates = [name for name in cls._free if name not in fixed]
    if not candidates:
        raise ParameterTypeError(f"no parameter of {cls.__name__} is left to solve for: drop {' or '.join(cls._free)}")
    if free is None:
        free = candidates[0]
    if free not in candidates:
        raise ParameterTypeError(f"free must be one of {', '.join(candidates)}, got {free!r}")
    for name, f in parameters.items():
        if f.default is MISSING and name not in fixed and name != free:
            raise ParameterTypeError(f"{cls.__name__}.calibrate needs {name}=… to solve for {free}")
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
