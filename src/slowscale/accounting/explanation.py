"""What losses mean: the same quantities for one column, a release, a plan and a whole ledger.

For an example record they are its loss (PRzCDP, and PRDP if there is such a guarantee); how often the best guess
whether the record is in the data is right, starting from 50 %; how often the record is detected, with one false alarm
in twenty; and ε at δ = 10⁻⁶. The value of a record has the loss between it and any value within a band, such as 10 %
more or less; how often the best guess between the two is right; and how closely the value can be known, with all else
known: half the length of its 95 % interval. All but the last are upper bounds. If the noise is known they are those of
the best attacker (`attackers`), exact or by certified composition. Otherwise they are bounds from the losses alone, and
are marked.

Bounds from the losses (proofs in docs/attackers.md). The answer of any test has the same guarantee as the release. So
it is a coin that says yes with probability p if the record is there, and with probability q if it is not.

- PRzCDP with loss ρ: the Rényi divergences D_α(p‖q) and D_α(q‖p), which grow with p, are at most αρ for all orders
  α >= 1. For the best guess p = 1 − q = 1/(1 + exp(−t)) is the worst case, where the order 1 gives t·tanh(t/2) <= ρ.
- PRDP with loss ε: a power b by all other noise becomes at most exp(ε)·b and 1 − exp(−ε)·(1 − b); a total variation v
  by all other noise becomes at most 1 − (1 − v)(1 − tanh(ε/2)). Randomised response dominates every such mechanism.

Conversions of a loss to (ε, δ)-differential privacy: Canonne, Kamath and Steinke, "The Discrete Gaussian for
Differential Privacy" (2020), Proposition 12 and Corollary 13.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from slowscale.accounting.attackers import EVEN, EXAMPLE_ALARMS, alarms, between, detection, guesses, presence
from slowscale.accounting.bands import Band, Use
from slowscale.accounting.composed import compose
from slowscale.accounting.pairs import GaussianPair, Pair, ResponsePair
from slowscale.accounting.record import Term
from slowscale.core.errors import ParameterError, band_in_words
from slowscale.core.markup import aligned
from slowscale.core.numbers import format_number, percent, share
from slowscale.core.parameters import Array, as_number
from slowscale.mechanisms import AdditiveMechanism, Gaussian, Mechanism
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.policy import Policy
from slowscale.policy.bounded import BAND, BoundedPolicy
from slowscale.policy.families import TransformationPolicy


def epsilon(rho: float, delta: float) -> float:
    """Return the smallest ε such that ρ-zCDP implies (ε, δ)-DP by the optimal Rényi conversion.

    Minimises over α > 1: α·ρ + (ln(1/δ) + (α − 1)·ln(1 − 1/α) − ln α) / (α − 1).

    >>> round(epsilon(0.1, 1e-6), 3)
    2.142
    """
    loss, probability = _loss("rho", rho), _probability("delta", delta)
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        order_minus_1 = math.exp(log_order)  # α − 1
        order = 1 + order_minus_1
        return (
            order * loss
            + (-math.log(probability) - math.log1p(order_minus_1)) / order_minus_1
            - math.log1p(1 / order_minus_1)
        )

    return max(0.0, _minimum_over_orders(bound))


def delta(rho: float, epsilon: float) -> float:
    """Return the smallest δ such that ρ-zCDP implies (ε, δ)-DP by the same conversion.

    Minimises over α > 1: exp((α − 1)(αρ − ε)) / (α − 1) · (1 − 1/α)^α.
    """
    loss, most = _loss("rho", rho), _loss("epsilon", epsilon)
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        order_minus_1 = math.exp(log_order)
        order = 1 + order_minus_1
        return order_minus_1 * (order * loss - most) - math.log(order_minus_1) - order * math.log1p(1 / order_minus_1)

    return max(math.exp(min(0.0, _minimum_over_orders(bound))), math.ulp(0.0))


def posterior(prior: float, epsilon: float) -> float:
    """Return the largest posterior probability that an attacker can reach from a prior: π·e^ε / (1 − π + π·e^ε).

    It holds for a PRDP loss ε, whatever is published.

    >>> round(posterior(0.5, 1), 3)
    0.731
    """
    start, most = _probability("prior", prior), _loss("epsilon", epsilon)
    odds = math.log1p(-start) - math.log(start) - most  # the log odds against it
    return 1 / (1 + math.exp(min(odds, 700.0)))


def _minimum_over_orders(bound: Callable[[float], float]) -> float:
    """Return the minimum over the orders α, which are given as ln(α − 1). Every order gives a valid bound."""
    from scipy import optimize

    points = [step / 4 for step in range(-160, 241)]
    best = min(points, key=bound)
    found = optimize.minimize_scalar(
        bound, bounds=(best - 0.25, best + 0.25), method="bounded", options={"xatol": 1e-9}
    )
    return min(float(found.fun), bound(best))


def _loss(name: str, value: float) -> float:
    number = as_number(name, value, "a number >= 0")
    if not number >= 0 or not math.isfinite(number):
        raise ParameterError(name, allowed="a finite number >= 0", given=value)
    return number


def _probability(name: str, value: float) -> float:
    number = as_number(name, value, "a number between 0 and 1")
    if not 0 < number < 1:
        raise ParameterError(name, allowed="between 0 and 1, both excluded", given=value)
    return number


DELTA, DELTA_WRITTEN = 1e-6, "10⁻⁶"  # δ of the (ε, δ) in reports
MOST_COMPOSED = 32  # noises that are not Gaussian; to compose so many takes about 0.4 seconds
BOUND = "bound from the loss"
NOT_STATED, NOT_WITHIN = "not stated", "not within ± 100 %"
LEVEL = 0.95  # of the interval that says how closely a value can be known
NO_SECRET = 5.0  # the loss from which on presence is no secret: the best guess is right more than 94 % of the time
RENYI_ORDERS = np.geomspace(1e-3, 1e6, 271)  # less 1; leaving out orders makes a bound larger, never wrong
ACCURACY = 1e-14  # of a sum of logarithms, relative to the largest of them
RELATIVE_ERROR = 1e-12  # of losses and bounds, relative


@dataclass(frozen=True)
class Loss:
    """The loss of a record by independent noise: through one column, or through a whole release.

    Attributes
    ----------
    rho, pure
        The loss as PRzCDP (ρ) and, with a pure guarantee, as PRDP (ε); by all `times` together.
    mechanism, influence
        The mechanism with this noise and what the record adds to its sum; None if the mechanism is not known.
    times
        How many times such noise was drawn.
    other
        If the question is which of two values a record has, the other value of `influence`. None: whether it is there.
    """

    rho: float
    pure: float | None = None
    mechanism: Mechanism | None = None
    influence: float = 0.0
    times: int = 1
    other: float | None = None

    @staticmethod
    def of(rho: float, pure: float | None, policy: Policy, mechanism: Mechanism | None, influence: float) -> "Loss":
        """Return the loss by a mechanism, or by one with a known policy only.

        To an attacker, a transformation with a user function is Gaussian noise with the same PRzCDP loss.
        """
        if mechanism is None and isinstance(policy, TransformationPolicy):
            mechanism, influence = Gaussian(sigma=1.0), math.sqrt(2 * rho)
        known = isinstance(mechanism, AdditiveMechanism | TransformationMechanism) and math.isfinite(influence)
        return Loss(rho, pure, mechanism, influence) if known else Loss(rho, pure)

    @staticmethod
    def between(
        term: Term, pure: Policy | None, mechanism: Mechanism | None, use: Use, value: float, band: Band
    ) -> "Loss | None":
        """Return the loss between a record's value and any value within a band, or None if none can be stated."""
        try:
            policy = use.within(term, band)
            pures = None if pure is None else use.within((term[0], pure), band)
        except ParameterError:
            return None
        if policy is None:
            return Loss(0.0, 0.0)
        found = Loss(float(policy(value)), None if pures is None else float(pures(value)))
        if policy.moves or policy.by_rank or not policy.policy._band_rises:
            return found
        known = isinstance(mechanism, AdditiveMechanism | TransformationMechanism) and math.isfinite(value)
        least, most = value, policy.times * value
        if policy.grain:  # truncation may lower the smaller one of two values
            ends = [(value, most), (value / policy.times, value)]
            lowered = [(max(low - policy.grain, 0.0), high) for low, high in ends]
            least, most = max(lowered, key=lambda two: BoundedPolicy(policy.policy)(*two))
        return replace(found, mechanism=mechanism, influence=least, other=most) if known else found

    def repeated(self, times: int) -> "Loss":
        """Return the loss by so many draws of the noise."""
        pure = None if self.pure is None else times * self.pure
        return replace(self, rho=times * self.rho, pure=pure, times=times)

    @property
    def within(self) -> float | None:
        """How closely the value can be known from one number: half its interval, as a share; None if not known."""
        if self.mechanism is None or self.other is None or self.influence == 0:
            return None
        return float(self.mechanism._half_width_at(self.influence, LEVEL)) / self.influence

    @property
    def pair(self) -> Pair | None:
        """The pair that an attacker must tell apart each time, or one that dominates it, or None if none is known."""
        if self.mechanism is not None and self.other is not None:
            return between(self.mechanism, self.influence, self.other)
        if self.mechanism is not None:
            return presence(self.mechanism, self.influence)
        return None if self.pure is None or math.isinf(self.pure) else ResponsePair(self.pure / self.times)


@dataclass(frozen=True)
class Explanation:
    """The meaning of the losses of a record together. Get one from `explain`.

    Attributes
    ----------
    losses
        The losses, which add up.
    loss, pure
        The total loss as PRzCDP, and as PRDP or None.
    guessed
        How often the best guess whether the record is in the data is right at most, starting from 50 %.
    detected
        How often the record is detected at most, with one false alarm in twenty.
    epsilon
        ε of (ε, δ)-differential privacy with δ = 10⁻⁶, at most.
    bound
        Whether the last three are bounds from the losses alone.
    value
        The meaning of the loss between the record's values and others within the band: its `loss` and `guessed`. None
        if no such loss can be stated.
    within
        How closely one of its values can be known, as a share of the value; None if that is not known.
    band
        The factor of the band.
    """

    losses: tuple[Loss, ...]
    loss: float
    pure: float | None
    guessed: float
    detected: float
    epsilon: float
    bound: bool
    value: "Explanation | None" = None
    within: float | None = None
    band: float = BAND

    def __str__(self) -> str:
        return self.sentences("this record")

    @property
    def texts(self) -> dict[str, str]:
        """The quantities (the loss by both notions) as text, rounded up."""
        value, within = self.value, self.within
        return {
            "loss": at_most(self.loss),
            "pure": "none" if self.pure is None else at_most(self.pure),
            "guessed": share(self.guessed),
            "detected": share(self.detected),
            "epsilon": at_most(self.epsilon),
            "band": NOT_STATED if value is None else at_most(value.loss),
            "recognised": NOT_STATED if value is None else share(value.guessed),
            "within": NOT_STATED if within is None else within_in_words(within),
        }

    def sentences(self, subject: str) -> str:
        """Return what an attacker can do, in words; `subject` is the record, such as "this record"."""
        often = f" ({BOUND})" if self.bound else ""
        return " ".join(
            [
                guesses(EVEN, self.guessed, note=often),
                detection(subject, EXAMPLE_ALARMS, self.detected, note=often),
                f"This is (ε, {DELTA_WRITTEN})-differential privacy with ε at most {self.texts['epsilon']}{often}.",
                *(["Its presence is no secret."] if self.loss >= NO_SECRET else []),
                self._value_sentence(),
            ]
        ).strip()

    def _value_sentence(self) -> str:
        """Return what an attacker can find out about the values of the record, in words."""
        if self.value is None:
            return "For its values no band can be stated."
        known = self.texts["within"]
        how = f"a value is known to {known}" if known != NOT_WITHIN else "no value is known to within ± 100 %"
        within = "" if self.within is None else f", and with all else known {how}"
        return (
            f"Its values and others {band_in_words(self.band)} larger or smaller: the loss between them is at most "
            f"{self.texts['band']}, the best guess is right at most {self.texts['recognised']} of the time{within}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the four quantities as plain values; None in place of an infinity, which JSON does not have."""
        found = {"loss": self.loss, "pure_loss": self.pure, "epsilon": self.epsilon}
        return {
            **{name: None if one is None or math.isinf(one) else one for name, one in found.items()},
            "delta": DELTA,
            "guessed": self.guessed,
            "detected": self.detected,
            "false_alarms": EXAMPLE_ALARMS,
            "bound_from_loss": self.bound,
            "band_loss": None if self.value is None or math.isinf(self.value.loss) else self.value.loss,
            "band_guessed": None if self.value is None else self.value.guessed,
            "value_within": None if self.within is None or math.isinf(self.within) else self.within,
        }


def at_most(number: float) -> str:
    """Write a loss with three digits, rounded up.

    >>> at_most(4.8051), at_most(0.1 + 0.2)
    ('4.81', '0.3')
    """
    return format_number(number * (1 - RELATIVE_ERROR), 1)


def within_in_words(within: float) -> str:
    """Write how closely a value can be known. From ± 100 % on, the digits would mean nothing: it can be next to 0.

    >>> within_in_words(0.1123), within_in_words(0.9949), within_in_words(18.15)
    ('± 11 %', '± 99 %', 'not within ± 100 %')
    """
    share_of_value = float(f"{100 * within:.2g}")
    return f"± {format_number(share_of_value)} %" if share_of_value < 100 else NOT_WITHIN


def explain(losses: Sequence[Loss], values: Sequence[Loss | None] | None = None) -> Explanation:
    """Return what several losses of a record, by independent noise, mean together.

    Parameters
    ----------
    losses
        The losses of presence.
    values
        The losses between the record's values and others within a band. None: not asked for. If one of them is None,
        no such loss can be stated.

    >>> from slowscale import Gaussian
    >>> explained = explain([Loss(4.805, mechanism=Gaussian(sigma=10_000), influence=31_000)])
    >>> explained.texts
    {'loss': '4.81', 'pure': 'none', 'guessed': '94.0 %', 'detected': '92.8 %', 'epsilon': '19', ...}
    >>> explain([Loss(4.805)]).texts
    {'loss': '4.81', 'pure': 'none', 'guessed': '99.3 %', 'detected': '99.5 %', 'epsilon': '20.1', ...}
    """
    if values is not None:
        known = [one for one in values if one is not None]
        shares = [one.within for one in known if one.within is not None]
        value = explain(known) if len(known) == len(values) else None
        return replace(explain(losses), value=value, within=min(shares, default=None))
    rho = _total(loss.rho for loss in losses)
    pures = [loss.pure for loss in losses if loss.pure is not None]
    pure = _total(pures) if len(pures) == len(losses) else None
    pairs = [(pair, loss.times) for loss in losses if (pair := loss.pair) is not None]
    slow = sum(times for pair, times in pairs if not isinstance(pair, GaussianPair))
    composed = len(pairs) == len(losses) and slow <= MOST_COMPOSED
    bound = not composed or any(loss.mechanism is None for loss in losses)
    found = np.full(3, math.inf)
    if composed:
        found = _composed(tuple(pair for pair, times in pairs for _ in range(times)))
    if bound:
        # Either all losses are counted as PRzCDP, or all that have a pure guarantee are counted as pure.
        finite = [loss.pure for loss in losses if loss.pure is not None and math.isfinite(loss.pure)]
        rest = [loss.rho for loss in losses if loss.pure is None or not math.isfinite(loss.pure)]
        choices = _bounds(0.0, rho), _bounds(_total(finite), _total(rest))
        found = np.minimum(found, np.min(choices, axis=0))
    guessed, detected, least = found.tolist()
    return Explanation(tuple(losses), rho, pure, guessed, detected, least, bound)


@lru_cache(maxsize=256)  # as many as a few reports ask for
def _composed(pairs: tuple[Pair, ...]) -> Array:
    """Return the best guess, the power and ε for several pairs together: exact, or certified upper bounds."""
    curve = compose(pairs, upper=True)
    rates = curve.delta(np.zeros(1)), curve.power(np.array([EXAMPLE_ALARMS])), curve.epsilon(np.array([DELTA]))
    return np.array([EVEN + EVEN * rates[0][0], rates[1][0], rates[2][0]])


def worst(found: Sequence[Explanation]) -> Explanation:
    """Return the largest of each quantity, for a record of which it is not known which explanation holds."""
    pures = [one.pure for one in found if one.pure is not None]
    values = [one.value for one in found if one.value is not None]
    return replace(
        max(found, key=lambda one: one.loss),
        value=worst(values) if values and len(values) == len(found) else None,
        within=min((one.within for one in found if one.within is not None), default=None),
        pure=max(pures) if len(pures) == len(found) else None,
        guessed=max(one.guessed for one in found),
        detected=max(one.detected for one in found),
        epsilon=max(one.epsilon for one in found),
        bound=any(one.bound for one in found),
    )


def _bounds(pure: float, rho: float) -> tuple[float, float, float]:
    """Return bounds on the best guess, the power and ε, by a PRDP loss and a PRzCDP loss of other noise."""
    if not (math.isfinite(pure) and math.isfinite(rho)):
        return 1.0, 1.0, math.inf
    t = _smallest(lambda t: t * math.tanh(t / 2) >= rho, 0.0, rho + math.sqrt(2 * rho))
    power = _smallest(lambda p: _divergence(p, EXAMPLE_ALARMS) > rho, EXAMPLE_ALARMS, 1.0) if rho else EXAMPLE_ALARMS
    variation = 1 - (1 - math.tanh(t / 2)) * (1 - math.tanh(pure / 2))
    power = min(math.exp(min(pure, 700.0)) * power, 1 - math.exp(-pure) * (1 - power))
    guessed = EVEN + EVEN * variation * (1 + RELATIVE_ERROR)
    detected = EXAMPLE_ALARMS + (power - EXAMPLE_ALARMS) * (1 + RELATIVE_ERROR)
    return min(guessed, 1.0), min(detected, 1.0), pure + epsilon(rho, DELTA)


def _smallest(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the point from which a condition holds that holds at `high`, or the next larger float or two."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _divergence(p: float, q: float) -> float:
    """Return a lower bound on the largest D_α/α of two coins with probabilities p > q, in both directions."""
    if p == 1:
        return math.inf
    orders = RENYI_ORDERS
    yes, no = math.log1p((p - q) / q), math.log1p((q - p) / (1 - q))  # the privacy losses of both sides of the coin
    # D_α(p‖q) is ln(p·exp((α − 1)·yes) + (1 − p)·exp((α − 1)·no))/(α − 1), and the mean of the losses for α = 1.
    there = np.logaddexp(math.log(p) + orders * yes, math.log1p(-p) + orders * no)
    absent = np.logaddexp(math.log(q) - orders * yes, math.log1p(-q) - orders * no)
    powers = (np.maximum(there, absent) - ACCURACY * (10 + orders * (yes - no))) / (orders * (1 + orders))
    mean = max(p * yes + (1 - p) * no, -q * yes - (1 - q) * no) - ACCURACY * (yes - no)
    return max(mean, float(powers.max()))


def _total(numbers: Any) -> float:
    """Return the sum, rounded once, so that the order of the numbers makes no difference; infinite if it overflows."""
    try:
        return math.fsum(numbers)
    except OverflowError:
        return math.inf


def titles(band: float = BAND) -> dict[str, str]:
    """Return the headings of the quantities, for a band with this factor."""
    near = f"{band_in_words(band)} more or less"
    return {
        "loss": "PRzCDP loss",
        "pure": "PRDP loss",
        "guessed": f"Presence: best guess right at most, from {percent(EVEN)}",
        "detected": f"Detected at most, with {alarms(EXAMPLE_ALARMS)}",
        "epsilon": f"ε at most, with δ = {DELTA_WRITTEN}",
        "band": f"PRzCDP loss of the value, {near}",
        "recognised": f"Value: best guess right at most, {near}, from {percent(EVEN)}",
        "within": "Value known to within, with all else known",
    }


def as_lines(
    found: Sequence[tuple[str, Explanation]],
    noun: str = "record",
    entity: bool = False,
    band: float = BAND,
    width: int | None = None,
) -> list[str]:
    """Return explanations of examples as lines of text: a table with a row for each, and what its columns mean.

    The lines of the table are within the `width`, if one is given.
    """
    near = band_in_words(band)
    heads = ["", "PRzCDP loss", "PRDP loss", "presence guessed", "detected", "ε"]
    heads += ["value loss", "value guessed", "value known to"]
    marks = ["", *(f"  ({BOUND})" if one.bound else "" for _, one in found)]
    table = aligned([heads, *([name, *one.texts.values()] for name, one in found)], width)
    marks *= len(table) // len(marks)
    told = [name for name, one in found if one.loss >= NO_SECRET]
    return [
        *(line + mark for line, mark in zip(table, marks, strict=True)),
        f"Presence guessed: how often, at most, an attacker who knows everything else guesses right whether the {noun} "
        f"is in the data, starting from {percent(EVEN)}. Detected: how often, at most, the {noun} is detected with "
        f"{alarms(EXAMPLE_ALARMS)}. ε: at most, with δ = {DELTA_WRITTEN}."
        + (f" This is for a {noun} in one cell." if entity else ""),
        f"Value loss: the PRzCDP loss between its value and one {near} larger or smaller. Value guessed: how often, at "
        f"most, the best guess between the two is right. Value known to: half the {percent(LEVEL)} interval for the "
        "value by one published number, with all else known.",
        *([f"From a loss of about 5 on, presence is no secret: {', '.join(told)}."] if told else []),
    ]
