"""The faults that `make mutants` puts into the code; they need the extra `mutants`."""

import ast

import pytest

pytest.importorskip("cosmic_ray")

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
    ("path", "text"),
    [
        ("src/slowscale/release/session.py", "self._accountant.ready()"),
        ("src/slowscale/release/session.py", "self._accountant.check_dataset(self.dataset)"),
        ("src/slowscale/accounting/storage.py", "self._check_same_file()"),
    ],
)
def test_calls_that_keep_records_private_are_among_them(pytestconfig, path, text):
    found = [mutant for mutant in mutants(pytestconfig.rootpath / path) if mutant.operator == "DeleteCall"]
    assert any(mutant.text.startswith(text) for mutant in found)
