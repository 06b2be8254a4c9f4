"""Attackers: what the best possible test for a record achieves, exactly (the paper's open problem on semantics).

An attacker knows the mechanism and everything in the data except whether one record is there, or which of two values it
has. What can be found out from a release is then completely described by the *power curve*: how often the record is
detected, for each rate of false alarms.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, overload

import numpy as np

from slowscale.accounting.composed import RATES_AT_ONCE, LossCurve, compose
from slowscale.accounting.pairs import GaussianPair, Pair, ShiftedPair
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.core.numbers import format_number, percent, share
from slowscale.core.parameters import Array, as_number, evaluate, lazy
from slowscale.core.typing import ArrayLike, Scalar
from slowscale.mechanisms import AdditiveMechanism, Mechanism
from slowscale.mechanisms.transformation import TransformationMechanism
from slowscale.noise import GaussianNoise
from slowscale.policy.bounded import BoundedPolicy

ONE_IN = {2: "two", 10: "ten", 20: "twenty", 50: "fifty", 100: "a hundred", 1000: "a thousand", 10**6: "a million"}


def alarms(rate: float) -> str:
    """Return a rate of false alarms in words: "one false alarm in twenty".

    >>> alarms(0.05), alarms(0.03)
    ('one false alarm in twenty', 'false alarms in 3 % of cases')
    """
    number = ONE_IN.get(round(1 / rate)) if rate > 0 and abs(1 / rate - round(1 / rate)) < 1e-9 / rate else None
    return f"false alarms in {percent(rate)} of cases" if number is None else f"one false alarm in {number}"


def _often(verb: str, probability: float, bound: str, note: str = "") -> str:
    """Return how often something happens: "is right at most 9.0 % of the time". It is rounded to the safe side."""
    return f"{verb} {bound} {share(probability, 1 if bound == 'at most' else -1)} of the time{note}"


def detection(subject: str, rate: float, power: float, bound: str = "at most", note: str = "") -> str:
    """Return how often the presence of a record is detected.

    >>> detection("a firm with 50 employees", 0.05, 0.0891)
    'With one false alarm in twenty, the presence of a firm with 50 employees is detected at most 9.0 % of the time.'
    """
    return f"With {alarms(rate)}, the presence of {subject} {_often('is detected', power, bound, note)}."


def recognition(value: str, other: str, rate: float, power: float, bound: str = "at most") -> str:
    """Return how often the value of a record is recognised, if there are two candidates."""
    return f"With {alarms(rate)}, it {_often('is recognised', power, bound)} that a record has {other} and not {value}."


def guesses(prior: float, correct: float, bound: str = "at most", note: str = "") -> str:
    """Return how often the best guess is right."""
    return f"The best guess, starting from {percent(prior)}, {_often('is right', correct, bound, note)}."


EXAMPLE_ALARMS = 0.05  # the rate of false alarms in reports
EVEN = 0.5  # the prior probability in reports


@dataclass(frozen=True)
class Posterior:
    """The conclusions of an attacker with a prior from a release.

    Attributes
    ----------
    prior
        The probability that the attacker gave to the presence of the record (or to the second value) before.
    highest
        The largest probability that any output can lead to: the worst case. It is 1 if the loss is not bounded.
    average
        The probability to which the attacker comes on average, if the record is there.
    correct
        The probability that the attacker's best guess is right, whether or not the record is there. It is also the
        average certainty of the guess. Without the release it would be the larger of the prior and 1 − prior.
    """

    prior: float
    highest: float
    average: float
    correct: float


@dataclass(frozen=True)
class Attacker:
    """What the best possible test can find out about a record. Get one from `attacker`.

    The curves are exact for the ideal output of one mechanism, and of several mechanisms that are Gaussian or
    transformations. For other compositions they are upper bounds, and `lower` gives lower bounds. The published value
    is rounded to a grid, which can only remove information, so the curves are upper bounds for it too.

    Attributes
    ----------
    mechanisms
        The mechanisms, one for each release or column.
    influences
        What the record adds to each sum, if the question is whether the record is there. Otherwise None.
    values
        The two values that the record may have in each sum, if the question is which. Otherwise None.
    optimistic
        Whether the answers are lower bounds instead of upper bounds.
    """

    mechanisms: tuple[Mechanism, ...]
    influences: tuple[float, ...] | None = None
    values: tuple[tuple[float, float], ...] | None = None
    optimistic: bool = False

    @property
    def _curve(self) -> Pair | LossCurve:
        return _curve(self)

    @lazy
    def _pairs(self) -> list[Pair]:
        if self.influences is not None:
            return [presence(m, influence) for m, influence in zip(self.mechanisms, self.influences, strict=True)]
        assert self.values is not None
        return [between(m, *pair) for m, pair in zip(self.mechanisms, self.values, strict=True)]

    @property
    def exact(self) -> bool:
        """Whether the curves are exact, not bounds from one side."""
        return not isinstance(self._curve, LossCurve)

    @property
    def lower(self) -> "Attacker":
        """An attacker whose answers are lower bounds; the same one if the curves are exact."""
        return self if self.exact or self.optimistic else replace(self, optimistic=True)

    @property
    def loss(self) -> float:
        """The largest possible privacy loss: by how much an output can shift the log odds. It may be infinite."""
        return self._curve.most

    @overload
    def power(self, false_alarms: Scalar) -> float: ...

    @overload
    def power(self, false_alarms: ArrayLike) -> Array: ...

    def power(self, false_alarms: Scalar | ArrayLike) -> float | Array:
        """Return how often the best test detects the record, at each rate of false alarms.

        By the lemma of Neyman and Pearson no other test with this rate of false alarms detects it more often.

        >>> import slowscale as ss
        >>> round(ss.attacker(ss.Gaussian(sigma=100), 50).power(0.05), 4)
        0.1261
        """
        return _apply("false_alarms", false_alarms, self._curve.power, most=1)

    @overload
    def delta(self, epsilon: Scalar) -> float: ...

    @overload
    def delta(self, epsilon: ArrayLike) -> Array: ...

    def delta(self, epsilon: Scalar | ArrayLike) -> float | Array:
        """Return the smallest δ of (ε, δ)-differential privacy for this record, at each ε >= 0.

        At ε = 0 it is the total variation distance.
        """
        return _apply("epsilon", epsilon, self._curve.delta)

    @overload
    def epsilon(self, delta: Scalar) -> float: ...

    @overload
    def epsilon(self, delta: ArrayLike) -> Array: ...

    def epsilon(self, delta: Scalar | ArrayLike) -> float | Array:
        """Return the smallest ε >= 0 of (ε, δ)-differential privacy for this record, at each δ."""
        return _apply("delta", delta, self._curve.epsilon, most=1)

    def posterior(self, prior: float = EVEN) -> Posterior:
        """Return what an attacker can conclude who gave the record's presence this probability before the release.

        >>> import slowscale as ss
        >>> found = ss.attacker(ss.GeneralizedGaussian(sigma=100, p=1), 50).posterior(0.5)
        >>> round(found.highest, 3), round(found.average, 3), round(found.correct, 3)
        (0.622, 0.526, 0.611)
        """
        start = as_number("prior", prior, "a number between 0 and 1")
        if not 0 < start < 1:
            raise ParameterError("prior", allowed="between 0 and 1, both excluded", given=prior)
        log_odds = math.log(start) - math.log1p(-start)
        against = -log_odds - self.loss
        highest = 1 / (1 + math.exp(min(against, 700.0)))
        # The best guess is right with probability 1 − π + π·δ(ln((1 − π)/π)); δ(−ε) is 1 − exp(−ε)·(1 − δ(ε)). So the
        # likelier answer and the other one have the same roles, whichever of the two it is.
        correct = max(start, 1 - start) + min(start, 1 - start) * self.delta(abs(log_odds))
        return Posterior(start, highest, min(self._curve.average(log_odds), highest), correct)

    def sentence(self, false_alarms: float = EXAMPLE_ALARMS, subject: str | None = None) -> str:
        """Return in words how often the record is detected.

        Parameters
        ----------
        false_alarms
            The rate of false alarms that the attacker accepts.
        subject
            The record in words, such as "a business with 50 employees".

        >>> import slowscale as ss
        >>> print(ss.attacker(ss.Gaussian(sigma=200), 50).sentence(subject="a firm with 50 employees"))
        With one false alarm in twenty, the presence of a firm with 50 employees is detected at most 8.2 % of the time.
        """
        rate = as_number("false_alarms", false_alarms, "a number between 0 and 1")
        power, bound = self.power(rate), "at least" if self.optimistic else "at most"
        if self.values is not None and subject is None:
            value, other = (" and ".join(format_number(pair[i]) for pair in self.values) for i in (0, 1))
            return recognition(value, other, rate, power, bound)
        if subject is None:
            assert self.influences is not None
            sizes = list(dict.fromkeys(map(format_number, self.influences)))
            subject = f"a record of size {' and '.join(sizes)}" if len(sizes) <= 3 else "a record of these sizes"
        return detection(subject, rate, power, bound)

    def __str__(self) -> str:
        bound = "at least" if self.optimistic else "at most"
        return f"{self.sentence()} {guesses(EVEN, self.posterior(EVEN).correct, bound)}"


@overload
def attacker(mechanism: Mechanism, influence: Scalar, *, values: None = None) -> Attacker: ...


@overload
def attacker(mechanism: Mechanism, *, values: tuple[Scalar, Scalar]) -> Attacker: ...


@overload
def attacker(mechanism: Sequence[Mechanism], influence: Sequence[Scalar], *, values: None = None) -> Attacker: ...


@overload
def attacker(mechanism: Sequence[Mechanism], *, values: Sequence[tuple[Scalar, Scalar]]) -> Attacker: ...


def attacker(
    mechanism: Mechanism | Sequence[Mechanism],
    influence: Scalar | Sequence[Scalar] | None = None,
    *,
    values: tuple[Scalar, Scalar] | Sequence[tuple[Scalar, Scalar]] | None = None,
) -> Attacker:
    """Return what the best possible attacker can find out about a record, from one release or from several.

    Parameters
    ----------
    mechanism
        The mechanism, or a list of mechanisms with independent noise: several columns, or several releases.
    influence
        What the record adds to the sum, for the question whether the record is there. For a list of mechanisms a list
        of the same length.
    values
        The two values that the record may have, for the question which of them it has; then `influence` is left out.
        For a transformation the answer is the worst case, in which the rest of the sum is 0.

    >>> import slowscale as ss
    >>> m = ss.ExponentialPolylog.calibrate(std=2_000)
    >>> round(ss.attacker(m, 30).power(0.05), 3), round(ss.attacker([m, m], [30, 30]).power(0.05), 3)
    (0.167, 0.244)
    >>> round(ss.attacker(ss.Log(sigma=1), values=(100, 110)).power(0.05), 4)
    0.0605
    """
    several = isinstance(mechanism, list | tuple)
    mechanisms: tuple[Any, ...] = tuple(mechanism) if several else (mechanism,)  # type: ignore[arg-type]
    for one in mechanisms:
        if not isinstance(one, Mechanism):
            raise ParameterTypeError(
                "mechanism", allowed="a mechanism such as ss.Gaussian(sigma=10), or a list of them", given=one
            )
    if not mechanisms:
        raise ParameterError("mechanism", "must be at least one mechanism", code="empty")
    if (influence is None) == (values is None):
        raise ParameterTypeError(
            "influence" if values is None else "values",
            "excludes `influence`" if influence is not None else "is missing",
            code="missing" if values is None else "conflict",
            remedy="give either `influence`, to ask whether a record is there, or `values`, to ask which one it has",
        )
    name, given = ("values", values) if influence is None else ("influence", influence)
    each: list[Any] = list(given) if several and isinstance(given, list | tuple | np.ndarray) else [given]
    if len(each) != len(mechanisms):
        problem = f"must have one entry for each of the {len(mechanisms)} mechanisms"
        raise ParameterError(name, problem, code="mismatch", given=len(each))
    if influence is not None:
        sizes = tuple(as_number("influence", one, "a number >= 0") for one in each)
        if wrong := [one for one in sizes if not 0 <= one < math.inf]:
            raise ParameterError("influence", allowed="a finite number >= 0", given=wrong[0])
        found = Attacker(mechanisms, influences=sizes)
    else:
        found = Attacker(mechanisms, values=tuple(_two_values(one) for one in each))
    found._pairs  # noqa: B018 - raises here if a mechanism or a value is not allowed
    return found


@lru_cache(maxsize=64)
def _curve(asked: Attacker) -> Pair | LossCurve:
    return compose(asked._pairs, upper=not asked.optimistic)


@lru_cache(maxsize=256)  # reports ask about each column by itself and then about all of them together
def presence(mechanism: Mechanism, influence: float) -> Pair:
    """Return the output distributions without and with a record of this influence."""
    if isinstance(mechanism, AdditiveMechanism):
        return _shifted(mechanism, influence)
    transformation = _transforming(mechanism)
    if transformation._is_gaussian:
        return _gaussian(transformation.policy(influence))
    with np.errstate(all="ignore"):
        rise = transformation._gaussian_policy(1.0)._rise(np.array([influence]))
    return _shifted(transformation.added, rise.item())


@lru_cache(maxsize=256)
def between(mechanism: Mechanism, value: float, other: float) -> Pair:
    """Return the output distributions for two values of a record, in the worst case for the rest of the sum."""
    if isinstance(mechanism, AdditiveMechanism):
        return _shifted(mechanism, abs(other - value))
    transformation = _transforming(mechanism)
    if transformation._is_gaussian:
        return _gaussian(float(BoundedPolicy(transformation.policy)(value, other)))
    loss = float(BoundedPolicy(transformation._gaussian_policy(1.0))(value, other))  # half the square of the shift
    return _shifted(transformation.added, math.sqrt(2 * loss))


def _shifted(mechanism: AdditiveMechanism, shift: float) -> Pair:
    """Return the noise and its shift, in units of its scale: a pair is searched between fixed sizes."""
    noise = mechanism.noise
    with np.errstate(over="ignore"):
        # A shift must not become 0 by underflow. By a shift that overflows, everything is disclosed.
        ratio = float(max(np.float64(shift) / noise._scale, sys.float_info.min)) if shift else 0.0
    if isinstance(noise, GaussianNoise) or ratio == 0 or math.isinf(ratio):
        return GaussianPair(ratio)
    return ShiftedPair(noise._standard(), ratio)


def _transforming(mechanism: Mechanism) -> TransformationMechanism:
    """Return a transformation, or raise.

    What is published is computed from f(q + a) + Z. A record moves f(q + a) by at most f(Δ + a) − f(a), and by less if
    the rest of the sum is larger. For symmetric noise whose density falls on both sides of its peak, and whose loss has
    one peak (see `pairs`), a smaller shift has a smaller δ at every ε: the derivative of δ by the shift is the density
    at the near end of {L > ε} minus that at the far end.
    """
    if not isinstance(mechanism, TransformationMechanism):
        raise ParameterTypeError(
            "mechanism", allowed="an additive mechanism or a transformation", given=type(mechanism)
        )
    return mechanism


def _gaussian(loss: float) -> GaussianPair:
    """Return the pair with a PRzCDP loss of μ²/2."""
    return GaussianPair(math.sqrt(2 * loss))


def _two_values(pair: Any) -> tuple[float, float]:
    if not isinstance(pair, list | tuple | np.ndarray) or len(pair) != 2:
        raise ParameterTypeError("values", allowed="two numbers such as (100, 110)", given=pair)
    one, other = (as_number("values", value) for value in pair)
    if not (math.isfinite(one) and math.isfinite(other)):
        raise ParameterError("values", allowed="finite numbers", given=(one, other))
    return one, other


def _apply(
    name: str, given: Scalar | ArrayLike, formula: Callable[[Array], Array], most: float = math.inf
) -> float | Array:
    """Apply a curve to numbers from 0 to `most`, a block at a time."""

    def each(numbers: Array) -> Array:
        if numbers.size and numbers.max() > most:
            raise ParameterError(name, allowed=f"between 0 and {most:g}", given=numbers.max())
        blocks = [formula(numbers[i : i + RATES_AT_ONCE]) for i in range(0, numbers.size, RATES_AT_ONCE)]
        return np.concatenate(blocks) if blocks else numbers

    return evaluate(name, given, each, low=0)
