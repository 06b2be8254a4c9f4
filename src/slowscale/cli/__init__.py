"""The command `slowscale`: it parses arguments, calls the library and prints.

Exit codes: 0 done; 1 a bug in slowscale; 2 a wrong command, option or plan; 3 data or an engine that cannot be used;
4 refused by a cap; 5 a ledger that cannot be used or fails verification; 6 not confirmed; 130 interrupted.

`--help` must answer at once, so the files imported at the start (all but `printing`) import the rest of the library
inside the functions that use it.
"""

import signal


def main() -> None:
    """Run the command. Ctrl-C before it starts ends the process without a word."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from slowscale.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    run()
