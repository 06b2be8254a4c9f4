"""Protecting values: the loss of a record whose presence is known (Appendix "Protecting Values").

Bounded neighbours differ in one record's value. For a sum the loss between two values of a record is exact: the
transformed sums differ most when the record is alone (Lemma BndSensTransSum), and additive noise sees the difference
of the values only (Lemma BndSensGlobalSum).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, overload

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.parameters import Array, as_array, as_number, check_entries, check_flag, check_range, evaluate
from slowscale.core.typing import ArrayLike, Scalar
from slowscale.policy import Policy
from slowscale.policy.tree import Absolute, Difference, Formula, Number, Product, Shift, Symbol
from slowscale.policy.writing import latex, text


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
            raise ParameterTypeError(
                "policy", allowed="a Policy such as ss.Gaussian(sigma=10).policy", given=self.policy
            )
        if self.add is not None and self.times is not None:
            raise ParameterError("add", "and `times` exclude each other", code="conflict", remedy="give one of them")
        for name in ("add", "times"):
            if (value := getattr(self, name)) is not None:
                change = as_number(name, value)
                if not math.isfinite(change):
                    raise ParameterError(name, allowed="a finite number", given=value)
                object.__setattr__(self, name, change)
        check_flag("loose", self.loose)
        if self.loose and not self._fixed:
            raise ParameterError("loose", "needs `add` or `times`", code="missing", remedy="give one of them")

    @property
    def _fixed(self) -> bool:
        return self.add is not None or self.times is not None

    @property
    def notion(self) -> str:
        """The privacy notion the values are in, for bounded neighbours."""
        return f"bounded {self.policy.notion}"

    @overload
    def __call__(self, value: Scalar, other: Scalar | None = None) -> float: ...

    @overload
    def __call__(self, value: ArrayLike, other: Scalar | ArrayLike | None = None) -> Array: ...

    @overload
    def __call__(self, value: Scalar, other: ArrayLike) -> Array: ...

    def __call__(self, value: Scalar | ArrayLike, other: Scalar | ArrayLike | None = None) -> float | Array:
        """Return the loss between a record of this value and one of the other value."""
        if self._fixed:
            if other is not None:
                raise ParameterTypeError(
                    "other", "is determined by `add` or `times`", code="conflict", remedy="remove it"
                )
            return evaluate("value", value, self._changed)
        if other is None:
            remedy = "give the value that the record might have instead"
            raise ParameterTypeError("other", "is missing", code="missing", remedy=remedy)
        first, second = np.broadcast_arrays(as_array("value", value), as_array("other", other))
        check_range("value", first)
        check_range("other", second)
        gap = np.broadcast_to(np.abs(_difference(value, other)), first.shape)
        with np.errstate(over="ignore", under="ignore"):
            losses = self.policy._between(np.atleast_1d(np.minimum(first, second)), np.atleast_1d(gap))
        return losses if first.ndim else float(losses[0])

    def _changed(self, value: Array) -> Array:
        low, gap = self._low_and_gap(value)
        return self.policy._loose(value, low, gap, self.times) if self.loose else self.policy._between(low, gap)

    def _low_and_gap(self, value: Array) -> tuple[Array, Array]:
        """Return the lower of the two values and their distance, which is not their rounded difference."""
        if self.add is not None:
            return value + min(self.add, 0.0), np.full_like(value, abs(self.add))
        assert self.times is not None
        return np.minimum(value, value * self.times), np.abs(value) * abs(self.times - 1)

    def __str__(self) -> str:
        return text(self.formula())

    def _repr_latex_(self) -> str:
        return f"${latex(self.formula())}$"

    def formula(self) -> Formula:
        """Return the loss between the values r and r', or r and its change, as a tree."""
        value = Symbol("r")
        ends: tuple[Formula, Formula, Formula]  # the value, the other one, and their distance
        if self.add is not None:
            ends = value, Shift(value, self.add), Number(abs(self.add))
        elif self.times is not None:
            ends = value, Product(Number(self.times), value), Product(Number(abs(1 - self.times)), value)
        else:
            other = Symbol("r'")
            ends = value, other, Absolute(Difference(value, other))
        if self.loose:
            return self.policy._loose_formula(ends[0], ends[1], ends[2], self.times)
        return self.policy._between_formula(*ends)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `BoundedPolicy.from_dict` turns back into an equal policy."""
        return {"policy": self.policy.to_dict(), "add": self.add, "times": self.times, "loose": self.loose}

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "BoundedPolicy":
        """Return the bounded policy that `to_dict` described."""
        if not isinstance(description, Mapping):
            raise ParameterError("description", allowed="a mapping", given=description)
        check_entries("BoundedPolicy", description, [f.name for f in fields(BoundedPolicy)])
        return BoundedPolicy(**{**description, "policy": Policy.from_dict(description["policy"])})


def _difference(value: Any, other: Any) -> Array:
    """Return value − other, exactly for whole numbers, Decimals and Fractions however large."""
    first, second = np.asarray(value), np.asarray(other)
    if first.dtype.kind == second.dtype.kind == "f":
        return np.asarray(first - second, float)
    exact = np.frompyfunc(lambda a, b: float(Fraction(a) - Fraction(b)), 2, 1)
    return np.asarray(exact(first.astype(object), second.astype(object)), float)
