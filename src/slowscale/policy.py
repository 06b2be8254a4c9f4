"""Policy functions P(Δ): what a record of influence Δ may lose, and their algebra.

A policy belongs to a notion: PRzCDP (Definition PRzCDP) or PRDP, its pure form (Definition PRDP). Policies of one
notion add under sequential composition (`P + Q`, Lemma PRzCDP-seq), take the maximum under parallel composition
(`P | Q`, Lemma PRzCDP-par), and bound what a group of records loses (`P.group`, Lemma PRzCDP-group and better).
Influences are the absolute change a record makes to the sum: for a sum, the record's value.

>>> P = RootPolicy(k=4, sigma=2)
>>> P([5, 10_000]).round(3).tolist()
[0.28, 12.5]
>>> print(P + RootPolicy(k=1, sigma=100))
Δ^(1/2) / (2·2²) + Δ² / (2·100²)
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.families import LogFamily, PolylogFamily, PowerFamily, RootFamily, SplittingFamily
from slowscale.formulas import (
    check_concave,
    log1p_ratio,
    log_gap,
    polylog_rise,
    power,
    root,
    root_gap,
    root_rise,
    tanh_bound,
)
from slowscale.parameters import Array, Declared, apply, as_array, check_range, evaluate, real, whole

Function = Callable[..., Any]
ZCDP = "PRzCDP"
PURE = "PRDP"
# A user-given function is written down by its name and its values for records of these influences.
PROBES = np.concatenate([[0.0], np.geomspace(1e-9, 1e15, 49)])
SAME = 1e-9  # the relative difference at which a function counts as another one


class Policy(Declared, ABC):
    """A policy function: call it on an influence, or an array of them."""

    kind: ClassVar[str]
    # Whether the loss of removing several records from one cell is P(their summed influence).
    _sums: ClassVar[bool] = True

    @property
    def notion(self) -> str:
        """The privacy notion the values are in: "PRzCDP" or "PRDP"."""
        return ZCDP

    @abstractmethod
    def _loss(self, influence: Array) -> Array:
        """P at checked influences."""

    @abstractmethod
    def _text(self, x: str) -> str:
        """Write the formula with `x` for the influence."""

    @abstractmethod
    def _latex(self, x: str) -> str:
        """Write the formula in LaTeX with `x` for the influence."""

    def _between(self, low: Array, gap: Array) -> Array:
        """Return the exact loss between the values `low` and `low + gap` of a record (bounded neighbours)."""
        return self._loss(gap)

    def _between_text(self, value: str, other: str, distance: str) -> str:
        """Write the loss between two values, given their distance too."""
        return self._text(distance)

    def __call__(self, influence: Any) -> Any:
        """Return the loss of records with these influences (numbers >= 0)."""
        return evaluate("influence", influence, self._loss, low=0)

    def __str__(self) -> str:
        return self._text("Δ")

    def latex(self) -> str:
        """Return the formula in LaTeX, the influence written Δ(r) as in the paper."""
        return self._latex(r"\Delta(r)")

    def _repr_latex_(self) -> str:
        return f"${self.latex()}$"

    def __add__(self, other: object) -> "Policy":
        if isinstance(other, int | float) and other == 0:  # so that sum(policies) works
            return self
        return SumPolicy(_terms(SumPolicy, self, other)) if isinstance(other, Policy) else NotImplemented

    __radd__ = __add__

    def __or__(self, other: object) -> "Policy":
        return MaxPolicy(_terms(MaxPolicy, self, other)) if isinstance(other, Policy) else NotImplemented

    def __mul__(self, count: object) -> "Policy":
        if isinstance(count, bool) or not isinstance(count, int):
            return NotImplemented
        return self if count == 1 else TimesPolicy(count, self)

    __rmul__ = __mul__

    def to_zcdp(self) -> "Policy":
        """Return the PRzCDP policy this one implies: itself, or tanh(P/2)·P for a pure one."""
        return TanhPolicy(self) if self.notion == PURE else self

    def group(self, influences: Any, cells: Sequence[Hashable] | None = None) -> float:
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
    def from_dict(description: Mapping[str, Any], functions: Mapping[str, Function] | None = None) -> "Policy":
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
        classes = {cls.kind: cls for cls in _KINDS}
        cls = classes.get(description["kind"])
        if cls is None:
            raise ParameterError(f"kind must be one of {', '.join(sorted(classes))}, got {description['kind']!r}")
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


def _terms(cls: type, *policies: Policy) -> tuple[Policy, ...]:
    return tuple(term for policy in policies for term in (policy.terms if isinstance(policy, cls) else (policy,)))  # type: ignore[attr-defined]


@dataclass(frozen=True)
class ConstantPolicy(Policy):
    """The same loss for every record: ordinary differential privacy, such as of a count."""

    kind = "constant"
    _sums = False

    loss: float = real(at_least=0, typical=(0.001, 10))
    of: str = ZCDP

    def _check(self) -> None:
        if self.of not in (ZCDP, PURE):
            raise ParameterError(f"of must be {ZCDP!r} or {PURE!r}, got {self.of!r}")

    @property
    def notion(self) -> str:
        """The privacy notion the values are in."""
        return self.of

    def _loss(self, influence: Array) -> Array:
        return np.full_like(influence, self.loss)

    def _between(self, low: Array, gap: Array) -> Array:
        # A changed record is one taken out and one put in.
        return np.full_like(gap, self.loss * (2 if self.notion == PURE else 4))

    def _between_text(self, value: str, other: str, distance: str) -> str:
        return number(self.loss * (2 if self.notion == PURE else 4))

    def _text(self, x: str) -> str:
        return number(self.loss)

    def _latex(self, x: str) -> str:
        return number(self.loss)


class TransformingPolicy(Policy):
    """(f(Δ + a) − f(a))²/(2σ²), the policy of Theorem transform; and of Corollary BndPrivTransMechGlobSum."""

    sigma: float
    a: float

    @abstractmethod
    def _rise(self, x: Array) -> Array:
        """f(x + a) − f(a) for x >= 0."""

    @abstractmethod
    def _gap(self, low: Array, gap: Array) -> Array:
        """f(low + gap) − f(low)."""

    def _half_square(self, x: Array) -> Array:
        return np.asarray((x / self.sigma) ** 2 / 2)

    def _loss(self, influence: Array) -> Array:
        return self._half_square(self._rise(influence))

    def _between(self, low: Array, gap: Array) -> Array:
        check_range("value (also the changed one)", low, 0)
        return self._half_square(self._gap(low + self.a, gap))

    def _loose_times(self, value: Array, times: float) -> Array:
        """Return the bound of Table metric-mechSummaryNew on the loss between r and times·r."""
        return self._between(value * min(times, 1.0), value * abs(times - 1))

    def _loose_times_text(self, times: float) -> str:
        return self._between_text("r", f"{number(times)}·r", "")

    def _denominator(self, latex: bool = False) -> str:
        return f"2 \\cdot {number(self.sigma)}^2" if latex else f"(2·{number(self.sigma)}²)"

    def _between_text(self, value: str, other: str, distance: str) -> str:
        return f"({self._transformed(value, False)} − {self._transformed(other, False)})² / {self._denominator()}"

    @abstractmethod
    def _transformed(self, x: str, latex: bool) -> str:
        """Write f(x + a)."""

    def _shifted(self, x: str) -> str:
        if not self.a:
            return x
        sign = "+" if self.a > 0 else "−"
        return f"{x} {sign} {number(abs(self.a))}" if x else number(self.a)

    def _text(self, x: str) -> str:
        return f"({self._transformed(x, False)} − {self._start(False)})² / {self._denominator()}"

    def _latex(self, x: str) -> str:
        numerator = f"\\left({self._transformed(x, True)} - {self._start(True)}\\right)^2"
        return f"\\frac{{{numerator}}}{{{self._denominator(True)}}}"

    def _start(self, latex: bool) -> str:
        return self._transformed("" if self.a else "0", latex)


@dataclass(frozen=True)
class RootPolicy(RootFamily, TransformingPolicy):
    """((Δ + a)^(1/k) − a^(1/k))²/(2σ²): the kth root transformation; k = 1 is the Gaussian mechanism's Δ²/(2σ²)."""

    kind = "root"

    def _rise(self, x: Array) -> Array:
        return root_rise(x, self.a, self.k)

    def _gap(self, low: Array, gap: Array) -> Array:
        return root_gap(low, gap, self.k)

    def _between(self, low: Array, gap: Array) -> Array:
        return self._half_square(gap) if self.k == 1 else super()._between(low, gap)

    def _between_text(self, value: str, other: str, distance: str) -> str:
        return self._text(distance) if self.k == 1 else super()._between_text(value, other, distance)

    def _group_anywhere(self, values: Array) -> float:
        # With k >= 2 and no offset P is concave from 0, so records apart lose most.
        return float(self._loss(values).sum()) if self.k >= 2 and self.a == 0 else super()._group_anywhere(values)

    def _loose_times(self, value: Array, times: float) -> Array:
        return self._half_square((1 - times ** (1 / self.k)) * root(value, self.k))

    def _loose_times_text(self, times: float) -> str:
        power = "" if self.k == 1 else f"^(1/{self.k})"
        return f"((1 − {number(times)}{power})·r{power})² / {self._denominator()}"

    def _text(self, x: str) -> str:
        if self.k == 1:
            return f"{_bracket(x)}² / {self._denominator()}"
        if self.a == 0:
            return f"{_bracket(x)}{_power(2, self.k)} / {self._denominator()}"
        return super()._text(x)

    def _latex(self, x: str) -> str:
        if self.k == 1 or self.a == 0:
            return f"\\frac{{{x}^{{{Fraction(2, self.k)}}}}}{{{self._denominator(True)}}}"
        return super()._latex(x)

    def _transformed(self, x: str, latex: bool) -> str:
        if self.k == 1:
            return x
        inner = self._shifted(x)
        return f"\\sqrt[{self.k}]{{{inner}}}" if latex else f"{_bracket(inner)}^(1/{self.k})"


@dataclass(frozen=True)
class LogPolicy(LogFamily, TransformingPolicy):
    """(ln(Δ + a) − ln a)²/(2σ²): the log transformation."""

    kind = "log"

    def _rise(self, x: Array) -> Array:
        return log1p_ratio(x, self.a)

    def _gap(self, low: Array, gap: Array) -> Array:
        return log_gap(low, gap)

    def _loose_times(self, value: Array, times: float) -> Array:
        rise = math.inf if times == 0 else math.log(times)
        return np.where(value == 0, 0.0, self._half_square(np.full_like(value, rise)))

    def _loose_times_text(self, times: float) -> str:
        return f"ln({number(times)})² / {self._denominator()}"

    def _text(self, x: str) -> str:
        return f"ln({self._shifted(x)})² / {self._denominator()}" if self.a == 1 else super()._text(x)

    def _latex(self, x: str) -> str:
        if self.a == 1:
            return f"\\frac{{\\ln({self._shifted(x)})^2}}{{{self._denominator(True)}}}"
        return super()._latex(x)

    def _transformed(self, x: str, latex: bool) -> str:
        return ("\\" if latex else "") + f"ln({self._shifted(x)})"


@dataclass(frozen=True)
class TransformationPolicy(TransformingPolicy):
    """(f(Δ + a) − f(a))²/(2σ²) for a user-given concave, strictly increasing f."""

    kind = "transformation"

    f: Callable[[Any], Any]
    sigma: float = real(above=0, typical=(0.01, 100))
    a: float = real(typical=(0, 100), default=0.0)

    def _check(self) -> None:
        if not callable(self.f):
            raise ParameterTypeError(f"f must be a function, got {self.f!r}")
        check_concave(self.f, self.a)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that `Policy.from_dict` turns back into an equal policy, and JSON can hold."""
        return {**super().to_dict(), "probes": apply(self.f, PROBES + self.a).tolist()}

    def _check_probes(self, name: Any, values: Any) -> None:
        now, before = apply(self.f, PROBES + self.a), as_array("probes", values)
        if before.shape == now.shape:
            # The loss depends on differences to the first value, which carry the rounding of both.
            rounding = 8 * np.finfo(float).eps * (np.abs(before) + np.abs(before[0]))
            rise, earlier = now - now[0], before - before[0]
            if (np.abs(rise - earlier) <= SAME * np.abs(earlier) + rounding).all():
                return
        raise ParameterError(
            f"the function {name!r} is not the one that the policy was written with: its values differ. What was "
            f"released depends on the earlier one: pass it, functions={{{name!r}: that function}}, and give the "
            "changed function another name"
        )

    def _rise(self, x: Array) -> Array:
        return apply(self.f, x + self.a) - apply(self.f, np.array([self.a]))

    def _gap(self, low: Array, gap: Array) -> Array:
        return apply(self.f, low + gap) - apply(self.f, low)

    def _transformed(self, x: str, latex: bool) -> str:
        return f"f({self._shifted(x)})"


class _PurePolicy(Policy):
    @property
    def notion(self) -> str:
        """The privacy notion the values are in."""
        return PURE


@dataclass(frozen=True)
class PowerPolicy(PowerFamily, _PurePolicy):
    """(Δ/σ)^p, the PRDP policy of the generalized Gaussian (Corollary genGaussMech)."""

    kind = "power"

    def _loss(self, influence: Array) -> Array:
        ratio = influence / self.sigma
        if ratio.size and ratio.max() == math.inf:
            return np.asarray(power(influence, self.p) / self.sigma**self.p)
        return power(ratio, self.p)

    def _text(self, x: str) -> str:
        ratio = f"{x} / {number(self.sigma)}"
        return ratio if self.p == 1 else f"({ratio})^{number(self.p)}"

    def _latex(self, x: str) -> str:
        ratio = f"\\frac{{{x}}}{{{number(self.sigma)}}}"
        return ratio if self.p == 1 else f"\\left({ratio}\\right)^{{{number(self.p)}}}"


@dataclass(frozen=True)
class PolylogPolicy(PolylogFamily, _PurePolicy):
    """d·(ln(Δ/σ + a)^p − ln(a)^p), the PRDP policy of the exponential polylog (Corollary expolyMech)."""

    kind = "polylog"

    def _loss(self, influence: Array) -> Array:
        return self.d * polylog_rise(influence, self.sigma, self.a, self.p)

    def _text(self, x: str) -> str:
        ratio = x if self.sigma == 1 else f"{x}/{number(self.sigma)}"
        power = "" if self.p == 1 else f"^{number(self.p)}"
        return f"{number(self.d)}·(ln({ratio} + {number(self.a)}){power} − {number(math.log(self.a) ** self.p)})"

    def _latex(self, x: str) -> str:
        ratio = x if self.sigma == 1 else f"\\frac{{{x}}}{{{number(self.sigma)}}}"
        power = "" if self.p == 1 else f"^{{{number(self.p)}}}"
        start = number(math.log(self.a) ** self.p)
        return f"{number(self.d)} \\left[\\ln\\left({ratio} + {number(self.a)}\\right){power} - {start}\\right]"


@dataclass(frozen=True)
class UnitSplittingPolicy(SplittingFamily, Policy):
    """ρ·⌈Δ/threshold⌉² with ρ = threshold²/(2σ²): records split into pieces of at most `threshold`."""

    kind = "unit splitting"

    @property
    def rho(self) -> float:
        """The loss of a record that is not split."""
        return (self.threshold / self.sigma) ** 2 / 2

    def _loss(self, influence: Array) -> Array:
        # Squared last: the number of pieces alone may be too large to be squared.
        return np.asarray((np.ceil(influence / self.threshold) * (self.threshold / self.sigma)) ** 2 / 2)

    def _between(self, low: Array, gap: Array) -> Array:
        # The pieces are summed again, so a changed value shifts one Gaussian.
        return np.asarray((gap / self.sigma) ** 2 / 2)

    def _between_text(self, value: str, other: str, distance: str) -> str:
        return RootPolicy(1, self.sigma)._text(distance)

    def _text(self, x: str) -> str:
        return f"{number(self.rho)}·⌈{x} / {number(self.threshold)}⌉²"

    def _latex(self, x: str) -> str:
        return f"{number(self.rho)} \\left\\lceil \\frac{{{x}}}{{{number(self.threshold)}}} \\right\\rceil^2"


@dataclass(frozen=True)
class TanhPolicy(Policy):
    """tanh(P/2)·P: the PRzCDP policy implied by a PRDP policy P (Lemma PRDP-implies-PRzCDP)."""

    kind = "tanh"

    pure: Policy

    def _check(self) -> None:
        if not isinstance(self.pure, Policy) or self.pure.notion != PURE:
            raise ParameterTypeError(f"pure must be a PRDP policy, got {self.pure!r}")

    def _loss(self, influence: Array) -> Array:
        return tanh_bound(self.pure._loss(influence))

    def _between(self, low: Array, gap: Array) -> Array:
        return tanh_bound(self.pure._between(low, gap))

    def _between_text(self, value: str, other: str, distance: str) -> str:
        return self._wrapped(self.pure._between_text(value, other, distance), False)

    def _group_anywhere(self, values: Array) -> float:
        pure = np.array([self.pure._group_anywhere(values)])
        return min(super()._group_anywhere(values), float(tanh_bound(pure)[0]))

    def _group_in_cell(self, values: Array) -> float:
        pure = np.array([self.pure._group_in_cell(values)])
        return min(super()._group_anywhere(values), float(tanh_bound(pure)[0]))

    def _text(self, x: str) -> str:
        return self._wrapped(self.pure._text(x), False)

    def _latex(self, x: str) -> str:
        return self._wrapped(self.pure._latex(x), True)

    def _wrapped(self, pure: str, latex: bool) -> str:
        if latex:
            return f"\\tanh(\\varepsilon/2)\\,\\varepsilon \\text{{ with }} \\varepsilon = {pure}"
        return f"tanh(ε/2)·ε with ε = {pure}"


@dataclass(frozen=True)
class _CombinedPolicy(Policy):
    terms: tuple[Policy, ...]

    def _check(self) -> None:
        if isinstance(self.terms, list):
            self._set("terms", tuple(self.terms))
        if (
            not isinstance(self.terms, tuple)
            or not self.terms
            or not all(isinstance(term, Policy) for term in self.terms)
        ):
            raise ParameterTypeError(f"terms must be one or more policies, got {self.terms!r}")
        if len({term.notion for term in self.terms}) > 1:
            raise ParameterError("PRDP and PRzCDP policies do not combine: turn the PRDP ones with .to_zcdp() first")

    @property
    def notion(self) -> str:
        """The privacy notion the values are in."""
        return self.terms[0].notion

    @abstractmethod
    def _combine(self, parts: list[Array]) -> Array:
        """Combine the values of the terms."""

    @abstractmethod
    def _join(self, parts: list[str]) -> str:
        """Combine the formulas of the terms."""

    def _loss(self, influence: Array) -> Array:
        return self._combine([term._loss(influence) for term in self.terms])

    def _between(self, low: Array, gap: Array) -> Array:
        return self._combine([term._between(low, gap) for term in self.terms])

    def _group_in_cell(self, values: Array) -> float:
        return float(self._combine([np.array(term._group_in_cell(values)) for term in self.terms]))

    def _text(self, x: str) -> str:
        return self._join([term._text(x) for term in self.terms])


@dataclass(frozen=True)
class SumPolicy(_CombinedPolicy):
    """Sequential composition: the losses add."""

    kind = "sum"

    def _combine(self, parts: list[Array]) -> Array:
        return np.asarray(sum(parts))

    def _join(self, parts: list[str]) -> str:
        return " + ".join(f"({part})" if " with " in part else part for part in parts)

    def _group_anywhere(self, values: Array) -> float:
        return sum(term._group_anywhere(values) for term in self.terms)

    def _group_in_cell(self, values: Array) -> float:
        raise ParameterError(
            "cells must not be given for a sum of policies, which may be of several tables: "
            "group each term with its own cells, and add"
        )

    def _latex(self, x: str) -> str:
        return " + ".join(f"\\left({term._latex(x)}\\right)" for term in self.terms)


@dataclass(frozen=True)
class TimesPolicy(Policy):
    """The same policy several times: `count` releases by one mechanism."""

    kind = "times"

    count: int = whole(at_least=1, typical=(1, 1000))
    policy: Policy = None  # type: ignore[assignment]

    def _check(self) -> None:
        if not isinstance(self.policy, Policy):
            raise ParameterTypeError(f"policy must be a policy, got {self.policy!r}")

    @property
    def notion(self) -> str:
        """The privacy notion the values are in."""
        return self.policy.notion

    def _loss(self, influence: Array) -> Array:
        return self.count * self.policy._loss(influence)

    def _between(self, low: Array, gap: Array) -> Array:
        return self.count * self.policy._between(low, gap)

    def _between_text(self, value: str, other: str, distance: str) -> str:
        return f"{self.count}·({self.policy._between_text(value, other, distance)})"

    def _group_anywhere(self, values: Array) -> float:
        return self.count * self.policy._group_anywhere(values)

    def _group_in_cell(self, values: Array) -> float:
        return self.count * self.policy._group_in_cell(values)

    def _text(self, x: str) -> str:
        return f"{self.count}·({self.policy._text(x)})"

    def _latex(self, x: str) -> str:
        return f"{self.count} \\left({self.policy._latex(x)}\\right)"


@dataclass(frozen=True)
class MaxPolicy(_CombinedPolicy):
    """Parallel composition: a record is in one of the parts, so it loses at most the largest."""

    kind = "max"

    def _combine(self, parts: list[Array]) -> Array:
        return np.asarray(np.max(parts, axis=0))

    def _join(self, parts: list[str]) -> str:
        return f"max({'; '.join(parts)})"

    def _latex(self, x: str) -> str:
        return f"\\max\\left\\{{{', '.join(term._latex(x) for term in self.terms)}\\right\\}}"


_KINDS: tuple[type[Policy], ...] = (
    ConstantPolicy,
    RootPolicy,
    LogPolicy,
    TransformationPolicy,
    PowerPolicy,
    PolylogPolicy,
    UnitSplittingPolicy,
    TanhPolicy,
    SumPolicy,
    TimesPolicy,
    MaxPolicy,
)


def number(x: float) -> str:
    """Write a parameter for people: six digits at most."""
    return f"{x:.6g}"


def _power(top: int, bottom: int) -> str:
    power = Fraction(top, bottom)
    return "" if power == 1 else f"^{power}" if power.denominator == 1 else f"^({power})"


def _bracket(x: str) -> str:
    return f"({x})" if " " in x and not x.startswith("|") else x
