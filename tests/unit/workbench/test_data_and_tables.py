"""The pages of the data and the tables: they write what was changed, and nothing else."""

import asyncio
import datetime
import html
import re
import tomllib

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.applications import Starlette

from slowscale.plan import read_plan
from slowscale.plan.starting import template_for
from slowscale.workbench.app import Workbench
from slowscale.workbench.draft import Draft, Folder
from slowscale.workbench.pages import data, tables

HEAD = """# by hand
[data]
path = "farms.parquet"
derive = { half = "cattle / 2", owner = "substr(firm, 1, 2)" }
protect = "owner"                      # firms

"""
LEDGER = """# what it may cost
[ledger]
path = "plan.ledger"

[ledger.caps.half]
mechanism = "gaussian"
sigma = 1

"""
SUMS = """# the sums
[tables.{0}.sums.half]                 # half of the cattle
mechanism = "gaussian"                 # enough
sigma = 10
unit = "0.5"

[tables.{0}.count]                     # records
mechanism = "gaussian"
sigma = 2                              # chosen in 2020

"""
ONE = (
    HEAD
    + LEDGER
    + """[release]
partition = "county"                   # parts

[tables.cells]
nulls = "zero"                         # missing values

[tables.cells.keys]                    # the cells
by = ["kind", "county"]
cross = { county = ["a, b", "c"], kind = [1, 2] }

"""
    + SUMS.format("cells")
    + """[output]
folder = "out"
formats = ["csv"]
"""
)
SET = (
    HEAD
    + LEDGER
    + """# the finest table
[tables.fine]                          # its name
keys = { by = ["county", "kind"], cross = { county = ["a, b", "c"], kind = [1, 2] } }

"""
    + SUMS.format("fine")
    + """[tables.counties]
rollup = "fine"
by = ["county"]                        # kept

[tables.nation]
rollup = "counties"

[tables.own]
keys = { by = ["kind"], file = "kinds.csv", types = { kind = "int64" } }
sums = { half = { mechanism = "gaussian", sigma = 10, unit = "0.5" } }
count = { mechanism = "gaussian", sigma = 2 }

[tables.m4]
rollup = "fine"
by = ["kind"]

[tables.m5]
rollup = "fine"
by = ["sector"]

# levels
[[hierarchies]]
column = "county"
digits = { sector = 1 }                # digits

[output]
folder = "out"
formats = ["csv", "parquet"]           # both
report = "r.html"
"""
)


@pytest.fixture
def bench(tmp_path):
    """A workbench with records, whose pages are asked without the checks of strangers."""
    table = pa.table(
        {
            "county": ["a, b", "c"],
            "kind": [1, 2],
            "cattle": [3, 4],
            "firm": ["xy1", "xy2"],
            "open": [True, False],
            "day": [datetime.date(2020, 1, 1)] * 2,
            "x, y": ["u", "v"],
            "share": [0.5, 1.5],
        }
    )
    pq.write_table(table, tmp_path / "farms.parquet")
    (tmp_path / "kinds.csv").write_text("kind\n1\n2\n")
    (tmp_path / "other.csv").write_text("code;cattle\n00001;4\n00002;5\n")
    return Workbench(Folder(tmp_path), tmp_path / "plan.toml")


class Client:
    """Requests to an application in this process."""

    def __init__(self, app):
        self.app = app

    def get(self, path):
        return asyncio.run(self._ask("GET", path))

    def post(self, path, data):
        return asyncio.run(self._ask("POST", path, data=data))

    async def _ask(self, method, path, **more):
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **more)


@pytest.fixture
def client(bench):
    app = Starlette(routes=[*data.page.routes, *tables.page.routes])
    app.state.workbench = bench
    return Client(app)


def write(bench, text):
    bench.plan.write_text(text)
    read_plan(bench.plan)


def form_of(client, path, action):
    """Return the fields of a form as a browser would send them."""
    text = client.get(path).text
    form = text[text.index(f'action="{action}"') :]
    form = form[: form.index("</form>")]
    form = re.sub(r"<fieldset disabled>.*?</fieldset>", "", form, flags=re.S)
    found = {}
    for tag in re.findall(r"<input[^>]*>", form):
        fields = {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
        if fields.get("type") in ("checkbox", "radio") and " checked" not in tag:
            continue
        found.setdefault(fields["name"], []).append(fields.get("value", ""))
    for name, value in re.findall(r'<textarea[^>]*name="([^"]*)"[^>]*>\n(.*?)</textarea>', form, re.S):
        found[html.unescape(name)] = [html.unescape(value).replace("\n", "\r\n")]
    for name, options in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.S):
        chosen = re.findall(r'<option value="([^"]*)" selected', options) or [""]
        found[name] = [html.unescape(chosen[0])]
    return found


def problems(answer):
    return {
        name: html.unescape(words)
        for name, words in re.findall(r'<p class="field-problem" id="problem-([^"]*)">(.*?)</p>', answer.text)
    }


def saved(client, bench, changes, remove=()):
    """Send the form of the tables with changes, and return the answer."""
    form = {**form_of(client, "/tables", "/tables"), **changes}
    return client.post("/tables", data={name: value for name, value in form.items() if name not in remove})


@pytest.mark.parametrize("text", [ONE, SET], ids=["one", "set"])
@pytest.mark.parametrize(("path", "action"), [("/tables", "/tables"), ("/data", "/data/columns")])
def test_saving_without_a_change_changes_nothing(client, bench, text, path, action):
    write(bench, text)
    answer = client.post(action, data=form_of(client, path, action))
    assert answer.status_code == 303, answer.text
    assert bench.plan.read_text() == text


class TestData:
    def test_derived_columns_can_be_protected(self, client, bench):
        write(bench, ONE)
        assert form_of(client, "/data", "/data/columns")["protect"] == ["owner"]
        bench.plan.write_text(ONE.replace('"owner"  ', '"gone"  '))
        assert form_of(client, "/data", "/data/columns")["protect"] == ["gone"]

    def test_a_field_that_was_not_sent_stays(self, client, bench):
        write(bench, ONE)
        version = Draft.read(bench.plan).version
        assert client.post("/data/columns", data={"version": version, "name": "farms"}).status_code == 303
        assert bench.plan.read_text() == ONE.replace("# firms\n", '# firms\nname = "farms"\n')

    @pytest.mark.parametrize(
        ("changes", "field", "words"),
        [
            ({"type:kind": "intx"}, "type:kind", "intx"),
            ({"where": "sum(cattle) > 1"}, "where", "aggregate"),
            ({"where": "nothing > 1"}, "where", "nothing"),
        ],
    )
    def test_mistakes_are_beside_their_fields(self, client, bench, changes, field, words):
        write(bench, ONE)
        answer = client.post("/data/columns", data={**form_of(client, "/data", "/data/columns"), **changes})
        assert answer.status_code == 400
        assert bench.plan.read_text() == ONE
        ((_, typed),) = changes.items()
        assert f'value="{html.escape(typed)}" ' in answer.text
        place = answer.text.index(f'name="{field}"')
        assert words in re.search(r'field-problem"[^>]*>(.*?)<', answer.text[place:]).group(1)
        assert "types=" not in answer.text
        assert answer.text.count('name="type:') == 8

    def test_a_wrong_type_in_the_plan_leaves_the_columns(self, client, bench):
        bench.plan.write_text(ONE.replace("[release]", '[data.types]\nkind = "intx"\n[release]'))
        text = client.get("/data").text
        assert text.count('name="type:') == 8
        assert re.search(r'value="intx"[^>]*aria-invalid[^>]*>\s*<p class="field-problem"', text)

    @pytest.mark.parametrize("text", ["", ONE.replace('"plan.ledger"', '"farms.ledger"')])
    def test_a_ledger_that_is_named_after_the_data_follows_it(self, client, bench, text):
        bench.plan.write_text(text)
        for place, ledger in (("farms.parquet", "farms.ledger"), ("other.csv", "other.ledger")):
            form = {**form_of(client, "/data", "/data"), "place": place}
            assert client.post("/data", data=form).status_code == 303
            assert tomllib.loads(bench.plan.read_text())["ledger"]["path"] == ledger

    def test_other_data_keeps_the_rest_of_the_plan(self, client, bench):
        write(bench, ONE)
        form = {**form_of(client, "/data", "/data"), "place": "other.csv"}
        assert client.post("/data", data=form).status_code == 303
        before, after = tomllib.loads(ONE), tomllib.loads(bench.plan.read_text())
        derive = before.pop("data")["derive"]
        assert after.pop("data") == {
            "path": "other.csv",
            "name": "other",
            "types": {"code": "string", "cattle": "int64"},
            "csv": {"delimiter": ";"},
            "derive": derive,
            "protect": "owner",
        }
        assert after == before
        assert "# chosen in 2020" in bench.plan.read_text()
        assert "# what it may cost" in bench.plan.read_text()

    def test_a_name_that_was_chosen_stays(self, bench):
        draft = Draft(bench.plan, ONE.replace('protect = "owner"', 'name = "mine"'))
        assert data.with_data(bench, draft, "other.csv").get("data", "name") == "mine"

    def test_a_new_plan_is_proposed_anew(self, bench):
        first = data.with_data(bench, Draft(bench.plan, ""), "farms.parquet")
        second = data.with_data(bench, first, "other.csv")
        assert second == data.with_data(bench, Draft(bench.plan, ""), "other.csv")
        assert "These types are proposed" in second.text

    def test_types_that_were_corrected_stay_with_the_same_data(self, bench):
        draft = data.with_data(bench, Draft(bench.plan, ""), "other.csv")
        draft = draft.put(("data", "types", "cattle"), "float64").put(("data", "where"), "cattle > 1")
        again = data.with_data(bench, draft, "other.csv")
        assert again.values == draft.values

    def test_why_a_type_is_proposed(self, client, bench):
        client.post("/data", data={"place": "other.csv", "version": Draft.read(bench.plan).version})
        notes = Draft.read(bench.plan).comments("data", "types")
        assert "code" in notes
        assert html.escape(notes["code"], quote=False) in html.unescape(client.get("/data").text)

    def test_what_was_typed_is_kept_if_the_plan_was_changed_elsewhere(self, client, bench):
        write(bench, ONE)
        form = {**form_of(client, "/data", "/data/columns"), "where": "cattle > 7"}
        bench.plan.write_text(ONE + "# more\n")
        answer = client.post("/data/columns", data=form)
        assert answer.status_code == 409
        assert "was changed since this page was loaded" in answer.text
        assert 'value="cattle &gt; 7"' in answer.text
        assert bench.plan.read_text() == ONE + "# more\n"

    def test_columns_are_read_once(self, bench, monkeypatch):
        from slowscale.data import sources

        draft, calls = Draft(bench.plan, ONE), []
        opened = sources.open_table
        monkeypatch.setattr(sources, "open_table", lambda *given: calls.append(given) or opened(*given))
        first = asyncio.run(data.columns_of(bench, draft))
        assert asyncio.run(data.columns_of(bench, draft)) is first
        assert len(calls) == 1
        pq.write_table(pa.table({"new": [1]}), bench.folder.root / "farms.parquet")
        assert [c.name for c in data.read_columns(bench, draft).found] == ["new", "half", "owner"]


class TestTables:
    def test_what_the_page_cannot_show_is_read_only(self, client, bench):
        write(bench, SET)
        text = client.get("/tables").text
        assert "is derived from counties, which this page cannot show; edit plan.toml." in text
        assert "has other keys than the cells, which this page cannot show; edit plan.toml." in text
        form = form_of(client, "/tables", "/tables")
        assert [name for name in form if re.fullmatch(r"margin\d", name)] == [f"margin{i}" for i in (0, 3, 4, 5, 6)]

    def test_sums_of_single_tables_are_read_only(self, client, bench):
        own = '[tables.z.count]\nmechanism = "gaussian"\nsigma = 1\n'
        text = SET.replace('rollup = "counties"\n', f'rollup = "counties"\n\n{own}')
        write(bench, text)
        assert "has other sums or options than the cells, which this page cannot show" in client.get("/tables").text
        assert saved(client, bench, {"margin0": "places"}).status_code == 400  # nation is derived from it
        assert saved(client, bench, {"margin5": "kinds"}).status_code == 303
        assert bench.plan.read_text() == text.replace("[tables.m5]", "[tables.kinds]")
        assert saved(client, bench, {"sum": ["half", "cattle"]}).status_code == 303  # of the cells only
        plan = tomllib.loads(bench.plan.read_text())
        assert plan["tables"]["z"] == tomllib.loads(own)["tables"]["z"]
        assert list(plan["tables"]["fine"]["sums"]) == ["half", "cattle"]

    def test_quantiles_are_read_only(self, client, bench):
        text = SET.replace("[tables.m4]", '[tables.sizes]\nquantiles = "cattle"\nloss = 0.1\n\n[tables.m4]')
        write(bench, text)
        assert "has quantiles, which this page cannot show; edit plan.toml." in client.get("/tables").text
        assert saved(client, bench, {"margin5": "kinds"}).status_code == 303
        assert bench.plan.read_text() == text.replace("[tables.m5]", "[tables.kinds]")

    def test_a_plan_without_tables_gets_one(self, client, bench):
        text = HEAD + '[tables.sizes]\nquantiles = "cattle"\nloss = 0.1\n\n[output]\nfolder = "out"\n'
        for start in (text, HEAD):
            write(bench, start)
            assert saved(client, bench, {"sum": ["half"], "kind": "total"}).status_code == 303
            before, after = tomllib.loads(start), tomllib.loads(bench.plan.read_text())
            assert after["tables"].pop("cells") == {"sums": {"half": {"mechanism": ""}}}
            assert after == {"tables": {}, **before}

    def test_several_hierarchies_are_read_only(self, client, bench):
        text = SET.replace("[[hierarchies]]", '[[hierarchies]]\ncolumn = "kind"\ndigits = { k = 1 }\n[[hierarchies]]')
        write(bench, text)
        assert "This plan has several hierarchies" in client.get("/tables").text
        assert saved(client, bench, {"level_column": "x", "level_digits": "y = 1"}).status_code == 303
        assert bench.plan.read_text() == text

    @pytest.mark.parametrize(
        ("text", "changes", "old", "new"),
        [
            (ONE, {"unit:half": "0.25"}, 'unit = "0.5"', 'unit = "0.25"'),
            (ONE, {"labels:kind": "1\r\n3"}, "kind = [1, 2]", "kind = [1, 3]"),
            (SET, {"level_digits": "sector = 2"}, "{ sector = 1 }", "{sector = 2}"),
            (SET, {"margin3": "", "margin_by3": ""}, '[tables.m4]\nrollup = "fine"\nby = ["kind"]\n\n', ""),
            (SET, {"margin3": "kinds"}, "[tables.m4]", "[tables.kinds]"),
            (SET, {"margin5": "all"}, None, '[tables.all]\nrollup = "fine"\n'),
        ],
        ids=["unit", "labels", "levels", "removed", "renamed", "added"],
    )
    def test_only_what_was_changed_is_written(self, client, bench, text, changes, old, new):
        write(bench, text)
        answer = saved(client, bench, changes)
        assert answer.status_code == 303, problems(answer)
        after = bench.plan.read_text()
        if old is None:
            assert new in after
            assert re.sub(r"\s+", "", after.replace(new, "")) == re.sub(r"\s+", "", text)
        else:
            assert re.sub(r"\s+", "", after) == re.sub(r"\s+", "", text.replace(old, new))
        read_plan(bench.plan)

    @pytest.mark.parametrize("name", ["places", ""])
    def test_a_table_that_another_is_derived_from_stays(self, client, bench, name):
        write(bench, SET)
        answer = saved(client, bench, {"margin0": name, "margin_by0": "county" if name else ""})
        assert problems(answer) == {
            "margin0": "the table counties is the source of nation; keep this table and its name"
        }
        assert bench.plan.read_text() == SET

    def test_comments_stay_when_sums_are_added_and_removed(self, client, bench):
        write(bench, ONE)
        assert saved(client, bench, {"sum": ["half", "cattle"]}).status_code == 303
        assert saved(client, bench, {"sum": ["half"]}, remove=("count",)).status_code == 303
        text = bench.plan.read_text()
        wanted = tomllib.loads(ONE)
        del wanted["tables"]["cells"]["count"]
        assert tomllib.loads(text) == wanted
        for words in ("# by hand", "# firms", "# the cells", "# parts", "# what it may cost", "# the sums", "# enough"):
            assert words in text

    def test_comments_stay_when_the_first_margin_is_added_and_removed(self, client, bench):
        write(bench, ONE)
        assert saved(client, bench, {"margin0": "nation", "margin_by0": ""}).status_code == 303
        text = bench.plan.read_text()
        assert list(tomllib.loads(text)["tables"]) == ["cells", "nation"]
        assert tomllib.loads(text)["tables"]["cells"] == tomllib.loads(ONE)["tables"]["cells"]
        assert all(words in text for words in ("# the cells", "# parts", "# what it may cost", "# the sums"))
        assert saved(client, bench, {"margin0": "", "margin_by0": ""}).status_code == 303
        text = bench.plan.read_text()
        assert tomllib.loads(text) == tomllib.loads(ONE)
        assert all(words in text for words in ("# the cells", "# parts", "# what it may cost", "# the sums"))

    def test_key_columns_keep_their_order(self, client, bench):
        write(bench, ONE)
        answer = saved(client, bench, {"by": ["county", "kind", "open"], "labels:open": "true\nfalse"})
        assert answer.status_code == 303, problems(answer)
        plan = tomllib.loads(bench.plan.read_text())
        keys = plan["tables"]["cells"]["keys"]
        assert keys["by"] == ["kind", "county", "open"]
        assert plan["release"]["partition"] == "county"
        assert keys["cross"] == {"county": ["a, b", "c"], "kind": [1, 2], "open": [True, False]}

    @pytest.mark.parametrize(
        ("column", "typed", "labels"),
        [
            ("kind", "1\n-20", [1, -20]),
            ("open", "true\nFALSE", [True, False]),
            ("day", "2020-01-31", [datetime.date(2020, 1, 31)]),
            ("county", "a, b\n007", ["a, b", "007"]),
        ],
    )
    def test_labels_have_the_type_of_their_column(self, client, bench, column, typed, labels):
        bench.plan.write_text(template_for("farms.parquet", ["[data]", 'path = "farms.parquet"']))
        changes = {"sum": ["cattle"], "kind": "cross", "by": [column], f"labels:{column}": typed}
        assert saved(client, bench, changes).status_code == 303
        cells = tomllib.loads(bench.plan.read_text())["tables"]["cells"]
        assert cells == {
            "keys": {"by": [column], "cross": {column: labels}},
            "sums": {"cattle": {"mechanism": ""}},
        }
        assert form_of(client, "/tables", "/tables")[f"labels:{column}"] == [
            typed.replace("FALSE", "false").replace("\n", "\r\n")
        ]

    @pytest.mark.parametrize(
        ("changes", "field", "words"),
        [
            ({"unit:half": "²"}, "unit:half", "must be a number > 0 such as 1"),
            ({"unit:half": "-1"}, "unit:half", "must be a number > 0 such as 1"),
            ({"labels:kind": "1\nx"}, "labels:kind", "whole numbers such as 111, got 'x'"),
            ({"by": ["kind", "county", "open"], "labels:open": "yes"}, "labels:open", "one of true, false, got 'yes'"),
            ({"by": ["kind", "county", "day"], "labels:day": "1.1.2020"}, "labels:day", "dates such as"),
            ({"by": ["kind", "county", "day"]}, "labels:day", "day has no labels"),
            ({"by": ["kind", "county", "share"], "labels:share": "1"}, "by", "choose another column"),
            ({"by": ["kind"]}, "kind", "partition must be a key column"),
            ({"margin0": "a b"}, "margin0", "must have names of letters"),
            ({"margin0": "a", "margin1": "A"}, "margin1", "is there twice"),
            ({"margin0": "cells"}, "margin0", "choose another name"),
            ({"margin_by0": "kind"}, "margin0", "has no name"),
            ({"margin0": "a", "margin_by0": "knd"}, "margin_by0", "'knd' is not a key column"),
            ({"level_column": "county", "level_digits": "s = 1"}, "level_column", "is not used by a margin"),
            ({"margin0": "a", "level_column": "county", "level_digits": "s = ²"}, "level_digits", "such as sector = 2"),
            ({"kind": "file", "file": "none.csv"}, "file", "there is no file"),
            ({"kind": "file", "file": "../x.csv"}, "file", "outside the folder"),
        ],
    )
    def test_mistakes_are_beside_their_fields(self, client, bench, changes, field, words):
        write(bench, ONE)
        answer = saved(client, bench, changes)
        assert answer.status_code == 400
        assert words in problems(answer)[field]
        assert bench.plan.read_text() == ONE
        for name, value in changes.items():  # what was typed is shown again
            for one in [value] if isinstance(value, str) else value:
                shown = html.escape(one)
                inside = rf'name="{name}" (list="files" )?value="{re.escape(shown)}"'
                between = rf'name="{name}"[^>]*>\n{re.escape(shown)}<'
                assert re.search(f"{inside}|{between}", answer.text), name

    def test_what_was_typed_is_kept_if_the_plan_was_changed_elsewhere(self, client, bench):
        write(bench, ONE)
        form = {**form_of(client, "/tables", "/tables"), "unit:half": "4"}
        bench.plan.write_text(ONE + "# more\n")
        answer = client.post("/tables", data=form)
        assert answer.status_code == 409
        assert 'name="unit:half" value="4"' in answer.text
        assert bench.plan.read_text() == ONE + "# more\n"

    def test_margins_make_several_tables_and_one_again(self, client, bench):
        write(bench, ONE.replace('[release]\npartition = "county"                   # parts\n', ""))
        answer = saved(client, bench, {"margin0": "counties", "margin_by0": "county", "margin1": "kinds",
                                       "margin_by1": "kind", "margin_drawn1": "yes"})  # fmt: skip
        assert answer.status_code == 303, problems(answer)
        plan = tomllib.loads(bench.plan.read_text())
        cells = plan["tables"].pop("cells")
        noise = {name: cells[name] for name in ("nulls", "sums", "count")}
        assert plan["tables"] == {
            "counties": {"rollup": "cells", "by": ["county"]},
            "kinds": {"keys": {"by": ["kind"], "cross": {"kind": [1, 2]}}, **noise},
        }
        read_plan(bench.plan)
        # The labels and the sums of a drawn margin follow those of the cells.
        changes = {"labels:kind": "1\n3", "unit:half": "0.25"}
        assert saved(client, bench, changes, remove=("count",)).status_code == 303
        kinds = tomllib.loads(bench.plan.read_text())["tables"]["kinds"]
        assert kinds["keys"]["cross"] == {"kind": [1, 3]}
        assert kinds["sums"]["half"]["unit"] == "0.25"
        assert "count" not in kinds
        assert saved(client, bench, {"margin0": "", "margin_by0": "", "margin1": "", "margin_by1": ""},
                     remove=("margin_drawn1",)).status_code == 303  # fmt: skip
        again = tomllib.loads(bench.plan.read_text())
        assert list(again["tables"]) == ["cells"]
        assert again["output"] == {"folder": "out", "formats": ["csv"]}
        assert "# what it may cost" in bench.plan.read_text()

    def test_a_column_with_a_comma(self, client, bench):
        write(bench, ONE.replace('[release]\npartition = "county"                   # parts\n', ""))
        changes = {"by": ["kind", "county", "x, y"], "labels:x, y": "u", "margin0": "a", "margin_by0": 'kind, "x, y"'}
        answer = saved(client, bench, changes)
        assert answer.status_code == 303, problems(answer)
        assert tomllib.loads(bench.plan.read_text())["tables"]["a"]["by"] == ["kind", "x, y"]
        assert form_of(client, "/tables", "/tables")["margin_by0"] == ['kind, "x, y"']

    def test_a_new_plan_without_cells(self, client, bench):
        bench.plan.write_text(template_for("farms.parquet", ["[data]", 'path = "farms.parquet"']))
        assert saved(client, bench, {"count": "yes"}).status_code == 303
        plan = tomllib.loads(bench.plan.read_text())
        assert plan["tables"] == {"cells": {"count": {"mechanism": ""}}}
