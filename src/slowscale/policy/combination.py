"""Policies that combine others: in sequence, in parallel, by repetition, and by conversion from PRDP to PRzCDP."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.formulas import tanh_bound
from slowscale.core.parameters import Array, whole
from slowscale.policy.base import PURE, Policy
from slowscale.policy.tree import INFLUENCE, Formula, Max, Sum, Tanh, Times


@dataclass(frozen=True)
class TanhPolicy(Policy):
    """tanh(P/2)·P: the PRzCDP policy implied by a PRDP policy P (Lemma PRDP-implies-PRzCDP)."""

    kind = "tanh"

    pure: Policy

    def _check(self) -> None:
        if not isinstance(self.pure, Policy) or self.pure.notion != PURE:
            raise ParameterTypeError("pure", allowed="a PRDP policy", given=self.pure)

    @property
    def constant(self) -> bool:
        """Whether every record has the same loss: if the PRDP policy is constant."""
        return self.pure.constant

    @property
    def by_rank(self) -> bool:
        """Whether the loss also protects the record's value: if that of the PRDP policy does."""
        return self.pure.by_rank

    @property
    def _band_rises(self) -> bool:  # type: ignore[override]
        return self.pure._band_rises

    def _loss(self, influence: Array) -> Array:
        return tanh_bound(self.pure._loss(influence))

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return Tanh(self.pure.formula(x))

    def _between(self, low: Array, gap: Array) -> Array:
        return tanh_bound(self.pure._between(low, gap))

    def _between_formula(self, *ends: Formula) -> Formula:
        return Tanh(self.pure._between_formula(*ends))

    def _group_anywhere(self, values: Array) -> float:
        pure = np.array([self.pure._group_anywhere(values)])
        return min(super()._group_anywhere(values), float(tanh_bound(pure)[0]))

    def _group_in_cell(self, values: Array) -> float:
        pure = np.array([self.pure._group_in_cell(values)])
        return min(super()._group_anywhere(values), float(tanh_bound(pure)[0]))


class DelegatingPolicy(Policy):
    """A policy that is made from one other policy, of the same notion."""

    policy: Policy

    @property
    def notion(self) -> str:
        """The privacy notion of the losses."""
        return self.policy.notion

    @property
    def constant(self) -> bool:
        """Whether every record has the same loss: if the other policy is constant."""
        return self.policy.constant

    @property
    def by_rank(self) -> bool:
        """Whether the loss is that of quantiles: if that of the other policy is."""
        return self.policy.by_rank


@dataclass(frozen=True)
class TimesPolicy(DelegatingPolicy):
    """The policy of `count` releases by the same mechanism."""

    kind = "times"

    count: int = whole(at_least=1, typical=(1, 1000))
    policy: Policy = None  # type: ignore[assignment]

    def _check(self) -> None:
        if not isinstance(self.policy, Policy):
            raise ParameterTypeError("policy", allowed="a policy", given=self.policy)

    @property
    def _band_rises(self) -> bool:  # type: ignore[override]
        return self.policy._band_rises

    def _loss(self, influence: Array) -> Array:
        return self.count * self.policy._loss(influence)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return Times(self.count, self.policy.formula(x))

    def shapes(self) -> dict[Policy, float]:
        """Return the shapes of the repeated policy, with their coefficients multiplied by the count."""
        return {shape: times * self.count for shape, times in self.policy.shapes().items()}

    def _between(self, low: Array, gap: Array) -> Array:
        return self.count * self.policy._between(low, gap)

    def _between_formula(self, *ends: Formula) -> Formula:
        return Times(self.count, self.policy._between_formula(*ends))

    def _group_anywhere(self, values: Array) -> float:
        return self.count * self.policy._group_anywhere(values)

    def _group_in_cell(self, values: Array) -> float:
        return self.count * self.policy._group_in_cell(values)


@dataclass(frozen=True)
class _CombinedPolicy(Policy):
    terms: tuple[Policy, ...]

    @classmethod
    def of(cls, *policies: Policy) -> Self:
        """Combine policies. Combinations of the same class are flattened into their terms."""
        return cls(tuple(t for policy in policies for t in (policy.terms if isinstance(policy, cls) else (policy,))))

    def _check(self) -> None:
        if isinstance(self.terms, list):
            self._set("terms", tuple(self.terms))
        if (
            not isinstance(self.terms, tuple)
            or not self.terms
            or not all(isinstance(term, Policy) for term in self.terms)
        ):
            raise ParameterTypeError("terms", allowed="one or more policies", given=self.terms)
        if len({term.notion for term in self.terms}) > 1:
            raise ParameterError(
                "terms",
                allowed="policies of one notion",
                code="mismatch",
                given=Shown("PRDP and PRzCDP"),
                remedy="convert the PRDP policies with .to_zcdp()",
            )

    @property
    def notion(self) -> str:
        """The privacy notion of the losses."""
        return self.terms[0].notion

    @property
    def constant(self) -> bool:
        """Whether every record has the same loss: if all terms are constant."""
        return all(term.constant for term in self.terms)

    @property
    def by_rank(self) -> bool:
        """Whether the loss also protects the record's value: if that of any term does."""
        return any(term.by_rank for term in self.terms)

    @property
    def _band_rises(self) -> bool:  # type: ignore[override]
        return all(term._band_rises for term in self.terms)

    @abstractmethod
    def _combine(self, parts: list[Array]) -> Array:
        """Combine the values of the terms."""

    @abstractmethod
    def _join(self, parts: tuple[Formula, ...]) -> Formula:
        """Combine the formulas of the terms."""

    def _loss(self, influence: Array) -> Array:
        return self._combine([term._loss(influence) for term in self.terms])

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return self._join(tuple(term.formula(x) for term in self.terms))

    def _between(self, low: Array, gap: Array) -> Array:
        return self._combine([term._between(low, gap) for term in self.terms])

    def _between_formula(self, *ends: Formula) -> Formula:
        return self._join(tuple(term._between_formula(*ends) for term in self.terms))

    def _loose(self, *change: Any) -> Array:
        return self._combine([term._loose(*change) for term in self.terms])

    def _loose_formula(self, *change: Any) -> Formula:
        return self._join(tuple(term._loose_formula(*change) for term in self.terms))

    def _group_in_cell(self, values: Array) -> float:
        return float(self._combine([np.array(term._group_in_cell(values)) for term in self.terms]))


@dataclass(frozen=True)
class SumPolicy(_CombinedPolicy):
    """Sequential composition: the losses add."""

    kind = "sum"

    def _combine(self, parts: list[Array]) -> Array:
        return np.asarray(sum(parts))

    def _join(self, parts: tuple[Formula, ...]) -> Formula:
        return Sum(parts)

    def shapes(self) -> dict[Policy, float]:
        """Return the shapes of the terms, with the coefficients of equal shapes added."""
        found: dict[Policy, float] = {}
        for term in self.terms:
            for shape, times in term.shapes().items():
                found[shape] = found.get(shape, 0.0) + times
        return found

    def _group_anywhere(self, values: Array) -> float:
        return sum(term._group_anywhere(values) for term in self.terms)

    def _group_in_cell(self, values: Array) -> float:
        raise ParameterError(
            "cells",
            "must not be given for a sum of policies, which may belong to several tables",
            code="unsupported",
            remedy="group each term with its own cells, and add the results",
        )


@dataclass(frozen=True)
class MaxPolicy(_CombinedPolicy):
    """Parallel composition: a record is in one of the parts, so it loses at most the largest loss."""

    kind = "max"

    def _combine(self, parts: list[Array]) -> Array:
        return np.asarray(np.max(parts, axis=0))

    def _join(self, parts: tuple[Formula, ...]) -> Formula:
        return Max(parts)
