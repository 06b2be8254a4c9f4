"""Plan files: read, checked with line and field, and never the cause of a traceback."""

import json
import random
import tomllib
from pathlib import Path

import pytest

import slowscale as ss
from slowscale.errors import PlanError
from slowscale.plan import EXAMPLE, Plan, locate, read_plan

PLAN = """
[data]
path = "x.parquet"

[keys]
by = ["k"]
cross = { k = ["a", "b"] }

[[sums]]
column = "x"
mechanism = "gaussian"
std = 5

[[sums]]
column = "y"
unit = "0.01"
mechanism = "root"
k = 4
loss = 1
at = 106

[count]
mechanism = "gaussian"
sigma = 2

[output]
parquet = "out.parquet"
"""


def written(tmp_path, text):
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_mechanisms_by_parameters_or_by_intent(tmp_path):
    plan = read_plan(written(tmp_path, PLAN))
    assert plan.mechanisms == {
        "x": ss.Gaussian.calibrate(std=5),
        "y": ss.Root.calibrate(loss=1, at=106, k=4),
        "count": ss.Gaussian(2),
    }
    assert plan.policy({"x": 5, "y": 106}) == pytest.approx(0.5 + 1 + 1 / 8)
    assert plan.data.path == str(tmp_path / "x.parquet")
    assert plan.output.parquet == str(tmp_path / "out.parquet")


def test_the_example_is_a_plan(tmp_path):
    plan = read_plan(written(tmp_path, EXAMPLE))
    assert set(plan.mechanisms) == {"emp", "payann"}
    assert plan.caps["payann"](106) == pytest.approx(10)


def test_the_schema_is_published():
    schema = Plan.model_json_schema()
    assert {"data", "keys", "ledger", "sums", "output"} <= set(schema["properties"])
    published = Path(__file__).parents[2] / "docs" / "plan.schema.json"
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
            r"line 11, sums.0.mechanism: .*'gaussian', .*got 'gausian'",
        ),
        (("std = 5", "std = -5"), r"line 12, sums.0.std: Input should be greater than 0, got -5"),
        (("std = 5", "stdd = 5"), r"line 12, sums.0.stdd: Extra inputs are not permitted"),
        (("std = 5", ""), r"line 9, sums.0: gaussian needs sigma, or std or loss"),
        (("k = 4\n", "p = 4\n"), r"sums.1: root has no p; it has k, sigma, a, estimator"),
        (("at = 106", ""), r"sums.1: "),
        (('path = "x.parquet"', ""), r"line 2, data: give either path or database"),
        (('cross = { k = ["a", "b"] }', ""), r"line 5, keys: give one of file, cross or public_in_data"),
        (('cross = { k = ["a", "b"] }', "cross = { k = [1.5] }"), r"line 7, keys.cross"),
        (('parquet = "out.parquet"', ""), r"output: give parquet or csv"),
        (('column = "y"', 'column = "x"'), r"column 'x' is summed twice"),
        (('column = "y"', 'column = "k"'), r"column 'k' is a key column"),
        (('column = "y"', 'column = "count"'), r"a column 'count' cannot be summed"),
        (('unit = "0.01"', "unit = 0"), r"line 16, sums.1.unit: unit must be a number > 0"),
        (('unit = "0.01"', 'unit = "cents"'), r"line 16, sums.1.unit: unit must be"),
        (("sigma = 2", "sigma = inf"), r"line 24, count.sigma: .*finite"),
        (('by = ["k"]', 'by = ["q"]'), r"keys: by must name the columns of cross"),
        (('by = ["k"]', 'partition = "q"'), r"keys: partition must be a key column"),
        (('{ k = ["a", "b"] }', "{ k = [] }"), r"keys: "),
        (('{ k = ["a", "b"] }', '{ k = ["a", 3] }'), r"keys: keys k must be labels of one type"),
        (('parquet = "out.parquet"', 'parquet = "out.txt"'), r"output.parquet must end in .parquet"),
        (('path = "x.parquet"', 'database = "x.csv"'), r"data: database must be an address"),
        (('column = "x"', ""), r"line 9, sums.0.column: Field required"),
        (("[data]", "[dataa]"), r"data"),
        (("sigma = 2", "sigma = 'two'"), r"count.sigma: .*got 'two'"),
    ],
)
def test_mistakes_name_line_and_field(tmp_path, change, words):
    with pytest.raises(PlanError, match=words):
        read_plan(written(tmp_path, PLAN.replace(*change, 1)))


def test_files_that_are_no_plans(tmp_path):
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(PlanError, match=r"is no TOML: .*line 2"):
        read_plan(written(tmp_path, "[data]\npath = = 3"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="cannot be read"):
        read_plan(tmp_path / "bytes.toml")


def test_lines():
    assert locate(PLAN, ["sums", 1, "unit"]) == 16
    assert locate(PLAN, ["sums", 1, "none"]) == 14
    assert locate(PLAN, ["keys", "cross", "k", 0]) == 7
    assert locate(PLAN, ["nowhere"]) == 1


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


def test_two_thousand_mutated_plans(tmp_path):
    """A mutated plan is read, or told with a field or a line; nothing else is raised."""
    generator = random.Random(9)
    told = 0
    for _ in range(2_000):
        text = mutated(generator.choice([PLAN, EXAMPLE]), generator)
        words = mistake(written(tmp_path, text))
        told += words is not None
        if words is None:
            tomllib.loads(text)
        else:
            assert "line" in words or "is no TOML" in words, words
    assert told > 1_000
