"""Policies of the mechanisms: of additive noise, of unit splitting and of transformations (Theorem transform).

The constant policy is that of ordinary differential privacy.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.families import (
    ArsinhFamily,
    ArsinhNormalFamily,
    LogFamily,
    PointsFamily,
    PolylogFamily,
    PowerFamily,
    RootFamily,
    Scale,
    SplittingFamily,
)
from slowscale.core.formulas import (
    check_concave,
    laplace_loss,
    log1p_ratio,
    log_gap,
    polylog_rise,
    power,
    root,
    root_gap,
    root_rise,
)
from slowscale.core.parameters import Array, apply, check_range, lazy, real
from slowscale.noise.arsinh_normal import largest_rise
from slowscale.policy import tree
from slowscale.policy.base import PURE, ZCDP, Policy
from slowscale.policy.tree import (
    INFLUENCE,
    Absolute,
    Arsinh,
    Call,
    Difference,
    Formula,
    HalfSquare,
    KthRoot,
    LargestRise,
    Logarithm,
    Number,
    Pieces,
    Product,
    Quotient,
    RoundedUp,
    shift,
)


@dataclass(frozen=True)
class ConstantPolicy(Policy):
    """The same loss for every record: ordinary differential privacy, for instance of a count."""

    kind = "constant"
    _sums_within_cell = False

    loss: float = real(at_least=0, typical=(0.001, 10))
    of: str = ZCDP

    def _check(self) -> None:
        if self.of not in (ZCDP, PURE):
            raise ParameterError("of", allowed=f"{ZCDP!r} or {PURE!r}", given=self.of)

    @property
    def notion(self) -> str:
        """The privacy notion of the losses."""
        return self.of

    @property
    def constant(self) -> bool:
        """True: every record has the same loss."""
        return True

    def _loss(self, influence: Array) -> Array:
        return np.full_like(influence, self.loss)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return Number(self.loss)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose loss is 1, and its coefficient."""
        return {replace(self, loss=1.0): self.loss}

    @property
    def _loss_of_change(self) -> float:
        # Changing a record amounts to removing one record and adding another.
        return self.loss * (2 if self.notion == PURE else 4)

    def _between(self, low: Array, gap: Array) -> Array:
        return np.full_like(gap, self._loss_of_change)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return Number(self._loss_of_change)


@dataclass(frozen=True)
class RankPolicy(ConstantPolicy):
    """The same loss for every record, through its rank: that of quantiles.

    A record of any size moves the rank of a size by one. A change of its value costs up to four times the
    loss (twice, as PRDP), because it amounts to removing one record and adding another. A count costs nothing then.
    """

    kind = "rank"

    @property
    def by_rank(self) -> bool:
        """True: a change of the record's value changes ranks."""
        return True


@dataclass(frozen=True)
class LaplacePolicy(Scale, Policy):
    """x + e^(−x) − 1 with x = Δ/σ: the tight PRzCDP policy of Laplace noise, exact.

    It is the Kullback–Leibler divergence, the limit α → 1. With α = 1/2 + s, the Rényi divergence of order α is
    (ln F(s²) − ln F(1/4))/(α − 1) with F(u) = cosh(√u·x) + sinh(√u·x)/(2√u), and α·(α − 1) = s² − 1/4. F is an entire
    function of order 1/2 whose zeros are the eigenvalues, with their signs changed, of −y'' = λy with y'(0) = y(0)/2
    and y(x) = 0. They are real, and negative, because F > 0 on [0, ∞). So F is a product of factors 1 + u/λ, its
    logarithm is concave, and the slope d_α/α falls as α rises.
    """

    kind = "laplace"

    def _loss(self, influence: Array) -> Array:
        return laplace_loss(influence / self.sigma)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return tree.LaplaceShift(x if self.sigma == 1 else Quotient(x, self.sigma))


class _PurePolicy(Policy):
    @property
    def notion(self) -> str:
        """The privacy notion of the losses."""
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

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return tree.raised(Quotient(x, self.sigma), self.p)


@dataclass(frozen=True)
class PolylogPolicy(PolylogFamily, _PurePolicy):
    """d·(ln(Δ/σ + a)^p − ln(a)^p), the PRDP policy of the exponential polylog (Corollary expolyMech)."""

    kind = "polylog"

    def _loss(self, influence: Array) -> Array:
        return self.d * polylog_rise(influence, self.sigma, self.a, self.p)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        ratio = x if self.sigma == 1 else Quotient(x, self.sigma)
        grown = tree.raised(Logarithm(tree.Shift(ratio, self.a), tall=True), self.p)
        return Product(Number(self.d), Difference(grown, Number(math.log(self.a) ** self.p)))


@dataclass(frozen=True)
class ArsinhNormalPolicy(ArsinhNormalFamily, _PurePolicy):
    """The largest rise of −log density over the distance Δ: the PRDP policy of the arsinh-normal.

    It is never below the exact supremum, and at most 2e-7 of it above. It is concave in Δ: see
    `slowscale.noise.arsinh_normal`.
    """

    kind = "arsinh normal"

    def _loss(self, influence: Array) -> Array:
        return largest_rise(influence, self.scale, self.shape)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return LargestRise(x, self.scale, self.shape)


@dataclass(frozen=True)
class PointsPolicy(PointsFamily, _PurePolicy):
    """The curve through (size, loss) pairs: a PRDP policy that a curator draws, for `FromPolicy`.

    On logarithmic axes the points are joined by straight lines; before the first point the loss is proportional to the
    size, and the last line continues beyond the last point. Sizes and losses must increase, and the
    curve must bend downwards on these axes, so it is concave. All sizes are multiplied by σ.

    >>> P = PointsPolicy([(10, 0.1), (1000, 2), (1e6, 8)])
    >>> P([1, 10, 100, 1000, 1e9]).round(3).tolist()
    [0.01, 0.1, 0.447, 2.0, 32.0]
    >>> print(P)
    {Δ / 100 up to 10; 0.1·(Δ / 10)^0.650515 up to 1000; 2·(Δ / 1000)^0.200687 beyond}
    """

    kind = "points"

    @lazy
    def _arrays(self) -> tuple[Array, Array]:
        """Return the ends of the pieces, and one column per piece: its size, loss and exponent."""
        return np.array(self.ends), np.array(self.pieces).T

    def _loss(self, influence: Array) -> Array:
        ends, pieces = self._arrays
        piece = np.searchsorted(ends, influence)
        size, loss, exponent = (row.take(piece) for row in pieces)
        with np.errstate(divide="ignore"):
            grown = np.log(influence / size)
        grown *= exponent
        np.exp(grown, out=grown)
        grown *= loss
        return np.asarray(grown)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        parts = [
            Quotient(x, size / loss)
            if exponent == 1
            else Product(Number(loss), tree.raised(Quotient(x, size), exponent))
            for size, loss, exponent in self.pieces
        ]
        return Pieces(x, self.ends, tuple(parts)) if self.ends else parts[0]


@dataclass(frozen=True)
class UnitSplittingPolicy(SplittingFamily, Policy):
    """ρ·⌈Δ/threshold⌉² with ρ = threshold²/(2σ²): records split into pieces of at most `threshold`."""

    kind = "unit splitting"

    @property
    def rho(self) -> float:
        """The loss of a record that is not split."""
        return tree.per_piece(self.threshold, self.sigma)

    @property
    def step(self) -> float:
        """The size of the pieces: the loss grows with their number."""
        return self.threshold

    def _loss(self, influence: Array) -> Array:
        # Squared last, because the square of the number of pieces alone may overflow.
        return np.asarray((np.ceil(influence / self.threshold) * (self.threshold / self.sigma)) ** 2 / 2)

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return HalfSquare(RoundedUp(x, self.threshold), self.sigma)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose scale is one piece, and its coefficient."""
        with np.errstate(over="ignore"):
            return {replace(self, sigma=self.threshold): float((np.float64(self.threshold) / self.sigma) ** 2)}

    def _between(self, low: Array, gap: Array) -> Array:
        # The pieces of a record are summed again, so a change of its value shifts a single Gaussian.
        return np.asarray((gap / self.sigma) ** 2 / 2)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return HalfSquare(tree.KthRoot(distance, 1), self.sigma)


class TransformingPolicy(Policy):
    """(f(Δ + a) − f(a))²/(2σ²), the policy of Theorem transform and of Corollary BndPrivTransMechGlobSum."""

    _band_rises = False  # for f(x) = x/(x + 100), large values are hidden better than medium ones
    sigma: float
    a: float

    @abstractmethod
    def _rise(self, x: Array) -> Array:
        """Return f(x + a) − f(a) for x >= 0."""

    @abstractmethod
    def _gap(self, low: Array, gap: Array) -> Array:
        """Return f(low + gap) − f(low)."""

    @abstractmethod
    def _transformed(self, x: Formula) -> Formula:
        """Return f(x) as a tree."""

    def _half_square(self, x: Array) -> Array:
        return np.asarray((x / self.sigma) ** 2 / 2)

    def _loss(self, influence: Array) -> Array:
        return self._half_square(self._rise(influence))

    def _between(self, low: Array, gap: Array) -> Array:
        check_range("value (also the changed one)", low, 0)
        return self._half_square(self._gap(low + self.a, gap))

    def _rise_formula(self, x: Formula) -> Formula:
        """Return f(x + a) − f(a) as a tree."""
        return Difference(self._transformed(shift(x, self.a)), self._transformed(Number(self.a)))

    def _gap_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        """Return f(value + a) − f(other + a) as a tree, which may be negative."""
        return Difference(self._transformed(shift(value, self.a)), self._transformed(shift(other, self.a)))

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return HalfSquare(self._rise_formula(x), self.sigma)

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return HalfSquare(self._gap_formula(value, other, distance), self.sigma)

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        """Return the starred bounds of Table metric-mechSummaryNew, which leave out the offset a of a root."""
        if times is not None and times < 0:
            raise ParameterError("times", allowed=">= 0 under a transformation mechanism", given=times)
        check_range("value (also the changed one)", low, 0)
        return self._without_offset()._loss(gap) if times is None else self._loose_times(value, times)

    def _loose_formula(self, value: Formula, other: Formula, distance: Formula, times: float | None) -> Formula:
        if times is None:
            return self._without_offset().formula(distance)
        return self._loose_times_formula(value, other, times)

    def _without_offset(self) -> "TransformingPolicy":
        """Return the policy whose value at the distance bounds the loss between r and r + add."""
        return self

    def _loose_times(self, value: Array, times: float) -> Array:
        """Return the bound of Table metric-mechSummaryNew on the loss between r and times·r."""
        return self._between(value * min(times, 1.0), value * abs(times - 1))

    def _loose_times_formula(self, value: Formula, other: Formula, times: float) -> Formula:
        return self._between_formula(value, other, other)

    def _unit_shape(self: Self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        with np.errstate(over="ignore"):
            return {replace(self, sigma=1.0): float(np.float64(self.sigma) ** -2)}  # type: ignore[type-var]


@dataclass(frozen=True)
class RootPolicy(RootFamily, TransformingPolicy):
    """((Δ + a)^(1/k) − a^(1/k))²/(2σ²): the kth root transformation; k = 1 is the Gaussian mechanism's Δ²/(2σ²)."""

    kind = "root"
    _band_rises = True

    def _rise(self, x: Array) -> Array:
        return root_rise(x, self.a, self.k)

    def _gap(self, low: Array, gap: Array) -> Array:
        return root_gap(low, gap, self.k)

    def _transformed(self, x: Formula) -> Formula:
        return KthRoot(x, self.k)

    def _rise_formula(self, x: Formula) -> Formula:
        # For k = 1 the offset cancels, and without an offset the second root is 0.
        return KthRoot(x, self.k) if self.k == 1 or self.a == 0 else super()._rise_formula(x)

    def _gap_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return KthRoot(distance, 1) if self.k == 1 else super()._gap_formula(value, other, distance)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        return self._unit_shape()

    def _between(self, low: Array, gap: Array) -> Array:
        return self._half_square(gap) if self.k == 1 else super()._between(low, gap)

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        additive = self.k == 1 and self.a == 0
        return self._between(low, gap) if additive else super()._loose(value, low, gap, times)

    def _without_offset(self) -> TransformingPolicy:
        return RootPolicy(k=self.k, sigma=self.sigma)

    def _loose_times(self, value: Array, times: float) -> Array:
        return self._half_square((1 - times ** (1 / self.k)) * root(value, self.k))

    def _loose_times_formula(self, value: Formula, other: Formula, times: float) -> Formula:
        factor = Difference(Number(1), KthRoot(Number(times), self.k))
        return HalfSquare(Product(factor, KthRoot(value, self.k)), self.sigma)

    def _group_anywhere(self, values: Array) -> float:
        # For k >= 2 and no offset, P is concave with P(0) = 0, so the records lose most in different cells.
        return float(self._loss(values).sum()) if self.k >= 2 and self.a == 0 else super()._group_anywhere(values)


@dataclass(frozen=True)
class LogPolicy(LogFamily, TransformingPolicy):
    """(ln(Δ + a) − ln a)²/(2σ²): the log transformation."""

    kind = "log"
    _band_rises = True

    def _rise(self, x: Array) -> Array:
        return log1p_ratio(x, self.a)

    def _gap(self, low: Array, gap: Array) -> Array:
        return log_gap(low, gap)

    def _transformed(self, x: Formula) -> Formula:
        return Logarithm(x)

    def _rise_formula(self, x: Formula) -> Formula:
        return Logarithm(shift(x, 1)) if self.a == 1 else super()._rise_formula(x)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        return self._unit_shape()

    def _loose_times(self, value: Array, times: float) -> Array:
        rise = math.inf if times == 0 else math.log(times)
        return np.where(value == 0, 0.0, self._half_square(np.full_like(value, rise)))

    def _loose_times_formula(self, value: Formula, other: Formula, times: float) -> Formula:
        return HalfSquare(Logarithm(Number(times)), self.sigma)


@dataclass(frozen=True)
class ArsinhPolicy(ArsinhFamily, TransformingPolicy):
    """(2·arsinh(Δ/(2s)))²/(2σ²): the arsinh transformation of sums of any sign.

    The slope of arsinh(x/s) is even and falls with |x|, so that a change by Δ moves the transformed sum most from −Δ/2
    to Δ/2.
    """

    kind = "arsinh"
    a = 0.0
    _band_rises = True

    def _rise(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(2 * np.arcsinh(x / (2 * self.s)))

    def _gap(self, low: Array, gap: Array) -> Array:
        return self._rise(gap)  # the rest of the sum may have any sign

    def _between(self, low: Array, gap: Array) -> Array:
        return self._loss(gap)  # values may be negative

    def _transformed(self, x: Formula) -> Formula:
        return Arsinh(Quotient(x, self.s))

    def _rise_formula(self, x: Formula) -> Formula:
        return Product(Number(2), Arsinh(Quotient(x, 2 * self.s)))

    def _gap_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return self._rise_formula(distance)

    def shapes(self) -> dict[Policy, float]:
        """Return the shape whose scale is 1, and its coefficient."""
        return self._unit_shape()

    def _loose(self, value: Array, low: Array, gap: Array, times: float | None) -> Array:
        return self._between(low, gap)

    def _loose_formula(self, value: Formula, other: Formula, distance: Formula, times: float | None) -> Formula:
        return self._between_formula(value, other, distance)


@dataclass(frozen=True)
class TransformationPolicy(TransformingPolicy):
    """(f(Δ + a) − f(a))²/(2σ²) for a user-given concave, strictly increasing f."""

    kind = "transformation"

    f: Callable[[Any], Any]
    sigma: float = real(above=0, typical=(0.01, 100))
    a: float = real(typical=(0, 100), default=0.0)

    def _check(self) -> None:
        if not callable(self.f):
            raise ParameterTypeError("f", allowed="a function", given=self.f)
        check_concave(self.f, self.a)

    def _rounding_error(self, influence: Array) -> Array:
        # Subtracting f(a) cancels the leading digits of the loss of small records.
        eps = np.finfo(float).eps
        start, end = apply(self.f, np.array([self.a])), apply(self.f, influence + self.a)
        cancelled = 8 * eps * (np.abs(end) + np.abs(start)) / np.abs(end - start)
        return np.asarray(2 * (cancelled + eps * (influence + abs(self.a)) / influence))

    def _rise(self, x: Array) -> Array:
        return apply(self.f, x + self.a) - apply(self.f, np.array([self.a]))

    def _gap(self, low: Array, gap: Array) -> Array:
        return apply(self.f, low + gap) - apply(self.f, low)

    def _transformed(self, x: Formula) -> Formula:
        return Call(self.f, x)


@dataclass(frozen=True)
class ComposedPolicy(Policy):
    """P(f(Δ + a) − f(a)): the policy P of some noise that is added to a transformed sum.

    Two neighbouring sums differ by Δ or less. By concavity, f(q + a) then differs by f(Δ + a) − f(a) or less, and P
    does not decrease.

    Parameters
    ----------
    outer
        The policy of the noise: PRzCDP or PRDP.
    inner
        The policy of the same transformation with Gaussian noise of scale 1.
    """

    kind = "composed"

    outer: Policy
    inner: TransformingPolicy

    def _check(self) -> None:
        if not isinstance(self.outer, Policy):
            raise ParameterTypeError("outer", allowed="a policy", given=self.outer)
        if not isinstance(self.inner, TransformingPolicy) or self.inner.sigma != 1:
            raise ParameterTypeError("inner", allowed="the policy of a transformation, with sigma 1", given=self.inner)

    @property
    def notion(self) -> str:
        """The privacy notion of the losses: that of the noise."""
        return self.outer.notion

    @property
    def _band_rises(self) -> bool:  # type: ignore[override]
        return self.inner._band_rises

    @property
    def upper(self) -> Policy | None:
        """The composition with the simpler form of the policy of the noise."""
        return None if self.outer.upper is None else replace(self, outer=self.outer.upper)

    @property
    def precision(self) -> float:
        """By which share the policy may lie above the smallest possible one: that of the policy of the noise."""
        return float(getattr(self.outer, "precision", 0.0))

    def _rounding_error(self, influence: Array) -> Array:
        # A loss grows at most like the square of its argument, so that a relative error at most doubles.
        rise = self.inner._rise(influence)
        return np.asarray(self.inner._rounding_error(influence) + self.outer._rounding_error(rise))

    def _loss(self, influence: Array) -> Array:
        return self.outer._loss(self.inner._rise(influence))

    def formula(self, x: Formula = INFLUENCE) -> Formula:
        """Return P(x) as a tree."""
        return self.outer.formula(self.inner._rise_formula(x))

    def shapes(self) -> dict[Policy, float]:
        """Return the shapes of the noise's policy, each of them composed."""
        return {replace(self, outer=shape): times for shape, times in self.outer.shapes().items()}

    def _between(self, low: Array, gap: Array) -> Array:
        if not isinstance(self.inner, ArsinhPolicy):
            check_range("value (also the changed one)", low, 0)
        return self.outer._loss(self.inner._gap(low + self.inner.a, gap))

    def _between_formula(self, value: Formula, other: Formula, distance: Formula) -> Formula:
        return self.outer.formula(Absolute(self.inner._gap_formula(value, other, distance)))

    def value(self, influence: float) -> float:
        """Return the loss of one record size, with more digits if the policy of the noise has a curve."""
        rise = float(self.inner._rise(np.array([influence]))[0])
        return float(self.outer.value(rise)) if hasattr(self.outer, "value") else self.outer(rise)
