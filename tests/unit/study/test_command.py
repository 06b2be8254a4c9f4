"""The command `study`: what it refuses. tests/integration/test_cli.py runs it as a process."""

import sys

import pytest

from slowscale.cli.app import main


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--quick --repetitions 5", 2, "--quick excludes --repetitions"),
        ("--value x", 2, "--data, --value and --by go together"),
        ("--data t.csv", 2, "--data, --value and --by go together"),
        ("--data t.csv --value y --by g", 2, "value must name columns of the data, got 'y'; there are g, x"),
        ("--data t.csv --value x --by g", 3, "none below 0"),
        ("--data no.csv --value x --by g", 2, "no.csv"),
        ("--loss 5 --loss 0", 2, "--loss must be from 0.1 to 10000, got 0"),
        ("--loss nan", 2, "--loss must be from 0.1 to 10000, got nan"),
        ("--out t.csv", 2, "t.csv is a file"),
    ],
)
def test_a_study_that_cannot_be_made(tmp_path, monkeypatch, capsys, arguments, code, words):
    (tmp_path / "t.csv").write_text("g,x\na,1\nb,2\nc,-3\nd,4\ne,5\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["slowscale", "study", *arguments.split()])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == code
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_interrupted_study_says_how_to_continue(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("slowscale.study.run.run_study", interrupted)
    monkeypatch.setattr(sys, "argv", ["slowscale", "study", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert "Run the same command again" in capsys.readouterr().err


def test_an_interrupt_is_reported(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("slowscale.plan.read_plan", interrupted)
    monkeypatch.setattr(sys, "argv", ["slowscale", "check", "plan.toml"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 130
    assert "interrupted: nothing was charged" in capsys.readouterr().err
