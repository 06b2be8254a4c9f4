"""The simulated establishments have the published summary of the paper's extract, in a table or in batches."""

import hashlib
import math
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.errors import refused
from helpers.summaries import STATISTICS, misfits, summary
from scipy import stats

import slowscale as ss
from slowscale.datasets import business_patterns

COLUMNS = ("emp", "payqtr1", "payann")
# Of the tables as they were first published: whoever names a seed must get the same records again.
DIGESTS = {
    (323_402, 1_095, 2024): "2814d433b1d3bd9120d254a290db3d5ff731be5c6764b3d9aedf3af551eea58d",
    (20_000, 100, 2024): "ef57e3055928a633d7e4d7b4b17881df35e610a2dab199eb111ce00186be01c1",
    (1_000, 7, 5): "bc67b48ada38f9bbb483b067c4ea0c5d05680e67e16ca42ebea2ced07aab057c",
    (1, 1, 2024): "7349975a9e71d070d94b26916178957576abe3d93290a765737caec7a512924f",
}


@pytest.fixture(scope="module")
def table():
    return ss.datasets.establishments()


@pytest.fixture(scope="module")
def batches():
    """Many records in batches that are much smaller than usual, and not equally long."""
    return list(business_patterns._batches(2_000_003, 500, 7, count=61))


def digest(table):
    found = hashlib.sha256()
    for name in table.column_names:
        column = table[name]
        text = column.type == pa.string()
        found.update(name.encode())
        found.update("\n".join(column.to_pylist()).encode() if text else column.to_numpy().astype("<i8").tobytes())
    return found.hexdigest()


def group_sizes(table):
    groups = table.group_by(["county", "naics3"]).aggregate([([], "count_all")])
    return groups.sort_by([("county", "ascending"), ("naics3", "ascending")])


def test_size(table):
    assert table.num_rows == 323_402
    assert group_sizes(table).num_rows == 1_095
    assert {len(code) for code in table["county"].to_pylist()} == {5}
    assert table.schema == business_patterns.ESTABLISHMENT_SCHEMA


@pytest.mark.parametrize("arguments", DIGESTS)
def test_the_records_stay_the_same(arguments):
    assert digest(ss.datasets.establishments(*arguments)) == DIGESTS[arguments]


def test_the_digest_sees_one_changed_record():
    table = ss.datasets.establishments(1_000, 7, 5)
    values = table["emp"].to_numpy().copy()
    values[500] += 1
    assert digest(table.set_column(2, "emp", pa.array(values))) != DIGESTS[1_000, 7, 5]


@pytest.mark.parametrize("name", COLUMNS)
def test_summary(table, name):
    assert not misfits(table[name].to_numpy(), name, tolerance=1e-5)


@pytest.mark.parametrize("records", [2_500, 10_001, 50_002])
def test_summary_for_other_sizes(records):
    table = ss.datasets.establishments(records, 50)
    for name in COLUMNS:
        assert not misfits(table[name].to_numpy(), name)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_shift_of_five_per_cent_is_seen(table, name):
    values = table[name].to_numpy()
    for factor in (1.05, 0.95):
        assert misfits(factor * values, name) == set(STATISTICS) - {"least"}
    assert misfits(np.where(values == values.max(), 1.05 * values, values), name) == {"largest"}
    assert misfits(np.maximum(values, 1), name) >= {"least"}


def test_larger_establishments_pay_more_and_groups_are_skewed(table):
    emp, quarter, year = (table[name].to_numpy() for name in COLUMNS)
    assert 0.95 < stats.spearmanr(emp, year).statistic < 0.99
    assert 0.99 < stats.spearmanr(quarter, year).statistic < 1
    sizes = np.sort(group_sizes(table)["count_all"].to_numpy())
    assert sizes.mean() > 3 * np.median(sizes)
    assert sizes[-110:].sum() > sizes.sum() / 2  # the largest tenth of the groups has more than half of the records


def test_what_the_docstring_says_of_the_columns_together(table):
    emp, quarter, year = (table[name].to_numpy() for name in COLUMNS)
    assert f"{stats.spearmanr(emp, year).statistic:.2f}" == "0.97"
    assert not (quarter > year).any()
    shares = np.quantile((quarter / np.maximum(year, 1))[year > 100], [0.01, 0.99])
    assert [f"{share:.2f}" for share in shares] == ["0.18", "0.33"]
    assert ((emp == 0) & (year > 0)).mean() > 0.1
    assert not ((emp > 0) & (year == 0)).any()


def test_it_is_the_same_every_time_and_another_with_another_seed():
    one, same, other = (ss.datasets.establishments(500, 20, seed) for seed in (1, np.int64(1), 2))
    assert one.equals(same)
    assert not one.equals(other)


@pytest.mark.parametrize("name", COLUMNS)
def test_batches_together_have_the_summary(batches, name):
    assert {batch.num_rows for batch in batches} == {2_000_003 // 61, 2_000_003 // 61 + 1}
    values = np.concatenate([batch[name].to_numpy() for batch in batches])
    assert values.size == 2_000_003
    assert not misfits(values, name, tolerance=1e-5)


def test_batches_together_have_the_groups_of_the_table(batches):
    together = group_sizes(pa.Table.from_batches(batches))
    assert together.num_rows == 500
    assert together.equals(group_sizes(ss.datasets.establishments(2_000_003, 500, 7)))


def test_every_batch_is_like_the_whole(batches):
    for batch in batches:
        least, first, median, _, third, _ = summary(batch["payann"].to_numpy())
        assert (least, first, median, third) == pytest.approx((0, 30, 106, 388), rel=0.02)
        assert 0.95 < stats.spearmanr(batch["emp"].to_numpy(), batch["payann"].to_numpy()).statistic < 0.99
    assert not batches[0]["payqtr1"].equals(batches[1]["payqtr1"])
    # A group keeps its typical size: if each batch drew its own, medians of the same group would hardly be related.
    medians = [
        pa.Table.from_batches(part).group_by(["county", "naics3"]).aggregate([("payann", "approximate_median")])
        for part in (batches[:30], batches[30:])
    ]
    joined = medians[0].join(medians[1], ["county", "naics3"], right_suffix="_after", join_type="inner")
    pair = (joined[name].to_numpy() for name in ("payann_approximate_median", "payann_approximate_median_after"))
    assert stats.spearmanr(*pair).statistic > 0.6


def test_one_batch_is_the_table():
    (batch,) = ss.datasets.establishment_batches(20_000, 100)
    assert pa.Table.from_batches([batch]).equals(ss.datasets.establishments(20_000, 100))


def test_the_file_has_the_batches(tmp_path, monkeypatch):
    shares = []

    def bar(label, share):
        shares.append(share)
        return nullcontext()

    monkeypatch.setattr(business_patterns, "BATCH_ROWS", 1_000)
    monkeypatch.setattr("slowscale.core.markup.progress_bar", bar)
    path = ss.datasets.write_establishments(tmp_path / "a.parquet", 12_345, 30, 5)
    assert path == tmp_path / "a.parquet"
    assert pyarrow.parquet.ParquetFile(path).num_row_groups == 13
    expected = pa.Table.from_batches(business_patterns._batches(12_345, 30, 5, count=13))
    assert pyarrow.parquet.read_table(path).equals(expected)
    assert [share() for share in shares] == [1]


def test_the_number_of_batches():
    rows = [batch.num_rows for batch in ss.datasets.establishment_batches(business_patterns.BATCH_ROWS + 1, 3)]
    assert rows == [math.ceil((2**20 + 1) / 2), 2**19]


def test_an_existing_file_is_kept_unless_asked(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_text("precious")
    with pytest.raises(ss.ParameterError, match="already exists"):
        ss.datasets.write_establishments(path, 100, 3)
    assert path.read_text() == "precious"
    with pytest.raises(TypeError, match="positional"):
        ss.datasets.write_establishments(path, 100, 3, 1, True)
    ss.datasets.write_establishments(str(path), 100, 3, overwrite=True)
    assert pyarrow.parquet.read_table(path).num_rows == 100


def test_a_failure_leaves_no_file(tmp_path, monkeypatch):
    def broken(*arguments):
        yield from business_patterns._batches(10, 1, 1, count=1)
        raise KeyboardInterrupt

    monkeypatch.setattr(business_patterns, "establishment_batches", broken)
    with pytest.raises(KeyboardInterrupt):
        ss.datasets.write_establishments(tmp_path / "a.parquet", 100, 3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "error", "subject"),
    [
        ({"records": True}, ss.ParameterTypeError, "records"),
        ({"records": "10"}, ss.ParameterTypeError, "records"),
        ({"records": 1e6}, ss.ParameterTypeError, "records"),
        ({"records": -5}, ss.ParameterError, "records"),
        ({"records": 5, "groups": 6}, ss.ParameterError, "groups"),
        ({"groups": 0}, ss.ParameterError, "groups"),
        ({"groups": False}, ss.ParameterTypeError, "groups"),
        ({"groups": 300_000}, ss.ParameterError, "groups"),
        ({"seed": -1}, ss.ParameterError, "seed"),
        ({"seed": None}, ss.ParameterTypeError, "seed"),
    ],
)
def test_mistakes_are_reported(given, error, subject, tmp_path):
    path = tmp_path / "a.parquet"
    for function in (
        ss.datasets.establishments,
        ss.datasets.establishment_batches,  # at the call, not at the first batch
        lambda **given: ss.datasets.write_establishments(path, **given),
    ):
        with refused(error, subject, code=error.code):
            function(**given)
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "message"), [("a.csv", "path must be a path that ends in .parquet"), ("none/a.parquet", "folder")]
)
def test_a_path_that_cannot_be_written_is_refused(name, message, tmp_path):
    with pytest.raises(ss.ParameterError, match=message):
        ss.datasets.write_establishments(tmp_path / name, 100, 3)


def test_the_module_is_imported_when_it_is_first_used():
    code = "import sys, slowscale as ss; print('slowscale.datasets' in sys.modules, ss.datasets.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "slowscale.datasets"]
    assert "datasets" in dir(ss)
