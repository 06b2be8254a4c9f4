"""The advisor: its recommendation against named mechanisms and brute force, wanted losses, plans, charts, errors."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers import brute_advice
from helpers.advice import advantage, fine_grid, random_problem
from helpers.errors import refused

import slowscale as ss
from slowscale.advice.advising import RARE_RATIO
from slowscale.advice.searching import efficient, regrets
from slowscale.advice.shapes import Accuracy, Shape, error_within, half_widths, largest_scale
from slowscale.plan import read_plan

TAX = {"p10": 9_982, "median": 268_689, "p90": 5_697_947, "p99": 113_281_480, "max": 39_065_768_707}
HALF = 1.9e6


def accuracy(level=0.95, at=0.0, large=1e9):
    return Accuracy(level, at, large, RARE_RATIO)


# The mechanisms of issue 15 that have the same interval, with their losses at these sizes.
NAMED = {
    ss.ExponentialPolylog.calibrate(interval=HALF, sigma=1e5): (0.0006, 0.35, 7.3, 22.5, 77),
    ss.ExponentialPolylog.calibrate(interval=HALF, sigma=1e4): (0.010, 1.62, 7.8, 17, 46),
    ss.GeneralizedGaussian.calibrate(interval=HALF, p=0.5): (0.058, 1.27, 8.2, 36, 678),
    ss.ArsinhNormal.calibrate(interval=HALF, shape=1.5): (0.0004, 0.26, 5.7, 16, 48),
}


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """A curve of a tight policy takes seconds: the advisor must do without."""

    def refuse(*_):
        raise AssertionError("a curve was asked for")

    monkeypatch.setattr("slowscale.policy.tight.tight_curve", refuse)


@pytest.fixture(scope="module")
def tax():
    return ss.advise(TAX, interval=HALF)


def test_no_named_mechanism_beats_the_recommendation_at_every_size(tax):
    for mechanism, printed in NAMED.items():
        tight = [mechanism.tight_loss(size) for size in TAX.values()]
        assert any(ours < theirs for ours, theirs in zip(tax.table[0].tight, tight, strict=True))
        assert any(ours < theirs for ours, theirs in zip(tax.table[0].tight, printed, strict=True))


def test_a_polylog_with_a_fitted_scale_beats_the_generalized_gaussian_at_every_size():
    """The decision table of docs/choosing.md says so."""
    polylog, _, root_like, arsinh = NAMED
    for size in TAX.values():
        assert polylog.tight_loss(size) < root_like.tight_loss(size)
        assert arsinh.tight_loss(size) < root_like.tight_loss(size)


def test_every_candidate_has_the_wanted_error(tax):
    assert {type(row.mechanism).__name__ for row in tax.table} >= {
        "ArsinhNormal", "ExponentialPolylog", "Gaussian", "GeneralizedGaussian",
    }  # fmt: skip
    for row in tax.table:
        assert row.common == pytest.approx(HALF, rel=1e-9)
        assert row.typical < row.common < row.rare <= 1.01 * RARE_RATIO * row.common
        assert row.tight == tuple(row.mechanism.tight_loss(size) for size in TAX.values())
        assert all(tight <= closed for tight, closed in zip(row.tight, row.closed, strict=True))


def test_the_recommendation_has_the_least_regret_of_the_front(tax):
    losses = np.array([row.tight for row in tax.table])
    assert [row.efficient for row in tax.table] == efficient(losses).tolist()
    assert [row.regret for row in tax.table] == regrets(losses).tolist()
    assert tax.table[0].efficient
    assert tax.best == tax.table[0].mechanism
    assert tax.table[0].regret == pytest.approx(min(row.regret for row in tax.table), rel=1e-3)


def test_the_front_and_the_regret_by_hand():
    losses = np.array([[1.0, 8.0], [2.0, 4.0], [2.0, 5.0], [4.0, 2.0], [1e-5, 1e9]])
    assert efficient(losses).tolist() == [True, True, False, True, True]
    assert regrets(losses[:4]).tolist() == [4, 2, 2.5, 4]
    assert regrets(np.array([[1e-4, 1.0], [1e-2, 1.0]])).tolist() == [1, 1]  # both lose next to nothing


@pytest.fixture(scope="module")
def hidden():
    return ss.advise(TAX, interval=HALF, bands={"max": 1.0})


def test_values_are_hidden_at_the_price_of_large_sums(hidden, tax):
    """The largest value: additive noise leaves it open, and a log with Laplace noise of about 0.05 hides it."""
    assert tax.table[0].bands[-1] > 40
    best = hidden.table[0]
    assert isinstance(best.mechanism, ss.Log)
    assert best.mechanism.noise == "laplace"
    assert 0.05 < best.mechanism.sigma < 0.06
    assert best.mechanism.a > 1e6
    assert 0.15 < best.large < 0.2
    for row in hidden.table:
        assert row.bands[-1] <= 1
        assert row.common <= HALF * (1 + 1e-6)
        assert row.bands == pytest.approx([row.mechanism.band_policy(times=1.1)(x) for x in TAX.values()])


def test_the_front_has_the_same_error_of_small_sums(hidden):
    losses = [row.bands[-1] for row in hidden.front]
    assert losses == sorted(losses, reverse=True)
    assert [row.large for row in hidden.front] == sorted(row.large for row in hidden.front)
    assert all(row.common == pytest.approx(HALF, rel=1e-5) for row in hidden.front)
    often = hidden.meanings[hidden.table[0].name]["max"].texts["recognised"]
    assert f"the best guess between two such values is right at most {often} of the time" in str(hidden)


def test_gaussian_noise_of_the_same_accuracy_stands_beside_the_recommendation(hidden):
    ours, same, median = hidden.meanings.values()
    first = hidden.table[0]
    for name, half, level in (("median", first.common, 0.95), ("max", first.typical, 0.5)):
        noise = ss.Gaussian.calibrate(interval=half, level=level)
        power = ss.attacker(noise, TAX[name]).power(0.05)
        assert (same if level == 0.95 else median)[name].detected == pytest.approx(power, rel=1e-6)
    assert ours["max"].value.guessed < 0.82 < 0.999 < same["max"].value.guessed
    found = ss.attacker(first.mechanism, values=(TAX["max"], 1.1 * TAX["max"])).posterior(0.5).correct
    assert ours["max"].value.guessed == pytest.approx(found, rel=1e-6)


def test_limits_of_both_kinds_give_the_least_errors():
    sizes = {"median": 100.0, "p99": 1e5, "largest": 1e7}
    presence, bands = {"median": 0.2, "largest": 150.0}, {"largest": 1.0}
    advice = ss.advise(sizes, presence=presence, bands=bands)
    for row in advice.table:
        assert row.tight[0] <= 0.2
        assert row.tight[2] <= 150
        assert row.bands[2] <= 1
    assert "within ±" in advice.reason
    tighter = ss.advise(sizes, presence=presence, bands=bands, relative=0.9 * advice.table[0].large * 1.25)
    assert all(row.large <= 1.125 * advice.table[0].large * (1 + 1e-6) for row in tighter.table)


def test_what_cannot_be_kept_names_the_nearest():
    with refused(ss.CalibrationError, "the goal", code="unreachable") as caught:
        ss.advise({"median": 100.0, "largest": 1e7}, interval=100, bands={"largest": 1.0}, relative=0.02, large=1e6)
    assert "the nearest with the wanted errors, " in caught.value.remedy
    assert "at largest (value), where 1 is wanted" in caught.value.remedy


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.filterwarnings("ignore::slowscale.core.errors.ScaleWarning")
def test_brute_force_finds_nothing_better_by_two_per_cent_with_limits_on_values(seed):
    """`python -m helpers.brute_advice 0 50` (in tests/) tries 50 problems on a finer grid."""
    problem = brute_advice.random_problem(seed)
    advice = ss.advise(problem.sizes, unit="1e-9", **problem.arguments)
    assert brute_advice.shortfall(problem, advice, offsets=40, ks=(2, 4, 8), step=3) < 1.02
    worse = replace(advice, table=tuple(sorted(advice.table, key=lambda row: -row.regret)))
    assert brute_advice.shortfall(problem, worse, offsets=40, ks=(2, 4, 8), step=3) > 1.02


def test_several_columns_give_one_plan(tmp_path):
    asked = {
        "pay": {"records": {"median": 106, "largest": 1_550_000}, "interval": 150},
        "emp": {"records": {"median": 4, "p90": 40, "largest": 9_000}, "std": 5},
    }
    advice = ss.advise_columns(asked, rare=4)
    plan = ss.read_plan(advice.plan(tmp_path / "plan.toml", data=tmp_path / "tax.csv"))
    assert plan.drawn["total"].mechanisms == advice.best
    assert [size.name for size in plan.sizes] == ["median", "largest"]
    assert all(row.rare <= 4.04 * row.common for one in advice.values() for row in one.table)
    pay, emp = (one.table[0].tight for one in advice.values())
    assert {name: total for name, (total, _) in advice.totals.items()} == {
        "median": pytest.approx(pay[0] + emp[0]),
        "largest": pytest.approx(pay[1] + emp[2]),
    }
    with refused(ss.ParameterError, "records['a']", path=("columns", "pay", "records", "a")):
        ss.advise_columns({"pay": {"records": {"a": 0}, "interval": 1}})
    with refused(ss.ParameterTypeError, "size", code="unknown-name"):
        ss.advise_columns({"pay": {"size": 1}})


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_no_candidate_of_a_fine_grid_is_better_by_five_per_cent_at_every_size(seed):
    """Brute force on a coarse grid; 50 problems on a grid with a ratio of 1.1 gave a largest factor below 1.01."""
    records, level, half = random_problem(np.random.default_rng(seed))
    advice = ss.advise(records, interval=half, level=level)
    _, factor = advantage(fine_grid(1.6), accuracy(level), half, list(records.values()), advice.table[0].tight)
    assert factor < 1.05


def test_brute_force_finds_what_is_better():
    heavy = ss.GeneralizedGaussian.calibrate(interval=HALF, p=0.5)
    losses = [heavy.tight_loss(size) for size in TAX.values()]
    shape, factor = advantage(fine_grid(1.6), accuracy(), HALF, list(TAX.values()), losses)
    assert factor > 1.04
    better = accuracy().scaled(shape, HALF)
    assert all(better.tight_loss(size) < loss for size, loss in zip(TAX.values(), losses, strict=True))


def test_a_standard_deviation_and_a_relative_error():
    advice = ss.advise({"median": 100, "largest": 1e6}, std=75)
    assert advice.best.std() == pytest.approx(75)
    advice = ss.advise({"median": 100, "largest": 1e6}, relative=0.1, large=2_000, level=0.9)
    assert half_widths(advice.best, 0.9, (2_000,)) == pytest.approx([200])
    assert "90 % within ±10 % for sums of 2,000 or more" in advice.goal
    assert {type(row.mechanism).__name__ for row in advice.table} >= {"Root", "Log"}


def test_a_transformation_is_solved_for_the_smallest_scale():
    """With a σ of 4.4 the interval of the log has the same length, but lies far below the sum."""
    shape = Shape(ss.Log, (("a", 1e5), ("noise", "gaussian")))
    found = shape.with_scale(largest_scale(accuracy(at=1e7), shape, (HALF, math.inf)))
    low, high = found.prediction_interval(1e7)
    assert max(1e7 - low, high - 1e7) == pytest.approx(HALF)
    assert found.sigma < 0.2


def test_wanted_losses_are_kept_with_the_least_error():
    sizes, wanted = {"median": 268_689, "largest": 39e9}, {"median": 0.25, "largest": 48}
    advice = ss.advise(sizes, presence=wanted)
    for row in advice.table:
        # The charge is read from a curve, which is at most 1 % above the single values.
        ratios = [1.01 * loss / wanted[name] for name, loss in zip(sizes, row.tight, strict=True)]
        exact = isinstance(row.mechanism, ss.Gaussian)
        assert 0.985 < max(ratios) <= (1.01 if exact else 1)
    assert [row.common for row in advice.table] == sorted(row.common for row in advice.table)
    # Every shape of a fine grid that has an error which is 2 % less loses more at one of the sizes.
    kept = [loss / 1.01 for loss in wanted.values()]
    error = 0.98 * advice.table[0].common
    assert advantage(fine_grid(1.6), accuracy(), error, list(sizes.values()), kept)[1] < 1
    again = advantage(fine_grid(1.6), accuracy(), 1.1 * advice.table[0].common, list(sizes.values()), kept)
    assert again[1] > 1


def test_a_single_loss_gives_a_gaussian_and_roots_are_tried():
    advice = ss.advise({"median": 100, "largest": 1e6}, presence={"median": 0.5}, at=1e4)
    assert isinstance(advice.best, ss.Gaussian)
    assert advice.best.sigma == pytest.approx(100, rel=2e-3)
    assert any(isinstance(row.mechanism, ss.Root | ss.Log) for row in advice.table)
    assert all(row.tight[0] <= 0.5 * (1 + 1e-9) for row in advice.table)


def test_noise_made_from_the_wanted_losses_is_a_candidate():
    sizes = {"a": 10.0, "b": 1_000.0, "c": 1e6, "d": 1e9}
    wanted = {"a": 0.1, "b": 2.0, "c": 20.0, "d": 60.0}
    advice = ss.advise(sizes, presence=wanted, rare=20)
    (made,) = [row.mechanism for row in advice.table if isinstance(row.mechanism, ss.FromPolicy)]
    assert max(1.01 * made.tight_loss(sizes[name]) / wanted[name] for name in sizes) <= 1
    assert "FromPolicy(10: " in str(advice)
    assert ss.Mechanism.from_dict(json.loads(json.dumps(made.to_dict()))) == made


def test_the_limit_on_rare_errors_is_kept_and_named():
    heavy, light = (ss.advise({"largest": 1e8}, presence={"largest": 20.0}, rare=rare) for rare in (20, 4))
    assert "Rare errors are as large as rare=20 allows" in heavy.reason
    for advice, rare in ((heavy, 20), (light, 4)):
        assert all(max(row.rare, row.std) <= 1.01 * rare * row.common for row in advice.table)
    assert heavy.table[0].common < light.table[0].common


def test_absurd_noise_is_warned_of():
    with pytest.warns(
        ss.ScaleWarning, match="more than 10¹² times the largest record.* Allow larger losses$"
    ) as caught:
        ss.advise({"median": 100}, presence={"median": 1e-30})
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(
        ss.ScaleWarning, match="more than 10¹² times the largest record.* Ask for a smaller error$"
    ) as caught:
        advice = ss.advise({"median": 100}, interval=1e20)
    assert [one.filename for one in caught] == [__file__]
    assert 0 < advice.table[0].tight[0] < 1e-30


def test_what_is_printed(tax):
    text = str(tax)
    assert "Wanted: 95 % of the results within ±1,900,000 of the true sum." in text
    assert f"Recommended: {tax.table[0].name}." in text
    assert "The trade: at median, Gaussian(sigma=969,406) loses least, 0.0384 instead of" in text
    assert "A release charges them from a curve, which is up to 1 % higher" in text
    assert "<pre" in tax._repr_html_()
    assert json.loads(json.dumps(tax.to_dict()))["best"] == tax.best.to_dict()
    table = tax.to_pandas()
    assert table["tight loss", "median"].iloc[0] == tax.table[0].tight[1]
    assert math.isclose(table["error", "95 %"].iloc[-1], HALF, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("records", "goal"),
    [
        ({"median": 106, "largest": 1_550_000}, {"interval": 150.0}),
        ({"median": 10, "giant": 1e6}, {"presence": {"giant": 1.0}}),
        ({"a": 1.0}, {"std": 0.5, "unit": "0.01"}),
    ],
)
def test_a_plan_gives_the_advised_mechanism(records, goal, tmp_path):
    advice = ss.advise(records, **goal)
    path = advice.plan(tmp_path / "plan.toml", data=tmp_path / "tax.csv", column="total tax")
    plan = ss.read_plan(path)
    assert plan.drawn["total"].mechanisms == {"total tax": advice.best}
    assert plan.release.accounting == "tight"
    assert plan.data.path == str(tmp_path / "tax.csv")
    assert [size.everywhere for size in plan.sizes] == (list(advice.records.values()) if "largest" in records else [])
    assert str(plan.tables["total"].sums["total tax"].unit) == str(goal.get("unit", 1))
    comments = " ".join(line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#"))
    for words in (
        "only if the sizes are public or assumed without a look at the records, or are private quantiles (`slowscale "
        "quantiles`, or session.quantiles in Python)",
        "looked up in the records, or chosen after `slowscale inspect`, depend on the records and are outside the",
        "Source of the sizes:",
    ):
        assert words in comments
    with pytest.raises(ss.ParameterError, match="exists"):
        advice.plan(path)
    assert ss.read_plan(advice.plan(path, overwrite=True)).data.path == str(tmp_path / "records.parquet")


def uncommented(text):
    """Return a plan with its caps, and with its sizes if the largest record is filled in."""
    return re.sub(
        r"^# (?=\[ledger\.caps|\[report|sizes = |\]|  \{|times|(?:mechanism|sigma|scale|shape) = )",
        "",
        text,
        flags=re.M,
    )


def test_quantiles_are_not_named_the_largest_record(tmp_path):
    records = {"p50": 106, "p90": 1_580}
    advice = ss.advise(records, interval=150.0)
    assert (
        "No size is named the largest: records larger than p90 (1,580) lose more than is shown here." in advice.reason
    )
    path = advice.plan(tmp_path / "plan.toml")
    text = path.read_text()
    assert "(largest)" not in text
    assert ss.read_plan(path).sizes == ()
    completed = uncommented(text)
    path.write_text(completed)
    with pytest.raises(ss.PlanError):  # the size of the largest record is still to be filled in
        ss.read_plan(path)
    path.write_text(completed.replace("…", "2e6"))
    plan = ss.read_plan(path)
    assert {size.name: size.everywhere for size in plan.sizes} == {**records, "largest record": 2e6}
    caps = plan.ledger.caps
    assert {name: (cap.times, cap.build()) for name, cap in caps.items()} == {
        "*": (10, advice.best),
        "count": (1, ss.Gaussian(sigma=5)),
    }


def test_a_largest_record_is_not_missed():
    assert "largest:" not in ss.advise({"median": 106, "Largest firm": 1_550_000}, interval=150.0).reason
    assert "No size is named the largest" in ss.advise({"median": 10, "giant": 1e6}, std=1e3).reason
    with refused(ss.ParameterError, "records: 'largest of its kind'", code="not-largest"):
        ss.advise({"largest of its kind": 10, "giant": 1e6}, std=1e3)


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:the proposed types:slowscale.core.errors.ConfidentialWarning")
def test_a_plan_for_a_file_has_proposed_types(tmp_path):
    (tmp_path / "tax.csv").write_text("state;total tax\n01;120\n01;4000\n48;31000\n")
    path = ss.advise({"a": 1.0}, std=2).plan(tmp_path / "p.toml", tmp_path / "tax.csv", "total tax")
    plan = ss.read_plan(path)
    assert plan.data.types["total tax"].startswith("int")
    assert plan.data.csv.delimiter == ";"


def test_a_plan_has_no_password(tmp_path):
    path = ss.advise({"a": 1.0}, std=2).plan(tmp_path / "p.toml", "postgresql://me:secret@host/db#table")
    assert "secret" not in path.read_text()
    assert ss.read_plan(path).data.database == "postgresql://me@host/db#table"


def test_the_chart(tmp_path):
    chart = ss.advise({"median": 106, "largest": 1_550_000}, interval=150).chart()
    assert chart._repr_svg_().startswith("<svg")
    assert chart.save(tmp_path / "c.svg").read_text().startswith("<svg")
    with pytest.raises(ss.ParameterError, match=r"\.png, \.svg or \.html"):
        chart.save(tmp_path / "c.pdf")


@pytest.mark.parametrize(
    ("arguments", "subject", "code"),
    [
        ({"records": [1, 2], "interval": 1}, "records", "type"),
        ({"records": {}, "interval": 1}, "records", "value"),
        ({"records": {"a": 0}, "interval": 1}, "records['a']", "value"),
        ({"records": {"a": 2, "largest": 1}, "interval": 1}, "records: 'largest'", "not-largest"),
        ({"records": {"a": 1}}, "the goal", "missing"),
        ({"records": {"a": 1}, "bands": {"a": 1}}, "the goal", "missing"),
        ({"records": {"a": 1}, "std": 1, "interval": 1}, "the error of small sums", "conflict"),
        ({"records": {"a": 1}, "std": -1}, "std", "value"),
        ({"records": {"a": 1}, "relative": 0}, "relative", "value"),
        ({"records": {"a": 1}, "interval": 1, "large": -1}, "large", "value"),
        ({"records": {"a": 1}, "interval": 1, "times": 1}, "times", "value"),
        ({"records": {"a": 1}, "interval": 1, "bands": {"b": 1}}, "bands", "unknown-name"),
        ({"records": {"a": 1e6}, "interval": 1, "bands": {"a": 0.1}, "relative": 0.01}, "the goal", "unreachable"),
        ({"records": {"a": 1}, "interval": 1, "level": 2}, "level", "value"),
        ({"records": {"a": 1}, "interval": 1, "rare": 1}, "rare", "value"),
        ({"records": {"a": 1}, "interval": 1, "unit": 10}, "unit", "value"),
        ({"records": {"a": 1, "b": 9}, "interval": 1e300}, "interval", "too-large"),
        ({"records": {"a": 1}, "presence": {}}, "presence", "type"),
        ({"records": {"a": 1}, "presence": {"b": 1}}, "presence", "unknown-name"),
        ({"records": {"a": 1, "b": 2}, "presence": {"a": 2, "b": 1}}, "presence", "falling"),
    ],
)
def test_mistakes_are_named(arguments, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        ss.advise(**arguments)


def test_sizes_end_at_the_largest_value_that_is_allowed(tmp_path):
    sizes = {"median": 106, "large": 10_000}
    found = ss.advise(sizes, interval=150, largest=1_550_000)
    assert found.records == {**sizes, "largest allowed": 1_550_000}
    assert found.best == ss.advise({**sizes, "largest": 1_550_000}, interval=150).best
    assert found.to_dict()["largest"] == found.largest == 1_550_000
    assert "No size is named the largest" not in found.reason
    named = ss.advise({"median": 106, "largest": 1e6}, interval=150, largest=1_550_000)
    assert list(named.records) == ["median", "largest"]
    hidden = ss.advise(sizes, interval=150, largest=1_550_000, bands={"largest allowed": 1})
    assert hidden.table[0].bands[-1] <= 1
    plan = read_plan(found.plan(tmp_path / "a.toml", column="payann"))
    assert plan.data.largest == {"payann": 1_550_000}
    both = {"payann": {"records": sizes, "largest": 0.1 + 1e6}, "emp": {"records": sizes}}
    plan = read_plan(ss.advise_columns(both, interval=150).plan(tmp_path / "b.toml"))
    assert plan.data.largest == {"payann": 1_000_000.1}
    with refused(ss.ParameterError, "records", code="too-large", path=("records", "large")):
        ss.advise(sizes, interval=150, largest=9_999)
    for wrong in (0, -1, math.inf, math.nan):
        with refused(ss.ParameterError, "largest"):
            ss.advise(sizes, interval=150, largest=wrong)


@pytest.mark.parametrize(
    "mechanism",
    [
        ss.Root(k=1.31, sigma=91, a=4.63, noise="laplace"),  # rarely far below 0: its interval reaches to -1,500
        ss.Root(k=2, sigma=5.47, a=4348),
        ss.Log(sigma=0.03, a=17_000, noise="laplace"),
        ss.ArsinhNormal(scale=100, shape=1),
    ],
    ids=lambda mechanism: mechanism.kind,
)
@pytest.mark.parametrize("at", [0.0, 5_000.0])
def test_stated_errors_are_quantiles(mechanism, at):
    noise = getattr(mechanism, "added", mechanism).noise
    shares = (np.arange(200_000) + 0.5) / 400_000
    drawn = np.concatenate([noise.isf(shares), -noise.isf(shares)])
    found = mechanism.estimate(mechanism.transform(at) + drawn) - at if hasattr(mechanism, "added") else drawn
    for level in (0.5, 0.999):
        assert error_within(mechanism, level, at) == pytest.approx(np.quantile(np.abs(found), level), rel=2e-3)
