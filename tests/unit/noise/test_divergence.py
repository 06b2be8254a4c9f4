"""Certified tight losses lie above the truth, computed at 50 digits, and hardly above it."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from flint import arb, ctx
from helpers.exact_divergence import BITS, drop_of, exact_log_peak, exact_loss

from slowscale.noise import (
    ArsinhNormalNoise,
    ExponentialPolylogNoise,
    GeneralizedGaussianNoise,
    PointsNoise,
    ProductNoise,
)
from slowscale.noise.divergence import (
    EXPONENT_ROUNDING,
    FIRST_ORDER,
    NORMALISING_ERROR,
    _Cells,
    _Integrals,
    _log_g,
    _log_sum,
    _Orders,
    far_end,
    tight_loss,
    tight_losses,
)

CLOSE = 1e-3  # the promised precision of a single value


def random_noises(rng, count):
    """Noises with random parameters, in turn of each kind."""
    for i in range(count):
        sigma = float(rng.choice([1.0, 0.02, 37.5]))
        if i % 6 == 0:
            yield GeneralizedGaussianNoise(sigma=sigma, p=float(rng.uniform(0.1, 1)))
        elif i % 6 == 1:
            yield ArsinhNormalNoise(scale=sigma, shape=float(np.exp(rng.uniform(np.log(0.1), np.log(4)))))
        elif i % 6 == 2:
            sizes = np.cumprod(np.exp(rng.uniform(0.5, 6, 3)))
            powers = np.cumsum(np.diff(np.log(sizes)) * np.sort(rng.uniform(0.2, 1, 2))[::-1])
            losses = float(rng.uniform(0.05, 2)) * np.exp(np.append(0, powers))
            yield PointsNoise(list(zip(sizes.tolist(), losses.tolist(), strict=True)), sigma=sigma)
        elif i % 6 == 3:
            first = GeneralizedGaussianNoise(sigma=sigma, p=float(rng.uniform(0.2, 1)))
            yield ProductNoise(
                ((2, first), (1, ExponentialPolylogNoise(d=float(rng.uniform(0.1, 2)), sigma=3 * sigma)))
            )
        else:
            p = (1.0, 2.0, 3.0, float(rng.uniform(1.2, 4)))[i // 2 % 4]
            d = float(np.exp(rng.uniform(np.log(0.1), np.log(4)))) + (1.5 if p == 1 else 0)
            a = math.exp(p - 1) * float(rng.uniform(1.01, 5))
            yield ExponentialPolylogNoise(d=d, sigma=sigma, a=a, p=p)


def cases():
    rng = np.random.default_rng(20_241)
    for noise in random_noises(rng, 24):
        yield noise, noise.sigma * float(np.exp(rng.uniform(np.log(1e-6), np.log(1e6))))
    # Small steps between points: the second derivative jumps, which a bound on the third one does not see.
    points = [(1.0, 0.0103018064), (1.32759482687504, 0.01284849792), (132.759482687504, 0.11014221700)]
    yield PointsNoise(points), 0.09601108300858555
    # The ends of the range.
    yield GeneralizedGaussianNoise(sigma=1, p=0.5), 1e-9
    yield ExponentialPolylogNoise(d=0.2), 1e-9
    yield ExponentialPolylogNoise(d=0.4), 1e15


@pytest.mark.parametrize(("noise", "influence"), list(cases()))
def test_the_bounds_enclose_the_loss_at_50_digits(noise, influence):
    found = tight_loss(noise, influence)
    truth = exact_loss(noise, influence, found.order)
    assert found.lower <= truth <= found.upper <= truth * (1 + CLOSE)
    for order in (1 + FIRST_ORDER / 16, 1 + 3 * (found.order - 1)):
        assert exact_loss(noise, influence, order) <= found.upper


@pytest.mark.parametrize("noise", list(random_noises(np.random.default_rng(31), 6)))
@pytest.mark.parametrize(("influence", "nearest"), [(1e-3, 0.9), (40.0, 0.9), (40.0, 0.3)])
def test_bounds_that_are_computed_together_enclose_the_loss(noise, influence, nearest):
    """They hold however far apart the influences are, and are as close as single ones for neighbours."""
    influences = noise.sigma * influence * np.array([nearest, 1.0])
    for found in tight_losses(noise, influences, 2e-4):
        truth = exact_loss(noise, found.influence, found.order)
        assert found.lower <= truth <= found.upper
        assert nearest < 0.9 or found.upper <= truth * (1 + CLOSE)
        assert tight_loss(noise, found.influence).lower <= found.upper


def test_the_cells_of_every_influence_cover_all_of_z_below_its_half():
    influences = np.array([0.7, 0.8, 0.9])
    coarse = _Integrals(GeneralizedGaussianNoise(sigma=1, p=0.5), 0.9, 1e4)
    outer, inner = coarse.split(np.array([1.0]), 1e-3, influences)._cells
    assert (outer.t[:, 0] == 0).all()
    assert (outer.t[:, -1] == 1e4).all()
    assert (inner.t[:, 0] == 0).all()
    assert inner.t[:, -1].tolist() == (influences / 2).tolist()
    assert all((np.diff(cells.t) > 0).all() for cells in (outer, inner))


def test_influences_with_different_kinks_are_computed_together():
    """Some of them have fewer kinks inside, but all have as many cells, none of which is empty."""
    noise = PointsNoise([(10.0**k, 0.01 * 1.9**k) for k in np.linspace(0, 8, 25)])._standard()
    last = far_end(noise)
    for log in np.linspace(-18, 22, 60):
        together = tight_losses(noise, np.exp(log + 0.02 * np.arange(15)), 1e-2, last)
        assert all(0 < found.lower <= found.upper <= found.lower * 1.05 for found in together)


def test_the_bounds_notice_a_scale_that_is_half_a_per_cent_wrong():
    noise = GeneralizedGaussianNoise(sigma=1, p=0.5)
    others = tight_losses(dataclasses.replace(noise, sigma=1.005), np.array([2.8, 3.0, 3.1]), 2e-4)
    for wrong in (tight_loss(dataclasses.replace(noise, sigma=1.005), 3.0), others[1]):
        assert wrong.upper < exact_loss(noise, 3.0, wrong.order)


def laplace_loss(influence, order):
    """d_α/α of Laplace noise with scale 1, in closed form (Mironov 2017, Table II)."""
    with mpmath.workdps(60):
        x, a = mpmath.mpf(influence), mpmath.mpf(order)
        inside = a / (2 * a - 1) * mpmath.exp((a - 1) * x) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * x)
        return float(mpmath.log(inside) / (a - 1) / a)


@pytest.mark.parametrize("influence", [1e-9, 1e-4, 0.1, 1.0, 5.0, 200.0, 1e6, 1e15])
def test_laplace_has_its_known_divergence(influence):
    found = tight_loss(GeneralizedGaussianNoise(sigma=1, p=1), influence)
    largest = influence - 1 + math.exp(-influence) if influence > 0.01 else laplace_loss(influence, 1 + 1e-12)
    assert largest * (1 - 1e-9) <= found.upper <= largest * (1 + CLOSE)
    orders = 1 + np.geomspace(1e-6, 1e4 / min(influence, 1), 60)
    assert all(laplace_loss(influence, order) <= found.upper for order in orders)


def test_the_losses_of_the_design_notes():
    """The values of float quadrature for the paper's two calibrations to cattle (mathematics, 4)."""
    notes = [
        (GeneralizedGaussianNoise(sigma=658, p=0.5), {100: 0.00535, 1_000: 0.126, 10_200: 1.954}),
        (ExponentialPolylogNoise(d=0.113), {100: 0.508, 10_200: 6.766, 1_341_000: 19.64}),
    ]
    for noise, losses in notes:
        for influence, loss in losses.items():
            assert tight_loss(noise, float(influence)).upper == pytest.approx(loss, rel=2e-3)


@pytest.mark.parametrize(
    "noise",
    [
        GeneralizedGaussianNoise(sigma=1, p=0.02),
        GeneralizedGaussianNoise(sigma=1, p=0.05),
        ExponentialPolylogNoise(d=1.5, a=1e100, p=1),
        GeneralizedGaussianNoise(sigma=1, p=0.3),
        ExponentialPolylogNoise(d=0.02),
        ExponentialPolylogNoise(d=50, p=1),
        ExponentialPolylogNoise(d=10, p=4),
        ExponentialPolylogNoise(d=1.2, p=1),
        ArsinhNormalNoise(scale=1, shape=0.1),
        ArsinhNormalNoise(scale=1, shape=6),
        PointsNoise([(1e-3, 1e-4), (1, 0.05), (1e3, 10), (1e6, 11)]),
    ],
)
def test_the_bounds_stay_close_at_extreme_parameters(noise):
    last = far_end(noise)
    previous = 0.0
    for influence in np.geomspace(1e-9, 1e15, 17):
        found = tight_loss(noise, float(influence), last=last)
        assert previous <= found.upper
        assert found.lower <= found.upper <= found.lower * (1 + 2 * CLOSE)
        previous = found.lower


@pytest.mark.parametrize(
    "noise", [GeneralizedGaussianNoise(sigma=2, p=0.35), ExponentialPolylogNoise(d=0.7, sigma=3, a=9, p=2.5)]
)
def test_the_hooks_of_the_noise_are_right(noise):
    """The rise of the log-density, and bounds on its derivatives, against 50 digits."""

    def drop(z):
        if isinstance(noise, GeneralizedGaussianNoise):
            return (z / mpmath.mpf(noise.sigma)) ** mpmath.mpf(noise.p)
        return mpmath.mpf(noise.d) * mpmath.log(z / mpmath.mpf(noise.sigma) + mpmath.mpf(noise.a)) ** mpmath.mpf(
            noise.p
        )

    with mpmath.workdps(50):
        for z in np.geomspace(1e-6, 1e6, 13):
            for t in (1e-9 * z, 1e-3, 1.0, 1e4):
                rise = noise._drop_rise(np.array([z]), np.array([t]))[0]
                assert rise == pytest.approx(float(drop(mpmath.mpf(z) + t) - drop(mpmath.mpf(z))), rel=1e-13)
            (second,), (third,) = noise._bends(np.array([z]))
            for further in (1.0, 1.01, 2.0, 30.0):
                for order, bound in ((2, second), (3, third)):
                    assert abs(float(mpmath.diff(drop, mpmath.mpf(z) * further, order))) <= bound * (1 + 1e-9)


def test_a_straight_line_bounds_the_logarithm_of_the_integrand():
    """ln g is concave and rises, and its derivative is right."""
    loss, order = np.geomspace(1e-9, 50, 400), np.array([[1e-4], [0.5], [3.0], [1e4]])
    value, slope = _log_g(loss, order)
    assert (np.diff(value, axis=1) > 0).all()
    assert (np.diff(slope, axis=1) <= slope[:, 1:] * 1e-9).all()
    step = 1e-6 * loss
    assert slope == pytest.approx(
        (_log_g(loss + step, order)[0] - _log_g(loss - step, order)[0]) / (2 * step), rel=1e-4
    )


def test_split_cells_keep_their_ends():
    t = np.array([0.0, 1.0, 3.0, 7.0])
    one = np.ones(3)
    cells = _Cells.of(t, np.array([4.0, 3.0, 2.0, 1.0]), one, one > 0, -t, 0 * one, one)
    ends = cells.split(np.array([5, 2, 3]))
    assert set(t) <= set(ends)
    assert ends.size == 1 + 1 + 2 + 3  # the first cell is not split


EXTREME = [
    GeneralizedGaussianNoise(sigma=1, p=0.02),
    ExponentialPolylogNoise(d=10, p=4),
    ArsinhNormalNoise(scale=1, shape=6),
]


@pytest.fixture
def arb_digits():
    before, ctx.prec = ctx.prec, BITS
    yield
    ctx.prec = before


def test_the_noise_keeps_its_promises_on_rounding(arb_digits):
    """The bounds rest on them: relative errors of the drop and of its rises, and the error of ln p(0)."""
    rng = np.random.default_rng(7)
    for noise in [*random_noises(rng, 12), *EXTREME]:
        drop = drop_of(noise)
        z = noise.sigma * np.exp(rng.uniform(np.log(1e-14), np.log(1e18), 12))
        t = z * np.exp(rng.uniform(np.log(1e-16), np.log(1e16), 12))
        for at, step, fall, rise in zip(z, t, noise._drop(z), noise._drop_rise(z, t), strict=True):
            true_fall = drop(arb(at))
            true_rise = drop(arb(at) + arb(step)) - true_fall
            assert abs(float((arb(fall) - true_fall) / true_fall)) <= EXPONENT_ROUNDING
            assert abs(float((arb(rise) - true_rise) / true_rise)) <= EXPONENT_ROUNDING
        assert abs(noise._log_peak - exact_log_peak(noise)) <= NORMALISING_ERROR / 4


@pytest.mark.parametrize("height", [0.0, -700.0, 3e5])
def test_sums_of_many_terms_have_a_bound_on_their_rounding(height):
    terms = height + np.random.default_rng(3).uniform(-30, 0, (2, 40_000))
    terms[0] = height
    logs, rounding = _log_sum([terms[:, :100], terms[:, 100:]])
    truth = [math.log(math.fsum(np.exp(row - height))) for row in terms]
    assert (np.abs(logs - height - truth) <= rounding).all()
    assert (rounding < 4e-10).all()
    assert _log_sum([np.full((1, 3), -np.inf)])[0][0] == -np.inf
    # Terms that are added one by one to a large logarithm lose more digits than are allowed for the density.
    assert not height or np.abs(np.logaddexp.reduce(terms, axis=1) - height - truth).max() > NORMALISING_ERROR


@pytest.mark.parametrize(("p", "influence", "last"), [(0.5, 0.1, 16.0), (0.3, 1e-4, 256.0), (0.3, 1.0, 16.0)])
def test_orders_beyond_the_last_one_are_bounded_by_the_largest_loss(p, influence, last):
    """With few orders, the supremum lies beyond them; the slope there is the largest L, and a quarter is too little."""
    noise = GeneralizedGaussianNoise(sigma=1, p=p)
    truth = tight_loss(noise, influence)
    assert truth.order > 1 + last
    integrals = _Integrals(noise, influence, far_end(noise))
    orders = _Orders.of(integrals, np.array([FIRST_ORDER, last]))
    assert truth.lower <= orders.suprema()[0][-1] <= 2 * truth.lower
    orders.largest /= 4
    assert orders.suprema()[0][-1] < truth.lower


@pytest.mark.parametrize("noise", [*random_noises(np.random.default_rng(5), 6), ArsinhNormalNoise(scale=2, shape=0.3)])
def test_no_loss_is_larger_than_the_largest(noise):
    rng = np.random.default_rng(1)
    for ratio in (1e-9, 0.3, 1e5):
        influence = noise.sigma * ratio
        largest = _Integrals(noise, influence, far_end(noise)).largest
        t = noise.sigma * np.exp(rng.uniform(-30, 30, 1000))
        assert noise._drop_rise(t, np.full_like(t, influence)).max() <= largest
        assert largest <= noise._pure_loss(np.array([influence]))[0] * 1.2


def test_bounds_that_are_not_convex_are_not_made_smaller():
    """ψ(x) = x² is convex. Loose bounds on it are not, and then the line through two of them may pass above 0 at 0."""
    x = np.array([0.5, 1.0, 2.0, 4.0])
    loose = x**2 * np.array([1.0, 3.9, 1.01, 1.0])
    orders = _Orders(lambda x: x, 100.0, x, np.log(np.expm1(loose)))
    assert (orders.psi >= x**2 * (1 - 1e-12)).all()
    assert (np.diff(orders.psi / x) >= 0).all()
    bounds, _ = orders.suprema()
    for low, high, bound in zip([0, *x], [*x, 1e3], bounds, strict=True):
        between = np.linspace(low, high, 1001)[1:]
        assert (between / (between + 1)).max() <= bound * (1 + 1e-12)
    # Here the line through the second and the third bound would pass above 0 at 0.
    flat = _Orders(lambda x: x, 0.0, x, np.log(np.expm1(np.array([0.5, 1.0, 1.2, 4.0]))))
    flat.largest = 2.0
    assert flat.psi.tolist() == pytest.approx([0.3, 0.6, 1.2, 4.0])


@pytest.mark.parametrize("influence", [1e-12, 0.3, 9.0, 10.0 - 1e-15, 10.0, 10.0 + 1e-14, 17.0, 999.9999999999999])
def test_a_kink_lies_in_a_narrow_cell_without_bounds_on_derivatives(influence):
    """Rounding moves κ − Δ: no other cell may have the kink in it, nor at its end."""
    noise = PointsNoise([(10.0, 0.1), (1000.0, 2.0), (1e6, 8.0)])
    integrals = _Integrals(noise, influence, far_end(noise))
    for side, cells in zip((-1, 1), integrals._cells, strict=True):
        t = cells.t
        for kink in noise._kinks:
            # The places t at which z or z − Δ is at a kink: z = −t on the one side, and t on the other.
            for place in (mpmath.mpf(kink), side * (mpmath.mpf(influence) - mpmath.mpf(kink))):
                inside = [i for i in range(t.size - 1) if t[i] <= place <= t[i + 1]]
                flat = (cells.upper[0] == cells.upper[1]) & (cells.density_gap < np.inf)
                assert all(flat[i] for i in inside)
                assert len(inside) <= 1


LINED = [
    GeneralizedGaussianNoise(sigma=1, p=0.5),
    GeneralizedGaussianNoise(sigma=1, p=1),
    ArsinhNormalNoise(scale=1, shape=0.5),
    ArsinhNormalNoise(scale=1, shape=2.0),
    ExponentialPolylogNoise(d=0.3),
    ExponentialPolylogNoise(d=2.0, a=40.0, p=3.0),
    PointsNoise([(10.0, 0.1), (1000.0, 2.0), (1e6, 8.0)]),
]


@pytest.mark.parametrize("noise", LINED, ids=str)
@pytest.mark.parametrize("influence", [1e-6, 0.3, 3.0, 12.0, 4e3])
def test_the_lines_of_every_cell_enclose_the_loss_and_the_density(noise, influence):
    """At places inside of each cell: L between its two lines, and ln p(z − Δ) below its line by at most the gap."""
    outer, inner = _Integrals(noise, influence, far_end(noise))._cells
    for cells, shift, place in (
        (outer, lambda t: np.full_like(t, influence), lambda t: t + influence),
        (inner, lambda t: influence - 2 * t, lambda t: influence - t),
    ):
        for share in (0.02, 0.2, 0.5, 0.8, 0.98):
            t = cells.t[:-1] + share * cells.width
            loss, density = noise._drop_rise(t, shift(t)), noise._log_peak - noise._drop(place(t))
            upper, lower, above = (
                (1 - share) * line[0] + share * line[1] for line in (cells.upper, cells.lower, cells.density)
            )
            rounding = 1e-13 * (1 + np.abs(density))
            misplaced = 1e-13 + 1e-15 * (t + influence) / cells.width  # a place is rounded; this matters between kinks
            assert (loss <= upper * (1 + misplaced)).all()
            assert (loss >= lower * (1 - misplaced)).all()
            assert (density <= above + rounding).all()
            assert (density >= above - cells.density_gap - rounding).all()


def test_orders_below_the_first_one_are_bounded_by_its_chord():
    """For ψ(x) = 5x, the ratio ψ/(x(x + 1)) is 5/(x + 1), with the supremum at 0."""
    x = np.array([0.5, 1.0, 2.0])
    suprema, at = _Orders(lambda x: x, 5.0, x, np.log(np.expm1(5 * x))).suprema()
    assert suprema == pytest.approx([5, 5 / 1.5, 5 / 2, 5 / 3], rel=1e-9)
    assert at == pytest.approx([0.5, 0.5, 1.0, 2.0])


def test_bounds_have_room_for_the_rounding_of_exponents():
    """In ψ, and in the part of an integral beyond the last cell."""
    x, logs = np.array([0.5, 3.0]), np.array([0.7, 40.0])
    psi = _Orders(lambda x: x, math.inf, x, logs).psi
    with mpmath.workdps(40):
        exact = [mpmath.log1p(mpmath.exp(mpmath.mpf(log))) for log in logs.tolist()]
        assert all(found >= more * (1 + EXPONENT_ROUNDING / 2) for found, more in zip(psi.tolist(), exact, strict=True))
    integrals = _Integrals(GeneralizedGaussianNoise(sigma=1, p=1), 8.0, 20.0)
    loss, tail = integrals._tail_loss.item(), integrals._log_tail.item()
    integrals._cells = []
    for order in (0.5, 64.0):
        with mpmath.workdps(40):
            plain = mpmath.log(mpmath.expm1((1 + order) * mpmath.mpf(loss)) * -mpmath.expm1(-order * mpmath.mpf(loss)))
            room = EXPONENT_ROUNDING * ((1 + order) * loss + plain)
            assert integrals.log_upper(np.array([order])).item() - tail >= plain + 0.9 * room


def test_the_order_of_the_largest_divergence_is_above_1():
    """For Laplace noise d_α/α falls with α, so that the first order above 1 has the largest one."""
    for influence in (1e-6, 1.0, 10.0):
        assert tight_loss(GeneralizedGaussianNoise(sigma=1, p=1), influence).order == 1 + FIRST_ORDER
