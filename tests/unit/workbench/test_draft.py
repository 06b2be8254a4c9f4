"""A change of a plan file changes one value: the others and the comments stay, however the file is written."""

import itertools
from pathlib import Path

import pytest
from helpers.errors import refused

from slowscale.core.errors import PlanError
from slowscale.workbench.draft import Draft

PLANS = {
    "inline": 'data = { path = "a" }\ntables = { x = { keys = { by = ["a"], file = "x" }, '
    'sums = { a = { mechanism = "" } } }, y = { rollup = "x" } }\n',
    "out of order": '[data]\npath = "a"\n# one\n\n# two\n[ledger]\npath = "l"\n[tables.x.sums.a]\nsigma = 1\n'
    '[data.types]\na = "int64"\n[output]\nfolder = "x"\n[data.csv]\ndelimiter = ";"\n[tables.y]\nrollup = "x"\n',
    "dotted": 'data.path = "a"\ndata.types.a = "int64"\n# one\n[tables.x]\nkeys.by = ["a"]\nkeys.file = "x"\n'
    'sums.a.sigma = 1\n# two\n[tables.y]\nrollup = "x"\n',
    "nested": '[tables.x.sums.a]\nsigma = 1\n\n# one\n[data]\npath = "a"\n[tables.x.keys]\nby = ["a"]\n'
    '[tables.x.keys.cross]\na = [1]\n\n# three\n[tables.y]\nrollup = "x"\n\n# two\n[output]\nfolder = "z"\n',
    "usual": '[data]\npath = "a"\n\n# one\n[tables.x]\nkeys = { by = ["a"] }\n\n[tables.x.sums.a]\nsigma = 1\n'
    '\n# two\n[tables.y]\nrollup = "x"\n\n# three\n[output]\nfolder = "z"\n',
}
CHANGES = [
    (("data", "types", "b"), "string"),
    (("data", "types"), {"z": "int64"}),
    (("data", "types"), None),
    (("data", "protect"), "q"),
    (("data", "csv"), {"delimiter": ","}),
    (("data", "path"), "b"),
    (("tables", "x", "sums", "a", "unit"), 5),
    (("tables", "x", "sums", "b"), {"mechanism": ""}),
    (("tables", "x", "sums", "a"), None),
    (("tables", "x", "keys"), {"by": ["a", "b"], "cross": {"a": [1], "b": ["x"]}}),
    (("tables", "x", "keys"), None),
    (("tables", "y"), None),
    (("tables", "y"), {"keys": {"by": ["a"], "from_data": True}, "sums": {"a": {"sigma": 2}}}),
    (("tables", "z"), {"rollup": "x", "by": ["a"]}),
    (("tables", "x", "count"), {"mechanism": ""}),
    (("hierarchies", 0), {"column": "a", "digits": {"b": 1}}),
    (("release", "accounting"), "tight"),
    (("output",), {"folder": "t"}),
]


@pytest.mark.parametrize(("name", "change"), list(itertools.product(PLANS, CHANGES)), ids=str)
def test_one_value_changes(name, change):
    text, (place, value) = PLANS[name], change
    draft = Draft(Path("plan.toml"), text)
    changed = draft.put(place, value)  # which checks that all other values are the same
    if value is not None:
        assert changed.get(*place) == value
    for words in ("# one", "# two", "# three"):
        assert (words in changed.text) == (words in text)


def test_a_change_that_changes_something_else_is_refused(monkeypatch):
    draft = Draft(Path("plan.toml"), PLANS["usual"])
    monkeypatch.setattr("tomlkit.dumps", lambda document: PLANS["nested"])
    with refused(PlanError, "plan.toml", code="unsupported", path=("data", "csv")):
        draft.put(("data", "csv"), {"delimiter": ","})
    with refused(PlanError, "plan.toml", code="unsupported", path=("tables", "x", "keys")):
        draft.put(("tables", "x", "keys"), None)


def test_a_change_keeps_the_comment_of_its_line():
    draft = Draft(Path("plan.toml"), "[count]\nsigma = 1 # chosen\n\n# next\n[output]\n")
    assert draft.put(("count",), {"sigma": 2, "unit": 3}).text == (
        "[count]\nsigma = 2 # chosen\nunit = 3\n\n# next\n[output]\n"
    )
    assert draft.put(("count",), None).text == "# next\n[output]\n"


def test_a_list_of_tables_on_one_line_stays_on_one_line():
    draft = Draft(Path("plan.toml"), '[report]\nsizes = [{ name = "largest", a = 5 }] # public\n')
    changed = draft.put(("report", "sizes"), [{"name": "median", "a": 1}, {"name": "largest", "a": 6}])
    assert changed.text == ('[report]\nsizes = [{name = "median", a = 1}, {name = "largest", a = 6}] # public\n')


@pytest.mark.parametrize("name", PLANS)
def test_a_table_gets_another_name(name):
    draft = Draft(Path("plan.toml"), PLANS[name])
    for place, new in ((("tables", "x", "sums", "a"), "b c"), (("tables", "y"), "z")):
        value = draft.get(*place)
        draft = draft.renamed(place, new)
        assert (draft.get(*place), draft.get(*place[:-1], new)) == (None, value)
    assert all((words in draft.text) == (words in PLANS[name]) for words in ("# one", "# two", "# three"))


def test_a_new_table_stands_before_the_comment_of_what_follows():
    draft = Draft(Path("plan.toml"), PLANS["usual"])
    assert draft.put(("tables", "z"), {"rollup": "x"}).text == PLANS["usual"].replace(
        "\n# three", '\n[tables.z]\nrollup = "x"\n\n# three'
    )
