"""The faults that `make mutants` puts into the code; they need the extra `mutants`."""

import ast

import pytest

pytest.importorskip("cosmic_ray")

from mutation.__main__ import ROOMS, choose, find_modules
from mutation.accepted import place_free, read_accepted
from mutation.faults import mutants

MODULE = '''"""A module."""


def release(ledger, records):
    """Release the records."""
    ledger.ready()  # a comment
    if records: check(records)
    with suppress(OSError):
        ledger.charge(
            records,
            loss=1,
        )
    total = sum(records)
    records.sort()[0]
    ledger.caps["x"].close()
    yield_one = lambda: check(total)
    return check(total)


release(None, [])
'''
DELETED = [
    "ledger.ready()  # a comment",
    "if records: check(records)",
    "ledger.charge(",
    'ledger.caps["x"].close()',
    "release(None, [])",
]


def test_every_statement_that_is_only_a_call_is_deleted_once(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    found = [mutant for mutant in mutants(path) if mutant.operator == "DeleteCall"]
    assert [mutant.text for mutant in found] == DELETED
    for mutant in found:
        ast.parse(mutant.source())
        before, after = MODULE.splitlines(), mutant.source().splitlines()
        assert len(after) == len(before)  # no other line moves
        changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True), 1) if old != new]
        assert changed[0] == mutant.line
        assert len(changed) == (4 if mutant.text == "ledger.charge(" else 1)
        assert "pass" in mutant.change()[1]
    assert found[0].change() == ("ledger.ready()  # a comment", "pass  # a comment")
    assert found[1].change()[1] == "if records: pass"
    assert found[2].change()[1].strip() == "pass"


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("release", "_accountant.ready()"),
        ("release", "accountant.check_dataset("),
        ("accounting", "self._check_same_file()"),
    ],
)
def test_calls_that_keep_records_private_are_among_them(pytestconfig, room, text):
    files = (pytestconfig.rootpath / "src/slowscale" / room).rglob("*.py")
    found = [mutant for file in files if text in file.read_text() for mutant in mutants(file)]
    assert any(mutant.operator == "DeleteCall" and text in mutant.text for mutant in found)


def test_modules_are_found_by_paths_rooms_and_words(pytestconfig, monkeypatch):
    monkeypatch.chdir(pytestconfig.rootpath)
    rooms = {name: find_modules([name]) for name in ROOMS}
    assert all(rooms.values())
    assert find_modules(["src/slowscale/policy"]) == rooms["policy"]
    assert find_modules(["Roll-ups"]) == find_modules(["rollup"])
    assert set(find_modules(["policy", "rollup"])) == {*rooms["policy"], *find_modules(["rollup"])}
    with pytest.raises(SystemExit, match="unheard"):
        find_modules(["unheard"])


def test_a_random_choice_is_repeatable_and_leaves_out_what_is_accepted(pytestconfig, monkeypatch):
    monkeypatch.chdir(pytestconfig.rootpath)
    files = find_modules(["policy"])
    everything, accepted = choose(files, None, 0), read_accepted()
    assert choose(files, 20, 1) == choose(files, 20, 1) != choose(files, 20, 2)
    wanted = {mutant.name for mutant in everything if place_free(mutant.name) not in accepted}
    assert {mutant.name for mutant in choose(files, 10**6, 1)} == wanted != {mutant.name for mutant in everything}
