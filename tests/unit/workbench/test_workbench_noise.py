"""The page of the noise keeps the sizes of the plan as they are, with all their digits, for all columns."""

import html
import json
import re
import tomllib

import pytest
from helpers.workbench_client import problem_of, workbench_in

from slowscale.advice import Candidate
from slowscale.advice.advising import RARE_RATIO
from slowscale.mechanisms import ArsinhNormal
from slowscale.workbench.pages import noise

PLAN = '[data]\npath = "a.csv"\n{report}\n{sums}\n[output]\nfolder = "published"\n'
SUM = '[tables.cells.sums."{}"]\nmechanism = "arsinh-normal"\nscale = 8\nshape = 1.6\n'
TWO = [{"name": "median", "emp": 1.2345, "pay": 5}, {"name": "largest", "emp": 150_000, "pay": 4_000_000_000.5}]


@pytest.fixture
def started(tmp_path):
    """Return a function that writes a plan and starts a workbench."""

    def start(report="", columns=("emp", "pay"), more=""):
        text = PLAN.format(report=report, sums="".join(map(SUM.format, columns)) + more)
        (tmp_path / "plan.toml").write_text(text)
        return workbench_in(tmp_path)

    return start


def as_toml(sizes):
    rows = ("{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in one.items()) + " }" for one in sizes)
    return f"[report]\nsizes = [{', '.join(rows)}]"


def fields(answer):
    """Return what a form holds."""
    found = re.findall(r'<input[^>]*name="(\w+)"[^>]*?value="([^"]*)"', answer.text)
    return {name: html.unescape(value) for name, value in found[::-1]}


def sizes_of(workbench):
    return tomllib.loads(workbench.plan.read_text()).get("report", {}).get("sizes")


def sent(client, column, **changes):
    """Send the form of a column as it is, with some changes."""
    form = fields(client.get("/noise", params={"column": column}))
    return client.post("/noise", data={**form, "column": column, "interval": "150", **changes})


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Advice without a search: these tests are about what is written."""

    row = Candidate(ArsinhNormal(scale=8, shape=1.6), (1.0,), (1.0,), (0.5,), 1.0, 2.0, 3.0, 1.5, 0.01)

    class Advice:
        table, front, meanings, reason = [row], (), {}, "because"

        def __init__(self, records):
            self.records = records

    def advise(sizes, bands, interval, rare, **others):
        assert rare == RARE_RATIO
        return Advice(dict(sizes))

    monkeypatch.setattr(noise, "advise", advise)
    monkeypatch.setattr(noise, "_loss_lines", lambda mechanisms, sizes: {})


FORMS = [
    as_toml(TWO),
    as_toml([{"name": "small", "size": 1.2345}, {"name": "largest", "size": 9e20}]),
    "[report.sizes]\nsmall = 1.2345\nlargest = 12345678.875",
    "[report.sizes]\nsmall = {emp = 1.2345, pay = 7}\nlargest = {emp = 0x10, pay = 1e7}",
    "[report]\nsizes = [1.2345, 1e6]",
    as_toml([{"name": f"s{i}", "size": i + 1} for i in range(7)] + [{"name": "largest", "size": 100}]),
]


@pytest.mark.parametrize("report", FORMS)
def test_sizes_that_are_sent_unchanged_stay_as_they_are(started, report):
    workbench, client = started(report)
    before = workbench.draft.text
    for column in ("emp", "pay"):
        answer = sent(client, column)
        named = "[report]\nsizes = [1.2345" not in report  # numbers must be named first
        assert answer.status_code == (200 if named else 400)
        assert ("because" in answer.text) == named
    assert workbench.draft.text == before


def test_there_are_two_spare_rows(started):
    _, client = started(FORMS[-1])
    found = fields(client.get("/noise"))
    assert (found["name7"], found["size7"], found["name9"], "name10" in found) == ("largest", "100", "", False)


def test_one_size_is_changed_and_others_stay(started):
    workbench, client = started(FORMS[1])
    assert sent(client, "emp", size0="2").status_code == 200
    assert sizes_of(workbench) == [{"name": "small", "pay": 1.2345, "emp": 2}, {"name": "largest", "size": 9e20}]


def test_one_size_of_the_only_column_stays_for_all_columns(started):
    workbench, client = started(FORMS[1], columns=["emp"])
    sent(client, "emp", size0="2")
    assert sizes_of(workbench) == [{"name": "small", "size": 2}, {"name": "largest", "size": 9e20}]


def test_an_amount_is_no_number_of_records(started):
    counted = "[tables.cells.count]\nmechanism = 'gaussian'\nsigma = 3\n"
    report = f"protect = 'firm'\n{as_toml([{'name': 'largest', 'size': 9_000}])}"
    workbench, client = started(report, ["emp"], counted)
    assert fields(client.get("/noise", params={"column": "count"}))["size0"] == ""
    assert sent(client, "count", size0="7").status_code == 200
    assert sizes_of(workbench) == [{"name": "largest", "size": 9_000, "count": 7}]
    assert sent(client, "emp", size0="8000").status_code == 200
    assert sizes_of(workbench) == [{"name": "largest", "size": 8_000, "count": 7}]


def test_names_are_shared_by_the_columns(started):
    workbench, client = started(as_toml([{"name": "median", "emp": 3}, {"name": "largest", "emp": 10}]))
    form = fields(client.get("/noise", params={"column": "pay"}))
    assert [form[f"{field}{i}"] for i in (0, 1) for field in ("name", "size")] == ["median", "", "largest", ""]
    sent(client, "pay", name0="typical", size0="30", size1="1,000")
    assert sizes_of(workbench) == [
        {"name": "typical", "emp": 3, "pay": 30},
        {"name": "largest", "emp": 10, "pay": 1000},
    ]
    sent(client, "emp", name0="", size0="")
    assert sizes_of(workbench) == [{"name": "largest", "emp": 10, "pay": 1000}]


def test_a_largest_size_must_be_named_and_names_are_written_as_typed(started):
    workbench, client = started()
    typed = {"name0": "median", "size0": "3", "name1": "big", "size1": "90"}
    answer = sent(client, "emp", **typed)
    assert answer.status_code == 400
    form = answer.text.partition("<fieldset>")[2].partition("</fieldset>")[0]
    assert "under a name with the word largest" in form
    assert sizes_of(workbench) is None
    sent(client, "emp", **typed | {"name1": "the Largest"})
    assert sizes_of(workbench) == [{"name": "median", "emp": 3}, {"name": "the Largest", "emp": 90}]


@pytest.mark.parametrize("column", ["nope", "nope&x=<b>"])
def test_a_column_that_the_plan_lacks_is_refused(started, column):
    workbench, client = started(as_toml(TWO))
    before = workbench.draft.text
    form = {
        "column": column,
        "version": workbench.draft.version,
        "mechanism": json.dumps(ArsinhNormal(scale=8, shape=1.6).to_dict()),
    }
    sizes = {"name0": "largest", "size0": "5", "interval": "150"}
    for answer in (
        client.get("/noise", params={"column": column}),
        client.post("/noise", data={**form, **sizes}),
        client.post("/noise/use", data=form),
    ):
        assert answer.status_code == 400
        assert "does not publish" in problem_of(answer)
    assert workbench.draft.text == before


@pytest.mark.parametrize("column", ["c#d", "a&b=c", "é %"])
def test_names_of_columns_are_quoted_in_addresses(started, column):
    workbench, client = started(columns=["emp", column])
    mechanism = json.dumps(ArsinhNormal(scale=16, shape=1.6).to_dict())
    form = {"column": column, "version": workbench.draft.version, "mechanism": mechanism}
    answer = client.post("/noise/use", data=form)
    assert answer.status_code == 303
    shown = client.get(answer.headers["location"])
    assert f"Chosen for {html.escape(column)}" in shown.text
    # The accuracy of the chosen noise is the wanted one.
    assert float(fields(shown)["interval"]) == pytest.approx(
        ArsinhNormal(scale=16, shape=1.6).prediction_interval(0.0)[1], rel=1e-5
    )


def test_a_count_has_records_of_size_1(started):
    workbench, client = started(
        as_toml([{"name": "largest", "size": 5}]), more='[tables.cells.count]\nmechanism = ""\n'
    )
    before = workbench.draft.text
    form = fields(client.get("/noise", params={"column": "count"}))
    assert (form["name0"], form["size0"], form["name1"]) == ("single", "1", "")
    assert sent(client, "count").status_code == 200
    assert workbench.draft.text == before


SIZES = ["1e308", "Infinity", "NaN", "-1", "0", "1e-320", '"x"', "[]"]


@pytest.mark.parametrize("size", SIZES)
def test_sizes_that_cannot_be_shown_are_refused_in_words(started, size):
    _, client = started()
    for sizes, half in ((f'{{"a": {size}}}', "100"), ('{"a": 5}', size)):
        answer = client.get("/noise/preview", params={"sizes": sizes, "half": half, "position": "3"})
        assert answer.status_code == 400
        assert answer.json()["problem"]
    assert sent(client, "emp", name0="largest", size0=size).status_code == 400
    answer = client.get("/noise/preview", params={"sizes": '{"a": 1e30}', "half": "1e-30", "position": "3"})
    assert answer.status_code == 200


def test_drawn_margins_with_the_same_noise_follow_it(started):
    others = "".join(SUM.format("emp").replace("cells", name) for name in ("nation", "own"))
    workbench, client = started(columns=["emp"], more=others.replace('own.sums."emp"]\n', "own.sums.emp]\nunit = 5\n"))
    form = {"column": "emp", "version": workbench.draft.version}
    mechanism = json.dumps(ArsinhNormal(scale=16, shape=1.6).to_dict())
    assert client.post("/noise/use", data={**form, "mechanism": mechanism}).status_code == 303
    found = tomllib.loads(workbench.plan.read_text())["tables"]
    assert {name: table["sums"]["emp"]["scale"] for name, table in found.items()} == {
        "cells": 16, "nation": 16, "own": 8,
    }  # fmt: skip
