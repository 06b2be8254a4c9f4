"""Several releases: the certified bounds contain what is known exactly, and are close to each other."""

import math

import numpy as np
import pytest
from helpers.shapes import Smooth
from scipy import special

import slowscale as ss
from slowscale.accounting.composed import compose
from slowscale.accounting.pairs import GaussianPair, ShiftedPair
from slowscale.noise import ExponentialPolylogNoise, GaussianNoise, GeneralizedGaussianNoise

RATES = np.array([1e-4, 0.01, 0.05, 0.3, 0.7, 0.99])
EPSILONS = np.array([0, 0.1, 0.5, 1, 2, 4])
DELTAS = np.array([0.1, 1e-3, 1e-6, 1e-8])


def bounds(pairs):
    return compose(pairs, upper=False), compose(pairs, upper=True)


def test_gaussians_compose_exactly():
    found = ss.attacker(
        [ss.Gaussian(sigma=2), ss.Log(sigma=0.5), ss.UnitSplitting(threshold=1, sigma=4)], [1, math.e - 1, 2]
    )
    assert found.exact
    assert found.lower is found
    shift = math.sqrt(0.25 + 4 + 0.25)
    assert found.power(0.05) == pytest.approx(special.ndtr(special.ndtri(0.05) + shift), rel=1e-9)


@pytest.mark.parametrize("shifts", [[1.0, 0.5], [0.1] * 20, [3.0, 0.01], [12.0, 9.0, 0.3]])
def test_gaussians_through_the_numerical_composition(shifts):
    low, high = bounds([ShiftedPair(GaussianNoise(sigma=1.0), shift) for shift in shifts])
    exact = GaussianPair(math.hypot(*shifts))
    for name, at in {"power": RATES, "delta": EPSILONS, "epsilon": DELTAS}.items():
        least, true, most = (getattr(curve, name)(at) for curve in (low, exact, high))
        assert (least <= true * (1 + 1e-12)).all(), name
        assert (true <= most * (1 + 1e-12)).all(), name
    assert high.power(RATES) == pytest.approx(exact.power(RATES), rel=2e-4)
    assert low.power(RATES) == pytest.approx(exact.power(RATES), rel=5e-2)
    assert high.epsilon(DELTAS[:3]) == pytest.approx(exact.epsilon(DELTAS[:3]), rel=2e-4)
    assert low.average(-1.0) <= exact.average(-1.0) <= high.average(-1.0) <= low.average(-1.0) + 0.01


PAIRS = [
    [
        ShiftedPair(GeneralizedGaussianNoise(sigma=1.0, p=1.0), 1.0),
        ShiftedPair(GeneralizedGaussianNoise(sigma=1.0, p=1.0), 0.4),
    ],
    [
        ShiftedPair(ExponentialPolylogNoise(d=0.2378), 30.0),
        ShiftedPair(GeneralizedGaussianNoise(sigma=6.85, p=0.5), 10.0),
    ],
    [ShiftedPair(ExponentialPolylogNoise(d=0.2378), 1e6), ShiftedPair(ExponentialPolylogNoise(d=0.113), 1.0)],
    [ShiftedPair(Smooth(4.95, 1.6), 10.0), GaussianPair(0.7)],
]


@pytest.mark.parametrize("pairs", PAIRS, ids=str)
def test_two_releases_by_quadrature(pairs):
    """δ of two releases is the mean of the second one's δ at ε − L, over the loss L of the first one."""
    first, second = pairs
    noise, shift = first.noise, first.shift
    x, weights = np.polynomial.legendre.leggauss(16)
    far = noise.isf(1e-12)
    side = np.concatenate([[0], np.geomspace(1e-12 * far, far, 300)])
    edges = np.unique(np.concatenate([-side, side, shift - side[side < shift / 2], shift + side, shift - side]))
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + x)).ravel()
    mass = (half * weights).ravel() * noise.pdf(z)
    loss = noise.logpdf(z) - noise.logpdf(z - shift)
    low, high = bounds(pairs)
    for epsilon in EPSILONS:
        rest = epsilon - loss
        delta = second.delta(np.abs(rest))
        exact = mass @ np.where(rest >= 0, delta, 1 - np.exp(rest) * (1 - delta))
        least, most = (curve.delta(np.array([epsilon]))[0] for curve in (low, high))
        assert least <= exact * (1 + 1e-6)
        assert exact <= most * (1 + 1e-6) + 1e-9
        assert most == pytest.approx(exact, rel=1e-4, abs=1e-8)
        assert least == pytest.approx(exact, rel=2e-2, abs=1e-8)


def test_laws():
    m = ss.ExponentialPolylog.calibrate(std=2_000)
    one, two, three = (ss.attacker([m] * n, [30] * n) for n in (1, 2, 3))
    assert not two.exact
    assert two.lower.lower == two.lower
    assert one.exact
    assert two.loss == pytest.approx(2 * one.loss)
    rates = np.linspace(0, 1, 21)
    assert (one.power(rates) <= two.lower.power(rates) + 1e-9).all()
    assert (two.lower.power(rates) <= two.power(rates)).all()
    assert (two.power(rates) <= three.power(rates)).all()
    assert (np.diff(two.power(rates), 2) <= 1e-12).all()
    assert two.epsilon(0) == two.loss
    assert two.delta(two.loss) == 0
    assert two.posterior(0.5).highest == pytest.approx(ss.posterior(0.5, two.loss))
    assert two.lower.posterior(0.2).average < two.posterior(0.2).average < two.posterior(0.2).highest
    assert "at least" in two.lower.sentence()
    mixed = ss.attacker([m, ss.Gaussian(sigma=100)], [30, 0])
    assert mixed.exact
    assert mixed.power(0.05) == one.power(0.05)
    assert ss.attacker([m, ss.Gaussian(sigma=100)], [30, 50]).epsilon(0) == math.inf


def test_extremes():
    """A hidden and a plain record together; losses so large that exp of a step of the grid overflows."""
    laplace, polylog = ss.GeneralizedGaussian(sigma=1, p=1), ss.ExponentialPolylog(d=0.24)
    for mechanisms, influences in {
        (laplace, polylog): (1e-9, 1e15),
        (laplace, ss.Gaussian(sigma=1)): (1e15, 1e9),
        (laplace, ss.Gaussian(sigma=1), polylog): (1e-9, 1e-9, 1e-9),
    }.items():
        found = ss.attacker(list(mechanisms), list(influences))
        for one in (found, found.lower):
            power = one.power([0, 1e-300, 1e-9, 0.05, 0.5, 1])
            delta = one.delta([0, 1e-9, 1, 100, 1e20])
            epsilon = one.epsilon([1e-300, 1e-6, 0.5, 1])
            assert (np.diff(power) >= 0).all()
            assert (np.diff(delta) <= 0).all()
            assert (np.diff(epsilon) <= 0).all()
            assert 0.3 - 1e-6 <= one.posterior(0.3).average <= 1


def test_many_releases_by_simulation():
    """Twenty releases with Laplace noise: the log-likelihood ratio is simulated with numpy's noise."""
    rng = np.random.default_rng(20)
    found = ss.attacker([ss.GeneralizedGaussian(sigma=1, p=1)] * 20, [0.3] * 20)
    z = rng.laplace(size=(200_000, 20))
    without, present = (np.sort((np.abs(y) - np.abs(y - 0.3)).sum(axis=1)) for y in (z, z + 0.3))
    for rate in (0.05, 0.3):
        threshold = without[int((1 - rate) * without.size)]
        measured = (present > threshold).mean()
        # 5.5 standard errors of each share: false alarms in less than one case in a million
        assert found.lower.power(rate) - 0.02 < measured < found.power(rate) + 0.02
