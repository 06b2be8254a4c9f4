"""What passes `check` is refused by `release` only because of what the records hold: mutated plans show it."""

import random
import shutil
import warnings

import duckdb
import openpyxl
import pandas as pd
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import PlanError, SlowscaleError
from slowscale.plan import check_plan, inspect_plan, read_plan, run_plan

DATA = ['path = "x.parquet"', 'path = "x.csv"', 'path = "x.xlsx"', 'path = "x.dta"', 'database = "duckdb://x.duckdb#t"']
WRONG_DATA = [
    'path = ["x.csv", "x.parquet"]', 'path = ["x.dta", "x.dta"]', 'path = "*.csv"', 'path = "none.csv"',
    'path = "folder"', 'path = "nope.parquet"', 'path = "two.xlsx"', 'database = "duckdb://x.duckdb#nope"',
]  # fmt: skip
READING = [
    "", 'types = { x = "int64", j = "int64", y = "float64" }', 'types = { x = "date" }', 'types = { nope = "int64" }',
    'where = "x > 0"', 'where = "x"', 'where = "nope > 0"', 'derive = { z = "y / 2" }', 'derive = { z = "sum(x)" }',
    'protect = "firm"', 'protect = "nope"', 'name = "other"', 'csv = { delimiter = ";" }',
    'derive = { k = "upper(k)" }', 'derive = { z = "1 / (x - 1)" }', 'derive = { z = "x * 2", Z = "x" }',
    'where = "cast(k as bigint) > 1"',
]  # fmt: skip
KEYS = [
    "", 'cross = { k = ["a", "b"] }', "cross = { k = [1, 2] }", 'cross = { nope = ["a"] }', 'file = "keys.csv"',
    'file = "x.xlsx"\nby = ["k"]', 'file = "twice.csv"', 'file = "none.csv"', 'by = ["k"]\nfrom_data = true',
    'by = ["nope"]\nfrom_data = true', 'cross = { k = ["a", "b"] }\n[release]\npartition = "k"',
    'file = "floats.parquet"', 'file = "keys.csv"\n[release]\npartition = "k"', 'by = ["y"]\nfrom_data = true',
    'file = "keys.csv"\ntypes = { k = "date" }',
]  # fmt: skip
LEDGER = [
    "", 'path = "new.ledger"', 'path = "old.ledger"', 'path = "named.ledger"', 'path = "capped.ledger"',
    'path = "firms.ledger"', 'path = "linked.ledger"', 'path = "broken.ledger"', 'path = "part.ledger"',
    'path = "full.ledger"', 'path = "out/t.parquet"', 'path = "linkfolder/l.ledger"',
    'path = "nofolder/l.ledger"', 'path = "x.parquet"', 'path = "folder"',
    'path = "new.ledger"\n[ledger.caps.x]\nmechanism = "gaussian"\nsigma = 5',
    'path = "new.ledger"\n[ledger.caps.nope]\nmechanism = "gaussian"\nsigma = 5',
]  # fmt: skip
SUMS = [
    '[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 5',
    '[tables.t.sums.y]\nmechanism = "gaussian"\nsigma = 5\nunit = "0.01"',
    '[tables.t.sums.z]\nmechanism = "gaussian"\nsigma = 5', '[tables.t.sums.k]\nmechanism = "gaussian"\nsigma = 5',
    '[tables.t.sums.x]\nmechanism = "root"\nk = 4\nsigma = 2',
    '[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 1e300',
    '[tables.t.sums.y]\nmechanism = "gaussian"\nsigma = 5\nunit = "1e-300"',
    '[tables.t.sums.firm]\nmechanism = "gaussian"\nsigma = 5',
    '[tables.t.sums.x]\nmechanism = "arsinh-normal"\nsigma = 9\nshape = 1',
    '[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 5\n[tables.t.count]\nmechanism = "gaussian"\nsigma = 9',
    '[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 5\n[tables.total]\nrollup = "t"',
    '[tables.t.sums.x]\nmechanism = "gaussian"\nsigma = 5\n[tables.sizes]\nquantiles = "y"\nloss = 0.1',
    '[tables.t]\nquantiles = "firm"\nloss = 0.1', '[tables.t]\nquantiles = "x"\nloss = 0.1',
]  # fmt: skip
OUTPUT = [
    'folder = "out"', 'folder = "out"\nreport = "out/r.html"', 'folder = "exists"',
    'folder = "beside"\nformats = ["csv"]',
    'folder = "broken"', 'folder = "linkfolder/out"', 'folder = "out"\nformats = ["csv"]', 'folder = "nofolder/out"',
    'folder = "x.parquet"', 'folder = "folder"', 'folder = "other"\nreport = "x.html"',
    'folder = "other"\nreport = "nofolder/x.html"',
]  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Return a folder with data in several formats, keys, outputs that exist, and ledgers with one release each."""
    folder = tmp_path_factory.mktemp("plans") / "base"
    (folder / "folder").mkdir(parents=True)
    records = pd.DataFrame(
        {"k": ["a", "b", "a"], "j": [1, 2, 1], "x": [1, 2, 3], "y": [1.5, 2.5, 3.5], "firm": ["p", "p", "q"]}
    )
    records.to_parquet(folder / "x.parquet")
    records.to_csv(folder / "x.csv", index=False)
    records.to_stata(folder / "x.dta", write_index=False)
    book = openpyxl.Workbook()
    for row in (list(records), *records.itertuples(index=False)):
        book.active.append(list(row))
    book.save(folder / "x.xlsx")
    book.create_sheet("second")
    book.save(folder / "two.xlsx")
    with duckdb.connect(str(folder / "x.duckdb")) as file:
        file.execute("CREATE TABLE t AS SELECT * FROM records")
    for name, text in (("keys", "k\na\nb\n"), ("twice", "k\na\na\n"), ("none", "")):
        (folder / f"{name}.csv").write_text(text)
    for name in ("exists/t.parquet", "beside/t.csv.json", "broken/other"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("{}")
    pd.DataFrame({"k": [1.5]}).to_parquet(folder / "floats.parquet")
    for name, target in (
        ("linked.ledger", "old.ledger"), ("broken.ledger", "nothing"), ("broken/t.parquet", "nothing"),
        ("linkfolder", "folder"),
    ):  # fmt: skip
        (folder / name).symlink_to(target)
    for name, options in (
        ("old", {}), ("named", {"dataset": "farms"}), ("firms", {"protect": "firm"}),
        ("capped", {"caps": {"x": ss.Gaussian(sigma=5).policy}}),
    ):  # fmt: skip
        ss.Session(records, folder / f"{name}.ledger", **options).sum({"x": ss.Gaussian(sigma=8)})
    caps = {"x": ss.Gaussian(sigma=5).policy}
    ss.Session(records, folder / "full.ledger", caps).sum({"x": ss.Gaussian(sigma=5)})
    parts = ss.Session(records, folder / "part.ledger", caps)
    parts.sum({"x": ss.Gaussian(sigma=6)}, keys=ss.Keys.cross({"k": ["a"]}), partition="k")
    return folder


def plan_in(base, folder, data=DATA[0], reading="", keys="", ledger="", sums=SUMS[0], output=OUTPUT[0]):
    """Copy the files to a folder, write a plan there, and return its path."""
    shutil.copytree(base, folder, symlinks=True)
    tables = {"[data]": f"{data}\n{reading}", "[tables.t.keys]": keys, "[ledger]": ledger, "[output]": output}
    text = "\n".join([*(f"{head}\n{body}" for head, body in tables.items() if body), sums])
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    return folder / "plan.toml"


def check_refusal(plan):
    try:
        check_plan(plan).raise_refusal()
    except SlowscaleError as error:
        return error
    return None


def release_refusal(plan):
    try:
        run_plan(plan)
    except SlowscaleError as error:
        return error
    return None


def test_mutated_plans(base, tmp_path):
    """Each plan differs from a good one in one or two tables. A `DataError` is about what the records hold."""
    generator = random.Random(15)
    menus = {
        "data": [*DATA, *WRONG_DATA], "reading": READING, "keys": KEYS, "ledger": LEDGER, "sums": SUMS, "output": OUTPUT
    }  # fmt: skip
    passed = failed = 0
    for number in range(80):
        chosen = {
            name: generator.choice(menus[name]) for name in generator.sample(list(menus), generator.choice([1, 2]))
        }
        try:
            plan = read_plan(plan_in(base, tmp_path / str(number), **chosen))
        except PlanError:
            continue
        first, second = check_refusal(plan), release_refusal(plan)
        if first is None:
            passed += 1
            assert second is None or isinstance(second, ss.DataError), chosen
        else:
            failed += 1
            assert (type(first), str(first)) == (type(second), str(second)), chosen
    assert passed >= 10
    assert failed >= 20


@pytest.mark.parametrize(
    ("tables", "kind", "code", "path"),
    [
        ({"data": 'path = ["x.csv", "x.parquet"]'}, ss.ParameterError, None, ("data",)),
        ({"data": 'path = ["x.dta", "x.dta"]'}, ss.ParameterError, None, ("data",)),
        ({"data": 'path = "two.xlsx"'}, ss.ParameterError, None, ("data",)),
        ({"data": 'path = "x.xlsx"', "sums": SUMS[2]}, ss.ParameterError, None, ("tables", "t", "sums", "z")),
        ({"data": 'path = "x.xlsx"', "keys": 'file = "none.csv"'}, ss.ParameterError, None, ("tables", "t", "keys")),
        ({"ledger": 'path = "named.ledger"'}, ss.LedgerError, None, ("ledger", "path")),
        ({"ledger": 'path = "firms.ledger"'}, ss.ParameterError, None, ("data",)),
        (
            {"keys": 'file = "keys.csv"\n[release]\npartition = "k"', "ledger": 'path = "part.ledger"'},
            ss.CapError,
            "cap",
            ("ledger", "caps", "x"),
        ),
        (
            {"ledger": 'path = "firms.ledger"', "output": 'folder = "nofolder/out"'},
            ss.ParameterError,
            "missing",
            ("output", "folder"),
        ),
        ({"output": 'folder = "exists"'}, ss.ParameterError, "exists", ()),
        ({"output": 'folder = "beside"'}, ss.ParameterError, "exists", ()),
        ({"output": 'folder = "broken"'}, ss.ParameterError, "exists", ()),
        (
            {"sums": SUMS[12], "reading": 'protect = "k"'},
            ss.ParameterTypeError,
            "not-numbers",
            ("tables", "t", "quantiles"),
        ),
        (
            {"sums": SUMS[13], "output": 'folder = "out"\nreport = "x.html"'},
            ss.ParameterError,
            "empty",
            ("output", "report"),
        ),
    ],
)
def test_both_refuse_with_the_same_words(base, tmp_path, tables, kind, code, path):
    plan = read_plan(plan_in(base, tmp_path / "plan", **tables))
    first, second = check_refusal(plan), release_refusal(plan)
    assert type(first) is type(second)
    assert str(first) == str(second)
    with refused(kind, code=code, path=path):
        raise first


def test_whether_caps_could_be_checked(base, tmp_path):
    """Labels in a file are read by `check`; labels in the records are not, and a release may still be refused."""
    for number, (keys, known) in enumerate(
        [
            ('cross = { k = ["b"] }\n[release]\npartition = "k"', True),
            ('file = "keys.csv"\n[release]\npartition = "k"', True), ('by = ["k"]\nfrom_data = true', True),
            ('by = ["k"]\nfrom_data = true\n[release]\npartition = "k"', False),
        ]
    ):  # fmt: skip
        plan = read_plan(plan_in(base, tmp_path / str(number), keys=keys, ledger='path = "new.ledger"'))
        assert check_plan(plan).caps_checked == known, keys
    plan = read_plan(plan_in(base, tmp_path / "part", keys=keys, ledger='path = "part.ledger"'))
    assert check_plan(plan).refusal is None
    assert isinstance(release_refusal(plan), ss.CapError)


def test_a_file_that_is_not_a_ledger_is_refused(base, tmp_path):
    plan = read_plan(plan_in(base, tmp_path / "plan", ledger='path = "old.ledger"'))
    (tmp_path / "plan" / "old.ledger").write_text("not a ledger")
    assert isinstance(check_refusal(plan), ss.LedgerError)
    assert isinstance(release_refusal(plan), ss.LedgerError)


def test_existing_outputs_are_no_obstacle_with_overwrite(base, tmp_path):
    plan = read_plan(plan_in(base, tmp_path / "plan", output='folder = "exists"'))
    assert check_plan(plan, overwrite=True).refusal is None
    assert [path.name for path in check_plan(plan).existing] == ["t.parquet"]


@pytest.mark.parametrize("data", DATA)
def test_a_plan_is_inspected(base, tmp_path, data):
    """The ledger and all other files keep their bytes, and no file is made."""
    reading = 'types = { x = "int64" }' if "csv" in data or "xlsx" in data else ""
    plan = read_plan(
        plan_in(base, tmp_path / "plan", data, reading, 'cross = { k = ["a", "c"] }', 'path = "old.ledger"')
    )

    def contents():
        return {path: path.read_bytes() for path in sorted((tmp_path / "plan").rglob("*")) if path.is_file()}

    before = contents()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        found = inspect_plan(plan)["t"]
    assert (found.records, found.outside, found.empty, found.duplicates) == (3, 1, 1, 0)
    assert found.losses.records == 2
    assert contents() == before
