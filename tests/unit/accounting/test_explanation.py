"""One explanation: the bounds from the losses against exact attackers, and the same words for every caller."""

import math
import re
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import slowscale as ss
from slowscale.accounting import Account, Charge, Explanation, Loss, RecordPolicy, Spent, explain
from slowscale.accounting.bands import Band, Use
from slowscale.accounting.explanation import MOST_COMPOSED, as_lines, at_most, titles, worst
from slowscale.accounting.sizes import read_sizes
from slowscale.core.numbers import share
from slowscale.release.columns import drawn_columns, explain_columns

ALARM = 0.05
MECHANISMS = [
    ss.Gaussian(sigma=100),
    ss.GeneralizedGaussian(sigma=100, p=1),
    ss.GeneralizedGaussian(sigma=20, p=0.5),
    ss.ExponentialPolylog.calibrate(std=75),
    ss.ExponentialPolylog(d=3, sigma=50, p=1),
    ss.ArsinhNormal(shape=1.8, scale=50),
    ss.Root(k=4, sigma=1),
    ss.Log(sigma=0.3, a=100),
    ss.UnitSplitting(threshold=50, sigma=300),
]
SLOW = MECHANISMS[4:6]  # their tight curves are computed anew
SIZES = [0.01, 1.0, 10.0, 60.0, 300.0, 2_000.0, 1e6]


def of(mechanism, size, policy=None):
    """Return the loss of a record of some size, with its mechanism and without."""
    rho = float((policy or mechanism.policy)(size))
    pure = None if mechanism.pure_policy is None else float(mechanism.pure_policy(size))
    return Loss(rho, pure, mechanism, size), Loss(rho, pure)


def numbers(explained):
    return np.array([explained.guessed, explained.detected, explained.epsilon])


def excess(exact, bound):
    """Return by how much the exact numbers exceed the bounds, relative to what the bounds promise beyond nothing."""
    nothing = np.array([0.5, ALARM, 0.0])
    return float(np.max((numbers(exact) - nothing) / np.maximum(bound - nothing, 1e-300)))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_bounds_from_the_loss_are_above_the_exact_attacker(mechanism, size):
    policies = [mechanism.policy]
    if mechanism not in SLOW:
        policies.append(mechanism.tight_policy)
    for policy in policies:
        known, unknown = of(mechanism, size, policy)
        exact = explain([known])
        assert not exact.bound
        for losses in ([unknown], [Loss(unknown.rho)], [Loss(unknown.rho), Loss(0.0)]):
            found = explain(losses)
            assert found.bound
            assert excess(exact, numbers(found)) <= 1 + 1e-9


def test_the_exact_numbers_are_those_of_the_closed_form_of_gaussian_noise():
    for sigma, size in product((10.0, 1000.0), (1.0, 30.0, 200.0)):
        mu = size / sigma
        found = explain([of(ss.Gaussian(sigma=sigma), size)[0]])
        assert found.guessed == pytest.approx(stats.norm.cdf(mu / 2), rel=1e-9)
        assert found.detected == pytest.approx(stats.norm.cdf(stats.norm.ppf(ALARM) + mu), rel=1e-9)
        delta = stats.norm.cdf(mu / 2 - found.epsilon / mu)
        delta -= math.exp(found.epsilon) * stats.norm.cdf(-mu / 2 - found.epsilon / mu)
        assert delta == pytest.approx(1e-6, rel=1e-4) or found.epsilon == 0


# Coins: mechanisms that publish yes with probability p if the record is there, and with probability q if it is not.


def renyi(p, q, order):
    """Return the Rényi divergence of two coins, from its definition, with 40 digits."""
    with mpmath.workdps(40):
        p, q, order = mpmath.mpf(p), mpmath.mpf(q), mpmath.mpf(order)
        if order == 1:
            return p * mpmath.log(p / q) + (1 - p) * mpmath.log((1 - p) / (1 - q))
        return mpmath.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (order - 1)


def loss_of_coin(p, q):
    """Return the PRzCDP loss of a coin: the largest D_α/α over all orders, found by a grid and then by a search."""

    def negative(log_order):
        order = 1 + 10.0**log_order
        return -float(max(renyi(p, q, order), renyi(q, p, order)) / order)

    best = min(np.arange(-3, 6, 0.25), key=negative)
    found = optimize.minimize_scalar(negative, bounds=(best - 0.25, best + 0.25), method="bounded")
    return max(-found.fun, float(max(renyi(p, q, 1), renyi(q, p, 1))))


@pytest.mark.parametrize("p", [0.0501, 0.052, 0.06, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_the_power_by_a_loss_is_reached_by_a_coin(p):
    """No better bound follows from the loss, and one that is 1 % smaller is wrong."""
    found = explain([Loss(loss_of_coin(p, ALARM))]).detected
    assert p <= found * (1 + 1e-9)
    assert found - ALARM <= (p - ALARM) * 1.002
    assert ALARM + 0.99 * (found - ALARM) < p


@pytest.mark.parametrize("t", [1e-4, 0.01, 0.3, 1.0, 3.0, 8.0])
def test_the_best_guess_by_a_loss_is_reached_by_a_coin(t):
    p = 1 / (1 + math.exp(-t))
    rho = loss_of_coin(p, 1 - p)
    assert rho == pytest.approx(t * math.tanh(t / 2), rel=1e-6)
    found = explain([Loss(rho)]).guessed
    assert p <= found * (1 + 1e-12)
    assert found == pytest.approx(p, rel=1e-7)
    assert 0.5 + 0.99 * (found - 0.5) < p


@pytest.mark.parametrize("rho", [0.01, 0.2, 1.0, 4.0])
def test_no_coin_with_this_loss_is_above_the_bounds(rho):
    """The second way: every pair of coins on a grid that satisfies the definition of PRzCDP."""
    found = explain([Loss(rho)])
    best = 0.0
    grid = np.linspace(0.01, 0.99, 50)
    orders = [1.0, 1.05, 1.3, 2.0, 4.0, 8.0, 16.0]
    for q, p in product(grid, grid):
        if p > q and all(max(renyi(p, q, a), renyi(q, p, a)) <= a * rho for a in orders):
            best = max(best, p - q)
            assert p - q <= 2 * found.guessed - 1 + 1e-12
    assert best > 0.8 * (2 * found.guessed - 1)
    by_root = optimize.brentq(lambda p: loss_of_coin(p, ALARM) - rho, ALARM + 1e-9, 1 - 1e-12)
    assert found.detected == pytest.approx(by_root, rel=2e-3)
    assert found.detected >= by_root * (1 - 1e-9)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 0.7, 2.0, 9.0])
def test_textbook_bounds_are_weaker(rho):
    found = explain([Loss(rho)])
    variation = 2 * found.guessed - 1
    assert variation <= math.sqrt(rho / 2) * (1 + 1e-9)  # Pinsker
    assert variation <= math.sqrt(-math.expm1(-rho))  # Bretagnolle and Huber
    for eps in np.linspace(0, rho + 6 * math.sqrt(rho), 40):
        delta = ss.accounting.delta(rho, eps)
        assert found.detected <= math.exp(eps) * ALARM + delta + 1e-12
        assert variation <= (math.exp(eps) - 1 + 2 * delta) / (math.exp(eps) + 1) + 1e-12
    assert found.epsilon == ss.epsilon(rho, 1e-6)


@pytest.mark.parametrize("eps", [0.001, 0.1, 1.0, 4.0])
def test_randomised_response_reaches_the_pure_bounds(eps):
    found = explain([Loss(math.inf, eps)])
    yes = 1 / (1 + math.exp(-eps))
    assert found.guessed == pytest.approx(yes, rel=1e-9)
    # Below the rate 1 − yes of false alarms, the best test says yes only if the answer is yes, and then at random.
    power = math.exp(eps) * ALARM if 1 - yes >= ALARM else 1 - math.exp(-eps) * (1 - ALARM)
    assert found.detected == pytest.approx(power, rel=1e-9)
    assert found.epsilon <= found.pure == eps
    assert yes * -math.expm1(found.epsilon - eps) == pytest.approx(1e-6, rel=1e-4)  # δ at this ε
    assert found.guessed >= yes * (1 - 1e-14)
    assert found.detected >= power * (1 - 1e-14)


def best_power(first, second, alarm):
    """Return the power of the best test between two distributions of finitely many outcomes."""
    power = 0.0
    for p, q in sorted(zip(first, second, strict=True), key=lambda pair: -pair[0] / pair[1]):
        taken = min(q, alarm)
        power, alarm = power + p * taken / q, alarm - taken
    return power


@pytest.mark.parametrize("eps", [0.2, 1.0])
@pytest.mark.parametrize("p", [0.06, 0.2, 0.7])
def test_a_pure_loss_beside_another_one(eps, p):
    """Randomised response and a coin together, outcome by outcome."""
    yes = 1 / (1 + math.exp(-eps))
    there = np.outer([yes, 1 - yes], [p, 1 - p]).ravel()
    absent = np.outer([1 - yes, yes], [ALARM, 1 - ALARM]).ravel()
    found = explain([Loss(loss_of_coin(yes, 1 - yes), eps), Loss(loss_of_coin(p, ALARM))])
    assert best_power(there, absent, ALARM) <= found.detected
    assert 0.5 + np.abs(there - absent).sum() / 4 <= found.guessed
    # Counting either all or nothing as pure is not better.
    assert found.detected <= explain([Loss(sum(one.rho for one in found.losses))]).detected * (1 + 1e-9)


@pytest.mark.parametrize("eps", [0.05, 1.0, 6.0])
def test_a_pure_loss_is_composed_as_randomised_response(eps):
    """With a known noise, and with itself, against the distributions outcome by outcome."""
    yes = 1 / (1 + math.exp(-eps))
    there, absent = np.array([yes, 1 - yes]), np.array([1 - yes, yes])
    for number in (2, 3):
        both = [there, absent]
        for _ in range(number - 1):
            both = [np.outer(both[0], there).ravel(), np.outer(both[1], absent).ravel()]
        found = explain([Loss(math.inf, number * eps, times=number)])
        assert best_power(*both, ALARM) * (1 - 1e-9) <= found.detected <= best_power(*both, ALARM) * (1 + 1e-2)
        guess = 0.5 + np.abs(both[0] - both[1]).sum() / 4
        assert guess * (1 - 1e-9) <= found.guessed <= guess * (1 + 1e-3)
    gaussian = of(ss.Gaussian(sigma=10), 12.0)[0]
    z = np.linspace(-8, 9.2, 20_001)
    step = z[1] - z[0]
    first, second = stats.norm.pdf(z, 1.2), stats.norm.pdf(z)
    guess = 0.5 + np.abs(np.outer(there, first) - np.outer(absent, second)).sum() * step / 4
    found = explain([gaussian, Loss(math.inf, eps)])
    assert guess * (1 - 1e-5) <= found.guessed <= guess * (1 + 1e-3)
    assert found.bound
    assert found.guessed >= explain([gaussian]).guessed
    laplace = of(ss.GeneralizedGaussian(sigma=10, p=1), 10 * eps)  # dominated by randomised response
    assert excess(explain([gaussian, laplace[0]]), numbers(explain([gaussian, laplace[1]]))) <= 1 + 1e-9


@pytest.mark.parametrize("number", [2, 5])
@pytest.mark.parametrize("size", [3.0, 40.0])
def test_bounds_are_above_composed_attackers(number, size):
    for first, second in pairwise(MECHANISMS):
        pairs = [of(first, size), *[of(second, size / 2)] * (number - 1)]
        exact, bound = (explain([pair[i] for pair in pairs]) for i in (0, 1))
        assert (exact.bound, bound.bound) == (False, True)
        assert excess(exact, numbers(bound)) <= 1 + 1e-9
        assert (exact.loss, exact.pure) == (bound.loss, bound.pure)


def test_a_bound_that_is_one_per_cent_too_small_is_seen():
    """The twin of the comparisons: some mechanism comes that near to each bound."""
    seen = np.zeros(3, bool)
    nothing = np.array([0.5, ALARM, 0.0])
    for mechanism, size in product(MECHANISMS, [*SIZES, 3.0, 5.0]):
        known, unknown = of(mechanism, size)
        bound = numbers(explain([unknown]))
        seen |= numbers(explain([known])) - nothing > 0.99 * (bound - nothing)
    assert seen.all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20), st.none() | st.floats(0, 20)), min_size=1, max_size=6), st.floats(1.01, 2))
def test_bounds_grow_with_the_losses(pairs, factor):
    few = explain([Loss(rho, pure) for rho, pure in pairs])
    more = explain([Loss(factor * rho, None if pure is None else factor * pure) for rho, pure in pairs])
    assert (numbers(few) <= numbers(more) * (1 + 1e-6)).all()
    assert 0.5 <= few.guessed <= 1
    assert ALARM <= few.detected <= 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-4, 20), st.none() | st.floats(1e-4, 20)), min_size=1, max_size=5))
def test_the_choice_of_pure_losses_is_at_least_as_good_as_all_or_none(pairs):
    found = explain([Loss(rho, pure) for rho, pure in pairs])
    none = explain([Loss(rho) for rho, _ in pairs])
    every = explain([Loss(rho if pure is None else math.inf, pure) for rho, pure in pairs])
    assert (numbers(found) <= np.minimum(numbers(none), numbers(every)) * (1 + 1e-9)).all()


def test_extremes():
    assert numbers(explain([])).tolist() == numbers(explain([Loss(0.0)])).tolist() == [0.5, ALARM, 0.0]
    assert numbers(explain([Loss(math.inf)])).tolist() == [1, 1, math.inf]
    assert numbers(explain([Loss(1e300), Loss(1e308), Loss(1e308)])).tolist() == [1, 1, math.inf]
    assert explain([Loss(math.inf, 2.0), Loss(1e9)]).epsilon > 1e9
    assert 1 > explain([Loss(math.inf, 2.0)]).guessed > 0.88
    tiny = explain([Loss(1e-14)])
    assert 3.5e-8 < tiny.guessed - 0.5 < 3.6e-8
    assert 1.5e-8 < tiny.detected - ALARM < 4e-8
    assert not explain([]).bound


def test_too_many_noises_are_bounded_from_the_loss():
    loss = of(ss.GeneralizedGaussian(sigma=100, p=1), 1.0)[0]

    def times(number):
        return Loss(number * loss.rho, number * loss.pure, loss.mechanism, loss.influence, number)

    exact, bound = explain([times(MOST_COMPOSED)]), explain([times(MOST_COMPOSED + 1)])
    assert (exact.bound, bound.bound) == (False, True)
    assert exact == explain([loss] * MOST_COMPOSED) or numbers(exact) == pytest.approx(
        numbers(explain([loss] * MOST_COMPOSED))
    )
    gaussian = of(ss.Gaussian(sigma=1000), 1.0)[0]
    many = explain([Loss(500 * gaussian.rho, None, gaussian.mechanism, 1.0, 500)])
    assert many.guessed == pytest.approx(stats.norm.cdf(math.sqrt(500) / 2000), rel=1e-9)
    some = explain([Loss(0.001, 0.05)] * 200)
    assert numbers(some) == pytest.approx(numbers(explain([Loss(0.2)])))


# The same words everywhere.


def test_the_example_of_the_review(tmp_path):
    """`spent`, `explain`, the ledger and the report state the same numbers for the same record."""
    farms = pd.DataFrame({"cattle": [31_000]})
    session = ss.Session(farms, tmp_path / "farms.ledger", bits=Recorded(1))
    release = session.sum({"cattle": ss.Gaussian(sigma=10_000)})
    (size,) = read_sizes([31_000])
    expected = {"loss": "4.81", "pure": "none", "guessed": "94.0 %", "detected": "92.8 %", "epsilon": "19"}
    expected |= {"band": "0.0481", "recognised": "56.2 %", "within": "± 63 %"}
    by_release = explain_columns(drawn_columns(release), size)
    assert by_release.texts == session.spent.explain(size).texts == expected
    assert re.search(
        r"31,000 +4\.81 +none +94\.0 % +92\.8 % +19 +0\.0481 +56\.2 % +± 63 %\n", session.spent.describe([31_000])
    )
    release.report(tmp_path / "a.html", session.spent, sizes=[31_000])
    once = (tmp_path / "a.html").read_text()
    second = session.sum({"cattle": ss.Gaussian(sigma=10_000)})
    second.report(tmp_path / "b.html", session.spent, sizes=[31_000])
    twice = (tmp_path / "b.html").read_text()
    total = ss.Ledger(tmp_path / "farms.ledger").spent.explain(size)
    assert (total.guessed, total.bound) == (pytest.approx(stats.norm.cdf(3.1 / math.sqrt(2))), False)
    for page, texts in ((once, expected), (twice, total.texts)):
        ledger = page[page.index('id="ledger"') :]
        for name in ("loss", "guessed", "detected", "epsilon", "band", "recognised", "within"):
            assert re.search(rf"<th[^>]*>{titles()[name]}</th><td[^>]*>{texts[name]}</td>", ledger), name
        assert "ertainty" not in page
        assert "†" not in page


def test_a_ledger_knows_the_mechanisms_of_its_entries(tmp_path):
    """Tables and columns are in any order in the file; quantiles and counts have no column in the policy."""
    records = pd.DataFrame({"k": ["a", "b"], "z": [5, 7], "a": [1, 2]})
    session = ss.Session(records, tmp_path / "x.ledger", bits=Recorded(1))
    noise = {"z": ss.GeneralizedGaussian(sigma=30, p=1), "a": ss.Root(k=2, sigma=1)}
    keys = ss.Keys.cross({"k": ["a", "b"]})
    tables = {
        "second": ss.Sums(noise, count=ss.Gaussian(sigma=3), keys=keys),
        "first": ss.Sums({"z": ss.ExponentialPolylog(d=1)}, where="a > 1"),
    }
    release = session.release(ss.Request(tables))
    (size,) = read_sizes({"largest": {"z": 7, "a": 2}})
    found = ss.Ledger(tmp_path / "x.ledger").spent.explain(size)
    assert not found.bound
    assert numbers(found) == pytest.approx(numbers(explain_columns(drawn_columns(release), size)), rel=1e-3)
    used = {(str(one.mechanism), one.influence) for one in found.losses}
    assert used == {
        (str(noise["z"]), 7.0),
        (str(noise["a"]), 2.0),
        (str(ss.Gaussian(sigma=3)), 1.0),
        (str(ss.ExponentialPolylog(d=1)), 7.0),
    }


def test_facts_that_do_not_describe_the_columns_give_a_bound():
    policy = RecordPolicy((("x", ss.Gaussian(sigma=3).policy),))
    facts = {"policy": policy.to_dict(), "pure_policy": None, "protect": None}
    column = {"mechanism": ss.Gaussian(sigma=3).to_dict()}
    wrong = [{}, {"t": {"columns": {"y": column}}}, {"t": {"columns": {"x": {}}}}, {"t": {}, "s": {}}, None]
    (size,) = read_sizes([2])
    for tables in wrong:
        charge = Charge.from_facts({**facts, "tables": tables})
        assert spent(charge).explain(size).bound, tables
    assert not spent(Charge.from_facts({**facts, "tables": {"t": {"columns": {"x": column}}}})).explain(size).bound
    assert spent(Charge(policy)).explain(size).bound


def spent(*charges):
    account = Account()
    for charge in charges:
        account.charge(charge)
    return account.spent


def test_records_in_parts_are_explained_by_the_worst_part():
    records = pd.DataFrame({"k": ["a", "b", "c"], "x": [1, 2, 3]})
    session = ss.Session(records, bits=Recorded(1))
    session.sum({"x": ss.Gaussian(sigma=50)})
    for label, sigma in (("a", 10), ("b", 4), ("c", 10)):
        session.sum({"x": ss.Gaussian(sigma=sigma)}, keys=ss.Keys.cross({"k": [label]}), partition="k")
    (size,) = read_sizes([3])
    found = session.spent.explain(size)
    mu = math.hypot(3 / 50, 3 / 4)
    assert (found.loss, found.bound) == (pytest.approx(mu**2 / 2), False)
    assert found.guessed == pytest.approx(stats.norm.cdf(mu / 2))


def test_many_combinations_of_parts_are_bounded_from_the_loss(monkeypatch):
    monkeypatch.setattr("slowscale.accounting.charge.MOST_COMBINATIONS", 1)
    charges = [
        Charge(RecordPolicy((("x", ss.Gaussian(sigma=sigma).policy),)), by="k", labels=(label,), kind="text")
        for label, sigma in (("a", 10), ("b", 4))
    ]
    (size,) = read_sizes([3])
    found = spent(*charges)
    assert found.pieces == ()
    assert (found.explain(size).loss, found.explain(size).bound) == (found({"x": 3}), True)


def test_worst_is_the_largest_of_each_quantity():
    one, two = explain([Loss(1.0, 0.1)]), explain([of(ss.Gaussian(sigma=10), 20)[0]])
    found = worst([one, two])
    assert (numbers(found) == np.maximum(numbers(one), numbers(two))).all()
    assert (found.loss, found.pure, found.bound) == (2.0, None, True)
    assert worst([one]) == one


def test_a_function_that_was_not_supplied_needs_no_bound():
    """A transformation is to an attacker what Gaussian noise with its loss is."""
    m = ss.Transformation(np.sqrt, np.square, 0.5, 1)
    loss = Loss.of(float(m.policy(8)), None, m.policy, None, 8.0)
    assert numbers(explain([loss])) == pytest.approx(numbers(explain([of(m, 8)[0]])))
    assert Loss.of(1.0, None, ss.Gaussian(sigma=1).policy, None, 8.0) == Loss(1.0)
    assert Loss.of(1.0, None, ss.Gaussian(sigma=1).policy, ss.Gaussian(sigma=1), math.inf) == Loss(1.0)


def test_sentences_and_lines_name_bounds():
    exact, bound = explain([of(ss.Gaussian(sigma=10), 20)[0]]), explain([Loss(2.0, 3.0)])
    words = exact.sentences("this record")
    assert words == (
        "The best guess, starting from 50 %, is right at most 84.2 % of the time. With one false alarm in twenty, the "
        "presence of this record is detected at most 63.9 % of the time. This is (ε, 10⁻⁶)-differential privacy with ε "
        "at most 11. For its values no band can be stated."
    )
    band = Band.of(1.1, [], ["x"])
    value = Loss.between(
        ("x", ss.Gaussian(sigma=10).policy), None, ss.Gaussian(sigma=10), Use("x", decided_by=()), 80.0, band
    )
    told = explain([of(ss.Gaussian(sigma=10), 80)[0]], [value]).sentences("this record")
    assert told.endswith(
        "Its presence is no secret. Its values and others 10 % larger or smaller: the loss between them is at most "
        "0.32, the best guess is right at most 65.6 % of the time, and with all else known a value is known to ± 24 %."
    )
    assert bound.sentences("this firm").count("(bound from the loss)") == 3
    assert "this firm is detected at most" in bound.sentences("this firm")
    lines = as_lines([("small", exact), ("largest", bound)], "firm", entity=True)
    heads = "PRzCDP loss PRDP loss presence guessed detected ε value loss value guessed value known to"
    assert lines[0].split() == heads.split()
    none = ["not", "stated"] * 3
    assert lines[1].split() == ["small", "2", "none", "84.2", "%", "63.9", "%", "11", *none]
    assert lines[2].split() == [
        "largest",
        "2",
        "3",
        "91.7",
        "%",
        "82.2",
        "%",
        "3",
        *none,
        *["(bound", "from", "the", "loss)"],
    ]
    assert lines[3].endswith("This is for a firm in one cell.")
    assert bound.to_dict() == {
        "loss": 2.0, "pure_loss": 3.0, "epsilon": pytest.approx(3.0, rel=1e-6), "delta": 1e-6, "guessed": bound.guessed,
        "detected": bound.detected, "false_alarms": 0.05, "bound_from_loss": True,
        "band_loss": None, "band_guessed": None, "value_within": None,
    }  # fmt: skip
    assert explain([Loss(math.inf)]).to_dict()["loss"] is None


def read(text):
    """Return the number that was written."""
    plain = text.removesuffix(" %").replace(",", "").replace("\u00a0", "")
    if "×10" in plain:
        digits, power = plain.split("×10")
        power = power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or "1"
        return Fraction(digits) * Fraction(10) ** int(power)
    return Fraction(plain) / (100 if text.endswith("%") else 1)


@settings(max_examples=300, deadline=None)
@given(st.floats(0, 1), st.floats(1e-8, 1e20))
def test_what_is_shown_is_never_stronger_than_what_is_known(probability, number):
    assert read(share(probability)) >= Fraction(probability)
    assert read(share(probability, -1)) <= Fraction(probability)
    assert read(at_most(number)) >= Fraction(number) * (1 - Fraction(2, 10**12))
    assert read(at_most(number)) <= Fraction(number) * Fraction(1011, 1000)


def test_shares_have_the_digits_that_are_needed():
    assert [share(x) for x in (0.5, 0.9404, 0.94, 0.999, 0.9991, 0.99959, 0.99991, 1.0)] == [
        "50.0 %", "94.1 %", "94.0 %", "99.9 %", "99.91 %", "99.96 %", "100 %", "100 %",
    ]  # fmt: skip


def test_a_lower_bound_is_rounded_down():
    a = ss.attacker([ss.GeneralizedGaussian(sigma=50, p=0.5), ss.ExponentialPolylog(d=1)], [12, 1])
    shown = read(re.search(r"at least (\S+ %)", a.lower.sentence())[1])
    assert shown <= a.lower.power(0.05)


def test_the_total_of_an_entity_is_for_one_cell():
    policy = RecordPolicy((("emp", ss.Gaussian(sigma=10).policy),))
    text = Spent(policy.terms, releases=1, protects="firm").describe([5])
    assert "whether the firm is in the data" in text
    assert "This is for a firm in one cell." in text
    assert "(bound from the loss)" in text
    assert isinstance(Spent(policy.terms, releases=1).explain(read_sizes([5])[0]), Explanation)
