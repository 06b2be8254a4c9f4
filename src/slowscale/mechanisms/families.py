"""The additive mechanisms: Gaussian and generalized Gaussian noise, the exponential polylog, and unit splitting.

Two of them are not in the paper. The arsinh-normal protects small records as Gaussian noise does, with a loss that
grows with Δ², and large records as the exponential polylog with p = 2 does, with ln(Δ)². `FromPolicy` makes noise from
a promise of what a record of each size may lose: its density is proportional to exp(−P(|z|)), and its PRDP policy is
exactly the promise P, because P increases and is concave (`noise/from_policy.py` has the argument).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.families import ArsinhNormalFamily, PolylogFamily, PowerFamily, Scale, SplittingFamily
from slowscale.core.formulas import smallest_offset
from slowscale.core.parameters import lazy, pairs, real
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.calibration import (
    SCALE_DEFAULT,
    SCALE_FROM_AT,
    SCALE_GIVEN,
    SCALE_SOLVED,
    Target,
    check_default_scale,
    without_warnings,
)
from slowscale.mechanisms.drawing import NORMAL
from slowscale.noise import (
    ArsinhNormalNoise,
    ExponentialPolylogNoise,
    GaussianNoise,
    GeneralizedGaussianNoise,
    PointsNoise,
    ProductNoise,
    SymmetricNoise,
)
from slowscale.noise.from_policy import FromPolicyNoise
from slowscale.noise.log_concave import LogConcaveDensity
from slowscale.policy import (
    PURE,
    ArsinhNormalPolicy,
    LaplacePolicy,
    PointsPolicy,
    Policy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    UnitSplittingPolicy,
    number,
)
from slowscale.sampling.samplers import (
    Envelope,
    Polylog,
    PowerLaw,
    PowerOfAnyGamma,
    PowerOfGamma,
    Sampler,
    Scaled,
    SinhNormal,
    TruncatedNormal,
    build_envelope,
)
from slowscale.sampling.staircase import StaircaseSampler, Term, build_staircase


def _check_noise_size(exponent: float, limit: float = 10_000) -> None:
    """Raise if the noise typically has thousands of digits."""
    if exponent > limit:
        problem = f"is typically of size exp({exponent:.3g}), too large to be released"
        raise ParameterError("the noise", problem, code="too-large", remedy="use a larger `p` or `d`")


def _envelope(density: LogConcaveDensity) -> Envelope:
    """Return an envelope for the sampler of a log-concave density."""
    mode = np.array([density.mode])
    with np.errstate(all="ignore"):
        return build_envelope(
            drop=lambda x: -float(density.rise(mode, np.array([x]) - mode)[0]),
            slope=lambda x: float(density.slope(np.array([x]))[0]),
            mode=density.mode,
            mass=float(np.exp(density.log_integral(np.zeros(1), np.inf)[1][0])),
        )


@dataclass(frozen=True)
class Gaussian(Scale, AdditiveMechanism):
    """q + N(0, σ²), the baseline whose policy grows with Δ² (Definition gaussian_mech).

    >>> m = Gaussian(sigma=75)
    >>> m.std(), m.policy(106)
    (75.0, 0.998...)
    """

    kind = "gaussian"
    words = "Gaussian noise is added to the {total}."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"Gaussian": {}}
    _free = ("sigma",)

    @lazy
    def noise(self) -> GaussianNoise:
        """The distribution of the noise."""
        return GaussianNoise(sigma=self.sigma)

    @property
    def _sampler(self) -> Sampler:
        return NORMAL

    @property
    def policy(self) -> RootPolicy:
        """Δ²/(2σ²)."""
        return RootPolicy(k=1, sigma=self.sigma)

    @property
    def tight_policy(self) -> RootPolicy:
        """Δ²/(2σ²): the closed form is exact."""
        return self.policy

    @property
    def pure_policy(self) -> None:
        """None: Gaussian noise has no pure guarantee."""


@dataclass(frozen=True)
class GeneralizedGaussian(PowerFamily, AdditiveMechanism):
    """q + Z with density proportional to exp(−(|z|/σ)^p), 0 < p <= 1; p = 1 is Laplace (Corollary genGaussMech).

    >>> m = GeneralizedGaussian.calibrate(std=75, p=0.5)
    >>> round(m.sigma, 2), round(m.pure_policy(106), 2)
    (6.85, 3.93)
    """

    kind = "generalized-gaussian"
    words = "Generalized Gaussian noise is added to the {total}."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"generalized Gaussian 1/2": {"p": 0.5}}
    _free = ("sigma", "p")

    @lazy
    def noise(self) -> GeneralizedGaussianNoise:
        """The distribution of the noise."""
        return GeneralizedGaussianNoise(sigma=self.sigma, p=self.p)

    @lazy
    def _sampler(self) -> Sampler:
        _check_noise_size(-math.log(self.p) / self.p)
        shape = 1 / Fraction(self.p)
        if shape.denominator == 1 and shape <= 8:
            return PowerOfGamma(int(shape))
        return PowerOfAnyGamma(self.p, _envelope(self.noise.gamma_density))

    @property
    def pure_policy(self) -> PowerPolicy:
        """(Δ/σ)^p."""
        return PowerPolicy(sigma=self.sigma, p=self.p)


@dataclass(frozen=True)
class Laplace(Scale, AdditiveMechanism):
    """q + Z with density exp(−|z|/σ)/(2σ): the generalized Gaussian with p = 1.

    >>> m = Laplace.calibrate(std=75)
    >>> round(m.sigma, 2), round(m.pure_policy(106), 2)
    (53.03, 2.0)
    """

    kind = "laplace"
    words = "Laplace noise is added to the {total}."
    _free = ("sigma",)

    @lazy
    def noise(self) -> GeneralizedGaussianNoise:
        """The distribution of the noise."""
        return GeneralizedGaussianNoise(sigma=self.sigma, p=1)

    @property
    def _sampler(self) -> Sampler:
        return PowerOfGamma(1)

    @property
    def policy(self) -> LaplacePolicy:
        """x + e^(−x) − 1 with x = Δ/σ, which is exact."""
        return LaplacePolicy(sigma=self.sigma)

    @property
    def tight_policy(self) -> LaplacePolicy:
        """x + e^(−x) − 1 with x = Δ/σ: the closed form is exact."""
        return self.policy

    @property
    def pure_policy(self) -> PowerPolicy:
        """Δ/σ."""
        return PowerPolicy(sigma=self.sigma, p=1)


@dataclass(frozen=True)
class ExponentialPolylog(PolylogFamily, AdditiveMechanism):
    """q + Z with density proportional to exp(−d·ln(|z|/σ + a)^p), p >= 1 (Corollary expolyMech).

    The offset `a` defaults to e^(p−1) and may not be less; d must exceed 1 when p = 1.

    The scale σ is the size below which records are alike: up to about σ the loss grows in proportion to the size, and
    beyond it like a power of the logarithm. It is in the units of the column, and 1 unless it is given. A scale near
    the size of a typical record protects typical records; with σ = 1 and a large standard deviation, most noise is
    small and a little of it is huge. `calibrate(std=…, at=…)` and `calibrate(interval=…, at=…)` set σ to `at`, unless
    it is given. Without `at` and σ, the scale 1 is used for targets up to 10,000; larger ones are refused.

    The first parameter is d, the decay, and not a scale: `ExponentialPolylog(75)` has noise far smaller than 1, and
    gives a `ScaleWarning`, as every d above 61 does.

    >>> m = ExponentialPolylog.calibrate(std=75)
    >>> round(m.d, 4), round(m.policy(1_550_000), 1)
    (0.2378, 48.1)
    >>> ExponentialPolylog.calibrate(std=1_000_000, at=100_000).sigma
    100000.0
    """

    kind = "exponential-polylog"
    words = "Exponential polylogarithmic noise is added to the {total}."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"exponential polylog 2": {"p": 2}}
    _free = ("d", "sigma", "a", "p")
    # The policy tends to d·ln(Δ)^p, whatever sigma is: d can fit where sigma cannot.
    _coarser: ClassVar[Mapping[str, bool]] = {"sigma": True, "d": False}

    @classmethod
    def _implied(cls, target: Target, free: str | None, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """With a target for the error, the scale is the size that the target is for."""
        source = cls._scale_source(fixed, target, free)
        if source == SCALE_DEFAULT:
            check_default_scale(target)
        return {"sigma": float(target.at)} if source == SCALE_FROM_AT and target.at else {}

    @classmethod
    def _scale_source(
        cls, fixed: Mapping[str, Any], target: Target | None = None, free: str | None = None
    ) -> str | None:
        if "sigma" in fixed:
            return SCALE_GIVEN
        if target is not None and (free == "sigma" or (free is None and "d" in fixed)):
            return SCALE_SOLVED
        return SCALE_FROM_AT if target is not None and target.name != "loss" and target.at else SCALE_DEFAULT

    @classmethod
    def _range(cls, name: str, fixed: dict[str, Any]) -> tuple[float, float]:
        low, high = super()._range(name, fixed)
        if name == "d" and fixed.get("p") == 1:
            return 1.0, high
        if name == "a":
            return smallest_offset(float(fixed.get("p", 2.0))), high
        if name == "p":
            most = 1 + math.log(fixed["a"]) if fixed.get("a") is not None else 100.0
            return low, most
        return low, high

    @lazy
    def noise(self) -> ExponentialPolylogNoise:
        """The distribution of the noise."""
        return ExponentialPolylogNoise(d=self.d, sigma=self.sigma, a=self.a, p=self.p)

    @lazy
    def _sampler(self) -> Sampler:
        if self.p == 1:
            # ln(|Z|/σ + a) is exponential with this mean; 41 times the mean is exceeded by one draw in 10¹⁸.
            _check_noise_size(1 / (self.d - 1), limit=1100)
            return PowerLaw(self.d, self.a)
        _check_noise_size(self.noise.coordinate_density.mode)
        if self.p == 2:
            kept = float(special.ndtr((0.5 / self.d - math.log(self.a)) * math.sqrt(2 * self.d)))
            if kept > 0.5:
                return TruncatedNormal(self.d, self.a, min(kept, 0.999))
        return Polylog(self.d, self.a, self.p, _envelope(self.noise.coordinate_density))

    @property
    def pure_policy(self) -> PolylogPolicy:
        """d·(ln(Δ/σ + a)^p − ln(a)^p)."""
        return PolylogPolicy(d=self.d, sigma=self.sigma, a=self.a, p=self.p)


@dataclass(frozen=True)
class UnitSplitting(SplittingFamily, AdditiveMechanism):
    """Gaussian noise on the sum of records split into pieces of at most `threshold` (Section "Unit Splitting").

    It is the method that slowly scaling mechanisms replace: a record of n = ⌈Δ/threshold⌉ pieces has the loss ρ·n².

    >>> UnitSplitting(threshold=10, sigma=50 ** 0.5).policy([5, 20, 10_000]).round().tolist()
    [1.0, 4.0, 1000000.0]
    """

    kind = "unit-splitting"
    words = "Gaussian noise is added to the {total}, and the loss of a large record is accounted for piece by piece."
    _free = ("sigma", "threshold")

    @lazy
    def noise(self) -> GaussianNoise:
        """The distribution of the noise."""
        return GaussianNoise(sigma=self.sigma)

    @property
    def _sampler(self) -> Sampler:
        return NORMAL

    @property
    def policy(self) -> UnitSplittingPolicy:
        """ρ·⌈Δ/threshold⌉²."""
        return UnitSplittingPolicy(threshold=self.threshold, sigma=self.sigma)

    @property
    def tight_policy(self) -> RootPolicy:
        """Δ²/(2σ²): the pieces of a record are summed again, so that it shifts a single Gaussian."""
        return RootPolicy(k=1, sigma=self.sigma)

    @property
    def pure_policy(self) -> None:
        """None: Gaussian noise has no pure guarantee."""


@dataclass(frozen=True)
class ArsinhNormal(ArsinhNormalFamily, AdditiveMechanism):  # type: ignore[override] # sigma is read only
    """q + scale·sinh(shape·N) with N standard normal, 0.1 <= shape <= 6.

    >>> m = ArsinhNormal.calibrate(std=45, shape=1.6)
    >>> round(m.scale, 2), round(m.noise.interval(0.95)[1]), round(m.pure_policy(106), 2)
    (4.93, 57, 5.84)
    """

    kind = "arsinh-normal"
    words = "Arsinh-normal noise is added to the {total}."
    compared: ClassVar[Mapping[str, Mapping[str, Any]]] = {"arsinh-normal 1.6": {"shape": 1.6}}
    _free = ("scale", "shape")
    _closed_form = False
    # The policy tends to ln(2Δ/scale)²/(2·shape²): for large records, the shape can fit where the scale cannot.
    _coarser: ClassVar[Mapping[str, bool]] = {"scale": True, "shape": True}

    @lazy
    def noise(self) -> ArsinhNormalNoise:
        """The distribution of the noise."""
        return ArsinhNormalNoise(scale=self.scale, shape=self.shape)

    @property
    def _sampler(self) -> Sampler:
        return SinhNormal(self.shape)

    @property
    def policy(self) -> Policy:
        """The tight policy: there is no simple closed form."""
        return self.tight_policy

    @property
    def pure_policy(self) -> ArsinhNormalPolicy:
        """The largest rise of −log density over the distance Δ."""
        return ArsinhNormalPolicy(scale=self.scale, shape=self.shape)


PROMISES = "a table of (size, loss) pairs, or a PointsPolicy, PowerPolicy, PolylogPolicy or sum of these"


@dataclass(frozen=True, repr=False)
class FromPolicy(AdditiveMechanism):
    """q + Z with density proportional to exp(−P(|z|)): noise made from a promise P, which is its PRDP policy.

    Parameters
    ----------
    promise
        What a record of each size may lose: a table of (size, loss) pairs, or a PRDP policy. The points are joined by
        straight lines on logarithmic axes; before the first one the loss is proportional to the size, and the last line
        continues beyond the last one. A policy is a `PointsPolicy`, a `PowerPolicy`, a `PolylogPolicy`, or a sum of
        such policies.
    sigma
        Multiplies all sizes in the promise: a record of size sigma·Δ loses what is promised for Δ.

    Notes
    -----
    The log-density of Z + Δ differs from that of Z by at most P(Δ), because |P(x) − P(y)| <= P(|x − y|) for every P
    that increases and is concave; at 0 it differs by P(Δ).

    >>> m = FromPolicy([(100, 0.5), (1e4, 5), (1e6, 12)])
    >>> m.pure_policy([100, 1e4, 1e6]).round(9).tolist()
    [0.5, 5.0, 12.0]
    >>> print(m.pure_policy)
    {Δ / 200 up to 100; 0.5·(Δ / 100)^0.5 up to 10000; 5·(Δ / 10000)^0.190106 beyond}
    >>> round(m.prediction_interval(0)[1])
    116225
    """

    kind = "from-policy"
    words = "Noise that is made from the promised losses is added to the {total}."
    _free = ("sigma",)

    promise: Policy = pairs(  # noqa: RUF009 - it declares a field, as `real` does
        "points",
        doc="The promise: pairs of a record size and its largest PRDP loss, such as [[100, 0.5], [10000, 5]].",
    )
    sigma: float = real(
        above=0, typical=(1e-6, 1e9), default=1.0, doc="Multiplies all sizes in the promise, and the noise."
    )

    if TYPE_CHECKING:  # what the constructor takes is more than what the field holds

        def __init__(self, promise: Policy | Iterable[tuple[float, float]], sigma: float = 1.0) -> None: ...

    def _check(self) -> None:
        if not isinstance(self.promise, Policy):
            if isinstance(self.promise, str) or not isinstance(self.promise, Iterable):
                raise ParameterTypeError("promise", allowed=PROMISES, given=self.promise)
            self._set("promise", PointsPolicy(self.promise))
        _terms(self.promise)
        _ = self.noise  # raises if the noise would be too large

    def __repr__(self) -> str:
        return self._written(repr) or f"FromPolicy(promise={self.promise!r}, sigma={self.sigma!r})"

    def __str__(self) -> str:
        return self._written(number) or super().__str__()

    def _written(self, write: Callable[[float], str]) -> str:
        """Return the mechanism with the points of its promise, or an empty text if other policies are in it."""
        if not isinstance(self.promise, PointsPolicy) or self.promise.sigma != 1:
            return ""
        points = ", ".join(f"({write(size)}, {write(loss)})" for size, loss in self.promise.points)
        return f"FromPolicy(promise=[{points}], sigma={write(self.sigma)})"

    @lazy
    def pure_policy(self) -> Policy:
        """The promise, with all sizes multiplied by sigma."""
        return self.promise if self.sigma == 1 else _stretched(self.promise, self.sigma)

    @lazy
    def _same(self) -> GeneralizedGaussian | ExponentialPolylog | None:
        """The mechanism of the paper that has this policy, if there is one: its noise has closed forms."""
        policy = self.pure_policy
        with without_warnings():  # what is unusual is reported of this mechanism
            if isinstance(policy, PowerPolicy):
                return GeneralizedGaussian(sigma=policy.sigma, p=policy.p)
            if isinstance(policy, PolylogPolicy):
                return ExponentialPolylog(d=policy.d, sigma=policy.sigma, a=policy.a, p=policy.p)
        return None

    @lazy
    def noise(self) -> SymmetricNoise:
        """The distribution of the noise."""
        if self._same is not None:
            return self._same.noise
        with without_warnings():
            factors = tuple((count, _noise(term)) for count, term in _terms(self.pure_policy))
        return factors[0][1] if len(factors) == 1 and factors[0][0] == 1 else ProductNoise(factors)

    @lazy
    def _sampler(self) -> Sampler:
        scale = Fraction(self.sigma)
        if self._same is not None:
            return Scaled(self._same._sampler, Fraction(self._same.sigma) / scale)
        noise: Any = self.noise
        assert isinstance(noise, FromPolicyNoise)
        staircase = build_staircase(noise._drop, noise._elasticity, noise._kinks, noise._log_mass)
        sampler = StaircaseSampler(_terms(self.pure_policy), staircase)
        return sampler if scale == 1 else Scaled(sampler, 1 / scale)


def _terms(policy: Policy) -> tuple[tuple[int, Term], ...]:
    """Return a promise as a sum of policies with known noise, each with how often it counts."""
    if policy.notion != PURE:
        comes_from = "pass the PRDP policy that it comes from, its attribute pure"
        remedy = comes_from if isinstance(policy, TanhPolicy) else f"state PRDP losses instead: {PROMISES}"
        given = Shown(f"the {policy.notion} policy {policy}")
        raise ParameterError("promise", allowed="a PRDP policy", code="notion", given=given, remedy=remedy)
    if isinstance(policy, PointsPolicy | PowerPolicy | PolylogPolicy):
        return ((1, policy),)
    if isinstance(policy, TimesPolicy):
        return tuple((policy.count * count, term) for count, term in _terms(policy.policy))
    if isinstance(policy, SumPolicy):
        return tuple(found for term in policy.terms for found in _terms(term))
    if policy.constant:
        problem = "must grow with the size: noise with the same loss for every record would be infinite"
        raise ParameterError("promise", problem, code="constant", given=Shown(f"the constant {policy}"))
    raise ParameterError("promise", allowed=PROMISES, given=type(policy))


def _stretched(policy: Policy, factor: float) -> Policy:
    """Return a promise with all sizes multiplied by a factor."""
    if isinstance(policy, TimesPolicy):
        return replace(policy, policy=_stretched(policy.policy, factor))
    if isinstance(policy, SumPolicy):
        return SumPolicy(tuple(_stretched(term, factor) for term in policy.terms))
    known: Any = policy
    stretched: Policy = replace(known, sigma=known.sigma * factor)
    return stretched


def _noise(term: Any) -> SymmetricNoise:
    """Return the noise of one term of a promise."""
    if isinstance(term, PointsPolicy):
        return PointsNoise(term.points, sigma=term.sigma)
    return FromPolicy(term).noise
