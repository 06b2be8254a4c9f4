"""Plan files: read, checked with line and field, and never the cause of a traceback."""

import gzip
import json
import random
import tomllib
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pyreadstat
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core.errors import PlanError
from slowscale.core.numbers import format_number
from slowscale.data.guessing import Guess
from slowscale.mechanisms import calibration
from slowscale.plan import (
    EXAMPLE,
    MECHANISMS,
    CapPlan,
    MechanismPlan,
    Plan,
    check_outputs,
    check_plan,
    locate,
    plan_address,
    read_plan,
    run_checked,
    run_plan,
    starting_plan,
)
from slowscale.plan.starting import DATA_TABLE, TEMPLATE, PlannedData
from slowscale.policy import ConstantPolicy

PLAN = """
[data]
path = "x.parquet"

[tables.t.keys]
by = ["k"]
cross = { k = ["a", "b"] }

[tables.t.sums.x]
mechanism = "gaussian"
std = 5

[tables.t.sums.y]
unit = "0.01"
mechanism = "root"
k = 4
loss = 1
at = 106

[tables.t.count]
mechanism = "gaussian"
sigma = 2

[output]
folder = "out"
report = "out.html"
"""


def written(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_noise_of_a_transformation(tmp_path):
    plan = read_plan(written(tmp_path, PLAN.replace("k = 4\n", 'k = 2.5\nnoise = "laplace"\n')))
    assert plan.drawn["t"].mechanisms["y"] == ss.Root.calibrate(loss=1, at=106, k=2.5, noise="laplace")
    plan = read_plan(written(tmp_path, PLAN.replace('"root"\nk = 4\n', '"arsinh"\ns = 50\n')))
    assert plan.drawn["t"].mechanisms["y"] == ss.Arsinh.calibrate(loss=1, at=106, s=50)


def test_mechanisms_by_parameters_or_by_intent(tmp_path):
    plan = read_plan(written(tmp_path, PLAN))
    assert plan.drawn["t"].mechanisms == {
        "x": ss.Gaussian.calibrate(std=5),
        "y": ss.Root.calibrate(loss=1, at=106, k=4),
        "count": ss.Gaussian(sigma=2),
    }
    assert plan.policy({"x": 5, "y": 106}) == pytest.approx(0.5 + 1 + 1 / 8)
    assert plan.data.path == str(tmp_path / "x.parquet")
    assert plan.output.folder == str(tmp_path / "out")
    assert plan.file == tmp_path / "plan.toml"


def test_the_example_is_a_plan(tmp_path):
    plan = read_plan(written(tmp_path, EXAMPLE))
    assert set(plan.drawn["cells"].mechanisms) == {"emp", "payann"}
    assert list(plan.tables) == ["cells", "industries"]
    assert plan.caps["payann"](106) == pytest.approx(10)


def test_a_promise_is_a_table_of_points(tmp_path):
    text = PLAN.replace('mechanism = "gaussian"\nstd = 5', 'mechanism = "from-policy"\npoints = [[10, 0.5], [1e3, 5]]')
    assert read_plan(written(tmp_path, text)).drawn["t"].mechanisms["x"] == ss.FromPolicy([(10, 0.5), (1000, 5)])
    solved = read_plan(written(tmp_path, text.replace("points", "std = 5\npoints"))).drawn["t"].mechanisms["x"]
    assert solved.std() == pytest.approx(5)
    assert solved.promise == ss.FromPolicy([(10, 0.5), (1000, 5)]).promise
    for points, words in (
        ("points = 3", r"line 11, tables.t.sums.x.points: must be pairs of numbers such as \[\[100, 0.5\], .*, got 3$"),
        ("points = [[1, 2], [3]]", r"tables.t.sums.x.points: must be pairs of numbers .*, got a list$"),
        ('points = [["a", 2]]', r"tables.t.sums.x.points: must be pairs of numbers .*, got a list$"),
        ("points = [[1, 2], [2, 5]]", r"tables.t.sums.x: "),
        ("sigma = 3", r"tables.t.sums.x: from-policy needs points\. The promise: pairs of a record size"),
        ("std = 3", r"tables.t.sums.x: from-policy needs points\."),
        (
            "points = [[1, 2]]\np = 1",
            r"tables.t.sums.x: mechanism from-policy has no parameter p; it has points, sigma$",
        ),
    ):
        with pytest.raises(ss.PlanError, match=words):
            read_plan(written(tmp_path, text.replace("points = [[10, 0.5], [1e3, 5]]", points)))


def test_the_example_lists_every_mechanism():
    assert all(kind in EXAMPLE for kind in MECHANISMS)


def test_the_template_is_toml_with_one_place_for_the_data():
    """The line that the table [data] replaces is a comment, so editors read the template as TOML."""
    assert tomllib.loads(TEMPLATE)["tables"]["cells"] == {"keys": {"by": []}, "sums": {"COLUMN": {"mechanism": ""}}}
    assert TEMPLATE.splitlines().count(DATA_TABLE) == 1
    text = starting_plan(PlannedData("x.parquet", {"x": "int64"}))
    assert DATA_TABLE not in text
    assert list(tomllib.loads(text)) == ["data", "ledger", "tables", "output"]


def test_targets_and_policies_of_mechanisms():
    given = {"mechanism": "generalized-gaussian", "p": 1.0}
    half = MechanismPlan(**given, interval=30.0, level=0.9).build()
    assert half == ss.GeneralizedGaussian.calibrate(interval=30, level=0.9, p=1)
    assert MechanismPlan(**given, interval=30.0).build() == ss.GeneralizedGaussian.calibrate(interval=30, p=1)
    tight = {"loss": 1.0, "at": 106.0, "accounting": "tight"}
    m = ss.GeneralizedGaussian.calibrate(**tight, p=1)
    assert MechanismPlan(**given, **tight).build() == m
    assert CapPlan(**given, **tight).build() == m


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"std": 2e4, "at": 5e3}, "sigma = 5,000, from at"),
        ({"std": 20.0}, "sigma = 1, the default"),
        ({"std": 20.0, "at": 0.0}, "sigma = 1, the default"),
        ({"loss": 1.0, "at": 50.0}, "sigma = 1, the default"),
        ({"d": 0.5}, "sigma = 1, the default"),
        ({"interval": 2e4, "sigma": 300.0}, "sigma = 300, as given"),
    ],
)
def test_the_scale_of_a_polylog_is_stated_with_its_source(given, words):
    part = MechanismPlan(mechanism="exponential-polylog", **given)
    assert part.scale_words == words
    assert part.build().sigma == float(words.split()[2].strip(",").replace(",", ""))


def test_a_scale_that_is_solved_for():
    part = MechanismPlan(mechanism="exponential-polylog", std=1e6, d=0.5)
    assert part.scale_words == f"sigma = {format_number(part.build().sigma)}, solved for"
    assert MechanismPlan(mechanism="gaussian", std=1e6).scale_words is None


def test_a_wide_polylog_without_a_scale_is_refused(tmp_path):
    """Reading a plan refuses it, so that `check` and `release` do with the same words."""
    text = PLAN.replace('mechanism = "gaussian"\nstd = 5', 'mechanism = "exponential-polylog"\nstd = 20_000')
    with refused(ss.PlanError, code="plan") as caught:
        read_plan(written(tmp_path, text))
    assert [one.path for one in caught.value.mistakes] == [("tables", "t", "sums", "x")]
    plan = read_plan(written(tmp_path, text.replace("20_000", "20_000\nat = 5_000")))
    assert plan.scales == {"t": {"x": "sigma = 5,000, from at"}}


def test_a_cap_can_be_a_tight_policy(monkeypatch):
    other = ConstantPolicy(3.0)
    monkeypatch.setattr(ss.GeneralizedGaussian, "tight_policy", other)
    given = {"mechanism": "generalized-gaussian", "p": 1.0, "sigma": 2.0, "times": 2}
    assert CapPlan(**given).cap() == CapPlan(**given, accounting="tight").cap() == 2 * other
    assert CapPlan(**given, accounting="closed").cap() == 2 * ss.GeneralizedGaussian(sigma=2, p=1).policy
    del given["sigma"]
    assert CapPlan(**given, std=5.0, accounting="tight").cap() == 2 * other  # the target is not a loss


def test_the_schema_is_published():
    schema = Plan.model_json_schema()
    assert {"data", "ledger", "release", "tables", "output"} <= set(schema["properties"])
    published = Path(__file__).parents[3] / "docs" / "plan.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == schema, "run: slowscale schema > docs/plan.schema.json"
    parts = [schema, *schema["$defs"].values()]
    assert all(
        "description" in field or "$ref" in str(field) for part in parts for field in part["properties"].values()
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            ('mechanism = "gaussian"', 'mechanism = "gausian"'),
            r"line 10, tables.t.sums.x.mechanism: must be 'gaussian', .*got 'gausian'; did you mean 'gaussian'\?",
        ),
        (("std = 5", "std = -5"), r"line 11, tables.t.sums.x.std: must be greater than 0, got -5"),
        (("std = 5", "stdd = 5"), r"line 11, tables.t.sums.x.stdd: there is no such field; did you mean std\?"),
        (("std = 5", ""), r"line 9, tables.t.sums.x: gaussian needs sigma, or std, interval or loss to solve for one"),
        (
            ("std = 5", "std = 5\ninterval = 5"),
            r"line 9, tables.t.sums.x: give one target, .*, not std and interval$",
        ),
        (("std = 5", "interval = 5\nlevel = 1"), r"line 12, tables.t.sums.x.level: must be less than 1, got 1"),
        (
            ("std = 5", "std = 5\nlevel = 0.9"),
            r"line 9, tables.t.sums.x: level is used only with interval; give interval, or",
        ),
        (
            ("std = 5", "std = 5\naccounting = 'tight'"),
            r"line 9, tables.t.sums.x: accounting is used only with loss; give loss, or rem",
        ),
        (
            ("std = 5", "sigma = 5\nat = 3"),
            r"line 9, tables.t.sums.x: at is used only with std, interval or loss; give one of",
        ),
        (
            ("std = 5", "loss = 5\nat = 3\naccounting = 'best'"),
            r"line 13, tables.t.sums.x.accounting: must be 'closed' or 'tight', got text",
        ),
        (
            ("k = 4\n", "p = 4\n"),
            r"tables.t.sums.y: mechanism root has no parameter p; it has k, sigma, a, noise, estimator",
        ),
        (("at = 106", ""), r"tables.t.sums.y: "),
        (('path = "x.parquet"', ""), r"line 2, data: give either path or database"),
        (('cross = { k = ["a", "b"] }', ""), r"line 5, tables.t.keys: give one of file, cross or from_data"),
        (
            ('cross = { k = ["a", "b"] }', "cross = { k = [1.5] }"),
            r"^\S*, line 7, tables.t.keys.cross: the labels of k must be .*, got floats[^\n]*$",
        ),
        (('["a", "b"]', "[[1]]"), r"^\S*, line 7, tables.t.keys.cross: the labels of k must be .*, got list;[^\n]*$"),
        (('folder = "out"', ""), r"line 24, output.folder: is missing: add a line folder = …"),
        (
            ('folder = "out"\n', 'folder = "out"\nparquet = "x.parquet"\n'),
            r"output.parquet: there is no such field; there",
        ),
        (
            ("[output]", "[output]\nformats = ['xlsx']"),
            r"line 25, output.formats.0: must be 'parquet' or 'csv', got text",
        ),
        (("[output]", "[output]\nformats = []"), r"line 25, output.formats: "),
        (("sums.y]", "sums.k]"), r"line 13, tables.t.sums.k: column 'k' is a key column"),
        (("sums.y]", "sums.count]"), r"line 13, tables.t.sums.count: .* reserved for the number of records"),
        (("sums.y]", "sums.x_se]"), r"line 9, tables.t.sums.x: column 'x_se' would be in the release twice"),
        (("tables.t.count", "tables.u"), r"line 21, tables.u.mechanism: there is no such field; did you mean means"),
        (
            ("[output]", "[tables.u]\n[output]"),
            r"line 24, tables.u: columns and count are both missing, so there is nothing to publish",
        ),
        (("[output]", "[tables.T]\nrollup = 't'\n[output]"), r"line 24, tables.T: .* which some systems take for one"),
        (("[output]", "[tables.u]\nrollup = 't'\nby = ['k']\n[output]"), r"line 26, tables.u.by: "),
        (("[output]", "[tables.u]\nquantiles = 'x'\nloss = 0\n[output]"), r"line 26, tables.u.loss: "),
        (("[output]", "[tables.u]\nquantiles = 'x'\nloss = true\n[output]"), r"u.loss: must be a number, got true$"),
        (("[output]", "[tables.u]\nquantiles = 'x'\nloss = 1\nat = [2]\n[output]"), r"line 27, tables.u.at: "),
        (("[output]", "[tables.u]\nquantiles = 'x'\nloss = 1\ngrid = [2]\n[output]"), r"line 27, tables.u.grid: "),
        (("[tables.t.keys]", "[tables.t]\nmeans = 'box'\ncount = 3\n[tables.t.keys]"), "is not TOML"),
        (("[tables.t.keys]", "[tables.t]\nmeans = 'bix'\n[tables.t.keys]"), r"t.means: must be 'box', .*'box'\?$"),
        (("[tables.t.keys]", "[release]\nlevel = 1\n[tables.t.keys]"), r"line 6, release.level: "),
        (
            ("[tables.t.keys]", "[release]\nperiod = 2024\n[tables.t.keys]"),
            r"line 6, release.period: must be text, got 2024",
        ),
        (
            ('unit = "0.01"', "unit = 0.1"),
            r'^\S*, line 14, tables.t.sums.y.unit: must be .* text .*; write unit = "0.1"$',
        ),
        (
            ('unit = "0.01"', "unit = 0"),
            r"line 14, tables.t.sums.y.unit: ",
        ),
        (
            ('unit = "0.01"', 'unit = "cents"'),
            r"line 14, tables.t.sums.y.unit: ",
        ),
        (('unit = "0.01"', "unit = true"), r"line 14, tables.t.sums.y.unit: must be a whole number .*, got true$"),
        (('unit = "0.01"', "unit = inf"), r"line 14, tables.t.sums.y.unit: must be a whole number .*; write unit = "),
        (("sigma = 2", "sigma = inf"), r"line 22, tables.t.count.sigma: .*finite"),
        (('by = ["k"]', 'by = ["q"]'), r"tables.t.keys: by must name the columns of cross"),
        (
            ("[output]", '[release]\npartition = "q"\n[output]'),
            r"line 25, release.partition: ",
        ),
        (('{ k = ["a", "b"] }', "{ k = [] }"), r"tables.t.keys: "),
        (('{ k = ["a", "b"] }', '{ k = ["a", 3] }'), r"tables.t.keys: "),
        (('report = "out.html"', 'report = "out.txt"'), r"line 26, output.report: must end in .html"),
        (('path = "x.parquet"', 'database = "x.csv"'), r"data: database must be an address"),
        (('mechanism = "root"\n', ""), r"line 13, tables.t.sums.y.mechanism: is missing: add a line mechanism = …$"),
        (("[data]", "[dataa]"), r"line 2, dataa: there is no such field; did you mean data\?"),
        (
            ("[data]", "[data]\nbackup = 3"),
            r"data.backup: there is no such field; there are path, database, name, types, csv",
        ),
        (("[data]", '[data]\ntypes = { x = "number" }'), r"line 3, data.types: "),
        (("[data]", '[data]\ncsv = { delimiter = ";;" }'), r"line 3, data.csv: "),
        (("[data]", '[data]\ncsv = { delimeter = ";" }'), r"data.csv.delimeter: .* did you mean delimiter\?"),
        (('by = ["k"]', 'types = { k = "string" }'), r"tables.t.keys: types and csv go with file"),
        (("[tables.t.sums.y]", '[tables.t.sums.""]'), r"line 13, tables.t.sums.*: "),
        (
            ("[output]", "[tables.u]\nquantiles = ''\nloss = 1\n[output]"),
            r"line 25, tables.u.quantiles: still to be chosen",
        ),
        (("[output]", "[tables.u]\nrollup = ''\n[output]"), r"line 25, tables.u.rollup: still to be chosen"),
        (('mechanism = "root"', 'mechanism = ""'), r"line 15, tables.t.sums.y.mechanism: still to be chosen: .*'root'"),
        (("sigma = 2", "sigma = 'two'"), r"tables.t.count.sigma: must be a number, got text; write it without quotes$"),
        (("std = 5", "std = [5]"), r"tables.t.sums.x.std: must be a number, got a list$"),
        (("std = 5", "std = { x = 5 }"), r"tables.t.sums.x.std: must be a number, got a table$"),
        (("k = 4\n", "k = 1001\n"), r"tables.t.sums.y.k: must be less than or equal to 1000, got 1001$"),
        (("k = 4\n", "k = inf\n"), r"tables.t.sums.y.k: must be a finite number, got inf$"),
        (
            ("k = 4\n", 'k = 4\nnoise = "cauchy"\n'),
            r"tables.t.sums.y.noise: must be 'gaussian' or 'laplace', got .cauchy",
        ),
        (
            ("k = 4\n", 'k = 4.5\nestimator = "mean"\n'),
            r"tables.t.sums.y.*: estimator must not be \"mean\": with Gaussian noise, only roots with a whole k",
        ),
        (("k = 4\n", 'k = "four"\n'), r"tables.t.sums.y.k: must be a number, got text; write it without quotes$"),
        (("k = 4\n", "k = 0\n"), r"tables.t.sums.y.k: must be greater than or equal to 1, got 0$"),
        (("std = 5", "std = '5'"), r"tables.t.sums.x.std: must be a number, got text; write it without quotes$"),
        (("std = 5", "std = true"), r"tables.t.sums.x.std: must be a number, got true$"),
        (("k = 4\n", "k = true\n"), r"tables.t.sums.y.k: must be a number, got true$"),
        (('by = ["k"]', "by = 2020-01-31"), r"tables.t.keys.by: must be a list, got 2020-01-31$"),
        (
            ('by = ["k"]', 'from_data = "maybe"'),
            r"tables.t.keys.from_data: must be true or false, got text; write it without quotes$",
        ),
        (
            ('path = "x.parquet"', 'path = "postgresql://h/d#t"'),
            r"^\S*, line 3, data.path: must be .* use database = \S+$",
        ),
        (('path = "x.parquet"', "path = [1]"), r"data.path: .* a list of paths, got a list with 1 in it$"),
        (('path = "x.parquet"', "path = 3"), r"^\S*, line 3, data.path: must be a path, or a list of paths, got 3$"),
        (('path = "x.parquet"', "path = true"), r"data.path: must be a path, or a list of paths, got true$"),
        (('path = "x.parquet"', 'path = ""'), r"line 3, data.path: must be a path such as .*, got an empty path$"),
        (('path = "x.parquet"', 'path = ["x.csv", " "]'), r"line 3, data.path: must be .*, got an empty path$"),
        (('path = "x.parquet"', "path = []"), r"line 3, data.path: must be .*, got an empty list$"),
        (("[output]", '[ledger]\npath = ""\n[output]'), r"ledger.path: must be the path of a file, got an empty text$"),
        (("[output]", "[outputs]"), r"did you mean output\?$"),
        (('mechanism = "gaussian"', 'mechanism = "polylog"'), r"got 'polylog'; did you mean 'exponential-polylog'\?$"),
        (('mechanism = "gaussian"', 'mechanism = "splitting"'), r"; did you mean 'unit-splitting'\?$"),
        (('mechanism = "gaussian"', 'mechanism = "quux"'), r"got 'quux'$"),
        (('mechanism = "gaussian"', 'mechanism = "Laplace"'), r"got 'Laplace'; did you mean 'laplace'\?$"),
        (
            ('[output]\nfolder = "out"\nreport = "out.html"\n', ""),
            r"line 1, output: is missing: add the table \[output\]",
        ),
        (
            ("[data]", '[data]\ncsv = "semicolon"'),
            r"line 3, data.csv: must be a table such as csv = \{ … \}, got text$",
        ),
    ],
)
def test_mistakes_name_line_and_field(tmp_path, change, words):
    with pytest.raises(PlanError, match=words):
        read_plan(written(tmp_path, PLAN.replace(*change, 1)))


def test_all_mistakes_are_reported_in_the_order_of_lines(tmp_path):
    text = PLAN.replace('"out.html"', '"out.txt"').replace("std = 5", "stdd = 5").replace("sigma = 2", "sigma = -2")
    with pytest.raises(PlanError) as caught:
        read_plan(written(tmp_path, text))
    found = [line.partition("line ")[2].partition(": ")[0] for line in str(caught.value).splitlines()]
    assert found == ["11, tables.t.sums.x.stdd", "22, tables.t.count.sigma", "26, output.report"]


SIZES = """
[report]
sizes = [
  { name = "median firm", x = 12, y = 400_000 },
  { name = "largest firm", x = 150_000, y = 4e10 },
]
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("largest firm", "big firm"), "line 29, report.sizes: "),
        (("y = 400_000", "y = 5e10"), "line 29, report.sizes: "),
        ((", y = 400_000", ""), "line 29, report.sizes: "),
        (("y = 400_000", "yy = 3"), "line 29, report.sizes: "),
        (("y = 400_000", "y = 'much'"), "line 29, report.sizes: "),
        (("x = 12", "x = -12"), "line 29, report.sizes: "),
        (("x = 12", "x = 12, count = 3"), "line 29, report.sizes: "),
        (("x = 12", "x = 12, size = 3"), "line 29, report.sizes: "),
        (("sizes = [", "sizez = ["), r"report.sizez: there is no such field; did you mean sizes\?"),
        ((SIZES, "[report]\nsizes = 12"), r"line 28, report.sizes: must be a list such as"),
        ((SIZES, "[report]"), r"line 27, report.sizes: is missing: add a line sizes = …$"),
    ],
)
def test_mistakes_in_sizes(tmp_path, change, words):
    with pytest.raises(PlanError, match=words) as caught:
        read_plan(written(tmp_path, (PLAN + SIZES).replace(*change, 1)))
    assert len(str(caught.value).splitlines()) == 1 or "sizez" in change[1]


def test_sizes_of_a_plan(tmp_path):
    plan = read_plan(written(tmp_path, PLAN + SIZES))
    assert [(size.name, size.value("y")) for size in plan.sizes] == [("median firm", 4e5), ("largest firm", 4e10)]
    for text in (
        '[report]\nsizes = [{ name = "largest firm", size = 4e10 }]',
        '[report.sizes]\n"largest firm" = 4e10',
        '[[report.sizes]]\nname = "largest firm"\nx = 1\ny = 4e10',
        '[report.sizes."largest firm"]\nx = 1\ny = 4e10',
    ):
        (size,) = read_plan(written(tmp_path, f"{PLAN}\n{text}\n")).sizes
        assert (size.name, size.value("y")) == ("largest firm", 4e10)
    assert read_plan(written(tmp_path, PLAN)).sizes == ()


def test_sizes_of_entities(tmp_path):
    text = (PLAN + SIZES).replace("[data]", '[data]\nprotect = "firm"')
    with refused(PlanError, code="plan") as caught:
        read_plan(written(tmp_path, text))
    assert [one.path for one in caught.value.mistakes] == [("report", "sizes")]
    text = text.replace("x = 12,", "x = 12, count = 1,").replace("x = 150_000,", "x = 150_000, count = 30,")
    assert read_plan(written(tmp_path, text)).sizes[1].value("count") == 30


def test_sizes_come_into_the_report(tmp_path):
    """Also with values for columns that only the ledger knows, or nobody: what was read is not refused once charged."""
    pd.DataFrame({"k": ["a"], "x": [1], "y": [2.5]}).to_parquet(tmp_path / "x.parquet")
    text = PLAN.replace('"out.html"', '"r.html"') + '[ledger]\npath = "l"\n'
    text += SIZES.replace("x = 12", "x = 12, earlier = 3")
    run_plan(read_plan(written(tmp_path, text)))
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "at size 40,000,000,000 (largest firm)" in page
    assert "stated by the curator" in page


def test_a_derived_column_without_a_cap(tmp_path):
    pd.DataFrame({"k": ["a"], "x": [1]}).to_parquet(tmp_path / "x.parquet")
    text = PLAN.replace("[tables.t.keys]", 'derive = { y = "x" }\n[tables.t.keys]')
    text += '[ledger]\npath = "l"\n[ledger.caps.x]\nmechanism = "gaussian"\nsigma = 1\n'
    for use in (check_plan, run_plan):
        with refused(ss.ParameterError, "column 'y'", path=("tables", "t", "sums", "y")):
            use(read_plan(written(tmp_path, text)))
    assert not (tmp_path / "l").exists()


@pytest.mark.parametrize(
    "change",
    [
        ('path = "x.parquet"', 'databse = "postgresql://me:hunter2@host/db#t"'),
        ('path = "x.parquet"', 'path = "postgresql://me:hunter2@host/db#t"'),
        ('path = "x.parquet"', 'path = ["postgresql://me:hunter2@host/db#t"]'),
        ('path = "x.parquet"', 'database = { password = "hunter2" }'),
        ('path = "x.parquet"', 'database = "hunter2"'),
        ('path = "x.parquet"', 'path = "x.parquet"\npassword = "hunter2"'),
        ('path = "x.parquet"', 'path = "x.parquet"\n"postgresql://me:hunter2@host" = 1'),
        ('unit = "0.01"', 'unit = "postgresql://me:hunter2@host/db#t"'),
        ("std = 5", 'std = "postgresql://me:hunter2@host/db#t"'),
        ('folder = "out"', 'folder = "https://me:hunter2@host/out"'),
        ('report = "out.html"', 'report = "hunter2"'),
        ("[tables.t.count]", '[release]\npartition = "postgresql://me:hunter2@host/db#t"\n[tables.t.count]'),
        ('[data]\npath = "x.parquet"', 'data = "host=db password=hunter2"'),
        ('path = "x.parquet"', 'path = ["x.parquet", ["hunter2"]]'),
        ('path = "x.parquet"', 'path = { password = "hunter2" }'),
        ('path = "x.parquet"', 'database = ["hunter2"]'),
        ('path = "x.parquet"', 'database = "host=db password=hunter2"'),
        ('path = "x.parquet"', 'path = "x.parquet"\ncsv = "hunter2"'),
        ('path = "x.parquet"', 'path = "x.parquet"\nwhere = ["hunter2"]'),
        ("sigma = 2", 'sigma = "hunter2"'),
    ],
)
def test_passwords_are_not_shown(tmp_path, change):
    assert change[0] in PLAN
    with refused(PlanError, code="plan") as caught:
        read_plan(written(tmp_path, PLAN.replace(*change, 1)))
    assert "hunter2" not in str(caught.value)


def test_database_files_are_relative_to_the_plan(tmp_path):
    plan = read_plan(written(tmp_path, PLAN.replace('path = "x.parquet"', 'database = "duckdb://census.duckdb#t"')))
    assert plan.data.database == f"duckdb://{tmp_path}/census.duckdb#t"
    plan = read_plan(written(tmp_path, PLAN.replace('path = "x.parquet"', 'database = "postgresql://host/db#t"')))
    assert plan.data.database == "postgresql://host/db#t"


@pytest.mark.parametrize(
    ("address", "written"),
    [
        ("postgresql://bob:hunter2@h:5432/db#s.t", ("postgresql://bob@h:5432/db#s.t", True)),
        ("postgresql://b%40b:hun@ter2@h/db#t", ("postgresql://b%40b@h/db#t", True)),
        ("postgresql://h/db?password=hunter2&sslmode=require#t", ("postgresql://h/db?sslmode=require#t", True)),
        ("postgresql://bob@h/db?sslmode=require#t", ("postgresql://bob@h/db?sslmode=require#t", False)),
        ("postgresql://%2Frun%2Fpostgresql/db#t", ("postgresql://%2Frun%2Fpostgresql/db#t", False)),
        ("duckdb://data/census.duckdb#t", ("duckdb://../data/census.duckdb#t", False)),
    ],
)
def test_plans_are_written_without_passwords(address, written):
    place, has_password = plan_address(address, Path("plans"))
    assert (place, has_password) == written
    text = starting_plan(PlannedData(place, {}, has_password=has_password))
    assert tomllib.loads(text)["data"]["database"] == place
    assert ("PGPASSWORD" in text) == has_password
    assert "hunter2" not in text


def test_addresses_that_cannot_be_written_without_their_password():
    with refused(ss.ParameterError, "data", code="value") as caught:
        plan_address("postgresql://h/hunter2#x/db#t", Path())
    assert "hunter2" not in str(caught.value)


RECORDS = "county,opened,emp\n1,31/01/2020,10\n3,29/02/2020,20\n"
FARMS = """
[data]
path = "records.csv"
csv = { dates = "%d/%m/%Y" }
types = { TYPES }

[tables.t.keys]
by = ["county"]
file = "cells.csv"

[ledger]
path = "farms.ledger"

[ledger.caps." EMP"]
mechanism = "gaussian"
sigma = 1e-6
times = 2

[tables.t.sums.emp]
mechanism = "gaussian"
sigma = 1e-6

[output]
folder = "out"
"""


def passes(plan):
    """Check a plan, and raise what would refuse its release apart from outputs that exist."""
    checked = check_plan(plan, overwrite=True)
    if checked.refusal is not None:
        raise checked.refusal
    return checked


def farms(tmp_path, types="", records=RECORDS, cells="county\n1\n3\n4\n", **changes):
    (tmp_path / "records.csv").write_text(records)
    (tmp_path / "cells.csv").write_text(cells)
    text = FARMS.replace("TYPES", types)
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    return read_plan(written(tmp_path, text))


@pytest.mark.parametrize(("types", "kind"), [("", pa.string()), ('county = "int64"', pa.int64())])
def test_the_published_key_type_does_not_follow_the_records(tmp_path, types, kind):
    schemas = []
    for records in (RECORDS, RECORDS + "ZZ,01/03/2020,30\n"):
        plan = farms(tmp_path, types, records)
        run_plan(plan, overwrite=True)
        table = pa.parquet.read_table(tmp_path / "out" / "t.parquet")
        assert table["emp"].to_pylist() == [10, 20, 0]
        schemas.append(table.schema.remove_metadata())
    assert schemas[0] == schemas[1]
    assert schemas[0].field("county").type == kind


def test_key_files_are_read_as_they_are_written(tmp_path):
    plan = farms(
        tmp_path,
        'opened = "date"',
        cells="opened;note\n31.01.2020;x\n01.03.2020;y\n",
        by=('by = ["county"]', 'by = ["opened"]\ncsv = { delimiter = ";", dates = "%d.%m.%Y" }'),
    )
    release, _ = run_plan(plan)
    assert release.table.select(["opened", "emp"]).to_pylist() == [
        {"opened": date(2020, 1, 31), "emp": 10},
        {"opened": date(2020, 3, 1), "emp": 0},
    ]


@pytest.mark.parametrize("keys", ['file = "cells.csv"', "from_data = true"])
def test_derived_columns_can_be_keys(tmp_path, keys):
    plan = farms(
        tmp_path,
        'opened = "date"',
        cells="month\n1\n2\n",
        derive=("[tables.t.keys]", 'derive = { month = "month(opened)" }\n[tables.t.keys]'),
        by=('by = ["county"]\nfile = "cells.csv"', f'by = ["month"]\n{keys}'),
    )
    passes(plan)
    release, _ = run_plan(plan)
    assert release.table.select(["month", "emp"]).to_pylist() == [{"month": 1, "emp": 10}, {"month": 2, "emp": 20}]


@pytest.mark.parametrize("path", ["records.csv", "r*.csv"])
@pytest.mark.parametrize("keys", ["./records.csv", "linked.csv", "hard.csv"])
def test_the_data_itself_is_not_a_public_list_of_labels(tmp_path, path, keys):
    """Labels that are taken from the records must be declared public, with from_data."""
    farms(tmp_path)
    (tmp_path / "linked.csv").symlink_to(tmp_path / "records.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "records.csv")
    plan = farms(tmp_path, path=('path = "records.csv"', f'path = "{path}"'), keys=('"cells.csv"', f'"{keys}"'))
    for use in (check_plan, run_plan):
        with refused(ss.ParameterError, code="not-public", path=("tables", "t", "keys")):
            use(plan)


def test_unreadable_data_is_recorded_in_a_ledger_that_exists(tmp_path):
    plan = farms(tmp_path)
    run_plan(plan)
    farms(tmp_path, records=RECORDS + '"3,1,1\n')
    with refused(ss.DataError):
        run_plan(plan, overwrite=True)
    assert [entry["kind"] for entry in ss.Ledger(plan.ledger.path).history()] == ["created", "charge", "attempt"]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("../data/cbp 2024.csv.gz", "cbp"),
        ("cbp.2024.parquet", "cbp"),
        ("cbp_2024_final.csv", "cbp-final"),
        ("farms-12024.csv", "farms-12024"),
        ("2024-*.csv", "data"),
        ("*.csv", "data"),
        ("postgresql://host/db#public.firms", "public.firms"),
    ],
)
def test_a_plan_for_some_data_names_the_data_set(place, name):
    assert tomllib.loads(starting_plan(PlannedData(place, {"x": "int64"})))["data"]["name"] == name


def test_a_data_set_has_a_name(tmp_path):
    with refused(PlanError, code="plan") as caught:
        farms(tmp_path, change=("[data]", '[data]\nname = " "'))
    assert [(one.path, one.line) for one in caught.value.mistakes] == [(("data", "name"), 3)]


def test_a_ledger_is_made_last(tmp_path):
    plan = farms(tmp_path, records=RECORDS + '"3,1,1\n')
    with refused(ss.DataError):
        run_plan(plan)
    assert not Path(plan.ledger.path).exists()


def test_a_release_that_fails_on_the_records_makes_no_ledger(tmp_path):
    plan = farms(tmp_path, records=RECORDS + "3,01/03/2020,\n")
    with refused(ss.DataError):
        run_plan(plan)
    assert not Path(plan.ledger.path).exists()
    farms(tmp_path)
    run_plan(plan)
    ledger = ss.Ledger(plan.ledger.path)
    assert [entry["kind"] for entry in ledger.history()] == ["created", "charge"]
    assert set(ledger.caps) == {" EMP"}


def test_the_caps_of_a_new_ledger_come_before_the_records(tmp_path):
    """Once when the plan is checked, and again when the release is made, before the records are read."""
    plan = farms(tmp_path, records=RECORDS + "3,01/03/2020,\n", change=("sigma = 1e-6\ntimes = 2", "sigma = 1e-5"))
    checked = check_plan(plan)
    for use in (lambda: run_plan(plan), lambda: run_checked(replace(checked, refusal=None))):
        with pytest.raises(ss.CapError):
            use()
    assert not Path(plan.ledger.path).exists()


@pytest.mark.parametrize("known", [True, False])
def test_what_a_cap_refuses_is_recorded(tmp_path, known):
    """By the check of the plan or, if the cap was used up after it, by the release."""
    plan = farms(tmp_path)
    run_plan(plan)
    before = check_plan(plan, overwrite=True)
    run_plan(plan, overwrite=True)
    with pytest.raises(ss.CapError):
        passes(plan)
    with pytest.raises(ss.CapError):
        run_checked(check_plan(plan, overwrite=True) if known else before)
    history = ss.Ledger(plan.ledger.path).history()
    assert [entry["kind"] for entry in history] == ["created", "charge", "charge", "attempt"]
    assert history[-1]["error"]["type"] == "CapError"
    assert ss.Ledger(plan.ledger.path).verify() == []


def test_check_sees_that_a_ledger_cannot_be_made(tmp_path):
    plan = farms(tmp_path)
    ledger = Path(plan.ledger.path)
    left = Path(f"{ledger}-journal")
    left.touch()
    with refused(ss.LedgerError):
        check_outputs(plan)
    left.unlink()
    check_outputs(plan)
    ledger.symlink_to("nowhere")
    with refused(ss.LedgerError):
        check_plan(plan)
    ledger.unlink()
    long = plan.model_copy(update={"ledger": plan.ledger.model_copy(update={"path": str(tmp_path / ("x" * 250))})})
    with refused(ss.ParameterError, "the ledger", code="unwritable"):
        check_outputs(long)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["cells.csv", "plan.toml", "records.csv"]


def test_check_sees_a_header_of_several_lines(tmp_path):
    plan = farms(tmp_path, records='county,opened,emp,"two\nlines"\n1,31/01/2020,10,a\n')
    with refused(ss.DataError, code="header-quote"):
        check_plan(plan)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "[tables.t.sums.emp]",
            "[tables.t.sums.empp]",
            "line 19, tables.t.sums.empp: column 'empp' is not in the data",
        ),
        ('" EMP"', "empp", "line 14, ledger.caps.empp: caps has a cap on 'empp', which is not a column"),
        ('by = ["county"]', 'by = ["state"]', "names 'state', which is not a column"),
        ("types = {  }", 'types = { emp = "date" }', "column 'emp' must hold numbers"),
        (
            "types = {  }",
            'types = { county = "float64" }',
            "column 'county' must hold text, whole numbers, booleans or dates",
        ),
        ("types = {  }", 'types = { size = "int64" }', "types names size"),
        ("[tables.t.keys]", 'where = "emp >"\n[tables.t.keys]', "where"),
        ("[tables.t.keys]", 'where = "employees > 3"\n[tables.t.keys]', "employees"),
        ("[tables.t.keys]", 'derive = { share = "1 / count(*)" }\n[tables.t.keys]', "an aggregate"),
        ("[tables.t.keys]", 'protect = "firm"\n[tables.t.keys]', "protect must be a column of the data"),
        ('"cells.csv"', '"none.csv"', "matches no file"),
        ('"records.csv"', '"none.csv"', "matches no file"),
        ('"records.csv"', '"plan.toml"', "must be a file that ends in"),
        ('"out"', '"records.csv/out"', "line 24, output.folder: there is no folder"),
        ('"out"', '"records.csv"', "line 24, output.folder: "),
        ('"out"', '"out"\nreport = "none/report.html"', "output.report: "),
        ('"farms.ledger"', '"none/farms.ledger"', "line 12, ledger.path: there is no folder"),
    ],
)
def test_what_check_passes_release_does_not_refuse(tmp_path, old, new, words):
    """Without the records: `check` raises what the release would raise."""
    plan = farms(tmp_path, change=(old, new))
    with pytest.raises(ss.SlowscaleError) as checked:
        check_plan(plan)
    with pytest.raises(ss.SlowscaleError) as refused:
        run_plan(plan)
    assert words in str(checked.value)
    assert str(checked.value) == str(refused.value)
    assert not Path(plan.ledger.path).exists()


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "folder", "dta", "duckdb"])
def test_check_reads_no_records(tmp_path, kind, monkeypatch):
    plan = farms(tmp_path, change=('path = "records.csv"\ncsv = { dates = "%d/%m/%Y" }', SOURCES[kind][0]))
    SOURCES[kind][1](tmp_path)
    assert not passes(plan).accountant.account.charges
    assert not Path(plan.ledger.path).exists()
    wrong = farms(
        tmp_path,
        change=('path = "records.csv"\ncsv = { dates = "%d/%m/%Y" }', SOURCES[kind][0]),
        by=('by = ["county"]', 'by = ["town"]'),
    )
    with refused(ss.ParameterError):
        check_plan(wrong)


def broken_csv(folder):
    (folder / "records.csv").write_text(RECORDS + '"')


def broken_gzip(folder):
    with gzip.open(folder / "records.csv.gz", "wt") as file:
        file.write(RECORDS + '"')


def parquet_with_odd_records(folder, name="records.parquet"):
    table = pa.table({"county": ["1"], "emp": pa.array([None], pa.int64())})
    pa.parquet.write_table(table, folder / name)


def partitioned(folder):
    (folder / "records" / "county=1").mkdir(parents=True)
    pa.parquet.write_table(pa.table({"emp": [1]}), folder / "records" / "county=1" / "a.parquet")


def stata(folder):
    pyreadstat.write_dta(pd.DataFrame({"county": ["1"], "emp": [1.5]}), folder / "records.dta")


def duckdb_file(folder):
    with duckdb.connect(str(folder / "r.duckdb")) as file:
        file.execute("CREATE TABLE t AS SELECT '1' AS county, NULL::BIGINT AS emp")


SOURCES = {
    "csv": ('path = "records.csv"', broken_csv),
    "csv.gz": ('path = "records.csv.gz"', broken_gzip),
    "parquet": ('path = "records.parquet"', parquet_with_odd_records),
    "folder": ('path = "records"', partitioned),
    "dta": ('path = "records.dta"', stata),
    "duckdb": ('database = "duckdb://r.duckdb#t"', duckdb_file),
}


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("*.csv", "."),
        ("20??.csv", "."),
        ("**/*.csv", "sub"),
        ("sub", "sub"),
    ],
)
def test_outputs_do_not_become_data(tmp_path, path, folder):
    (tmp_path / "sub").mkdir()
    changes = {
        "path": ('"records.csv"', f'"{path}"'),
        "table": ("tables.t.", "tables.2024."),
        "output": ('"out"', f'"{folder}"'),
    }
    with refused(ss.ParameterError, "table '2024'", code="not-public"):
        check_outputs(farms(tmp_path, **changes))
    changes["output"] = ('"out"', '"other"')
    (tmp_path / "other").mkdir()
    if "**" not in path:
        check_outputs(farms(tmp_path, **changes))


def test_check_takes_the_types_of_parquet_as_a_release_does(tmp_path):
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT '1'::ENUM('1', '2') AS county, 5::UBIGINT AS emp, uuid() AS id, '1'::BLOB AS b) "
            f"TO '{tmp_path / 'records.parquet'}' (FORMAT parquet)"
        )
    plan = farms(tmp_path, change=('path = "records.csv"\ncsv = { dates = "%d/%m/%Y" }', 'path = "records.parquet"'))
    passes(plan)
    release, _ = run_plan(plan)
    assert release.table["emp"].to_pylist() == [5, 0, 0]


def test_caps_are_checked_with_the_keys_of_a_file(tmp_path):
    plan = farms(tmp_path, part=("[tables.t.keys]", '[release]\npartition = "county"\n\n[tables.t.keys]'))
    for _ in range(2):
        passes(plan)
        run_plan(plan, overwrite=True)
    with pytest.raises(ss.CapError):
        passes(plan)
    (tmp_path / "cells.csv").write_text("county\n5\n")
    passes(plan)


def test_files_that_are_no_plans(tmp_path):
    with refused(PlanError, code="unreadable"):
        read_plan(tmp_path / "none.toml")
    with refused(PlanError, code="syntax"):
        read_plan(written(tmp_path, "[data]\npath = = 3"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with refused(PlanError, code="unreadable"):
        read_plan(tmp_path / "bytes.toml")


def test_lines():
    assert locate(PLAN, ["tables", "t", "sums", "y", "unit"]) == 14
    assert locate(PLAN, ["tables", "t", "sums", "y", "none"]) == 13
    assert locate(PLAN, ["tables", "t", "keys", "cross", "k", 0]) == 7
    assert locate(PLAN, ["nowhere"]) == 1
    text = '[[hierarchies]]\na = 1\n[[hierarchies]]\na = 2\n[tables.t.sums."a.b"]\nunit = 3\n'
    assert [locate(text, ["hierarchies", i, "a"]) for i in range(2)] == [2, 4]
    assert locate(text, ["tables", "t", "sums", "a.b", "unit"]) == 6


def mutated(text, generator):
    """Return a plan with a few random changes: letters, lines, values."""
    lines = text.splitlines()
    for _ in range(generator.choice([1, 1, 2, 5])):
        kind = generator.randrange(6)
        at = generator.randrange(len(lines))
        if kind == 0:
            lines.pop(at)
        elif kind == 1:
            lines.insert(at, generator.choice(lines))
        elif kind == 2 and "=" in lines[at]:
            values = ["-1", "0", "1e999", "nan", '"x"', "[]", "{}", "true", '""', "[[1]]", "2020-01-01", "1_000", "inf"]
            lines[at] = f"{lines[at].split('=')[0]}= {generator.choice(values)}"
        elif kind == 3 and lines[at]:
            place = generator.randrange(len(lines[at]))
            lines[at] = lines[at][:place] + generator.choice('xyz="[]{}#.\\\x00é') + lines[at][place + 1 :]
        elif kind == 4:
            other = generator.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            lines[at] = lines[at].replace("=", ".sub =", 1)
        if not lines:
            lines = [""]
    return "\n".join(lines)


def mistake(path):
    try:
        read_plan(path)
    except PlanError as error:
        return str(error)
    return None


def remember_calibrations(monkeypatch):
    """Carry out each calibration once: most mutations leave the targets of a plan as they are."""
    real, known = calibration.calibrate, {}

    def calibrate(*given):
        asked = repr(given)
        if asked not in known:
            known[asked] = real(*given)  # an error is not kept, and is raised anew
        return known[asked]

    monkeypatch.setattr(calibration, "calibrate", calibrate)


def test_two_thousand_mutated_plans(tmp_path, monkeypatch):
    """A mutated plan is read, or refused with a PlanError that names a line; nothing else is raised."""
    remember_calibrations(monkeypatch)
    generator = random.Random(9)
    refused = 0
    for _ in range(2_000):
        text = mutated(generator.choice([PLAN, EXAMPLE]), generator)
        words = mistake(written(tmp_path, text))
        refused += words is not None
        if words is None:
            tomllib.loads(text)
        else:
            assert "line" in words or "is not TOML" in words, words
    assert refused > 1_000


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_the_types_of_a_new_plan_can_be_uncommented(tmp_path, lines):
    """For data with types, the header of the table and the first lines under it."""
    pd.DataFrame({"state": ["IA"], "x": [1.5], "when": pd.to_datetime(["2024-01-01"])}).to_parquet(
        tmp_path / "w.parquet"
    )
    columns = {"state": "string", "x": "float64", "when": "timestamp(6)"}
    before, header, after = starting_plan(PlannedData("w.parquet", columns, Guess({}))).partition("# [data.types]\n")
    assert header
    assert "\n# when is a timestamp(6)\n" in after
    below = after.split("\n")
    text = "\n".join([before, "[data.types]", *(line[2:] for line in below[: lines - 1]), *below[lines - 1 :]])
    types = tomllib.loads(text)["data"]["types"]
    assert types == dict(list(columns.items())[: lines - 1])
    assert ss.Session(tmp_path / "w.parquet", types=types).table.columns == ("state", "x", "when")


def test_a_new_plan_for_a_database_offers_no_types():
    text = starting_plan(PlannedData("duckdb://a.duckdb#t", {"state": "string"}))
    assert "[data.types]" not in text
    assert "# The columns of the table have these types:\n# state = " in text
