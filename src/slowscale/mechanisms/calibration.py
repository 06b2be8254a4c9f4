"""Calibration: one search for every mechanism, target and parameter.

The free parameter is searched outwards from 1 over its whole declared domain, decade by decade, for an interval in
which the target is crossed; the solution is then refined within it. Nothing is assumed about the shape in between, so
a target is reported as out of reach only after the whole domain has been searched.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from slowscale.errors import CalibrationError, ParameterError, ParameterTypeError
from slowscale.parameters import as_number, check_flag, domains
from slowscale.policy import number

if TYPE_CHECKING:
    from slowscale.mechanisms.base import Mechanism

M = TypeVar("M", bound="Mechanism")

# The largest relative difference from the target that counts as meeting it.
TARGET_TOLERANCE = 1e-9


def calibrate(
    cls: type[M],
    std: float | None,
    loss: float | None,
    at: float | None,
    pure: bool,
    free: str | None,
    fixed: dict[str, Any],
) -> M:
    """Return the mechanism that meets the target; see `Mechanism.calibrate`."""
    target = _checked_target(cls, std, loss, at, pure)
    free = _free_parameter(cls, free, fixed)
    declared = domains(cls)
    for parameter, value in fixed.items():
        if parameter in declared and not (value is None and declared[parameter].optional):
            declared[parameter].check(parameter, value)
    low, high = cls._range(free, fixed)

    def build(coordinate: float) -> M:
        return cls(**fixed, **{free: min(low + math.exp(coordinate), high)})

    @cache
    def excess(coordinate: float) -> float:
        """Return ln(achieved/target), clipped so that infinite and zero values keep their sign."""
        try:
            value = target.achieved(build(coordinate))
        except ParameterError:  # floats cannot represent a mechanism with these parameters
            return math.nan
        return min(700.0, math.log(value) - math.log(target.value)) if value > 0 else -700.0

    target.achieved(build(min(0.0, math.log(high - low))))  # raises if a value in `fixed`, or `at`, is not allowed
    coordinates = _decades(high - low)
    attempts: list[float] = []
    for left, right in _crossings(excess, coordinates):
        from scipy.optimize import brentq

        solution = left if left == right else brentq(excess, left, right, xtol=1e-15, rtol=1e-15)
        if abs(excess(solution)) <= TARGET_TOLERANCE:
            return build(solution)
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


@dataclass(frozen=True)
class _Target:
    """What a mechanism is to achieve: a standard deviation, or a loss."""

    name: str
    value: float
    at: float | None
    pure: bool

    def achieved(self, mechanism: "Mechanism") -> float:
        """Return the standard deviation or the loss that a mechanism has."""
        if self.name == "std":
            return float(mechanism.std(self.at))  # type: ignore[arg-type] # None where the error is constant
        policy = mechanism.pure_policy if self.pure else mechanism.policy
        if policy is None:
            raise ParameterTypeError(f"pure must be False: {type(mechanism).__name__} has no PRDP policy")
        return float(policy(self.at))  # type: ignore[arg-type] # a loss is never asked for without a size

    def __str__(self) -> str:
        return f"{self.name} = {number(self.value)}{'' if self.at is None else f' at {number(self.at)}'}"


def _checked_target(
    cls: type["Mechanism"], std: float | None, loss: float | None, at: float | None, pure: bool
) -> _Target:
    """Return the target, or raise unless exactly one is given and everything it needs."""
    if (std is None) == (loss is None):
        raise ParameterTypeError("give one target: std=… or loss=…")
    name, wanted = ("std", std) if loss is None else ("loss", loss)
    value = as_number(name, wanted, "a finite number > 0")
    if not 0 < value < math.inf:
        raise ParameterError(f"{name} must be a finite number > 0, got {wanted}")
    if at is None and (name == "loss" or cls._error_grows):
        meaning = "record value that is to have this loss" if name == "loss" else "sum that is to have this std"
        raise ParameterTypeError(f"at must be given: the {meaning}")
    check_flag("pure", pure)
    return _Target(name, value, at, pure)


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


def _decades(room: float) -> list[float]:
    """Return the logs of the distances from the lower end to evaluate: half-decades, and wider steps far out."""
    decades = [*range(-300, -40, 5), *(i / 2 for i in range(-80, 81)), *range(45, 301, 5)]
    top = math.log(min(room, 1e300))
    return [math.log(10) * i for i in decades if math.log(10) * i < top] + [top]


def _crossings(excess: Callable[[float], float], coordinates: list[float]) -> Iterator[tuple[float, float]]:
    """Yield the intervals in which the target is crossed, those nearest to 0 first."""
    intervals = sorted(pairwise(coordinates), key=lambda ends: abs(ends[0] + ends[1]))
    for left, right in intervals:
        if excess(left) == 0 or excess(right) == 0:
            yield (left, left) if excess(left) == 0 else (right, right)
        elif excess(left) * excess(right) < 0:
            yield left, right


def _attainable(target: _Target, lowest: float, highest: float) -> str:
    """Return in words which values can be met, given the least and the largest ln(achieved/target)."""
    low, high = target.value * math.exp(lowest), target.value * math.exp(min(highest, 600))
    if lowest == highest:
        return f"the only {target.name} possible is {0 if lowest == -700 else number(low)}"
    if lowest <= -700 or low < 1e-12 * target.value:
        return f"the largest {target.name} possible is {number(high)}"
    if high > 1e12 * target.value:
        return f"the smallest {target.name} possible is {number(low)}"
    return f"the {target.name} can be from {number(low)} to {number(high)}"
