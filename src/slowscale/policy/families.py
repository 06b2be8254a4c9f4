"""Policies of additive noise and of unit splitting, and the constant policy of ordinary differential privacy."""

import math
from dataclasses import dataclass, replace

import numpy as np

from slowscale.core.errors import ParameterError
from slowscale.core.families import (
    ArsinhNormalFamily,
    PointsFamily,
    PolylogFamily,
    PowerFamily,
    Scale,
    SplittingFamily,
)
from slowscale.core.formulas import polylog_rise, power
from slowscale.core.parameters import Array, lazy, real
from slowscale.noise.arsinh import largest_rise
from slowscale.policy import tree
from slowscale.policy.base import PURE, ZCDP, Policy
from slowscale.policy.tree import (
    INFLUENCE,
    Difference,
    Formula,
    HalfSquare,
    LargestRise,
    Logarithm,
    Number,
    Pieces,
    Product,
    Quotient,
    RoundedUp,
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

    A record moves the rank of a size by one, whatever its own size is. A change of its value costs up to four times the
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
        x = influence / self.sigma
        with np.errstate(over="ignore", invalid="ignore"):
            series = x * x * (1 / 2 - x * (1 / 6 - x * (1 / 24 - x * (1 / 120 - x * (1 / 720 - x / 5040)))))
            return np.where(x < 0.01, series, x + np.expm1(-x))

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
    `slowscale.noise.arsinh`.
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
