"""A change of a plan file changes one value: the others and the comments stay, however the file is written."""

import itertools
from pathlib import Path

import pytest

from slowscale.core.errors import PlanError
from slowscale.workbench.draft import Draft

PLANS = {
    "inline": 'data = { path = "a" }\nsums = [ { column = "a", mechanism = "" } ]\nkeys = { by = ["a"], file = "x" }\n',
    "out of order": '[data]\npath = "a"\n# one\n\n# two\n[ledger]\npath = "l"\n[[sums]]\ncolumn = "a"\n[data.types]\n'
    'a = "int64"\n[output]\nparquet = "x"\n[data.csv]\ndelimiter = ";"\n',
    "dotted": 'data.path = "a"\ndata.types.a = "int64"\nkeys.by = ["a"]\nkeys.file = "x"\n'
    '# one\n[[sums]]\ncolumn = "a"\n',
    "nested": '[[sums]]\ncolumn = "a"\n[data]\npath = "a"\n[[table]]\nname = "x"\n[table.keys]\nby = ["a"]\n'
    '[table.keys.cross]\na = [1]\n\n# one\n[[table]]\nname = "y"\nfrom = "x"\n\n# two\n[output]\nfolder = "z"\n',
}
CHANGES = [
    (("data", "types", "b"), "string"),
    (("data", "types"), {"z": "int64"}),
    (("data", "types"), None),
    (("data", "protect"), "q"),
    (("data", "csv"), {"delimiter": ","}),
    (("data", "path"), "b"),
    (("sums", 0, "unit"), 5),
    (("sums", 1), {"column": "b", "mechanism": ""}),
    (("sums", 0), None),
    (("keys",), {"by": ["a", "b"], "cross": {"a": [1], "b": ["x"]}}),
    (("keys",), None),
    (("table", 0, "keys"), {"by": ["a"], "cross": {"a": [1, 2]}}),
    (("table", 0, "keys"), None),
    (("table", 1), None),
    (("count",), {"mechanism": ""}),
    (("output",), {"folder": "t"}),
]


@pytest.mark.parametrize(("name", "change"), itertools.product(PLANS, CHANGES), ids=str)
def test_one_value_changes(name, change):
    text, (place, value) = PLANS[name], change
    draft = Draft(Path("plan.toml"), text)
    if name == "dotted" and place == ("data", "csv"):
        with pytest.raises(PlanError, match=r"cannot change data\.csv: edit the file"):
            draft.put(place, value)
        return
    changed = draft.put(place, value)  # which checks that all other values are the same
    if value is not None:
        assert changed.get(*place) == value
    for words in ("# one", "# two"):
        assert (words in changed.text) == (words in text)


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
