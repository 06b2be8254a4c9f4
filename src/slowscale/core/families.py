"""The parameters of each family, declared once: their domains, their typical values, and the conditions between them.

The noise, the policy and the mechanism of a family inherit its class, so that none of them repeats a domain or a check.
"""

import math
from dataclasses import KW_ONLY, dataclass

from slowscale.core.errors import ParameterError, Shown
from slowscale.core.formulas import Points, as_points, polylog_offset, power_pieces, stretched_points
from slowscale.core.parameters import Declared, lazy, real

SCALE, OFFSET = "The scale of the noise.", "The offset."
POLYLOG_SCALE = (
    "The scale of the noise, in the units of the column: up to about this size the loss grows in proportion to the "
    "size, and beyond it like a power of the logarithm. If it is not given, it is `at` with a target `std` or "
    "`interval`, and otherwise 1; a target of more than 10,000 needs one of the two."
)
DECAY = "The decay: with a larger one, the noise is smaller."
# The advisor tries values up to 61. With larger ones the noise rarely reaches 1/20 of its scale.
MOST_USUAL_DECAY = 61.0


@dataclass(frozen=True, kw_only=True)
class Scale(Declared):
    """Noise with a scale as its only parameter: Gaussian."""

    sigma: float = real(above=0, typical=(1e-6, 1e9), doc=SCALE)


@dataclass(frozen=True, kw_only=True)
class PowerFamily(Declared):
    """Generalized Gaussian: (|z|/σ)^p, 0 < p <= 1."""

    sigma: float = real(above=0, typical=(1e-6, 1e9), doc=SCALE)
    p: float = real(above=0, at_most=1, typical=(0.1, 1), doc="The power, at most 1.")


@dataclass(frozen=True, kw_only=True)
class PolylogFamily(Declared):
    """Exponential polylogarithmic: d·ln(|z|/σ + a)^p, p >= 1; `a` is e^(p−1) by default, and at least that."""

    d: float = real(above=0, typical=(0.02, 50), doc=DECAY, most_usual=MOST_USUAL_DECAY)
    sigma: float = real(above=0, typical=(1e-6, 1e9), default=1.0, doc=POLYLOG_SCALE)
    a: float = real(at_least=1, typical=(1, 1e3), optional=True, doc=OFFSET)
    p: float = real(at_least=1, typical=(1, 6), default=2.0, doc="The power, at least 1.")

    def _check(self) -> None:
        self._set("a", polylog_offset(self.a, self.p))
        d, a, p = self.d, self.a, self.p
        if p > 1 and p * math.log(math.log(a)) + math.log(d) > 600:
            given, remedy = Shown(f"p = {p:g}, a = {a:g}, d = {d:g}"), "choose a smaller `p`"
            raise ParameterError("d·ln(a)**p", "is too large for a float", code="too-large", given=given, remedy=remedy)
        if p == 1:
            if d <= 1:
                raise ParameterError("d", allowed="> 1 when p = 1", given=d)
        elif -math.log(d * p) * p / (p - 1) > 300:
            size = f"exp(u) with ln u = {-math.log(d * p) / (p - 1):.0f}, which no computer can represent"
            problem = f"is too small for p = {p:g}: the noise is typically of size {size}"
            raise ParameterError("d", problem, code="too-small", given=d)


@dataclass(frozen=True, kw_only=True)
class ArsinhNormalFamily(Declared):
    """Arsinh-normal: scale·sinh(shape·N), N standard normal. With a smaller shape than 0.1 it would be Gaussian."""

    scale: float = real(above=0, typical=(1e-6, 1e9), doc=SCALE)
    shape: float = real(at_least=0.1, at_most=6, typical=(0.5, 3), doc="The weight of the tails, from 0.1 to 6.")

    @property
    def sigma(self) -> float:
        """The scale, by the name that it has in other families."""
        return self.scale


@dataclass(frozen=True)
class PointsFamily(Declared):
    """The curve through (size, loss) pairs, with all sizes multiplied by σ.

    Before the first point the loss is proportional to the size. From point to point it is a power of the size, which is
    a straight line on logarithmic axes, and the last power continues beyond the last point. The powers do not increase
    from piece to piece, so the curve is concave: |P(x) − P(y)| <= P(|x − y|).
    """

    points: Points
    _: KW_ONLY
    sigma: float = real(above=0, typical=(1e-6, 1e9), default=1.0, doc=SCALE)

    def _check(self) -> None:
        self._set("points", as_points(self.points))
        as_points(self.curve)  # the stretched sizes must be floats, too

    @lazy
    def curve(self) -> Points:
        """The points with their sizes multiplied by σ: the ones that define the loss."""
        return self.points if self.sigma == 1 else stretched_points(self.points, self.sigma)

    @lazy
    def pieces(self) -> tuple[tuple[float, float, float], ...]:
        """The powers loss·(x/size)^exponent, as (size, loss, exponent). Each ends where the next one begins."""
        return power_pieces(self.curve)

    @property
    def ends(self) -> tuple[float, ...]:
        """The sizes at which a piece ends and the next one begins."""
        return tuple(size for size, _ in self.curve[:-1])


@dataclass(frozen=True, kw_only=True)
class SplittingFamily(Declared):
    """Unit splitting: pieces of at most `threshold`, with Gaussian noise of scale σ."""

    threshold: float = real(above=0, typical=(1, 1e6), doc="The size of the pieces.")
    sigma: float = real(above=0, typical=(1e-6, 1e9), doc=SCALE)

    def _check(self) -> None:
        # Floats must represent ρ = threshold²/(2σ²): a loss must not become 0 by underflow.
        if not 1e-150 <= self.threshold / self.sigma <= 1e150:
            given = Shown(f"{self.threshold:g} with sigma = {self.sigma:g}")
            raise ParameterError("threshold", allowed="between 1e-150 and 1e150 times `sigma`", given=given)


@dataclass(frozen=True, kw_only=True)
class RootFamily(Declared):
    """The kth root of the sum plus `a`."""

    k: float = real(
        at_least=1,
        typical=(1, 8),
        doc="Which root: 2 is the square root, 4 the fourth. A whole number for Gaussian noise.",
    )
    sigma: float = real(above=0, typical=(0.01, 100), doc=SCALE)
    a: float = real(at_least=0, typical=(0, 1e3), default=0.0, doc=OFFSET)

    def _check(self) -> None:
        if self.k.is_integer():
            self._set("k", int(self.k))


@dataclass(frozen=True, kw_only=True)
class ArsinhFamily(Declared):
    """arsinh(x/s) of sums of any sign: nearly linear up to s, and logarithmic beyond."""

    s: float = real(above=0, typical=(1, 1e6), doc="The size up to which the transformation is nearly linear.")
    sigma: float = real(above=0, typical=(0.01, 5), doc=SCALE)


@dataclass(frozen=True, kw_only=True)
class LogFamily(Declared):
    """The logarithm of the sum plus `a`."""

    sigma: float = real(above=0, typical=(0.01, 5), doc=SCALE)
    a: float = real(above=0, typical=(0.01, 1e3), default=1.0, doc=OFFSET)
