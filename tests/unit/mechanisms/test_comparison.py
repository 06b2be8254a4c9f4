"""The comparison of mechanisms: its numbers are the mechanisms' own, and no crossover is missed."""

import dataclasses
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from helpers.errors import refused
from helpers.strategies import arsinh_normals, instances, polylogs
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.mechanisms.comparison import same_error

smooth = st.one_of(
    instances(ss.Gaussian),
    instances(ss.GeneralizedGaussian),
    polylogs(ss.ExponentialPolylog),
    arsinh_normals,
    instances(ss.Root),
    instances(ss.Log, estimator="mean"),
)


@settings(max_examples=40)
@given(one=smooth, two=smooth)
def test_crossovers_are_where_the_order_changes(one, two):
    table = ss.compare({"one": one, "two": two}, within=(1e-2, 1e8), accounting="closed")
    ends = [1e-2, *(c.influence for c in table.crossovers), 1e8]
    for c in table.crossovers:
        assert one.policy(c.influence) == pytest.approx(two.policy(c.influence), rel=1e-9)
        assert c.loss == pytest.approx(one.policy(c.influence), rel=1e-9)
        assert {c.below, c.above} == {"one", "two"}
    for low, high in pairwise(ends):
        x = np.geomspace(low, high, 52)[1:-1]
        difference = one.policy(x) - two.policy(x)
        clear = np.abs(difference) > 1e-9 * one.policy(x)
        assert len(set(np.sign(difference[clear]))) <= 1


def example():
    return ss.compare(
        {"Gaussian": ss.Gaussian(sigma=75), "fourth root": ss.Root(k=4, sigma=0.534)},
        influences=[30, 106],
        queries=[106, 1e6],
    )


def test_numbers_are_the_mechanisms_own():
    table = example()
    assert table.losses[0] == pytest.approx(ss.Gaussian(sigma=75).policy([30, 106]))
    assert table.losses[1] == pytest.approx(ss.Root(k=4, sigma=0.534).policy([30, 106]))
    assert table.stds[0] == pytest.approx([75, 75])
    assert table.stds[1] == pytest.approx(ss.Root(k=4, sigma=0.534).std([106, 1e6]))
    assert table.searched == (0.3, 1e6)
    assert [name for _, _, name in table.best] == ["Gaussian", "fourth root"]
    (crossing,) = table.crossovers
    assert (crossing.below, crossing.above) == ("Gaussian", "fourth root")
    assert crossing.influence == table.best[1][0]


def test_pandas():
    frame = example().to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc["Gaussian", ("loss", 106)] == pytest.approx(0.9987555)
    losses = [(what, size) for what in ("loss", "band loss") for size in (30.0, 106.0)]
    assert list(frame.columns) == [*losses, ("std", 106.0), ("std", 1e6)]
    assert frame.loc["Gaussian", ("band loss", 106)] == pytest.approx(frame.loc["Gaussian", ("loss", 106)] / 100)
    assert list(pd.DataFrame(example().crossovers).columns) == ["influence", "loss", "below", "above"]


def test_text():
    text = str(example())
    for words in ("PRzCDP loss of a record of size", "standard deviation for a sum of", "fourth root", "Crossovers"):
        assert words in text
    assert max(map(len, text.splitlines())) < 120
    alone = str(ss.compare([ss.Gaussian(sigma=1)]))
    assert "Gaussian(sigma=1)" in alone
    assert "Crossovers" not in alone


def test_named_sizes():
    named = ss.compare([ss.Gaussian(sigma=75)], influences={"median firm": 12, "largest firm": 4e10, "500": 500})
    assert named.influences == (12, 4e10, 500)
    assert named.labels == ("median firm", "largest firm", "")
    sizes = ("median firm", "largest firm", 500.0)
    assert list(named.to_pandas().columns) == [(what, size) for what in ("loss", "band loss") for size in sizes]
    assert "loss of its value, 10 % more or less" in str(named)
    names, sizes, rule, losses = str(named).splitlines()[:4]
    assert names.split() == ["median", "firm", "largest", "firm"]
    assert sizes.split()[-3:] == ["12", "40,000,000,000", "500"]
    for head in ("median firm", "largest firm"):  # right-aligned over its size
        assert sizes[names.index(head) + len(head) - 1] != " "
    assert set(rule) == {"-"}
    assert losses.startswith("Gaussian(sigma=75)")
    assert named.searched == (0.12, 4e12)


def test_the_default_span_comes_from_the_policies():
    for scale in (1e-30, 1, 1e30):
        found = ss.compare([ss.Gaussian(sigma=scale), ss.Root(k=2, sigma=scale**0.5)])
        assert found.searched == pytest.approx((1e-4 * scale, 1e4 * scale))
        assert [c.influence for c in found.crossovers] == pytest.approx([scale])
    low, high = ss.compare([ss.UnitSplitting(threshold=1e6, sigma=1e5)]).searched
    assert low <= 1e6 <= high
    assert ss.compare([ss.Log(sigma=100)]).searched[1] == 1e300


def test_mechanisms_that_look_alike_are_both_shown():
    names = ss.compare([ss.Gaussian(sigma=1), ss.Gaussian(sigma=1.0000001), ss.Gaussian(sigma=1)]).names
    assert names == ("Gaussian(sigma=1)", "Gaussian(sigma=1) (2)", "Gaussian(sigma=1) (3)")


def test_no_jump_of_unit_splitting_is_missed():
    split, gaussian = ss.UnitSplitting(threshold=1, sigma=1), ss.Gaussian(sigma=0.97)
    table = ss.compare({"split": split, "g": gaussian}, within=(0.5, 300), accounting="closed")
    x = np.linspace(0.5, 300, 3_000_001)
    flips = np.count_nonzero(np.diff(np.sign(split.policy(x) - gaussian.policy(x))))
    assert len(table.crossovers) == flips


def test_extreme_sizes():
    for sizes in ([1e-323, 1e307], [1e305], [1e-305]):
        low, high = ss.compare([ss.Log(sigma=1)], influences=sizes).searched
        assert low == (1e-300 if min(sizes) < 1 else 0.01)
        assert high == 1e300  # no size has the loss 1,000,000


def test_an_error_that_no_log_has_names_arguments_of_the_comparison():
    with refused(ss.CalibrationError, "std", code="jump") as caught:
        same_error(std=1, at=1e308)
    assert caught.value.remedy == "compare at another `std` or `at`"


def test_unit_splitting_jumps_are_crossovers_too():
    table = ss.compare(
        {"split": ss.UnitSplitting(threshold=10, sigma=10), "Gaussian": ss.Gaussian(sigma=10)}, influences=[5, 100]
    )
    assert all(c.above == "Gaussian" or c.below == "Gaussian" for c in table.crossovers)
    assert (table.losses[0] >= table.losses[1]).all()


@pytest.mark.parametrize(
    ("call", "subject", "code"),
    [
        (lambda: ss.compare([]), "mechanisms", "empty"),
        (lambda: ss.compare([3]), "mechanisms", "type"),
        (lambda: ss.compare(3), "mechanisms", "type"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], within=(1, 2, 3)), "within", "value"),
        (
            lambda: ss.compare([ss.Gaussian(sigma=1)], influences=[-1]),
            "influences",
            "value",
        ),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], influences=[1, 0]), "influences", "value"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], influences={"big": 1e999}), "influences", "value"),
        (
            lambda: ss.compare([ss.Gaussian(sigma=1)], influences={"big": "9"}),
            "influences['big']",
            "type",
        ),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], influences={}), "influences", "empty"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], queries=["a"]), "queries", "type"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], queries=[-0.5]), "queries", "value"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], within=(0, 1)), "within", "value"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], within=(-0.5, 1)), "within", "value"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], within=(1, 1)), "within", "value"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], within=(1, float("inf"))), "within", "value"),
        (lambda: ss.compare([ss.Gaussian(sigma=1)], within=(5, 1)), "within", "value"),
    ],
)
def test_bad_input(call, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        call()


def test_sums_from_0_on_are_allowed():
    root = ss.Root(k=2, sigma=1)
    assert ss.compare([root], queries=[0, 0.5]).stds[0] == pytest.approx(root.std([0, 0.5]))


def test_a_comparison_is_complete_unless_said_otherwise_and_cannot_be_changed():
    found = ss.compare([ss.Gaussian(sigma=1)], within=(1, 2))
    assert found.complete
    plain = ss.Comparison(*(getattr(found, f.name) for f in dataclasses.fields(found)[:-1]))
    assert plain.complete
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.complete = False
    assert found != dataclasses.replace(found)  # arrays have no single truth value, so that only identity counts


def test_the_first_size_that_is_refused_is_named():
    with refused(ss.ParameterError, "influences", code="value"):
        ss.compare([ss.Gaussian(sigma=1), ss.Log(sigma=1)], influences=[5, -1, 7, -2])


@pytest.mark.parametrize(("count", "more"), [(29, False), (30, False), (31, True)])
def test_thirty_crossovers_are_shown(count, more):
    found = ss.compare({"a": ss.Gaussian(sigma=1), "b": ss.Log(sigma=1)}, within=(0.1, 100))
    many = dataclasses.replace(
        found, crossovers=(ss.compare({"a": ss.Gaussian(sigma=1), "b": ss.Root(k=4, sigma=0.2)}).crossovers[0],) * count
    )
    assert str(many).count("  loss ") == min(count, 30)
    assert ("… and 1 more: see .crossovers" in str(many)) == ("more: see" in str(many)) == more


def test_all_numbers_are_those_of_the_accounting():
    mechanisms = {"split": ss.UnitSplitting(threshold=5, sigma=3), "root": ss.Root(k=4, sigma=0.5)}
    split, root = mechanisms.values()
    tight, closed = (ss.compare(mechanisms, [1, 10], [5], accounting=name) for name in ("tight", "closed"))
    np.testing.assert_array_equal(tight.losses, [split.tight_policy([1, 10]), root.policy([1, 10])])
    np.testing.assert_array_equal(closed.losses, [split.policy([1, 10]), root.policy([1, 10])])
    (crossing,) = tight.crossovers
    assert crossing.loss == pytest.approx(split.tight_policy(crossing.influence))
    assert len(closed.crossovers) != 1
    assert str(tight).startswith("PRzCDP loss of a record of size")
    assert str(closed).startswith("PRzCDP loss (closed form) of a record of size")
    assert str(ss.compare(mechanisms, [1, 10], [5])) == str(tight)
    with refused(ss.ParameterError, "accounting", code="value"):
        ss.compare(mechanisms, [1], accounting="yes")


def test_certified_curves_are_compared():
    """A mechanism of which only a curve is known has the crossover at which the curve is."""
    power, gaussian = ss.GeneralizedGaussian(sigma=3, p=0.5), ss.Gaussian(sigma=10)
    found = ss.compare({"power": power, "Gaussian": gaussian}, [1, 10], within=(0.1, 1e4))
    np.testing.assert_array_equal(found.losses[0], power.tight_policy([1, 10]))
    (crossing,) = found.crossovers
    assert crossing.loss == pytest.approx(gaussian.policy(crossing.influence))
    assert crossing.loss == pytest.approx(power.tight_loss(crossing.influence), rel=0.011)
