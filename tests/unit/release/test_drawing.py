"""Drawing: the columns of a table, the facts of its columns, outlines before the charge, and the errors by size."""

import math
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.core.numbers import rounded
from slowscale.release.numbers import number_column, published_columns
from slowscale.sampling import KnownBits

TINY = ss.Gaussian(sigma=1e-9)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_intervals_are_rounded_outwards_where_floats_are_coarser_than_the_grid():
    """In hundredths, floats beyond 10¹⁵ are whole numbers; the estimate is the nearest, and the ends contain theirs."""
    noisy = ss.Gaussian(sigma=1)._release(np.full(200, 10**18, object), Fraction(1, 100), 0.95, Recorded(1))
    columns = {name: column.to_pylist() for name, column in published_columns(noisy, False, None).items()}
    units = [noisy.units, *noisy.ends]
    estimate, low, high = ([Fraction(int(n)) / 100 for n in ends] for ends in units)
    assert columns[""] == [float(one) for one in estimate]
    assert all(Fraction(end) <= exact for end, exact in zip(columns["_low"], low, strict=True))
    assert all(Fraction(end) >= exact for end, exact in zip(columns["_high"], high, strict=True))
    # and by one float at most
    for name, ends in (("_low", low), ("_high", high)):
        assert all(abs(end - float(exact)) <= 128 for end, exact in zip(columns[name], ends, strict=True))
        assert any(end != float(exact) for end, exact in zip(columns[name], ends, strict=True))


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (2**63 - 1, pa.int64()),
        (2**63, pa.decimal128(38, 0)),
        (10**38 - 1, pa.decimal128(38, 0)),
        (-(10**38) + 1, pa.decimal128(38, 0)),
        (10**38, pa.float64()),
    ],
)
def test_the_type_of_whole_numbers_follows_from_their_size(number, dtype):
    units = np.array([number], np.int64 if abs(number) < 2**63 else object)
    column = number_column(units, Fraction(1), 0)
    assert column.type == dtype
    assert column.to_pylist() == [number if dtype != pa.float64() else float(number)]


@pytest.mark.parametrize("m", [ss.Root(k=2, sigma=1), ss.Root(k=3, sigma=1, a=2)], ids=str)
def test_rounding_does_not_lower_an_error_below_that_of_an_empty_cell(m):
    noisy = m._release(np.repeat([0, 1, 2], 200), Fraction(1, 1000), 0.95, Recorded(2))
    found = published_columns(noisy, False, 0)["_se"].to_numpy()
    nearest, least = rounded(noisy.se, 4), m.std(0)
    assert (found >= least).all()
    assert (nearest < least).any()  # otherwise nothing was tested
    kept = nearest >= least
    assert (found[kept] == nearest[kept]).all()
    assert ((nearest > least) & (nearest < noisy.se)).any()
    assert (found[~kept] == rounded(noisy.se, 4, 1)[~kept]).all()


def test_errors_of_additive_noise_are_rounded_to_nearest():
    noisy = ss.Gaussian(sigma=math.sqrt(2))._release(np.zeros(3), Fraction(1, 1000), 0.95, Recorded(1))
    assert published_columns(noisy, False, None)["_se"].to_pylist() == [1.414] * 3


# --- policies --------------------------------------------------------------------------------------------------------


def test_only_a_record_counts_as_1():
    """An entity may have many records in a cell, so its loss grows with their number."""
    frame = pd.DataFrame({"firm": ["a", "a", "b"], "x": [1, 2, 3]})
    sums = ss.Sums({"x": ss.GeneralizedGaussian(sigma=3, p=1)}, count=ss.GeneralizedGaussian(sigma=3, p=1))
    records = ss.Session(frame)._bind(sums)
    entities = ss.Session(frame, protect="firm")._bind(sums)
    for one, other in ((records.tables["table"], entities.tables["table"]), (records.charge, entities.charge)):
        for name in ("policy", "pure_policy", "pure_columns"):
            assert [column for column, _ in getattr(one, name).terms] == ["x", None]
            assert [column for column, _ in getattr(other, name).terms] == ["x", "count"]
    assert entities.pure_policy({"x": 0, "count": 12}) == 4


def test_a_pure_policy_is_that_of_all_columns():
    frame = pd.DataFrame({"x": [1], "y": [2]})
    laplace, gaussian = ss.GeneralizedGaussian(sigma=3, p=1), ss.Gaussian(sigma=3)
    for columns, named in [
        ({"x": laplace, "y": laplace}, ["x", "y"]),
        ({"x": laplace, "y": gaussian}, ["x"]),
        ({"x": gaussian}, None),
    ]:
        bound = ss.Session(frame)._bind(ss.Sums(columns))
        for found in (bound.tables["table"].pure_columns, bound.charge.pure_columns):
            assert (found and [column for column, _ in found.terms]) == named
        assert (bound.pure_policy is None) == (gaussian in columns.values())


# --- facts of columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "unit", "on_grid"),
    [
        ("whole", 1, True),
        ("whole", "0.5", True),
        ("whole", 10, False),
        ("money", "0.01", True),
        ("money", "0.005", True),
        ("money", "0.02", False),
        ("money", 1, False),
        ("measured", 1, False),
        ("measured", "0.5", False),
    ],
)
def test_a_sum_is_known_to_be_on_the_grid_if_its_type_says_so(column, unit, on_grid):
    table = pa.table(
        {"whole": [1, 2], "money": pa.array([Decimal("0.50")] * 2, pa.decimal128(10, 2)), "measured": [0.5, 0.5]}
    )
    sums = ss.Sums({column: ss.Gaussian(sigma=100)}, unit=unit)
    assert ss.Session(table, bits=Recorded(1)).release(sums).facts.columns[column].on_grid is on_grid


def test_facts_say_what_was_counted_and_how():
    session = ss.Session(pd.DataFrame({"x": [1], "y": [2], "z": [3]}), bits=Recorded(1))
    facts = session.sum(
        {"x": TINY, "y": ss.Root(k=2, sigma=1)}, count=TINY, negatives="zero", nulls="zero"
    ).facts.columns
    assert [(facts[name].kind, facts[name].at_least) for name in facts] == [("sum", None), ("sum", 0), ("count", 0)]
    assert (facts["x"].negatives, facts["y"].negatives) == ("kept", "zero")
    assert (facts["x"].nulls, facts["y"].nulls) == ("zero", "zero")
    assert (facts["count"].negatives, facts["count"].nulls) == (None, None)
    assert {"negatives", "nulls"}.isdisjoint(facts["count"].to_dict())
    assert "the same for every sum" in facts["x"].se
    assert "at the median estimate" in facts["y"].se


# --- outlines --------------------------------------------------------------------------------------------------------


def test_the_bits_of_an_outline_are_new_each_time_and_not_secret():
    bits = KnownBits()
    assert len({bits.key() for _ in range(1000)}) == 1000
    assert bits.private is False


def test_an_outline_ends_where_its_first_candidate_is_rejected():
    """Bits that are the same each time would have the same candidate rejected again and again."""
    session = ss.Session(pd.DataFrame({"x": [1]}), bits=Recorded(1))
    assert session.preview(ss.Sums({"x": ss.ExponentialPolylog(d=0.05, sigma=3.35, a=4.34924, p=2.47)})).refusal is None


def test_an_outline_has_the_form_of_the_release_and_nothing_of_the_records():
    """Each row has the same numbers, drawn from a sum of 0."""
    session = ss.Session(pd.DataFrame({"g": ["a", "b"], "x": [10**9, 10**9]}), bits=Recorded(1))
    sums = ss.Sums({"x": ss.Root(k=2, sigma=1)}, keys=ss.Keys.cross({"g": ["a", "b"]}), count=TINY)
    bound = session._bind({"cells": sums, "total": ss.Rollup("cells")})
    for one, name in ((bound, "part"), (bound.tables["cells"], "level")):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, 0.5)
    released = session.release({"cells": sums, "total": ss.Rollup("cells")})
    for name, outline in bound.outlines.items():
        assert outline.table.schema == released[name].table.schema
        assert outline.table.num_rows == released[name].table.num_rows
    table = bound.outlines["cells"].table
    assert table["g"].to_pylist() == ["a", "b"]
    assert table["count"].to_pylist() == [0, 0]
    assert len(set(table["x"].to_pylist())) == 1
    assert table["x"].to_pylist()[0] < 100  # of a sum of 0, and not of the records
    assert bound.outlines["total"].table["cells"].to_pylist() == [2]


def test_what_cannot_be_drawn_fails_before_it_is_charged(tmp_path):
    def broken(y):
        if np.size(y):
            raise RuntimeError("no estimate")
        return y

    ledger = ss.Ledger(tmp_path / "l")
    session = ss.Session(pd.DataFrame({"x": [5]}), ledger)
    mechanism = ss.Transformation(np.sqrt, np.square, sigma=1, a=0, estimator=broken)
    with refused(Exception, "estimator", code="not-exact"):
        session.sum({"x": mechanism})
    assert [entry["kind"] for entry in ledger.history()] == ["created"]


# --- errors by size --------------------------------------------------------------------------------------------------


def test_errors_are_grouped_by_powers_of_ten_of_the_true_sums():
    truth = {"a": 0, "b": 1, "c": -1, "d": 3, "e": 40, "f": -90, "g": 100}
    frame = pd.DataFrame({"g": list(truth), "x": list(truth.values())})
    session = ss.Session(frame, bits=Recorded(3))
    release = session.sum({"x": ss.Gaussian(sigma=20)}, keys=ss.Keys.cross({"g": list(truth)}))
    error = {
        g: abs(x - truth[g])
        for g, x in zip(release.table["g"].to_pylist(), release.table["x"].to_pylist(), strict=True)
    }
    found = session.errors(release)["table"]
    groups = {(0, 0): "a", (1, 10): "bcd", (10, 100): "ef", (100, 1000): "g"}
    assert [(one.low, one.high, one.cells) for one in found] == [(*ends, len(of)) for ends, of in groups.items()]
    for one, of in zip(found, groups.values(), strict=True):
        assert one.median_error == np.median([error[g] for g in of])
        relative = math.nan if of == "a" else np.median([error[g] / abs(truth[g]) for g in of])
        assert one.median_relative_error == pytest.approx(relative, nan_ok=True)
