"""Columns whose names the ledger takes for one never share a total with different meanings."""

from datetime import date, datetime

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.accounting import Charge, RecordPolicy

RECORDS = pd.DataFrame({"g": ["a", "b"], "emp": [5, 7]})
NOISE = ss.Gaussian(sigma=10)
KEYS = ss.Keys.cross({"g": ["a", "b"]})
WIDE = "\uff45mp"  # a full-width e


@pytest.fixture
def session(tmp_path):
    return ss.Session(RECORDS, ss.Ledger(tmp_path / "c.ledger", {"d": 2 * NOISE.policy}), bits=Recorded(1))


def test_tables_of_a_set_cannot_derive_names_that_differ_in_case():
    tables = {"a": ss.Sums({"d": NOISE}, keys=KEYS, derive={"d": "emp"})}
    with pytest.raises(ss.ParameterError, match="must be the same in all drawn tables"):
        ss.Request({**tables, "b": ss.Sums({"D": NOISE}, derive={"D": "emp * 1000"})})
    same = ss.Request({**tables, "b": ss.Sums({"d": NOISE}, derive={"d": "EMP  -- the same"})})
    assert list(same) == ["a", "b"]


@pytest.mark.parametrize("derive", [{WIDE: "emp * 1000"}, {"d": "emp", "\uff44": "emp * 1000"}, {"emp\u200b": "emp"}])
def test_a_derived_column_has_a_name_of_its_own(session, derive):
    with pytest.raises(ss.ParameterError, match="would replace the column"):
        session.sum(dict.fromkeys([*derive], NOISE), derive=derive)
    assert session.spent.releases == 0


def test_a_charge_has_one_column_of_a_name():
    policy = RecordPolicy((("d", NOISE.policy), ("D ", NOISE.policy)))
    with pytest.raises(ss.ParameterError, match="names that the ledger takes for one"):
        Charge(policy)


@pytest.mark.parametrize("entry", ["by", "kind", "protects"])
def test_a_charge_names_columns_by_text(entry):
    with pytest.raises(ss.ParameterTypeError, match=f"{entry} must be text or None, got list"):
        Charge(RecordPolicy((("d", NOISE.policy),)), **{entry: ["x"]})


@pytest.mark.parametrize(
    "label",
    [
        date(2020, 1, 1),
        datetime(2020, 1, 1),
        pd.Timestamp("2020-01-01"),
        np.datetime64("2020-01-01"),
        np.datetime64("2020-01-01", "ns"),
        datetime(2020, 1, 1, 5),
        "2020-01-01",
    ],
)
def test_a_date_is_found_however_it_is_given(label):
    records = pd.DataFrame({"day": [date(2020, 1, 1)], "x": [5]})
    session = ss.Session(records, types={"day": "date"}, bits=Recorded(1))
    session.sum({"x": ss.Gaussian(sigma=1)}, keys=ss.Keys.cross({"day": [date(2020, 1, 1)]}), partition="day")
    assert session.spent({"day": label, "x": 5}) == 12.5


def test_an_expression_that_is_nested_too_deeply_is_refused(session):
    with pytest.raises(ss.ParameterError, match="nested too deeply; derive a part of it"):
        session.sum({"d": NOISE}, derive={"d": "(" * 3000 + "emp" + ")" * 3000})


def test_a_warning_after_the_charge_does_not_cost_the_release(tmp_path, recwarn, capsys):
    import warnings

    session = ss.Session(RECORDS, tmp_path / "x.ledger", bits=Recorded(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = session.sum({"emp": NOISE}, keys=ss.Keys.cross({"g": ["x"]}))
    assert len(release) == 1
    assert "no record has any of the keys" in capsys.readouterr().err


@pytest.mark.parametrize("count", [0.5, 0, -3])
def test_a_number_of_records_is_a_whole_number(count):
    records = RECORDS.assign(firm=[1, 2])
    release = ss.Session(records, protect="firm", bits=Recorded(1)).sum({"emp": NOISE}, count=NOISE)
    with pytest.raises(ss.ParameterError, match="count must be a"):
        release.report("r.html", sizes={"largest": {"emp": 100, "count": count}})
