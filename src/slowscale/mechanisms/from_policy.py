"""Policy first: additive noise made from a promise. `noise/from_policy.py` has the argument why its policy is exact.

A curator states what a record of each size may lose. The noise then has a density proportional to exp(−P(|z|)), and its
PRDP policy is exactly the promise P, because P increases and is concave.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.parameters import lazy, pairs, real
from slowscale.mechanisms.additive import AdditiveMechanism, ExponentialPolylog, GeneralizedGaussian
from slowscale.mechanisms.calibration import without_warnings
from slowscale.noise import PointsNoise, ProductNoise, SymmetricNoise
from slowscale.noise.from_policy import FromPolicyNoise
from slowscale.policy import (
    PURE,
    PointsPolicy,
    Policy,
    PolylogPolicy,
    PowerPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    number,
)
from slowscale.sampling.samplers import Sampler, Scaled
from slowscale.sampling.staircase import StaircaseSampler, Term, build_staircase

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
                raise ParameterTypeError("promise", allowed=f"{PROMISES}", given=self.promise)
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
    if isinstance(policy, TanhPolicy):
        raise ParameterError(
            "promise",
            allowed=f"a PRDP policy, got the PRzCDP policy {policy}",
            remedy="pass the PRDP policy that it comes from, which is its attribute pure",
        )
    if policy.notion != PURE:
        raise ParameterError(
            "promise",
            allowed=f"a PRDP policy, got the PRzCDP policy {policy}",
            remedy=f"state PRDP losses instead: {PROMISES}",
        )
    if isinstance(policy, PointsPolicy | PowerPolicy | PolylogPolicy):
        return ((1, policy),)
    if isinstance(policy, TimesPolicy):
        return tuple((policy.count * count, term) for count, term in _terms(policy.policy))
    if isinstance(policy, SumPolicy):
        return tuple(found for term in policy.terms for found in _terms(term))
    if policy.constant:
        raise ParameterError(
            "promise",
            f"must grow with the size and be 0 at size 0, got the constant {policy}: noise with the same loss for "
            "every record would be infinite",
        )
    raise ParameterError("promise", allowed=f"{PROMISES}", given=type(policy))


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
