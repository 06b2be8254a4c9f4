"""Additive mechanisms: q + Z (Algorithm additive, Theorem PrivSymCnvxDens and its corollaries).

The noise does not depend on q, so the error is a public constant and the intervals are exact. Unit splitting is
here too: it is Gaussian noise with a different privacy accounting.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, overload

import numpy as np
from scipy import special

from slowscale.core.errors import ParameterError
from slowscale.core.families import PolylogFamily, PowerFamily, Scale, SplittingFamily
from slowscale.core.formulas import smallest_offset
from slowscale.core.parameters import Array, as_number, check_range, evaluate, lazy, level_quantile
from slowscale.core.typing import ArrayLike, NumberArray, Scalar, UnitLike
from slowscale.mechanisms.base import Mechanism
from slowscale.mechanisms.calibration import (
    SCALE_DEFAULT,
    SCALE_FROM_AT,
    SCALE_GIVEN,
    SCALE_SOLVED,
    Target,
    check_default_scale,
)
from slowscale.mechanisms.drawing import NORMAL, draw_additive
from slowscale.mechanisms.exact_sums import Sums
from slowscale.mechanisms.grid import EXACT, add, as_unit, directed, floors, largest, outward, shaped, shift, values
from slowscale.mechanisms.noisy import Noisy
from slowscale.mechanisms.rounding import PLACES, largest_error, rounded_error
from slowscale.noise import ExponentialPolylogNoise, GaussianNoise, GeneralizedGaussianNoise, SymmetricNoise
from slowscale.noise.log_concave import LogConcaveDensity
from slowscale.policy import (
    Certificate,
    LaplacePolicy,
    Policy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    TightPolicy,
    UnitSplittingPolicy,
)
from slowscale.sampling import BitSource
from slowscale.sampling.samplers import (
    Envelope,
    Polylog,
    PowerLaw,
    PowerOfAnyGamma,
    PowerOfGamma,
    Sampler,
    TruncatedNormal,
    build_envelope,
)

# A warning is given if rounding biases results by more than this share of their standard error.
BIAS_WARNED_OF = 0.1


class AdditiveMechanism(Mechanism):
    """q + Z, with Z drawn from `noise`."""

    _error_grows = False

    sigma: float

    @property
    @abstractmethod
    def noise(self) -> SymmetricNoise:
        """The distribution of the noise."""

    @property
    def _missing_moments(self) -> str:
        power = self.noise._tail_power
        return "no mean and no variance" if power <= 2 else "no variance" if power <= 3 else ""

    @property
    def policy(self) -> Policy:
        """The PRzCDP policy tanh(P/2)·P of the pure policy P."""
        assert self.pure_policy is not None
        return self.pure_policy.to_zcdp()

    @property
    def tight_policy(self) -> Policy:
        """The smallest PRzCDP policy of the noise, certified within 1 %, and never above the closed form.

        It is read from a curve that is computed when it is first needed, in about a second, and then kept in a file.
        """
        assert self.pure_policy is not None
        return TightPolicy(self.noise, self.pure_policy.to_zcdp())

    def tight_loss(self, influence: float) -> float:
        """Return the tight loss of one record size, certified within 0.1 %; this needs no curve."""
        policy = self.tight_policy
        size = as_number("influence", influence, "a finite number >= 0")
        check_range("influence", np.array([size]), 0)
        return policy.value(size) if isinstance(policy, TightPolicy) else policy(size)

    def tight_certificate(self) -> Certificate:
        """Return what proves the tight policy; print it, or check it again with its method `verify`."""
        policy = self.tight_policy
        return policy.certificate() if isinstance(policy, TightPolicy) else super().tight_certificate()

    @overload
    def variance(self, q: Scalar | None = None, unit: UnitLike | None = None) -> float: ...

    @overload
    def variance(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def variance(self, q: Scalar | ArrayLike | None = None, unit: UnitLike | None = None) -> float | Array:
        """Return the variance of the ideal output, which is the same for every q.

        With a `unit`, return that of the published (rounded) value when the sum is q; without q, the largest over all
        sums.
        """
        if unit is None:
            return _constant(self.noise.var(), q)
        return self._rounded(q, as_unit(unit))[1] ** 2

    @overload
    def std(self, q: Scalar | None = None, unit: UnitLike | None = None) -> float: ...

    @overload
    def std(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def std(self, q: Scalar | ArrayLike | None = None, unit: UnitLike | None = None) -> float | Array:
        """Return the standard deviation of the ideal output, which is the same for every q.

        With a `unit`, return that of the published (rounded) value when the sum is q; without q, the largest over all
        sums.
        """
        return _constant(self.noise.std(), q) if unit is None else self._rounded(q, as_unit(unit))[1]

    @overload
    def bias(self, q: Scalar | None = None, unit: UnitLike | None = None) -> float: ...

    @overload
    def bias(self, q: ArrayLike, unit: UnitLike | None = None) -> Array: ...

    def bias(self, q: Scalar | ArrayLike | None = None, unit: UnitLike | None = None) -> float | Array:
        """Return E[output] − q: 0 for the ideal output. Rounding to a `unit` coarser than the noise adds a bias.

        Without q, return the largest bias over all sums. If the noise has no mean, there is no E[output]: return nan.
        """
        mean = self.noise.mean()
        return _constant(mean, q) if unit is None else mean + self._rounded(q, as_unit(unit))[0]

    def _rounded(self, q: Any, unit: Fraction) -> tuple[float | Array, float | Array]:
        """Return bias and standard deviation of the rounded result."""
        if q is None:
            return tuple(float(np.abs(found).max()) for found in rounded_error(self.noise, unit, PLACES))  # type: ignore[return-value]
        sums = Sums.of(q, unit)
        place = np.zeros(sums.whole.size) if sums.rest is None else sums.rest.mid
        known, at = np.unique(np.where(place > 0.5, place - 1, place), return_inverse=True)
        bias, std = rounded_error(self.noise, unit, known)
        return shaped(bias[at], sums.shape), shaped(std[at], sums.shape)

    @overload
    def prediction_interval(
        self, q: Scalar = 0.0, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float, float]: ...

    @overload
    def prediction_interval(
        self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[NumberArray, NumberArray]: ...

    def prediction_interval(
        self, q: Scalar | ArrayLike = 0.0, level: float = 0.95, unit: UnitLike | None = None
    ) -> tuple[float | NumberArray, float | NumberArray]:
        """Return q ± the noise's quantile, rounded outwards (Theorem additive_bounds).

        Without a `unit`, the ideal output lies between the ends with probability `level`. With a `unit`, the ends are
        whole numbers of units, and the published value lies between them with probability `level` or slightly more.
        """
        half = _half_width(self.noise, level)
        sums = Sums.of(q, Fraction(1) if unit is None else as_unit(unit))
        if not math.isfinite(half):
            endless = shaped(np.full(sums.whole.size, math.inf), sums.shape)
            return -endless, endless
        if unit is None:
            return self._ideal_end(q, sums, half, -1), self._ideal_end(q, sums, half, 1)
        low, high = (shaped(add(sums.whole, steps), sums.shape) for steps in self._steps(sums, half))
        return values(low, sums.unit, -1), values(high, sums.unit, 1)

    def _ideal_end(self, q: Any, sums: Sums, half: float, side: int) -> Any:
        """Return q + side·half as floats, rounded outwards."""
        if largest(sums.whole) < EXACT:
            return evaluate("q", q, lambda q: outward(q, half, side))
        ends = [int(sums.whole[i]) + sums.exact_rest(i) + side * Fraction(half) for i in range(sums.whole.size)]
        return shaped(np.array([directed(end, side) for end in ends]), sums.shape)

    def _steps(self, sums: Sums, half: float) -> tuple[Any, Any]:
        """Return the ends of a prediction interval, as numbers of units to add to the whole units of the sums."""
        width = half / float(sums.unit)
        rest = np.zeros(sums.whole.size) if sums.rest is None else sums.rest.mid
        slack = 1e-14 * (1 + width)
        return floors(rest - width - slack + 0.5), floors(rest + width + slack + 0.5)

    @overload
    def coverage(self, q: Scalar | None = None, level: float = 0.95, unit: UnitLike | None = None) -> float: ...

    @overload
    def coverage(self, q: ArrayLike, level: float = 0.95, unit: UnitLike | None = None) -> Array: ...

    def coverage(
        self, q: Scalar | ArrayLike | None = None, level: float = 0.95, unit: UnitLike | None = None
    ) -> float | Array:
        """Return the exact probability that the output lies in `prediction_interval(q, level, unit)`.

        For the ideal output it is `level`. With a `unit` and without q, it is that of sums which are whole units.
        """
        if unit is None:
            return _constant(1 - 2 * level_quantile(level), q)
        sums = Sums.of(0 if q is None else q, as_unit(unit))
        low, high = (steps.astype(float) for steps in self._steps(sums, _half_width(self.noise, level)))
        rest, u = (0.0 if sums.rest is None else sums.rest.mid), float(sums.unit)
        outside = self.noise.sf(u * (high + 0.5 - rest)) + self.noise.cdf(u * (low - 0.5 - rest))
        covered: float | Array = shaped(1 - outside, sums.shape)
        return covered

    @property
    @abstractmethod
    def _sampler(self) -> Sampler:
        """The sampler of |Z|/σ, or of Z/σ."""

    def release(
        self, q: Scalar | ArrayLike, unit: UnitLike = 1, level: float = 0.95, bits: BitSource | None = None
    ) -> Noisy:
        """Return q + Z, rounded exactly to the nearest multiple of `unit`; see `Mechanism.release`.

        A `UnitWarning` is given if the unit is so much coarser than the noise that rounding biases the results.
        """
        return self._warn_of_unit(self._release(q, unit, level, bits))

    def _release(self, q: Any, unit: Any, level: float, bits: BitSource | None) -> Noisy:
        level_quantile(level)
        sums = Sums.of(q, as_unit(unit))
        units, private = draw_additive(self._sampler, self.sigma, sums, bits)
        return Noisy(self, shaped(units, sums.shape), sums.unit, None, level, private, sums.on_grid)

    def _rounding_bias(self, unit: Fraction, on_grid: bool) -> float:
        return largest_error(self.noise, unit, on_grid).bias

    def _unit_warning(self, unit: Fraction, on_grid: bool) -> str | None:
        error = largest_error(self.noise, unit, on_grid)
        if error.bias <= BIAS_WARNED_OF * error.rmse:
            return None
        return self._coarse_unit_text(unit, error.bias)

    def _standard_error(self, noisy: Noisy) -> Any:
        zeros = 0.0 if noisy.single else np.zeros(noisy.units.shape)
        return self._error_at(zeros, noisy.unit, noisy.on_grid)

    def _error_at(self, q: Any, unit: Fraction, on_grid: bool) -> Any:
        return _constant(largest_error(self.noise, unit, on_grid).rmse, q)

    def _variance_from(self, transformed: Any, unit: Fraction, on_grid: bool) -> float:
        rmse = largest_error(self.noise, unit, on_grid).rmse
        return rmse * rmse  # infinite where rmse ** 2 would raise

    def _confidence_interval(self, noisy: Noisy) -> tuple[Any, Any]:
        steps = self._half_steps(noisy.unit, noisy.level, noisy.on_grid)
        if steps is None:
            endless = np.full(np.shape(noisy.units), math.inf)[()]
            return -endless, endless
        return shift(noisy.units, -steps), shift(noisy.units, steps)

    def _half_steps(self, unit: Fraction, level: float, on_grid: bool) -> int | None:
        """Return the half-width in units of an interval for the true sum, or None if it is infinite.

        The result n satisfies |n·u − q − Z| <= u/2. If q is on the grid, its distance from the result is whole units.
        """
        half = _half_width(self.noise, level)
        if not math.isfinite(half):
            return None
        width = Fraction(half * (1 + 1e-14)) / unit
        return max(math.ceil(width - Fraction(1, 2) if on_grid else width + Fraction(1, 2)), 0)


@lru_cache(maxsize=1024)
def _half_width(noise: SymmetricNoise, level: float) -> float:
    return noise.interval(level)[1]


def _constant(value: float, q: object) -> float | Array:
    return value if q is None else evaluate("q", q, lambda q: np.full_like(q, value))


def _check_noise_size(exponent: float, limit: float = 10_000) -> None:
    """Raise if the noise typically has thousands of digits."""
    if exponent > limit:
        raise ParameterError(
            "the noise", f"is typically of size exp({exponent:.3g}), too large to be released: use a larger p or d"
        )


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
    words = "Gaussian noise is added to the sum."
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
    words = "Generalized Gaussian noise is added to the sum."
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
    words = "Laplace noise is added to the sum."
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
    words = "Exponential polylogarithmic noise is added to the sum."
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
    words = "Gaussian noise is added to the sum, and the loss of a large record is accounted for piece by piece."
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
