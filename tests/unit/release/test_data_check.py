"""Before a release is confirmed at a terminal, a confidential data check is offered; it leaves no trace."""

import io
import sys

import pytest
import typer

from slowscale.cli.plans import release

PLAN = """[data]
path = "a.csv"
[data.types]
emp = "int64"
[tables.t.keys]
cross = { county = ["Texas"] }
[ledger]
path = "plan.ledger"
[tables.t.sums.emp]
mechanism = "gaussian"
sigma = 5
[output]
folder = "published"
"""
DATA = {
    "no record matches": "1,texas\n",
    "a record matches": "1,Texas\n",
    "a missing value": ",Texas\n",
    "not a number": "x,Texas\n",
    "a record with a further field": "1,Texas,x\n",
}
SHOWN = {
    "no record matches": ["No record has any of the keys", "county = 'texas'; the keys have 'Texas'"],
    "a record matches": ["0 are outside the keys"],
    "a missing value": ["the release would be refused"],
    "not a number": ["the release would be refused"],
    "a record with a further field": ["could not be inspected"],
}


class Stream(io.StringIO):
    """A stream that says whether it is a terminal."""

    terminal = True

    def isatty(self):
        return self.terminal


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path


def asked(folder, monkeypatch, answers, terminal=True):
    """Run the command at a terminal; return its exit code and what it printed there."""
    screen = Stream()
    screen.terminal = terminal
    monkeypatch.setattr(sys, "stdin", Stream(answers))
    monkeypatch.setattr(sys, "stderr", screen)
    code = 0
    try:
        release(folder / "plan.toml")
    except typer.Exit as stopped:
        code = stopped.exit_code
    return code, screen.getvalue()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_the_check_finds_is_on_the_screen_only(folder, monkeypatch, capsys):
    printed = {}
    for name, row in DATA.items():
        (folder / "a.csv").write_text(f"emp,county\n{row}")
        before = contents(folder)
        code, screen = asked(folder, monkeypatch, "y\nn\n")
        assert all(words in screen for words in SHOWN[name]), (name, screen)
        printed[name] = code, capsys.readouterr().out
        assert contents(folder) == before
    assert len(set(printed.values())) == 1
    assert printed["no record matches"][0] == 6


def test_the_check_can_be_declined(folder, monkeypatch, capsys):
    (folder / "a.csv").write_text("emp,county\n1,Texas\n")
    code, screen = asked(folder, monkeypatch, "n\ny\n")
    assert code == 0
    assert "CONFIDENTIAL" not in screen
    assert (folder / "published" / "t.parquet").exists()


def test_the_check_is_not_offered_if_its_result_would_reach_a_file(folder, monkeypatch, capsys):
    (folder / "a.csv").write_text("emp,county\n1,texas\n")
    code, screen = asked(folder, monkeypatch, "n\n", terminal=False)
    assert (code, screen) == (6, "")
    assert "outside the keys" not in capsys.readouterr().out
