"""Protecting values: what a record loses that is known to be there (Appendix "Protecting Values").

Bounded neighbours differ in one record's value. For a sum the loss between two values of a record is exact: the
transformed sums differ most when the record is alone (Lemma BndSensTransSum), and additive noise sees the difference
of the values only (Lemma BndSensGlobalSum).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.parameters import Array, as_array, as_number, check_flag, check_range, evaluate
from slowscale.policy import MaxPolicy, Policy, RootPolicy, SumPolicy, TransformingPolicy, number


@dataclass(frozen=True)
class BoundedPolicy:
    """The loss between a record's value r and another value it might have.

    With `add` the other value is r + add, with `times` it is times·r, with neither both are given: `policy(r, other)`.
    `loose=True` gives the simpler upper bounds of Table metric-mechSummaryNew instead of the exact loss.

    >>> from slowscale.policy import LogPolicy
    >>> P = BoundedPolicy(LogPolicy(sigma=0.5), times=1.1)
    >>> round(P(100), 5), round(BoundedPolicy(LogPolicy(sigma=0.5), times=1.1, loose=True)(100), 5)
    (0.01783, 0.01817)
    >>> print(P)
    (ln(r + 1) − ln(1.1·r + 1))² / (2·0.5²)
    """

    policy: Policy
    add: float | None = None
    times: float | None = None
    loose: bool = False

    def __post_init__(self) -> None:
        """Check that at most one kind of change is given, and that it is a number."""
        if not isinstance(self.policy, Policy):
            raise ParameterTypeError(f"policy must be a policy, got {self.policy!r}")
        if self.add is not None and self.times is not None:
            raise ParameterError("give add or times, not both")
        for name in ("add", "times"):
            if (value := getattr(self, name)) is not None:
                change = as_number(name, value)
                if not math.isfinite(change):
                    raise ParameterError(f"{name} must be a finite number, got {value}")
                object.__setattr__(self, name, change)
        check_flag("loose", self.loose)
        if self.loose and not self._fixed:
            raise ParameterError("loose bounds exist for a given add or times only")

    @property
    def _fixed(self) -> bool:
        return self.add is not None or self.times is not None

    @property
    def notion(self) -> str:
        """The privacy notion the values are in, for bounded neighbours."""
        return f"bounded {self.policy.notion}"

    def __call__(self, value: Any, other: Any = None) -> Any:
        """Return the loss between a record of this value and one of the other value."""
        if self._fixed:
            if other is not None:
                raise ParameterTypeError("other must not be given: add or times already says what it is")
            return evaluate("value", value, self._changed)
        if other is None:
            raise ParameterTypeError("other must be given: the value the record might have instead")
        first, second = np.broadcast_arrays(as_array("value", value), as_array("other", other))
        check_range("value", first)
        check_range("other", second)
        gap = np.broadcast_to(np.abs(_difference(value, other)), first.shape)
        with np.errstate(over="ignore", under="ignore"):
            losses = self.policy._between(np.atleast_1d(np.minimum(first, second)), np.atleast_1d(gap))
        return losses if first.ndim else float(losses[0])

    def _changed(self, value: Array) -> Array:
        return _loose(self, self.policy, value) if self.loose else self.policy._between(*self._low_and_gap(value))

    def _low_and_gap(self, value: Array) -> tuple[Array, Array]:
        """Return the lower of the two values and their distance, which is not their rounded difference."""
        if self.add is not None:
            return value + min(self.add, 0.0), np.full_like(value, abs(self.add))
        assert self.times is not None
        return np.minimum(value, value * self.times), np.abs(value) * abs(self.times - 1)

    def __str__(self) -> str:
        return _text(self, self.policy)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `BoundedPolicy.from_dict` turns back into an equal policy."""
        return {"policy": self.policy.to_dict(), "add": self.add, "times": self.times, "loose": self.loose}

    @staticmethod
    def from_dict(description: dict[str, Any], **options: Any) -> "BoundedPolicy":
        """Return the bounded policy that `to_dict` described; options are those of `Policy.from_dict`."""
        names = {"policy", "add", "times", "loose"}
        if not isinstance(description, dict) or set(description) != names:
            raise ParameterError(
                f"description must have the entries {', '.join(sorted(names))}, got {description!r:.80}"
            )
        return BoundedPolicy(**{**description, "policy": Policy.from_dict(description["policy"], **options)})


def _difference(value: Any, other: Any) -> Array:
    """Return value − other, exactly for whole numbers, Decimals and Fractions however large."""
    first, second = np.asarray(value), np.asarray(other)
    if first.dtype.kind == second.dtype.kind == "f":
        return np.asarray(first - second, float)
    exact = np.frompyfunc(lambda a, b: float(Fraction(a) - Fraction(b)), 2, 1)
    return np.asarray(exact(first.astype(object), second.astype(object)), float)


def _loose(change: BoundedPolicy, policy: Policy, value: Array) -> Array:
    """Return the starred bounds of Table metric-mechSummaryNew, which leave out the offset a of a root."""
    if isinstance(policy, SumPolicy | MaxPolicy):
        return policy._combine([_loose(change, term, value) for term in policy.terms])
    low, gap = change._low_and_gap(value)
    if not isinstance(policy, TransformingPolicy) or policy == RootPolicy(1, policy.sigma):
        return policy._between(low, gap)
    if change.times is not None and change.times < 0:
        raise ParameterError(f"times must be >= 0 under a transformation mechanism, got {change.times:g}")
    check_range("value (also the changed one)", low, 0)
    return _without_offset(policy)._loss(gap) if change.times is None else policy._loose_times(value, change.times)


def _text(change: BoundedPolicy, policy: Policy) -> str:
    if isinstance(policy, SumPolicy | MaxPolicy):
        return policy._join([_text(change, term) for term in policy.terms])
    if change.add is not None:
        if change.loose and isinstance(policy, TransformingPolicy):
            return _without_offset(policy)._text(number(abs(change.add)))
        sign = "+" if change.add >= 0 else "−"
        return policy._between_text("r", f"r {sign} {number(abs(change.add))}", number(abs(change.add)))
    if change.times is None:
        return policy._between_text("r", "r'", "|r − r'|")
    if change.loose and isinstance(policy, TransformingPolicy):
        return policy._loose_times_text(change.times)
    return policy._between_text("r", f"{number(change.times)}·r", f"{number(abs(1 - change.times))}·r")


def _without_offset(policy: Policy) -> Policy:
    return RootPolicy(policy.k, policy.sigma) if isinstance(policy, RootPolicy) else policy
