"""The paper's tables of formulas: as they are printed, as functions, and compared with the library.

Table unbiasedestimators (Section 4), Table mechSummary (Section 6) and Table metric-mechSummaryNew (Appendix E).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.hermite_e import hermeval
from scipy.special import ndtr

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.study.values import pair_loss

S, A, D, P = 0.6, 2.0, 0.4, 0.7  # σ, a, d and p at which formulas are compared
POLYLOG_A = 3.0
TRIED_SUMS, TRIED_SIZES = np.array([0.0, 50.0, 1e6]), np.array([0.1, 7.0, 1e6])
RECORDS, TRIED_STEPS, TRIED_FACTORS = (1.0, 100.0, 1e4), (-0.5, 3.0, 1e3), (0.5, 0.9, 1.1, 2.0)

SQUARE, FOURTH, SIXTH = (ss.Root(k=k, sigma=S, a=A) for k in (2, 4, 6))
LN = ss.Log(sigma=S, a=A)
GENERALIZED = ss.GeneralizedGaussian(sigma=S, p=P)
POLYLOG_2 = ss.ExponentialPolylog(d=D, sigma=S, a=POLYLOG_A, p=2)


@dataclass(frozen=True)
class Estimator:
    """A row of Table unbiasedestimators."""

    mechanism: TransformationMechanism
    estimate: Callable[[Array], Array]
    variance: Callable[[float], float]


def root_variance(k: int, q: float, sigma: float = S, a: float = A) -> float:
    """Return the printed variance of the kth root."""
    return math.fsum(
        math.comb(k, i) ** 2 * math.factorial(k - i) * sigma ** (2 * (k - i)) * (q + a) ** (2 * i / k) for i in range(k)
    )


def hermite(k: int, x: Array, sigma: float = S) -> Array:
    """Return (−σ)^k·He_k(−x/σ)."""
    order = [0.0] * k + [1.0]
    return np.asarray((-sigma) ** k * hermeval(-x / sigma, order), np.float64)


def square_variance(q: float) -> float:
    """Return the printed variance of the square root."""
    return 2 * S**4 + 4 * S**2 * (q + A)


def fourth_variance(q: float) -> float:
    """Return the printed variance of the fourth root."""
    x = math.sqrt(q + A)
    return 24 * S**8 + 96 * S**6 * x + 72 * S**4 * x**2 + 16 * S**2 * x**3


def log_variance(q: float) -> float:
    """Return the printed variance of the log."""
    return math.expm1(S**2) * (q + A) ** 2


def polylog_variance(d: float, sigma: float, a: float) -> float:
    """Return the printed variance of the exponential polylog with p = 2."""

    def upper(y: float) -> float:
        return float(ndtr(-(math.log(a) - y / d) * math.sqrt(2 * d)))

    first = math.exp(2 / d) * upper(1.5) - 2 * a * math.exp(3 / (4 * d)) * upper(1)
    return sigma**2 * first / upper(0.5) + a**2 * sigma**2


UNBIASED_ESTIMATORS = (
    Estimator(ss.Root(k=1, sigma=S, a=A), lambda x: x - A, lambda _: S**2),
    Estimator(SQUARE, lambda x: x**2 - S**2 - A, square_variance),
    Estimator(FOURTH, lambda x: x**4 - 6 * x**2 * S**2 + 3 * S**4 - A, fourth_variance),
    Estimator(SIXTH, lambda x: hermite(6, x) - A, lambda q: root_variance(6, q)),
    Estimator(LN, lambda x: np.exp(x - S**2 / 2) - A, log_variance),
)


@dataclass(frozen=True)
class Summary:
    """A row of Table mechSummary: the formulas as printed, and as functions of the sum and the size."""

    name: str
    function: str
    variance: str
    policy: str
    mechanism: ss.Mechanism
    variance_at: Callable[[float], float]
    policy_at: Callable[[float], float]

    @property
    def difference(self) -> float:
        """The largest relative difference from the library."""
        policy = self.mechanism.pure_policy or self.mechanism.policy
        pairs = [(self.variance_at(q), self.mechanism.variance(q)) for q in TRIED_SUMS]
        pairs += [(self.policy_at(x), policy(x)) for x in TRIED_SIZES]
        return max(float(abs(printed / found - 1)) for printed, found in pairs)


def _root_policy(k: int) -> Callable[[float], float]:
    return lambda x: math.pow(math.pow(x + A, 1 / k) - math.pow(A, 1 / k), 2) / (2 * S**2)


SUMMARY = (
    Summary("identity", "x", "σ²", "Δ²/(2σ²)", ss.Gaussian(sigma=S), lambda _: S**2, lambda x: x**2 / (2 * S**2)),
    Summary(
        "square root", "√x", "2σ⁴ + 4σ²·(q + a)", "(√(Δ + a) − √a)²/(2σ²)",
        SQUARE, square_variance, _root_policy(2),
    ),
    Summary(
        "fourth root", "⁴√x", "24σ⁸ + 96σ⁶·(q + a)^½ + 72σ⁴·(q + a) + 16σ²·(q + a)^(3/2)", "(⁴√(Δ + a) − ⁴√a)²/(2σ²)",
        FOURTH, fourth_variance, _root_policy(4),
    ),
    Summary(
        "kth root (k = 6)", "ᵏ√x", "Σ C(k, i)²·(k − i)!·σ^(2(k − i))·(q + a)^(2i/k), i = 0 to k − 1",
        "(ᵏ√(Δ + a) − ᵏ√a)²/(2σ²)",
        SIXTH, lambda q: root_variance(6, q), _root_policy(6),
    ),
    Summary(
        "log", "ln x", "(exp(σ²) − 1)·(q + a)²", "(ln(Δ + a) − ln a)²/(2σ²)",
        LN, log_variance, lambda x: math.log((x + A) / A) ** 2 / (2 * S**2),
    ),
    Summary(
        "generalized Gaussian", "−(|z|/σ)^p", "σ²·Γ(3/p)/Γ(1/p)", "(Δ/σ)^p",
        GENERALIZED, lambda _: S**2 * math.gamma(3 / P) / math.gamma(1 / P), lambda x: (x / S) ** P,
    ),
    Summary(
        "exponential polylog (p = 2)", "−d·ln(|z|/σ + a)²",
        "σ²·(exp(2/d)·(1 − κ(a, 3/2)) − 2a·exp(3/(4d))·(1 − κ(a, 1)))/(1 − κ(a, ½)) + a²σ²",
        "d·(ln(Δ/σ + a)² − ln(a)²)",
        POLYLOG_2, lambda _: polylog_variance(D, S, POLYLOG_A),
        lambda x: D * (math.log(x / S + POLYLOG_A) ** 2 - math.log(POLYLOG_A) ** 2),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class ValueSummary:
    """A row of Table metric-mechSummaryNew: losses between r and r + δ, and between r and δ·r.

    `loose` rows, which the paper marks with stars, have upper bounds instead of losses.
    """

    name: str
    function: str
    added: str
    multiplied: str
    mechanism: ss.Mechanism
    added_at: Callable[[float, float], float]
    multiplied_at: Callable[[float, float], float]
    loose: bool = False
    pure: bool = False

    @property
    def ratios(self) -> tuple[list[float], list[float]]:
        """The printed losses divided by the exact ones: for r + δ and for δ·r, at several r and δ."""

        def ratio(printed: float, r: float, other: float) -> float:
            return printed / pair_loss(self.mechanism, r, other, pure=self.pure)

        return (
            [ratio(self.added_at(r, step), r, r + step) for r in RECORDS for step in TRIED_STEPS],
            [ratio(self.multiplied_at(r, times), r, times * r) for r in RECORDS for times in TRIED_FACTORS],
        )

    @property
    def agrees(self) -> bool:
        """Whether the printed losses are exact, or, where they are loose, not too small."""
        every = np.concatenate(self.ratios)
        return bool(every.min() >= 1 - 1e-9 and (self.loose or every.max() <= 1 + 1e-9))

    @property
    def compared(self) -> str:
        """The comparison with the exact losses, in words."""
        return "; ".join(
            "exact" if max(one) < 1 + 1e-9 else f"{format_number(min(one))} to {format_number(max(one))} times the loss"
            for one in self.ratios
        )


Losses = tuple[Callable[[float, float], float], Callable[[float, float], float]]


def _power(k: float) -> Losses:
    """The bounds for x^k."""
    return lambda _, d: abs(d) ** (2 * k) / (2 * S**2), lambda r, d: ((1 - d**k) * r**k) ** 2 / (2 * S**2)


def _transformed(f: Callable[[float], float]) -> Losses:
    def loss(one: float, two: float) -> float:
        return (f(one + A) - f(two + A)) ** 2 / (2 * S**2)

    return lambda r, d: loss(r, r + d), lambda r, d: loss(r, d * r)


def _noise(f: Callable[[float], float]) -> Losses:
    return lambda _, d: f(0) - f(abs(d)), lambda r, d: f(0) - f(abs((1 - d) * r))


LOG_BOUNDS: Losses = (
    lambda _, d: math.log((abs(d) + A) / A) ** 2 / (2 * S**2),
    lambda _, d: math.log(d) ** 2 / (2 * S**2),
)
VALUE_SUMMARY = (
    ValueSummary(
        "generic transformation (here ³√)", "f(q + a)",
        "(f(r + a) − f(r + δ + a))²/(2σ²)", "(f(r + a) − f(δ·r + a))²/(2σ²)",
        ss.Root(k=3, sigma=S, a=A), *_transformed(np.cbrt),
    ),
    ValueSummary("identity", "q + a", "δ²/(2σ²)", "(1 − δ)²·r²/(2σ²)", ss.Gaussian(sigma=S), *_power(1)),
    ValueSummary("square root*", "√(q + a)", "|δ|/(2σ²)", "(1 − √δ)²·r/(2σ²)", SQUARE, *_power(1 / 2), loose=True),
    ValueSummary("fourth root*", "⁴√(q + a)", "√|δ|/(2σ²)", "(1 − ⁴√δ)²·√r/(2σ²)", FOURTH, *_power(1 / 4), loose=True),
    ValueSummary(
        "log*", "ln(q + a)", "(ln(|δ| + a) − ln a)²/(2σ²)", "ln(δ)²/(2σ²)", LN, *LOG_BOUNDS, loose=True
    ),
    ValueSummary(
        "generic noise (here a polylog with p = 1)", "f(|z|)", "f(0) − f(|δ|)", "f(0) − f(|(1 − δ)·r|)",
        ss.ExponentialPolylog(d=4, sigma=S, a=2, p=1), *_noise(lambda z: -4 * math.log(z / S + 2)), pure=True,
    ),
    ValueSummary(
        "generalized Gaussian", "−(|z|/σ)^p", "(|δ|/σ)^p", "(|(1 − δ)·r|/σ)^p",
        GENERALIZED, *_noise(lambda z: -((z / S) ** P)), pure=True,
    ),
    ValueSummary(
        "exponential polylog", "−d·ln(|z|/σ + a)^p",
        "d·(ln(|δ|/σ + a)^p − ln(a)^p)", "d·(ln(|(1 − δ)·r|/σ + a)^p − ln(a)^p)",
        POLYLOG_2, *_noise(lambda z: -D * math.log(z / S + POLYLOG_A) ** 2), pure=True,
    ),
)  # fmt: skip
