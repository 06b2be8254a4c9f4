"""A look at the records before a release: what it finds, in which words, and that nothing of it is written."""

import json
import math
import os
import stat
from datetime import date
from fractions import Fraction

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.inspected import KEYS, QUERY, TABLE

import slowscale as ss
from slowscale.data import inspecting
from slowscale.data.inspecting import similar
from slowscale.data.losses import FOR_THE_CURATOR
from slowscale.data.sums import Column
from slowscale.release import inspection
from slowscale.release.inspection import OUTSIDE_THE_GUARANTEE, relative_errors


def test_clean_records_are_read_with_fewer_questions():
    clean = TABLE.slice(0, 3)
    found = ss.Session(clean).inspect(QUERY, duplicates=False)
    assert (found.records, found.duplicates, found.outside, found.unlabelled) == (3, None, 0, 0)
    assert [(one.missing, one.negative, one.outside_share) for one in found.columns] == [(0, 0, 0), (0, 0, 0)]
    assert found.losses is not None
    assert found.losses.records == 3


def test_no_keys_and_no_records():
    total = ss.Sums({"x": ss.Gaussian(sigma=75)}, nulls="zero")
    found = ss.Session(TABLE).inspect(total)
    assert (found.cells, found.outside, found.unlabelled, found.empty) == (None, 0, 0, 0)
    empty = ss.Session(TABLE.slice(0, 0)).inspect(QUERY)
    assert (empty.records, empty.duplicates, empty.losses, empty.empty) == (0, 0, None, 4)
    assert "losses: not known" in repr(empty)


def test_refusals_are_those_of_the_release():
    session = ss.Session(TABLE)
    for query in (
        ss.Sums({"x": ss.Gaussian(sigma=75)}, keys=KEYS),
        ss.Sums({"x": ss.Root(k=4, sigma=2)}, keys=KEYS, nulls="zero"),
        ss.Sums({"x": ss.Root(k=4, sigma=2)}, keys=KEYS),
    ):
        (refusal,) = session.inspect(query).refusals
        with pytest.raises(ss.DataError) as caught:
            session.release(query)
        assert str(caught.value) == refusal
    wild = pa.table({"state": ["IOWA"] * 3, "y": [math.nan, math.inf, 1e300]})
    found = ss.Session(wild).inspect(ss.Sums({"y": ss.Gaussian(sigma=1)}, keys=KEYS))
    assert found.columns[0].uncountable == 3
    assert "not numbers, are infinite, or are too large" in found.refusals[0]
    owned = pa.table({"firm": ["a", None], "x": [1, 2]})
    found = ss.Session(owned, protect="firm").inspect(ss.Sums({"x": ss.Gaussian(sigma=1)}))
    assert "identifies the protected entities" in found.refusals[0]


def test_unreadable_declared_types_are_reported(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("x\n1\nsecret\n", encoding="utf-8")
    session = ss.Session(path, types={"x": "int64"})
    found = session.inspect(ss.Sums({"x": ss.Gaussian(sigma=1)}))
    assert any("not int64, its declared type" in refusal for refusal in found.refusals)
    assert "secret" not in repr(found)


def test_losses_of_entities():
    table = pa.table({"firm": ["a", "a", "b"], "state": ["IOWA", "OHIO", "IOWA"], "x": [100, 200, 300]})
    query = ss.Sums({"x": ss.Gaussian(sigma=75)}, keys=KEYS)
    session = ss.Session(table, protect="firm", bits=Recorded(1))
    found = session.inspect(query)
    assert found.losses == session.losses(session.release(query))
    assert found.losses.records == 2


@pytest.mark.parametrize("source", ["csv", "frame"])
def test_negative_values_that_a_release_refuses_have_no_loss(tmp_path, source):
    values = ["5", "-9", " 7 ", "-0.0", "-.5"]
    (tmp_path / "r.csv").write_text("x\n" + "".join(f"{value}\n" for value in values))
    data = tmp_path / "r.csv" if source == "csv" else pa.table({"x": [float(value) for value in values]})
    root = ss.Root(k=2, sigma=1)
    found = ss.Session(data).inspect(ss.Sums({"x": root}))
    assert found.columns[0].negative == 2
    assert found.losses.records == 3
    assert found.losses.largest[1] == pytest.approx(float(root.policy(7)))
    zero = ss.Session(data).inspect(ss.Sums({"x": root}, negatives="zero")).losses
    assert (zero.records, zero.largest[1]) == (5, pytest.approx(float(root.policy(7))))
    gaussian = ss.Session(data).inspect(ss.Sums({"x": ss.Gaussian(sigma=1)})).losses
    assert (gaussian.records, gaussian.largest[1]) == (5, pytest.approx(81 / 2))


def test_records_without_an_entity_are_not_one_entity():
    table = pa.table({"firm": ["a", None, "b", None], "state": ["IOWA"] * 4, "x": [1, 50, 3, 70]})
    session = ss.Session(table, protect="firm")
    found = session.inspect(ss.Sums({"x": ss.Gaussian(sigma=1)}, keys=KEYS))
    assert (found.losses.records, found.losses.largest[1]) == (2, 4.5)
    nobody = ss.Session(table.filter(table["firm"].is_null()), protect="firm")
    assert nobody.inspect(ss.Sums({"x": ss.Gaussian(sigma=1)}, keys=KEYS)).losses is None


def test_everything_is_marked_confidential(tmp_path):
    found = ss.Session(TABLE).inspect(QUERY)
    assert repr(found).startswith("CONFIDENTIAL")
    assert FOR_THE_CURATOR in found._repr_html_()
    assert OUTSIDE_THE_GUARANTEE in repr(found)
    assert "2 records have state = 'TEXSA'; the keys have 'TEXAS'" in repr(found)
    described = json.loads(json.dumps(found.to_dict()))
    assert described["confidential"] == FOR_THE_CURATOR
    assert described["note"] == OUTSIDE_THE_GUARANTEE
    with pytest.raises(AttributeError):
        found.records = 3
    path = found.report(tmp_path / "look.html")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    text = path.read_text(encoding="utf-8")
    for words in ("CONFIDENTIAL: never publish this report", "TEXSA", "NEVADA", "outside the keys"):
        assert words in text
    with refused(ss.ParameterError, code="exists"):
        found.report(path)
    assert found.report(path, overwrite=True) == path


def test_the_report_reads_well(tmp_path):
    """A refusal comes first; labels are text and not numbers; what is cut or left out is said."""
    states = [f"S{i:03d}" for i in range(250)]
    table = pa.table({"state": ["S000", "S001 ", "IOWA", None], "x": [100, 200, None, 5]})
    query = ss.Sums({"x": ss.Gaussian(sigma=75)}, keys=ss.Keys.cross({"state": [*states, "IOWA"]}))
    text = ss.Session(table).inspect(query).report(tmp_path / "look.html").read_text(encoding="utf-8")
    assert text.index("The release would be refused:</strong> column &#39;x&#39; has missing") < text.index("<table>")
    assert "<td>&#39;S001 &#39;</td><td>&#39;S001&#39;</td>" in text
    assert "<li>and 149 more</li>" in text
    assert "Losses of 1 records. Records outside the keys" in text
    assert '<td class="n">–</td>' in text


def test_nothing_is_charged_or_written(tmp_path):
    """The ledger has the same bytes after a look, also after one at records that a release would refuse."""
    ledger = tmp_path / "l.ledger"
    session = ss.Session(TABLE, ledger, caps={"x": ss.Gaussian(sigma=1).policy, "y": ss.Gaussian(sigma=1).policy})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for query in (QUERY, ss.Sums({"x": ss.Root(k=4, sigma=2)}, keys=KEYS)):
        session.inspect(query)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert session.spent.describe() == ss.Session(TABLE).spent.describe()


HOSTILE = {
    "x": [1, None, -5, 2**62, -(2**62), 0, 7],
    "y": [math.nan, math.inf, -math.inf, -1e300, None, -0.0, 2.5],
}


@pytest.mark.parametrize("kind", ["frame", "parquet", "chunks"])
def test_hostile_values_are_counted_one_by_one(kind, tmp_path):
    """Parquet matters: its statistics ignore NaN, and DuckDB leaves out comparisons that they decide."""
    labels = ["IOWA", "IOWA", "TEXAS", None, "FRANCE", "OHIO", "OHIO"]
    table = pa.table({"state": labels, **{name: pa.array(some) for name, some in HOSTILE.items()}})
    path = tmp_path / "r.parquet"
    pq.write_table(table, path, row_group_size=2 if kind == "chunks" else 100)
    data = table if kind == "frame" else path
    session = ss.Session(data)
    query = ss.Sums({"x": ss.Gaussian(sigma=75), "y": ss.Gaussian(sigma=75)}, keys=KEYS, nulls="zero")
    found = session.inspect(query)
    x, y = found.columns
    assert (x.missing, x.negative, x.uncountable) == (1, 2, 0)
    assert (y.missing, y.negative, y.uncountable) == (1, 2, 4)
    assert x.outside_share == pytest.approx(0.5)
    assert x.unlabelled_share == pytest.approx(0.5)
    assert (y.outside_share, y.unlabelled_share) == (0, 0)
    assert [("column 'y'" in refusal, "infinite" in refusal) for refusal in found.refusals] == [(True, True)]
    assert found.losses.records == 2
    assert [(one.low, one.cells) for one in found.errors if one.column == "y"] == [(0, 3), (1, 1)]


def test_values_of_one_sign_are_summed_on_their_own():
    """The share of a sum is one of absolute values; negative values that are counted as 0 have no share."""
    table = pa.table({"state": ["IOWA", "IOWA", "FRANCE", "FRANCE"], "x": [5, -5, -30, 20]})
    for negatives, share in ((None, 50 / 60), ("zero", 20 / 25)):
        mechanism = ss.Gaussian(sigma=75) if negatives is None else ss.Root(k=4, sigma=2)
        query = ss.Sums({"x": mechanism}, keys=KEYS, **({} if negatives is None else {"negatives": negatives}))
        (x,) = ss.Session(table).inspect(query).columns
        assert x.negative == 2
        assert x.outside_share == pytest.approx(share)


def test_large_values_cancel_exactly():
    table = pa.table({"state": ["IOWA"] * 5, "x": pa.array([2**62, 2**62, 2**62, 3, -3 * 2**61], pa.int64())})
    table = pa.concat_tables([table, pa.table({"state": ["IOWA"], "x": pa.array([-3 * 2**61], pa.int64())})])
    found = ss.Session(table).inspect(ss.Sums({"x": ss.Gaussian(sigma=75)}, keys=KEYS))
    assert [(one.low, one.cells) for one in found.errors] == [(0, 3), (1, 1)]


def test_a_negative_value_of_any_size_can_be_counted_as_0():
    table = pa.table({"state": ["IOWA"] * 4, "y": [-math.inf, -1e300, -1.0, 1e300]})
    found = ss.Session(table).inspect(ss.Sums({"y": ss.Root(k=4, sigma=2)}, keys=KEYS, negatives="zero"))
    assert [(one.negative, one.uncountable) for one in found.columns] == [(3, 1)]


def test_more_columns_than_one_number_holds():
    names = [f"x{i}" for i in range(47)]
    table = pa.table({name: pa.array([1.0, None if i % 3 == 0 else -2.0, 4.0]) for i, name in enumerate(names)})
    found = ss.Session(table).inspect(ss.Sums(dict.fromkeys(names, ss.Gaussian(sigma=1)), nulls="zero"))
    assert [(one.missing, one.negative) for one in found.columns] == [
        (1, 0) if i % 3 == 0 else (0, 1) for i in range(47)
    ]


def _queries(monkeypatch, session, query):
    asked = []
    run = inspection.engines.run
    monkeypatch.setattr(inspection.engines, "run", lambda query, label: asked.append(query) or run(query, label))
    return session.inspect(query), len(asked)


@pytest.mark.parametrize("rows", [slice(0, 3), slice(0, 10)], ids=["clean", "all"])
def test_two_scans_find_what_separate_ones_find(monkeypatch, rows):
    table = TABLE.slice(rows.start, rows.stop - rows.start)
    together, scans = _queries(monkeypatch, ss.Session(table), QUERY)
    assert scans == 3  # one of them for open cells
    monkeypatch.setattr(inspecting, "MOST_HASHES", 0)
    apart, scans = _queries(monkeypatch, ss.Session(table), QUERY)
    assert scans == 4
    assert together == apart


@pytest.mark.parametrize("values", [2**64, 3 * 10**5, 1000, 1], ids=str)
def test_copies_among_many_hashes(values):
    """The table of hashes and a sort find the same; the twin leaves one copy out."""
    rng = np.random.default_rng(5)
    known = rng.integers(0, 2**64, min(values, 400_000), np.uint64, endpoint=False)
    hashes = rng.choice(known, 400_000)
    copies = len(hashes) - len(np.unique(hashes))
    assert copies > 0
    assert inspecting._copies(hashes) == copies
    assert inspecting._copies(np.append(hashes, hashes[0])) == copies + 1
    similar = hashes & np.uint64(2**64 - 2**20)  # all of them have the same last bits
    assert inspecting._copies(similar) == len(similar) - len(np.unique(similar))
    same_start = hashes & np.uint64(2**20 - 1)
    assert inspecting._copies(same_start) == len(hashes) - len(np.unique(same_start))


def test_labels_outside_the_keys_are_listed():
    rows = [("TX", 1, date(2020, 1, 1))] * 3 + [("tx ", 1, None)] * 2 + [("IA", 3, date(2021, 1, 1))]
    rows += [(None, 9, None), ("TX", 2, date(2021, 1, 1)), ("IA", 2, date(2020, 1, 1))]
    table = pa.table(dict(zip(("state", "n", "day"), map(list, zip(*rows, strict=True)), strict=True)) | {"x": [1] * 9})
    noise = {"x": ss.Gaussian(sigma=1)}
    connection = ibis.duckdb.connect()
    connection.con.register("t", table)
    for data in (table, connection.table("t")):
        found = ss.Session(data).inspect(ss.Sums(noise, ss.Keys.from_frame({"state": ["TX", "IA"], "n": [1, 2]})))
        assert [(one.labels, one.records) for one in found.outside_labels] == [
            ({"state": "tx "}, 2),
            ({"n": 3}, 1),
            ({"state": "tx ", "n": 1}, 2),
            ({"state": "IA", "n": 3}, 1),
            ({"state": "TX", "n": 2}, 1),
        ]
        assert "  2 records have state = 'tx '\n" in repr(found)
        assert "  1 record has state = 'IA', n = 3\n" in repr(found)
        assert found.to_dict()["outside_labels"][0] == {"labels": {"state": "tx "}, "records": 2}
        days = ss.Session(data).inspect(ss.Sums(noise, ss.Keys.cross({"day": [date(2020, 1, 1)]})))
        assert [(one.labels, one.records) for one in days.outside_labels] == [({"day": date(2021, 1, 1)}, 2)]
        assert days.to_dict()["outside_labels"] == [{"labels": {"day": "2021-01-01"}, "records": 2}]
        assert ss.Session(data).inspect(ss.Sums(noise)).outside_labels == ()


def test_the_most_frequent_labels_outside_the_keys_come_first():
    labels = [f"label {i}" for i in range(30) for _ in range(i)]
    found = ss.Session({"k": labels, "x": [1] * len(labels)}).inspect(
        ss.Sums({"x": ss.Gaussian(sigma=1)}, ss.Keys.cross({"k": ["a"]}))
    )
    assert [one.records for one in found.outside_labels] == list(range(29, 9, -1))


def test_parts_say_that_they_are_confidential():
    session = ss.Session(TABLE)
    found = session.inspect(QUERY)
    for part in (found.columns[0], found.outside_labels[0], found.near_misses[0], found.errors[0]):
        assert repr(part).startswith(f"CONFIDENTIAL {type(part).__name__}(")
    assert "missing=1" in repr(found.columns)
    assert "label='TEXSA'" in repr(found.near_misses)
    seen = inspecting.check_data(session.table, [Column("x", Fraction(1), nulls="zero")], KEYS, None)
    assert repr(seen.columns[0]).startswith("CONFIDENTIAL Values(name='x', missing=1")


def test_similar_labels():
    public = ["TEXAS", "IOWA", "01001", "NEW YORK", "IA", "GA"]
    labels = ["TEXSA", "TEXA", "TEXASS", "TEXES", "ATEXS", "1001", "01002", "new-york", "LA", "NEW YORC", "TXES"]
    assert dict(similar(labels, public)) == {
        "TEXSA": "TEXAS", "TEXA": "TEXAS", "TEXASS": "TEXAS", "TEXES": "TEXAS", "1001": "01001",
        "new-york": "NEW YORK", "NEW YORC": "NEW YORK",
    }  # fmt: skip


def test_many_labels_are_compared_quickly():
    public = [f"county of {i:05}" for i in range(20_000)]
    found = dict(similar([f"County  of {i:05}" for i in range(0, 20_000, 3)], public))
    assert found["County  of 00003"] == "county of 00003"
    assert len(found) == 6667


@pytest.mark.parametrize(
    "mechanism",
    [ss.Gaussian(sigma=75), ss.ExponentialPolylog.calibrate(std=75), ss.Root(k=4, sigma=0.5), ss.Log(sigma=0.3)],
)
def test_expected_errors_are_those_of_many_draws(mechanism):
    """200,000 draws: the share of relative errors below the stated quantile is the stated share, within 1 %.

    The standard error of such a share is 0.11 %, so the test fails by chance with a probability below 1e-9 (nine
    standard errors); the quadrature itself is off by up to 0.3 %. A twin with an error 5 % too small is rejected.
    """
    sums = np.array([100.0, 300.0, 900.0, 450.0])
    median, most = relative_errors(mechanism, sums, (0.5, 0.95))
    drawn = mechanism.release(np.repeat(sums, 50_000).astype(np.int64), unit="0.001", bits=Recorded(7))
    truth = np.repeat(sums, 50_000)
    errors = np.abs(np.asarray(drawn.value, float) - truth) / truth
    assert np.mean(errors <= median) == pytest.approx(0.5, abs=0.01)
    assert np.mean(errors <= most) == pytest.approx(0.95, abs=0.01)
    assert abs(np.mean(errors <= median * 0.95) - 0.5) > 0.01


def test_a_policy_with_a_function_has_no_losses():
    query = ss.Sums({"x": ss.Transformation(np.sqrt, np.square, 1.0, 0.0)}, keys=KEYS, nulls="zero", negatives="zero")
    assert ss.Session(TABLE).inspect(query).losses is None


def test_derived_columns_and_filters():
    query = ss.Sums({"z": ss.Gaussian(sigma=1)}, keys=KEYS, derive={"z": "2 * y"}, where="y < 5")
    found = ss.Session(pd.DataFrame(TABLE.to_pandas())).inspect(query)
    assert (found.records, found.duplicates) == (5, 1)
    assert found.columns[0].outside_share == pytest.approx(7 / 12.5)
