"""The interface of all policies: losses of records, of groups and between two values, formulas and descriptions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, overload

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.parameters import Array, Declared, as_array, check_entries, check_range, evaluate
from slowscale.core.typing import ArrayLike, Scalar
from slowscale.noise.symmetric import SymmetricNoise
from slowscale.policy.tree import INFLUENCE, Formula
from slowscale.policy.writing import latex, text

Function = Callable[..., Any]
ZCDP = "PRzCDP"
PURE = "PRDP"
# All policies by kind, in the order of their definition. Every list of kinds is derived from this.
POLICY_KINDS: dict[str, type["Policy"]] = {}


class Policy(Declared, ABC):
    """A policy function. Call it on an influence, or on an array of influences."""

    # The name in descriptions. A class with a kind is registered, so that descriptions of it can be read.
    kind: ClassVar[str]
    # Whether removing several records from one cell costs P(sum of their influences).
    _sums_within_cell: ClassVar[bool] = True
    # Whether the loss between r and a multiple of r never falls as r grows, and is largest for multiples above 1.
    _band_rises: bool = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            known = POLICY_KINDS.get(cls.kind, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                problem = f"is already that of {known.__name__}"
                raise ParameterError("kind", problem, code="duplicate", given=cls.kind, remedy="choose another name")
            POLICY_KINDS[cls.kind] = cls

    @property
    def notion(self) -> str:
        """The privacy notion of the losses: "PRzCDP" or "PRDP"."""
        return ZCDP

    @property
    def step(self) -> float | None:
        """The size of the steps in which the loss grows, or None if it grows continuously."""
        return None

    @property
    def constant(self) -> bool:
        """Whether every record has the same loss, for any influence."""
        return False

    @property
    def by_rank(self) -> bool:
        """Whether a constant loss also protects the record's value, as that of quantiles; a count does not."""
        return False

    @property
    def upper(self) -> "Policy | None":
        """A policy of simpler form that is nowhere smaller, by construction, or None if there is none.

        Caps use it where the two are so close, or equal, that comparing their values would not decide.
        """
        return None

    def _rounding_error(self, influence: Array) -> Array:
        """Return the relative rounding error of the loss, as far as it exceeds a few units in the last place."""
        return np.zeros_like(influence)

    @abstractmethod
    def _loss(self, influence: Array) -> Array:
        """Return P at influences that were checked."""

    @abstractmethod
    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""

    def shapes(self) -> dict["Policy", float]:
        """Return the policy as a sum of shapes with coefficients. Policies that differ by a factor have the same shape.

        >>> from slowscale.policy import RootPolicy
        >>> (RootPolicy(k=4, sigma=2) + RootPolicy(k=4, sigma=1)).shapes()
        {RootPolicy(k=4, sigma=1.0, a=0.0): 1.25}
        """
        return {self: 1.0}

    def _rising_loss(self, influence: Array) -> Array:
        """Return the largest loss of all records up to a size, or a bound on it: caps are proven from it."""
        return self._loss(influence)

    def _between(self, low: Array, gap: Array) -> Array:
        """Return the exact loss between the values `low` and `low + gap` of a record (bounded neighbours)."""
        return self._loss(gap)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        """Return the loss between two values as a tree; the tree of their distance is given as well."""
        return self.formula(distance)

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        """Return a simpler bound on the loss between two values; if `times` is given, the other one is times·value."""
        return self._between(low, gap)

    def _loose_formula(self, value: Formula, other: Formula, distance: Formula, times: float | None) -> Formula:
        """Return the simpler bound as a tree."""
        return self._between_formula(value, other, distance)

    @overload
    def __call__(self, influence: Scalar) -> float: ...

    @overload
    def __call__(self, influence: ArrayLike) -> Array: ...

    def __call__(self, influence: Scalar | ArrayLike) -> float | Array:
        """Return the losses of records with these influences, which are numbers >= 0."""
        return evaluate("influence", influence, self._loss, low=0)

    def __str__(self) -> str:
        return text(self.formula())

    def latex(self) -> str:
        """Return the formula in LaTeX, with the influence as Δ(r), as in the paper."""
        return latex(self.formula())

    def _repr_latex_(self) -> str:
        return f"${self.latex()}$"

    # The module of combinations imports this one, so it can be imported only inside these methods.

    def __add__(self, other: object) -> "Policy":
        from slowscale.policy.combination import SumPolicy

        if isinstance(other, int | float) and other == 0:  # so that sum(policies) works
            return self
        return SumPolicy.of(self, other) if isinstance(other, Policy) else NotImplemented

    __radd__ = __add__

    def __or__(self, other: object) -> "Policy":
        from slowscale.policy.combination import MaxPolicy

        return MaxPolicy.of(self, other) if isinstance(other, Policy) else NotImplemented

    def __mul__(self, count: object) -> "Policy":
        from slowscale.policy.combination import TimesPolicy

        if isinstance(count, bool) or not isinstance(count, int):
            return NotImplemented
        return self if count == 1 else TimesPolicy(count, self)

    __rmul__ = __mul__

    def to_zcdp(self) -> "Policy":
        """Return the PRzCDP policy that this one implies: itself, or tanh(P/2)·P for a PRDP policy."""
        from slowscale.policy.combination import TanhPolicy

        return TanhPolicy(self) if self.notion == PURE else self

    def group(self, influences: Scalar | ArrayLike, cells: Sequence[Hashable] | None = None) -> float:
        """Return a bound on the loss of a group of records.

        Parameters
        ----------
        influences
            The influence of each record of the group.
        cells
            The cell of the published table that each record falls in: one label per record. Records of one cell
            shift the same sum, so they lose less. Without labels, the bound holds for any cells. A sum of policies may
            belong to several tables, so it takes no labels: group each term with its own labels, and add the results.

        Notes
        -----
        Removing the records one by one costs at most (Σ√P(r_j))² under PRzCDP and ΣP(r_j) under PRDP, which is never
        more than the J·ΣP(r_j) of Lemma PRzCDP-group. Removing them from one cell shifts its sum by Σr_j, so P(Σr_j)
        is a bound, too; cells have independent noise, so their losses add. The smallest bound that applies is returned.
        This holds for policies of mechanisms and their sums. A policy that only bounds others, such as a cap, implies
        no more than (Σ√P(r_j))².

        >>> from slowscale.policy import RootPolicy
        >>> P = RootPolicy(k=4, sigma=1)
        >>> P.group([100, 100, 100]), P.group([100, 100, 100], cells=["A", "A", "B"])
        (15.0..., 12.07...)
        """
        values = np.atleast_1d(as_array("influences", influences)).ravel()
        check_range("influences", values, 0)
        if cells is None:
            return self._group_anywhere(values)
        labels = _check_labels(cells, values.size)
        together: dict[Hashable, list[float]] = {}
        for label, value in zip(labels, values, strict=True):
            together.setdefault(label, []).append(float(value))
        with np.errstate(over="ignore"):
            parts = sum((self._group_in_cell(np.array(members)) for members in together.values()), 0.0)
            return min(parts, self._group_anywhere(values))

    def _group_anywhere(self, values: Array) -> float:
        losses = self._loss(values)
        return float(losses.sum() if self.notion == PURE else np.sqrt(losses).sum() ** 2)

    def _group_in_cell(self, values: Array) -> float:
        chained = self._group_anywhere(values)
        return min(chained, float(self._loss(values.sum(keepdims=True))[0])) if self._sums_within_cell else chained

    def to_dict(self) -> dict[str, Any]:
        """Return a description that JSON can represent and `Policy.from_dict` turns back into an equal policy."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **{name: to_plain(value) for name, value in values.items()}}

    def parameters(self) -> "Policy":
        """Return the policy as it can be written by hand, without knots of curves that were computed for it."""

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(plain, value))
            return value.parameters() if isinstance(value, Policy) else value

        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        changed = {name: plain(value) for name, value in values.items() if isinstance(value, Policy | tuple)}
        return replace(self, **changed) if changed else self  # type: ignore[type-var]

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> "Policy":
        """Return the policy that `to_dict` described; the description may have been stored as JSON."""
        if not isinstance(description, Mapping) or "kind" not in description:
            raise ParameterError("description", allowed='a mapping with a "kind"', given=description)
        cls = POLICY_KINDS.get(description["kind"]) if isinstance(description["kind"], str) else None
        if cls is None:
            raise ParameterError("kind", allowed=tuple(sorted(POLICY_KINDS)), given=description["kind"])
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        given = {name: value for name, value in description.items() if name != "kind"}
        check_entries(cls.__name__, given, names)
        return cls(**{name: _from_plain(given[name]) for name in names})


def _check_labels(cells: Any, count: int) -> list[Hashable]:
    try:
        labels = list(cells)
        hash(tuple(labels))
    except TypeError:
        raise ParameterTypeError("cells", allowed="a sequence of labels such as text or numbers", given=cells) from None
    if len(labels) != count:
        problem = f"must have one label for each of the {count} records"
        raise ParameterError("cells", problem, code="mismatch", given=len(labels))
    for label in labels:
        missing = label is None or label != label  # NaN differs from itself, and comparing pandas.NA gives pandas.NA
        if not isinstance(missing, bool | np.bool_) or missing:
            problem = "must not have missing labels, which would count as different cells"
            raise ParameterError("cells", problem, code="nulls", remedy="give every record a label")
    return labels


def to_plain(value: Any) -> Any:
    """Return a parameter as JSON can represent it."""
    if isinstance(value, Policy | SymmetricNoise) or hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, tuple):
        return [to_plain(item) for item in value]
    if callable(value):
        raise ParameterError(
            "a user-given function",
            "cannot be described in a file",
            code="unsupported",
            remedy="register a class of mechanisms for it, or release without a ledger",
        )
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        # A policy of some noise has the entry "noise", too, but only policies have a kind.
        is_noise = "noise" in value and "kind" not in value
        return SymmetricNoise.from_dict(value) if is_noise else Policy.from_dict(value)
    if isinstance(value, list | tuple):
        return tuple(map(_from_plain, value))
    return value
