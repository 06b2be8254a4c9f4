"""The helper that runs the command in a forked process: it ends as the program would."""

import pytest
from helpers.commands import _exit_code


@pytest.mark.parametrize(
    ("given", "code", "printed"),
    [((), 0, ""), ((0,), 0, ""), ((4,), 4, ""), ((False,), 0, ""), (("no data",), 1, "no data\n"), (("",), 1, "\n")],
)
def test_a_command_ends_with_the_code_of_the_program(given, code, printed, capsys):
    assert _exit_code(SystemExit(*given)) == code
    assert capsys.readouterr().err == printed
