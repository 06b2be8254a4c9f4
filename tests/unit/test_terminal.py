"""What commands print: names, labels and reasons come from files, and must not control the terminal."""

import json
import re
import unicodedata
from pathlib import Path

import pandas as pd
import pytest
from helpers.commands import run_command

import slowscale as ss
from slowscale import cli
from slowscale.core.markup import terminal_json, terminal_text

CLEAR, TURN, NEXT_LINE = "\x1b[2J", "\u202e", "\x85"
COLUMN, LABEL, DATASET = f"emp{TURN}", f"IA{CLEAR}", f"farms{CLEAR}{NEXT_LINE}"
PLAN = """
[data]
path = "farms.csv"
name = {dataset}
types = {{ {column} = "int64" }}
where = "state <> '{clear}'"
[tables.t.keys.cross]
state = [{label}, "TX"]
[tables.t.sums.{column}]
mechanism = "gaussian"
sigma = 10
{ledger}
[output]
folder = "out"
"""


@pytest.fixture
def folder(tmp_path):
    pd.DataFrame({"state": [LABEL, "TX"], COLUMN: [5, 7]}).to_csv(tmp_path / "farms.csv", index=False)
    write_plan(tmp_path, '[ledger]\npath = "farms.ledger"')
    return tmp_path


def write_plan(folder, ledger):
    texts = {"dataset": DATASET, "column": COLUMN, "label": LABEL}
    written = PLAN.format(**{name: json.dumps(text) for name, text in texts.items()}, clear="\\u001b", ledger=ledger)
    (folder / "plan.toml").write_text(written)


def controls(text):
    """Return the characters of a text that control a terminal or reorder a line."""
    return {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")} - {"\n"}


def test_no_command_prints_control_characters(folder):
    run_quietly = [
        ("check", "plan.toml"),
        ("check", "plan.toml", "--json"),
        ("inspect", "plan.toml"),
        ("release", "plan.toml", "--yes"),
        ("check", "plan.toml", "--overwrite"),
        ("explain", "plan.toml", "--record", f"{COLUMN}=3"),
        ("quantiles", "plan.toml", "--column", f"no{CLEAR}", "--loss", "0.1", "--yes"),
        ("ledger", "show", "farms.ledger"),
        ("ledger", "show", "farms.ledger", "--json"),
        ("ledger", "history", "farms.ledger"),
        ("ledger", "history", "farms.ledger", "--json"),
        ("ledger", "set-cap", "farms.ledger", f"x{CLEAR}", "--mechanism", "gaussian", "--reason", "y"),
        ("ledger", "verify", f"none{CLEAR}.ledger"),
        ("check", f"none{CLEAR}.toml"),
    ]
    codes = []
    for arguments in run_quietly:
        done = run_command(arguments, folder)
        assert not controls(done.stdout + done.stderr), (arguments, done.stdout, done.stderr)
        codes.append(done.returncode)
        if "--json" in arguments and done.returncode == 0:
            json.loads(done.stdout)
    assert codes[:5] == [0, 0, 0, 0, 0]


def test_names_and_reasons_are_one_line(tmp_path):
    """A reason with a line break cannot look like another entry or another cap."""
    path = tmp_path / "farms.ledger"
    ledger = ss.Ledger(
        path, {"x": ss.Gaussian(sigma=10).policy}, dataset="a\nCap on x: a record never loses more than 1"
    )
    ledger.set_cap("x", ss.Gaussian(sigma=1).policy, f"more\n    9  2020-01-01  release{CLEAR}")
    for command in ("show", "history"):
        done = run_command(["ledger", command, path], tmp_path)
        assert "\\n    9  2020-01-01  release\\x1b[2J" in done.stdout
        assert not any(
            line.startswith(("    9  ", "Cap on x: a record never loses more than 1"))
            for line in done.stdout.splitlines()
        )


def test_commands_print_by_one_function():
    """`echo` and `print_json` escape what a terminal would obey."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        text = path.read_text()
        assert "typer.echo(" not in text, path
        assert "typer.secho" not in text
        assert not re.search(r"(?<![.\w])print\(", text) or path.name == "shared.py", path


def test_escapes():
    text = f"ü\u00a0漢字 😀{CLEAR}{TURN}{NEXT_LINE}\t\r\n\x7f\ud800\U000e0001"
    assert terminal_text(text) == "ü\u00a0漢字 😀\\x1b[2J\\u202e\\x85\\t\\r\n\\x7f\\ud800\\U000e0001"
    assert terminal_text("a\nb", "") == "a\\nb"
    written = json.dumps({"x": text}, ensure_ascii=False)
    assert json.loads(terminal_json(written)) == {"x": text}
    assert not controls(terminal_json(written))


def test_check_without_a_ledger_does_not_say_that_nothing_was_released(folder):
    write_plan(folder, "")
    assert run_command(["release", "plan.toml", "--yes"], folder).returncode == 0
    done = run_command(["check", "plan.toml", "--overwrite"], folder)
    assert "There is no ledger: nothing is recorded, and losses of repeated releases are not added up." in done.stdout
    assert "released before" not in done.stdout
