"""Largest values: the scan of a release finds larger ones before anything is charged or drawn, and says no value."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused

import slowscale as ss
from slowscale.data import engines
from slowscale.plan import check_plan, read_plan, run_plan
from slowscale.release.bound import BoundRequest
from slowscale.release.columns import drawn_columns, size_span

RECORDS = pd.DataFrame(
    {
        "state": ["IA", "IA", "TX", "TX", "ZZ", None],
        "firm": ["a", "a", "a", "b", "b", "b"],
        "cattle": [120, -31_000, 30_000, 5, 10**9, 10**9],
        "weight": [0.5, 1.25, -2.0, 1.5, 1e9, math.nan],
        "gap": pd.array([1, None, None, -7, 10**9, 10**9], "Int64"),
        "loss": [-900, -1, -2, 3, 1, 1],
        "tiny": np.array([-128, 1, 2, 3, 127, 127], np.int8),
        "unsigned": np.array([0, 1, 2**64 - 2, 3, 2**64 - 1, 2**64 - 1], np.uint64),
    }
)
KEYS = ss.Keys.cross({"state": ["TX", "NV", "IA"]})
NOISE = ss.Gaussian(sigma=1e6)


class Forbidden:
    """Bits that nobody may ask for."""

    private = True

    def key(self):
        raise AssertionError("noise was drawn")


def fails(column, largest, data=RECORDS, protect=None, mechanism=NOISE, **options):
    """Return whether a release fails because of its largest value; it may not draw then."""
    session = ss.Session(data, largest={column: largest}, protect=protect)
    bound = session._bind(ss.Sums({column: mechanism}, **({"keys": KEYS} | options)))
    try:
        read = bound.read()
    except ss.DataError as error:
        if error.code != "above-largest":
            raise
        session._bits = Forbidden()
        with refused(ss.DataError, f"column {column!r}", code="above-largest"):
            session.release(bound.request)
        assert session.spent.releases == 0
        return True
    assert bound.facts.largest == {column: largest}
    assert read
    return False


@pytest.mark.parametrize(
    ("column", "most", "above"),
    [
        ("cattle", 31_000, 30_999),
        ("cattle", 31_000.5, 30_999.999_999),
        ("weight", 2.0, 2 - 2**-40),
        ("weight", 2, math.nextafter(2, 0)),
        ("gap", 7, 6.9),
        ("loss", 900, 899),
        ("tiny", 128, 127),
        ("unsigned", 2**64 - 2, 2**64 - 3),
    ],
)
def test_a_value_at_the_largest_is_released_and_one_above_is_not(column, most, above):
    options = {"nulls": "zero"} if column == "gap" else {}
    assert not fails(column, most, **options)
    assert fails(column, above, **options)


def test_floats_are_compared_in_the_grains_that_are_summed():
    """The influence of a float is its whole number of grains, 2⁻³⁰ of the unit."""
    grain = 2.0**-30
    data = RECORDS.assign(weight=[0.0, 2 + grain / 2, 0, 0, 0, 0])
    assert not fails("weight", 2, data)  # it counts as 2
    assert fails("weight", 2, data.assign(weight=[0.0, -2 - grain, 0, 0, 0, 0]))
    large = data.assign(weight=[0.0, 2.0**40, 0, 0, 0, 0])  # floats near it are further apart than grains
    assert not fails("weight", 2**40, large)
    assert fails("weight", 2**40 - 0.5, large)
    assert not fails("weight", 2.5, data.assign(weight=[0.0, 2.5 + 0.9 * 64 * grain, 0, 0, 0, 0]), unit=64)
    assert fails("weight", 2.5, data.assign(weight=[0.0, 2.5 + 1.1 * 64 * grain, 0, 0, 0, 0]), unit=64)


def test_decimals_in_text_are_compared_exactly(tmp_path):
    file = tmp_path / "records.csv"
    file.write_text("state,pay\nIA,0.29\nTX,-0.28\nZZ,99\nIA, \n")
    for largest, found in [(0.29, False), (0.289999999999, True), (0.28, True)]:
        assert fails("pay", largest, str(file), nulls="zero") == found
    for largest, found in [(0.01, False), (0.009, True)]:
        assert fails("pay", largest, str(file), protect="state", keys=None, where="state <> 'ZZ'", nulls="zero") == (
            largest < 0.29 or found
        )


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"where": "cattle > 0"}, False),
        ({"keys": ss.Keys.cross({"state": ["NV"]})}, False),
        ({"keys": ss.Keys.cross({"state": ["ZZ"]})}, True),
        ({"keys": None}, True),
        ({"keys": None, "where": "state in ('IA', 'TX') and cattle > 0"}, False),
    ],
)
def test_records_outside_the_release_do_not_count(options, found):
    assert fails("cattle", 30_000, **options) == found


def test_missing_and_negative_values_count_as_what_they_add():
    root = ss.Root(k=4, sigma=100)
    assert not fails("loss", 3, mechanism=root, negatives="zero")
    assert fails("loss", 2, mechanism=root, negatives="zero")
    with refused(ss.DataError, "column 'loss'", code="negatives"):
        fails("loss", 3, mechanism=root)
    with refused(ss.DataError, "column 'gap'", code="nulls"):
        fails("gap", 3)


@pytest.mark.parametrize(("largest", "found"), [(30_880, False), (30_879, True)])
def test_the_total_of_an_entity_in_a_cell_counts(largest, found):
    """In IA firm a has 120 − 31,000 = −30,880, and in TX 30,000: neither a record nor the sum of its cells counts."""
    assert fails("cattle", largest, protect="firm") == found


def test_the_number_of_records_of_an_entity_has_a_largest_value():
    def released(most, **options):
        session = ss.Session(RECORDS, largest={"count": most}, **options)
        return session.release(ss.Sums({}, KEYS, count=NOISE))

    assert released(2, protect="firm").facts.largest == {"count": 2}
    with refused(ss.DataError, "column 'count'", code="above-largest"):
        released(1.5, protect="firm")
    assert released(1).facts.largest is None  # every record counts as 1


def test_an_entity_is_told_apart_by_its_exact_name():
    data = pd.DataFrame({"firm": ["A", "a", "a "], "x": [2, 2, 2], "state": ["IA"] * 3})
    assert not fails("x", 2, data, protect="firm")
    assert fails("x", 2, data.assign(firm=["a", "a", "b"]), protect="firm")


def test_a_derived_column_has_its_own_largest_value(tmp_path):
    for largest, found in [(62_000, False), (61_999, True)]:
        path = tmp_path / f"{largest}.ledger"
        session = ss.Session(RECORDS, ss.Ledger(path, largest={"double": largest, "cattle": 1}), bits=Recorded(1))
        sums = ss.Sums({"double": NOISE}, KEYS, derive={"double": "2 * cattle"})
        if found:
            with refused(ss.DataError, "column 'double'", code="above-largest"):
                session.release(sums)
        else:
            assert session.release(sums).facts.largest == {"double": 62_000}  # cattle is not released


def test_quantiles_have_no_largest_value():
    """Every record loses the same by them, however large it is."""
    session = ss.Session(RECORDS, largest={"cattle": 1}, bits=Recorded(1))
    made = session.release(ss.Quantiles("cattle", [0.5], loss=0.1, where="state in ('IA', 'TX')"))
    assert made.facts.largest is None


def test_it_is_found_in_the_scan_that_sums(monkeypatch):
    asked = []
    run = engines.run
    monkeypatch.setattr(engines, "run", lambda query, label: asked.append(query) or run(query, label))
    for protect in (None, "firm"):
        session = ss.Session(RECORDS, largest={"cattle": 10**6}, protect=protect, bits=Recorded(1))
        session.sum({"cattle": NOISE}, KEYS)
        assert len(asked) == 1
        asked.clear()


def test_the_attempt_is_recorded_without_the_value(tmp_path):
    ledger = ss.Ledger(tmp_path / "x.ledger", largest={"cattle": 30_999})
    session = ss.Session(RECORDS, ledger, bits=Forbidden())
    with refused(ss.DataError, "column 'cattle'", code="above-largest") as caught:
        session.sum({"cattle": NOISE}, KEYS)
    created, attempt = ledger.history()
    assert (created["kind"], attempt["kind"], attempt["error"]["type"]) == ("created", "attempt", "DataError")
    assert attempt["error"]["message"] == str(caught.value)
    for text in ("31000", "31,000", "30880"):
        assert text not in json.dumps(attempt) + str(caught.value)
    assert ledger.spent.releases == 0


def test_caps_come_first(tmp_path):
    """Once a cap is used up, no error depends on the records."""
    ledger = ss.Ledger(tmp_path / "x.ledger", {"cattle": 0}, largest={"cattle": 1})
    with refused(ss.CapError, "the cap on 'cattle'"):
        ss.Session(RECORDS, ledger, bits=Forbidden()).sum({"cattle": NOISE}, KEYS)


@pytest.mark.parametrize(("value", "charged"), [(40_000, False), (10**9, True)])
def test_a_largest_value_that_changes_while_the_records_are_read(tmp_path, monkeypatch, value, charged):
    """If it was lowered, the records that were read may be larger than those that caps hold for."""
    ledger = ss.Ledger(tmp_path / "x.ledger", {"cattle": 1e6}, largest={"cattle": 50_000})
    session = ss.Session(RECORDS, ss.Ledger(ledger.path), bits=Recorded(1) if charged else Forbidden())
    read = BoundRequest.read

    def changed(bound, stored=False):
        found = read(bound)
        ledger.set_largest("cattle", value, "meanwhile")
        return found

    monkeypatch.setattr(BoundRequest, "read", changed)
    if charged:
        assert session.sum({"cattle": NOISE}, KEYS).facts.largest == {"cattle": 50_000}
    else:
        with refused(ss.ParameterError, "the largest value of 'cattle'", code="mismatch"):
            session.sum({"cattle": NOISE}, KEYS)
    assert ledger.spent.releases == charged


def test_an_inspection_says_that_the_release_would_fail():
    sums = ss.Sums({"cattle": NOISE}, KEYS)
    for largest, count in [(31_000, 0), (30_999, 1)]:
        found = ss.Session(RECORDS, largest={"cattle": largest}).inspect(sums)
        assert len(found.refusals) == count


@pytest.mark.parametrize(("largest", "code"), [({"catle": 3}, "unknown-column"), ({"*": 3}, "reserved")])
def test_a_session_checks_the_names(largest, code):
    with refused(ss.ParameterError, "largest", code=code):
        ss.Session(RECORDS, largest=largest)


def test_an_open_ledger_has_its_largest_values_already(tmp_path):
    ledger = ss.Ledger(tmp_path / "x.ledger")
    with refused(ss.ParameterError, "largest", code="conflict"):
        ss.Session(RECORDS, ledger, largest={"cattle": 3})
    session = ss.Session(RECORDS, tmp_path / "new.ledger", largest={"CATTLE": 40_000}, bits=Recorded(1))
    assert session.ledger.largest == {"CATTLE": 40_000}
    assert session.sum({"cattle": NOISE}, KEYS).facts.largest == {"cattle": 40_000}


def test_the_facts_are_read_back(tmp_path):
    session = ss.Session(RECORDS, largest={"cattle": 40_000}, bits=Recorded(1))
    made = session.sum({"cattle": NOISE, "weight": NOISE}, KEYS)
    made.to_parquet(tmp_path / "made.parquet")
    read = ss.read_release(tmp_path / "made.parquet")
    assert read.facts.largest == {"cattle": 40_000}
    assert session.losses(read).largest == session.losses(made).largest
    assert [column.largest for column in drawn_columns(read)] == [40_000, None]


def test_reports_speak_of_sizes_up_to_the_largest_value(tmp_path):
    made = ss.Session(RECORDS, largest={"cattle": 40_000}, bits=Recorded(1)).sum({"cattle": NOISE}, KEYS)
    text = made.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "largest allowed" in text
    assert "The largest values are public: cattle 40,000." in " ".join(text.split())
    assert "may be larger than all of them" not in text
    columns = drawn_columns(made)
    assert size_span(columns, ())[1] == 40_000
    assert size_span(columns, ())[0] <= 40
    free = ss.Session(RECORDS, bits=Recorded(1)).sum({"cattle": NOISE}, KEYS)
    assert size_span(drawn_columns(free), ())[1] > 40_000


PLAN = """
[data]
path = "records.parquet"
protect = "firm"
largest = { double = 100_000, cattle = 4e4 }
derive = { double = "2 * cattle" }

[tables.t.keys]
cross = { state = ["IA", "TX"] }

[tables.t.sums.double]
mechanism = "gaussian"
sigma = 1e6

[output]
folder = "out"
"""


@pytest.mark.parametrize("ledger", ["", '[ledger]\npath = "x.ledger"\n'])
def test_a_plan_states_it_with_the_data(tmp_path, ledger):
    RECORDS.drop(columns="weight").to_parquet(tmp_path / "records.parquet")
    file = tmp_path / "plan.toml"
    file.write_text(PLAN + ledger)
    plan = read_plan(file)
    assert plan.data.largest == {"double": 100_000, "cattle": 4e4}
    (column,) = plan.columns["t"]
    assert column.largest == 100_000
    assert [one.largest for one in check_plan(plan).preview.columns] == [100_000]
    assert run_plan(plan)[0].facts.largest == {"double": 100_000}
    if ledger:
        kept = ss.Ledger(tmp_path / "x.ledger")
        assert kept.largest == {"double": 100_000, "cattle": 4e4}
        kept.set_largest("double", 90_000, "less")
        assert [one.largest for one in check_plan(plan, overwrite=True).preview.columns] == [90_000]
    other = (PLAN + ledger).replace("100_000", "61_759").replace("x.ledger", "y.ledger")
    file.write_text(other.replace('folder = "out"', 'folder = "other"'))
    with refused(ss.DataError, "column 'double'", code="above-largest"):
        run_plan(read_plan(file), overwrite=True)
    assert not (tmp_path / "y.ledger").exists()


@pytest.mark.parametrize(
    ("wrong", "place"),
    [("{ double = 0 }", "data.largest"), ('{ "*" = 3 }', "data.largest"), ("{ doubel = 3 }", "data.largest.doubel")],
)
def test_mistakes_in_a_plan_are_told_at_their_place(tmp_path, wrong, place):
    RECORDS.drop(columns="weight").to_parquet(tmp_path / "records.parquet")
    file = tmp_path / "plan.toml"
    file.write_text(PLAN.replace("{ double = 100_000, cattle = 4e4 }", wrong))
    with pytest.raises(ss.SlowscaleError) as caught:
        check_plan(read_plan(file))
    assert f"line 5, {place}" in str(caught.value)
