"""What every policy answers: its loss, alone and in a group, between two values, as a formula and as a description."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, overload

import numpy as np

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.parameters import Array, Declared, as_array, check_range, evaluate
from slowscale.policy.tree import INFLUENCE, Formula
from slowscale.policy.writing import latex, text
from slowscale.typing import ArrayLike, Functions, Scalar

Function = Callable[..., Any]
ZCDP = "PRzCDP"
PURE = "PRDP"
# All policies by their kind, in the order in which they were defined. Whatever lists kinds is derived from this.
REGISTRY: dict[str, type["Policy"]] = {}


class Policy(Declared, ABC):
    """A policy function: call it on an influence, or an array of them."""

    # What descriptions call it. A class with a kind is registered, so that they can be read.
    kind: ClassVar[str]
    # Whether the loss of removing several records from one cell is P(their summed influence).
    _sums: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            known = REGISTRY.get(cls.kind, cls)
            if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
                raise ParameterError(f"kind must be a new name, but {known.__name__} has {cls.kind!r} already")
            REGISTRY[cls.kind] = cls

    @property
    def notion(self) -> str:
        """The privacy notion the values are in: "PRzCDP" or "PRDP"."""
        return ZCDP

    @property
    def step(self) -> float | None:
        """The size of the steps in which the loss grows, or None where it grows with every size."""
        return None

    @abstractmethod
    def _loss(self, influence: Array) -> Array:
        """P at checked influences."""

    @abstractmethod
    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree, which can be written in several ways."""

    def shapes(self) -> dict["Policy", float]:
        """Return the policy as a sum of shapes with coefficients: policies of one shape have equal keys.

        >>> from slowscale.policy import RootPolicy
        >>> (RootPolicy(4, 2) + RootPolicy(4, 1)).shapes()
        {RootPolicy(k=4, sigma=1.0, a=0.0): 1.25}
        """
        return {self: 1.0}

    def _between(self, low: Array, gap: Array) -> Array:
        """Return the exact loss between the values `low` and `low + gap` of a record (bounded neighbours)."""
        return self._loss(gap)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        """Return the loss between two values as a tree, given their distance too."""
        return self.formula(distance)

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        """Return a simpler bound on the loss between two values, the other one being times·value unless None."""
        return self._between(low, gap)

    def _loose_formula(self, value: Formula, other: Formula, distance: Formula, times: float | None) -> Formula:
        """Return the simpler bound as a tree."""
        return self._between_formula(value, other, distance)

    @overload
    def __call__(self, influence: Scalar) -> float: ...

    @overload
    def __call__(self, influence: ArrayLike) -> Array: ...

    def __call__(self, influence: Scalar | ArrayLike) -> float | Array:
        """Return the loss of records with these influences (numbers >= 0)."""
        return evaluate("influence", influence, self._loss, low=0)

    def __str__(self) -> str:
        return text(self.formula())

    def latex(self) -> str:
        """Return the formula in LaTeX, the influence written Δ(r) as in the paper."""
        return latex(self.formula())

    def _repr_latex_(self) -> str:
        return f"${self.latex()}$"

    # Combinations are policies themselves, so their module imports this one, and is imported here when needed.

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
        """Return the PRzCDP policy this one implies: itself, or tanh(P/2)·P for a pure one."""
        from slowscale.policy.combination import TanhPolicy

        return TanhPolicy(self) if self.notion == PURE else self

    def group(self, influences: Scalar | ArrayLike, cells: Sequence[Hashable] | None = None) -> float:
        """Return what a group of records may lose together, as one number.

        Parameters
        ----------
        influences
            The influence of each record of the group.
        cells
            The cell of the published table each record falls in, one label a record. Records of one cell shift the
            same sum, which loses less; without the labels the bound holds wherever the records are. A sum of
            policies may be of several tables, so it takes no labels: group its terms, each with its own, and add.

        Notes
        -----
        Removing records one by one loses at most (Σ√P(r_j))² under PRzCDP and ΣP(r_j) under PRDP, never more
        than the J·ΣP(r_j) of Lemma PRzCDP-group. Removing them from one cell shifts its sum by Σr_j, so P(Σr_j)
        holds too; cells have independent noise and add. The least of what applies is returned. It is for policies of
        mechanisms and their sums; a policy that merely bounds others (a cap) promises (Σ√P(r_j))² only.

        >>> from slowscale.policy import RootPolicy
        >>> P = RootPolicy(k=4, sigma=1)
        >>> P.group([100, 100, 100]), P.group([100, 100, 100], cells=["A", "A", "B"])
        (15.0..., 12.07...)
        """
        values = np.atleast_1d(as_array("influences", influences)).ravel()
        check_range("influences", values, 0)
        if cells is None:
            return self._group_anywhere(values)
        labels = _labels(cells, values.size)
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
        return min(chained, float(self._loss(values.sum(keepdims=True))[0])) if self._sums else chained

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `Policy.from_dict` turns back into an equal policy, and JSON can hold."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **{name: _plain(value) for name, value in values.items()}}

    @staticmethod
    def from_dict(description: Mapping[str, Any], functions: Functions | None = None) -> "Policy":
        """Return the policy that `to_dict` described.

        Parameters
        ----------
        description
            What `to_dict` returned, perhaps by way of JSON.
        functions
            User-given transformations by their name ("module.function"): a description names such functions, and
            never runs code by itself.
        """
        if not isinstance(description, Mapping) or "kind" not in description:
            raise ParameterError(f'description must be a mapping with a "kind", got {description!r:.80}')
        cls = REGISTRY.get(description["kind"])
        if cls is None:
            raise ParameterError(f"kind must be one of {', '.join(sorted(REGISTRY))}, got {description['kind']!r}")
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        given = {name: value for name, value in description.items() if name not in ("kind", "probes")}
        if set(given) != set(names):
            raise ParameterError(f"a {cls.kind} policy has the entries {', '.join(names)}, got {', '.join(given)}")
        policy = cls(**{name: _read(name, value, functions or {}) for name, value in given.items()})
        if "probes" in description:  # descriptions written before probes were kept have none
            policy._check_probes(description.get("f"), description["probes"])
        return policy

    def _check_probes(self, name: Any, values: Any) -> None:
        """Raise unless the policy's function still has the values that were written down."""
        raise ParameterError(f"a {self.kind} policy has no function, so its description must not have probes")


def _labels(cells: Any, count: int) -> list[Hashable]:
    try:
        labels = list(cells)
        hash(tuple(labels))
    except TypeError:
        raise ParameterTypeError(f"cells must be a sequence of labels such as text or numbers, got {cells!r}") from None
    if len(labels) != count:
        raise ParameterError(f"cells must have one label for each of the {count} records, got {len(labels)}")
    for label in labels:
        missing = label is None or label != label  # NaN differs from itself; pandas.NA will not say
        if not isinstance(missing, bool | np.bool_) or missing:
            raise ParameterError("cells must not hold missing labels: they would count as different cells")
    return labels


def _plain(value: Any) -> Any:
    if isinstance(value, Policy):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return function_name(value) if callable(value) else value


def _read(name: str, value: Any, functions: Mapping[str, Function]) -> Any:
    if isinstance(value, Mapping):
        return Policy.from_dict(value, functions)
    if isinstance(value, list | tuple):
        return tuple(_read(name, item, functions) for item in value)
    if name == "f":
        if value not in functions:
            raise ParameterError(f"the policy uses the function {value!r}: pass functions={{{value!r}: that function}}")
        return functions[value]
    return value


def function_name(function: Function) -> str:
    """Return "module.function", by which a policy's description names a user-given function."""
    name = getattr(function, "__qualname__", "<lambda>")
    if "<" in name:
        raise ParameterError(
            "a policy with a lambda or nested function cannot be written down: use a module's function"
        )
    return f"{getattr(function, '__module__', None) or 'numpy'}.{name}"
