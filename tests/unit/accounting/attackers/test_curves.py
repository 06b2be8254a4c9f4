"""The exact curves: against closed forms, brute force, numerical integration with many digits, and their own laws."""

import math
import warnings
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from helpers.errors import refused
from helpers.shapes import Bent, Smooth, brute_delta, brute_power
from scipy import special

import slowscale as ss
from slowscale.accounting.pairs import GaussianPair, ShiftedPair
from slowscale.noise import ExponentialPolylogNoise, GaussianNoise, GeneralizedGaussianNoise

RATES = np.array([1e-6, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.99, 0.9999])
NOISES = [
    (GaussianNoise(sigma=3.0), 4.0),
    (GeneralizedGaussianNoise(sigma=2.0, p=1.0), 3.0),
    (GeneralizedGaussianNoise(sigma=6.85, p=0.5), 106.0),
    (GeneralizedGaussianNoise(sigma=1.0, p=0.3), 0.2),
    (ExponentialPolylogNoise(d=0.2378), 30.0),
    (ExponentialPolylogNoise(d=4.0, sigma=2.0, a=1.5, p=1.0), 5.0),
    (ExponentialPolylogNoise(d=0.5, sigma=3.0, p=3), 20.0),
    (Smooth(4.95, 1.6), 10.0),
    (Smooth(4.95, 1.6), 400.0),
    (Smooth(1.0, 0.3), 0.1),
    (Bent(1.0, 2.0), 0.7),
    (Bent(1.0, 2.0), 3.0),
]
EVERY_NOISE = pytest.mark.parametrize(("noise", "shift"), NOISES, ids=str)


@EVERY_NOISE
def test_brute_force(noise, shift):
    """On many cells of the line, ordered by their likelihood ratio, without any reasoning about its shape."""
    pair = ShiftedPair(noise, shift)
    assert pair.power(RATES) == pytest.approx(brute_power(noise, shift, RATES), rel=2e-4, abs=5e-8)
    epsilons = np.array([0, 0.2, 0.5, 0.9, 0.99]) * min(pair.most, 5)
    assert pair.delta(epsilons) == pytest.approx(brute_delta(noise, shift, epsilons), rel=1e-3, abs=1e-7)


def log_density(noise, z):
    """Return the log of the density, up to a constant, with many digits."""
    z = abs(z) / mp.mpf(noise.sigma)
    match noise:
        case GaussianNoise():
            return -(z**2) / 2
        case GeneralizedGaussianNoise():
            return -(z ** mp.mpf(noise.p))
        case ExponentialPolylogNoise():
            return -mp.mpf(noise.d) * mp.log(z + mp.mpf(noise.a)) ** mp.mpf(noise.p)
        case Smooth():
            return -(mp.asinh(z) ** 2) / (2 * mp.mpf(noise.tau) ** 2) - mp.log(1 + z**2) / 2


@pytest.mark.parametrize(
    ("noise", "shift", "share"),
    [
        (GeneralizedGaussianNoise(sigma=6.85, p=0.5), 106.0, 0.4),
        (GeneralizedGaussianNoise(sigma=1.0, p=0.5), 1e-7, 0.6),
        (ExponentialPolylogNoise(d=0.2378), 30.0, 0.1),
        (ExponentialPolylogNoise(d=0.2378), 1e-6, 0.5),
        (ExponentialPolylogNoise(d=0.2378), 1e6, 0.9),
        (Smooth(4.95, 1.6), 10.0, 0.95),
        (GaussianNoise(sigma=1.0), 1e-8, 1e-8),
        (GaussianNoise(sigma=1.0), 2.0, 3.0),
    ],
    ids=str,
)
def test_many_digits(noise, shift, share):
    """δ(ε) is the integral of the positive part of p(z) − exp(ε)·p(z − Δ): here with 30 digits."""
    pair = ShiftedPair(noise, shift)
    epsilon = share * pair.most if math.isfinite(pair.most) else share
    with mp.workdps(30):
        step = mp.mpf(shift)

        def loss(z):
            return log_density(noise, z) - log_density(noise, z - step) - epsilon

        ends = [-(mp.mpf(10) ** k) * noise.sigma for k in range(12, -30, -1)]
        inner = [mp.mpf(k) / 64 * step for k in range(33)] + [step * mp.mpf(10) ** -k for k in range(2, 30)]
        nodes = sorted([*ends, *inner])
        positive = [loss(z) > 0 for z in nodes]
        for i in range(len(nodes) - 1):
            if positive[i] != positive[i + 1]:
                nodes.append(mp.findroot(loss, (nodes[i], nodes[i + 1]), solver="anderson", verify=False))
        nodes = sorted(nodes)

        def difference(z):
            return max(mp.exp(log_density(noise, z)) * -mp.expm1(-loss(z)), 0)

        top = 2 * mp.exp(mp.mpf(noise._log_peak) - log_density(noise, mp.mpf(0)))
        exact = top * mp.quad(difference, nodes, maxdegree=4) / 2
    assert pair.delta(np.array([epsilon]))[0] == pytest.approx(float(exact), rel=1e-8)
    closed = GaussianPair(shift / noise.sigma).delta(np.array([epsilon]))[0]
    assert not isinstance(noise, GaussianNoise) or closed == pytest.approx(float(exact), rel=1e-12)


def test_gaussian():
    general, closed = ShiftedPair(GaussianNoise(sigma=2.0), 2.6), GaussianPair(1.3)
    assert general.power(RATES) == pytest.approx(special.ndtr(special.ndtri(RATES) + 1.3), rel=1e-9)
    assert closed.power(RATES) == pytest.approx(super(GaussianPair, closed).power(RATES), rel=1e-9)
    deltas = np.array([0.3, 1e-3, 1e-6, 1e-12])
    assert general.epsilon(deltas) == pytest.approx(closed.epsilon(deltas), rel=1e-9)
    assert closed.delta(closed.epsilon(deltas)) == pytest.approx(deltas, rel=1e-9)
    assert general.average(0.7) == pytest.approx(closed.average(0.7), rel=1e-9)


@pytest.mark.parametrize("loss", [1e-9, 0.01, 1.5, 40.0])
def test_laplace(loss):
    """δ(ε) = 1 − exp((ε − Δ/σ)/2), and the power curve has a straight start: the best test must be randomised there."""
    pair = ShiftedPair(GeneralizedGaussianNoise(sigma=3.0, p=1.0), 3.0 * loss)
    epsilons = np.linspace(0, 1, 9) * loss
    assert pair.delta(epsilons) == pytest.approx(-np.expm1((epsilons - loss) / 2), rel=1e-9, abs=1e-30)
    assert pair.epsilon(np.array([0.0]))[0] == loss
    low = math.exp(-loss) / 2
    start = np.array([1e-9, 0.3, 0.999]) * low
    assert pair.power(start) == pytest.approx(start * math.exp(loss), rel=1e-9)
    # between the bends 1 − power is exp(−Δ/σ)/(4s)
    middle = np.linspace(low, 0.5, 5)
    assert 1 - pair.power(middle) == pytest.approx(math.exp(-loss) / (4 * middle), rel=1e-6, abs=1e-12)


@EVERY_NOISE
def test_laws(noise, shift):
    pair = ShiftedPair(noise, shift)
    rates = np.linspace(0, 1, 41)
    power = pair.power(rates)
    assert power[0] == 0
    assert power[-1] == 1
    assert (power >= rates).all()
    assert (np.diff(power) >= 0).all()
    assert (np.diff(power, 2) <= 1e-9).all()  # concave
    inside = (power > 1e-3) & (power < 1 - 1e-3)
    assert 1 - pair.power(1 - power[inside]) == pytest.approx(rates[inside], abs=1e-8)  # its own inverse
    assert pair.delta(np.zeros(1))[0] == pytest.approx(1 - 2 * noise.sf(shift / 2), rel=1e-9)  # total variation
    # The two descriptions are dual: the power is the smallest exp(ε)·s + δ(ε), over ε of both signs.
    epsilons = np.linspace(0, min(pair.most, 30), 3001)
    delta = pair.delta(epsilons)
    both = np.concatenate([epsilons, -epsilons]), np.concatenate([delta, 1 - np.exp(-epsilons) * (1 - delta)])
    dual = (np.exp(both[0]) * rates[:, None] + both[1]).min(axis=1)
    assert power == pytest.approx(np.minimum(dual, 1), abs=1e-5)
    assert (power <= dual + 1e-7).all()
    assert pair.delta(pair.epsilon(np.array([1e-3, 1e-9]))) == pytest.approx([1e-3, 1e-9], rel=1e-6)


@pytest.mark.parametrize("ratio", [1e-9, 1e-4, 1.0, 1e5, 1e15])
@pytest.mark.parametrize(
    "mechanism",
    [
        ss.Gaussian(sigma=2),
        ss.UnitSplitting(threshold=3, sigma=2),
        ss.GeneralizedGaussian(sigma=2, p=1),
        ss.GeneralizedGaussian(sigma=2, p=0.05),
        ss.ExponentialPolylog(d=0.1, sigma=2),
        ss.ExponentialPolylog(d=1.01, sigma=2, p=1),
        ss.Root(k=4, sigma=0.1),
        ss.Log(sigma=0.01),
        ss.Log(sigma=0.01, noise="laplace"),
        ss.Root(k=4, sigma=0.1, noise=ss.ExponentialPolylog(d=2)),
        ss.Arsinh(s=3, sigma=0.1, noise="laplace"),
    ],
    ids=str,
)
def test_extremes(mechanism, ratio):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ss.attacker(mechanism, ratio * 2)
        power = found.power([0, 1e-300, 1e-9, 0.05, 0.5, 1 - 1e-12, 1])
        delta = found.delta([0, 1e-12, 1, 40, 1e16])
        epsilon = found.epsilon([0, 1e-300, 1e-6, 0.5, 1])
        posterior = found.posterior(1e-6)
    assert (np.diff(power) >= 0).all()
    assert power[0] == 0
    assert power[-1] == 1
    assert (np.diff(delta) <= 0).all()
    assert ((delta >= 0) & (delta <= 1)).all()
    assert (np.diff(epsilon) <= 0).all()
    assert epsilon[-1] == 0
    assert 0 < posterior.average <= posterior.highest <= 1
    assert 1 - 1e-6 <= posterior.correct <= 1


def test_transformations_are_gaussian():
    """What is published is computed from f(q + a) + N(0, σ²), and presence shifts this most if the rest is 0."""
    for m, shift in (
        (ss.Root(k=4, sigma=0.5, a=2), (18**0.25 - 2**0.25) / 0.5),
        (ss.Log(sigma=0.5, a=4), math.log(5) / 0.5),
    ):
        assert ss.attacker(m, 16).power(0.05) == pytest.approx(special.ndtr(special.ndtri(0.05) + shift), rel=1e-9)


@pytest.mark.parametrize(
    ("m", "added", "shift", "gap"),
    [
        (ss.Root(k=4, sigma=0.5, a=2, noise="laplace"), ss.Laplace(sigma=0.5), 18**0.25 - 2**0.25, 42**0.25 - 22**0.25),
        (ss.Log(sigma=0.3, a=4, noise="laplace"), ss.Laplace(sigma=0.3), math.log(5), math.log(44 / 24)),
        (
            ss.Log(sigma=0.3, a=4, noise=ss.ArsinhNormal(scale=1, shape=1.6)),
            ss.ArsinhNormal(scale=0.3, shape=1.6),
            math.log(5),
            math.log(44 / 24),
        ),
        (ss.Arsinh(s=4, sigma=0.3), ss.Gaussian(sigma=0.3), 2 * math.asinh(2), 2 * math.asinh(2.5)),
        (ss.Arsinh(s=4, sigma=0.3, noise="laplace"), ss.Laplace(sigma=0.3), 2 * math.asinh(2), 2 * math.asinh(2.5)),
        (
            ss.Transformation(np.sqrt, np.square, sigma=0.5, a=9, noise="laplace"),
            ss.Laplace(sigma=0.5),
            2.0,
            math.sqrt(49) - math.sqrt(29),
        ),
    ],
    ids=str,
)
def test_transformations_shift_their_noise(m, added, shift, gap):
    """What is published is computed from f(q + a) + Z: a record of 16, or of 40 and not 20, shifts the noise Z."""
    for found, expected in (
        (ss.attacker(m, 16), ss.attacker(added, shift)),
        (ss.attacker(m, values=(20, 40)), ss.attacker(added, gap)),
        (ss.attacker(m, values=(40, 20)), ss.attacker(added, gap)),
    ):
        assert found.power(RATES) == pytest.approx(expected.power(RATES), rel=1e-9)
        assert found.delta([0.1, 1, 3]) == pytest.approx(expected.delta([0.1, 1, 3]), rel=1e-9)


@EVERY_NOISE
def test_a_smaller_shift_hides_more(noise, shift):
    """A transformation shifts the noise less where the rest of the sum is larger, so an empty cell is the worst."""
    epsilons = np.geomspace(1e-3, 10, 25)
    deltas = [ShiftedPair(noise, shift * part).delta(epsilons) for part in (0.1, 0.5, 0.9, 0.99, 1.0)]
    for smaller, larger in pairwise(deltas):
        assert (smaller <= larger * (1 + 1e-9) + 1e-15).all()


def test_values():
    """Additive noise sees the difference only; a transformation hides a difference better in a larger sum."""
    polylog, log = ss.ExponentialPolylog(d=0.24), ss.Log(sigma=0.5, a=1)
    assert ss.attacker(polylog, values=(100, 110)).power(0.1) == ss.attacker(polylog, 10).power(0.1)
    assert ss.attacker(polylog, values=(110, 100)).power(0.1) == ss.attacker(polylog, 10).power(0.1)
    shift = math.log(111 / 101) / 0.5
    assert ss.attacker(log, values=(100, 110)).power(0.1) == pytest.approx(
        special.ndtr(special.ndtri(0.1) + shift), rel=1e-9
    )
    assert ss.attacker(log, values=(5, 5)).power([0.1, 0.9]).tolist() == [0.1, 0.9]
    assert "that a record has 110 and not 100." in ss.attacker(log, values=(100, 110)).sentence()


@pytest.mark.parametrize("prior", [0.001, 0.3, 0.5, 0.6, 0.9])
def test_posterior(prior):
    """Against the integrals that define it, on a fine grid."""
    noise, shift = GeneralizedGaussianNoise(sigma=6.0, p=0.5), 10.0
    found = ss.attacker(ss.GeneralizedGaussian(sigma=6, p=0.5), shift).posterior(prior)
    z = np.linspace(-8000, 8000, 2_000_001)
    without, present = noise.pdf(z), noise.pdf(z - shift)
    after = prior * present / (prior * present + (1 - prior) * without)
    assert found.highest == pytest.approx(after.max(), rel=1e-9)
    assert found.average == pytest.approx(np.trapezoid(present * after, z), rel=1e-4)
    right = np.trapezoid(np.maximum(prior * present, (1 - prior) * without), z)
    assert found.correct == pytest.approx(right, rel=1e-4)


def test_sentences():
    found = ss.attacker(ss.Gaussian(sigma=200), 50)
    assert found.sentence(0.01, "a farm").startswith("With one false alarm in a hundred, the presence of a farm is ")
    assert str(found) == (
        "With one false alarm in twenty, the presence of a record of size 50 is detected at most 8.2 % of the time. "
        "The best guess, starting from 50 %, is right at most 55.0 % of the time."
    )


def test_errors():
    m = ss.Gaussian(sigma=1)
    for wrong, (subject, code) in {
        "ss.attacker(3, 1)": ("mechanism", "type"),
        "ss.attacker([], [])": ("mechanism", "empty"),
        "ss.attacker(m)": ("influence", "missing"),
        "ss.attacker(m, 1, values=(1, 2))": ("values", "conflict"),
        "ss.attacker(m, -1)": ("influence", "value"),
        "ss.attacker([m, m], [1])": ("influence", "mismatch"),
        "ss.attacker([m, m], 1)": ("influence", "mismatch"),
        "ss.attacker(m, values=(1, 2, 3))": ("values", "type"),
        "ss.attacker(m, values=(1, float('inf')))": ("values", "value"),
        "ss.attacker(ss.Log(sigma=1), values=(-1, 2))": (None, "value"),
        "ss.attacker(ss.Log(sigma=0.3, noise='laplace'), values=(-1, 2))": (None, "value"),
        "ss.attacker(m, 1).power(1.5)": ("false_alarms", "value"),
        "ss.attacker(m, 1).delta(-1)": ("epsilon", "value"),
        "ss.attacker(m, 1).posterior(0)": ("prior", "value"),
    }.items():
        with refused(ss.SlowscaleError, subject, code=code):
            eval(wrong, {"ss": ss, "m": m})
    with pytest.raises(ss.ParameterTypeError, match=r"^values excludes"):
        ss.attacker(m, 1, values=(1, 2))


def test_sentences_about_several_sizes_and_about_no_protection():
    sure = ss.attacker(ss.Root(k=4, sigma=1), 1e12)
    assert sure.sentence().endswith(" is detected at most 100 % of the time.")
    many = ss.attacker([ss.Gaussian(sigma=10)] * 5, [1, 2, 3, 4, 5])
    assert "the presence of a record of these sizes" in many.sentence()


@pytest.mark.parametrize("scale", [1e-300, 1e-4, 1e280])
def test_a_small_scale_hides_nothing(scale):
    """A loss is known in closed form for Laplace noise: δ = 1 − exp((ε − x)/2) at a distance of x scales."""
    found = ss.attacker(ss.GeneralizedGaussian(sigma=scale, p=1), 3 * scale)
    assert found.delta([0.0, 1.0, 2.9]) == pytest.approx(-np.expm1((np.array([0.0, 1.0, 2.9]) - 3) / 2), rel=1e-9)
    assert found.loss == pytest.approx(3)


@pytest.mark.parametrize(
    "mechanism", [lambda sigma, p: ss.GeneralizedGaussian(sigma=sigma, p=p), lambda sigma, p: ss.Gaussian(sigma=sigma)]
)
def test_a_distance_beyond_floats_is_never_taken_for_none(mechanism):
    assert ss.attacker(mechanism(1e-200, 0.5), 1e200).delta(5.0) == 1
    assert ss.attacker(mechanism(1e200, 0.5), 1e-200).loss > 0


@pytest.mark.parametrize(
    "mechanism", [ss.Gaussian(sigma=2), ss.Laplace(sigma=2), ss.ExponentialPolylog(d=0.24), ss.Log(sigma=0.5)], ids=str
)
def test_a_record_that_adds_nothing_is_never_detected(mechanism):
    found = ss.attacker(mechanism, 0)
    assert found.power(RATES).tolist() == RATES.tolist()
    assert found.delta([0, 0.1]).tolist() == [0, 0]
    assert found.loss == 0
    both = ss.attacker([mechanism, mechanism], [0, 7])
    assert both.power(RATES) == pytest.approx(ss.attacker(mechanism, 7).power(RATES), rel=1e-3)
