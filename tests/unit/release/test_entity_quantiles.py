"""Quantiles of protected entities: an entity counts once, by its total, and moves each rank by at most one."""

from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.data.sources import open_source, open_table
from slowscale.data.sums import Column, records_below
from slowscale.release.quantiles import Ranks

SIZES = [Fraction(size) for size in ("0.5", 1, 3, 10, 100, 10**6)]
FIRMS = ["a", "A", "a ", "b", "b", "b", "c"]
VALUES = {
    "int64": [3, -1, 200, 60, 60, -20, 0],
    "uint64": [3, 1, 200, 60, 60, 20, 0],
    "float64": [2.5, -0.25, 1e5, 0.25, 0.25, 0.5, 0.0],
    "decimal128(10, 2)": [Decimal(text) for text in ("2.99", "-0.01", "3.00", "0.99", "0.02", "-0.02", "0")],
    "string": ["2.99", "-0.01", "3", "0.4", ".1", "0", " "],
}
TYPES = {"decimal128(10, 2)": pa.decimal128(10, 2), "float64": pa.float64(), "int64": pa.int64(), "uint64": pa.uint64()}


def totals_below(firms, values):
    """Return the numbers of entities below each size, and of all entities, by exact fractions."""
    totals = {}
    for firm, value in zip(firms, values, strict=True):
        totals[firm] = totals.get(firm, Fraction(0)) + Fraction(str(value).strip() or 0)
    return [sum(abs(total) < size for total in totals.values()) for size in SIZES], len(totals)


def ranks(firms, values, dtype):
    table = open_table(pa.table({"firm": pa.array(firms, pa.string()), "x": pa.array(values, dtype)}))
    return records_below(table, Column("x", SIZES[0]), SIZES, protect="firm")


@pytest.mark.parametrize("name", TYPES)
def test_totals_of_every_type(name):
    assert ranks(FIRMS, VALUES[name], TYPES[name]) == totals_below(FIRMS, VALUES[name])


def test_totals_of_text(tmp_path):
    lines = [f"{firm},{value}" for firm, value in zip(FIRMS, VALUES["string"], strict=True)]
    (tmp_path / "a.csv").write_text("firm,x\n" + "\n".join(lines) + "\n")
    table = open_source(tmp_path / "a.csv").table
    column = Column("x", SIZES[0], "zero", text=True)
    assert records_below(table, column, SIZES, protect="firm") == totals_below(FIRMS, VALUES["string"])


def test_values_that_are_too_large_ask_for_a_larger_grid():
    session = ss.Session({"firm": ["a", "b", "a"], "x": [1e250, 2e250, 3.0]}, protect="firm")
    with refused(ss.DataError, "column 'x'", code="too-large-to-rank"):
        session.release(ss.Quantiles("x", [0.5], loss=1))
    assert session.release(ss.Quantiles("x", [0.5], loss=1, grid=[1e240, 1e250, 1e251])).table.num_rows == 1


RECORDS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-150, 150)), max_size=12)


@settings(max_examples=30, deadline=None)
@given(records=RECORDS, own=st.lists(st.integers(-(10**7), 10**7), min_size=1, max_size=5))
def test_an_entity_moves_each_rank_by_at_most_one(records, own):
    """All of its records come and go together: the probabilities of sizes stay within the stated range."""
    firms, values = [firm for firm, _ in records], [value for _, value in records]
    below, rows = ranks(firms, values, pa.int64())
    more, all_rows = ranks([*firms, *["new"] * len(own)], [*values, *own], pa.int64())
    assert all_rows == rows + 1
    assert {after - before for before, after in zip(below, more, strict=True)} <= {0, 1}
    table = ss.Quantiles("x", [0.3], loss=0.5, grid=SIZES)
    costs = [Ranks(table).costs(*read)[0] for read in ((below, rows), (more, all_rows))]
    changes = [after - before for before, after in zip(*costs, strict=True)]
    assert max(changes) - min(changes) <= Fraction(Ranks(table).pure_policy(False)({}))


def test_the_order_of_floats_does_not_matter():
    values = [1e16, 1.0, -1e16, 0.5]
    found = {str(ranks(["a"] * 4, order, pa.float64())) for order in (values, values[::-1], sorted(values))}
    assert len(found) == 1


def test_an_entity_without_a_name_is_refused():
    table = pa.table({"firm": ["a", None], "x": [1, 2]})
    with refused(ss.DataError, "column 'firm'", code="no-entity"):
        ss.Session(table, protect="firm").quantiles("x", loss=1)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), None, 1e300])
def test_values_that_cannot_be_added_are_refused(odd):
    table = pa.table({"firm": ["a", "b"], "x": pa.array([1.0, odd], from_pandas=False)})
    with pytest.raises(ss.DataError):
        ss.Session(table, protect="firm").quantiles("x", loss=1)


def test_facts_words_and_losses(tmp_path):
    table = pa.table({"firm": ["a", "a", "b"], "pay": [30, 40, 500]})
    session = ss.Session(table, protect="firm", bits=Recorded(1))
    sums = ss.Sums({"pay": ss.Gaussian(sigma=10)}, count=ss.Gaussian(sigma=3))
    request = {"cells": sums, "sizes": ss.Quantiles("pay", [0.5], loss=0.25)}
    assert "sizes: 1 quantile of the totals of each firm" in str(session.preview(request))
    made = session.release(request)
    assert made["sizes"].about.entity == made["sizes"].to_dict()["entity"] == made.facts.protect == "firm"
    assert "the size of a firm is its total" in repr(made["sizes"])
    assert "Every firm loses 0.25" in made["sizes"].note
    cell = {"pay": 70, "count": 2}
    alone = made["cells"].policy.entity([cell])
    assert made.entity({"cells": [cell], "sizes": [{}]}) == pytest.approx(alone + 0.25)
    assert session.losses(made).records == 2
    assert min(session.losses(made).quantiles.values()) > 0.25
    read = ss.read_release(made.to_parquet(tmp_path / "made"))
    assert read.facts == made.facts
    assert ss.Session(table, protect="firm").losses(read) == session.losses(made)


def test_counts_and_quantiles_of_entities_have_one_cap():
    table = pa.table({"firm": ["a", "a", "b"], "pay": [30, 40, 500]})
    noise = ss.Gaussian(sigma=2)  # a loss of 1/8 for one record, and a cap of 1/2
    for first in ("count", "quantiles"):
        session = ss.Session(table, protect="firm", caps={"count": ss.Gaussian(sigma=1).policy}, bits=Recorded(1))
        ask = {
            "count": lambda session=session: session.count(mechanism=noise),
            "quantiles": lambda session=session: session.quantiles("pay", loss=0.3),
        }
        ask.pop(first)()
        next(iter(ask.values()))()
        with refused(ss.CapError, code="cap"):
            session.count(mechanism=noise)
        with refused(ss.CapError, code="cap"):
            session.quantiles("pay", loss=0.1)
        session.quantiles("pay", loss=0.07)


@pytest.mark.parametrize("x", [0.3, 0.1 + 0.2, 1e-9, 123.456])
def test_an_entity_of_one_record_ranks_as_the_record(x):
    """Also floats, whose totals are whole numbers of grains."""
    found = []
    for protect in (None, "f"):
        session = ss.Session({"f": ["p"], "x": [x]}, protect=protect)
        found.append(session._bind(ss.Quantiles("x", [0.5], loss=1, grid=(x / 2, x, 2 * x))).read())
    assert found[0] == found[1]


def test_a_cap_on_counts_that_quantiles_exceed_is_reported(tmp_path):
    ledger = ss.Ledger(tmp_path / "l", {"x": ss.Gaussian(sigma=1).policy})
    session = ss.Session({"f": ["p", "q", "p"], "x": [1, 2, 3]}, ledger, protect="f")
    session.count(mechanism=ss.Gaussian(sigma=1))
    with pytest.warns(ss.CapWarning):
        session.quantiles("x", [0.5], loss=0.3)
    ledger.set_cap("count", ss.Gaussian(sigma=0.82).policy, "for the test")
    assert session.spent({"count": 1}) > ledger.caps["count"](1.0)
    assert "already exceeds" in ledger.describe()
