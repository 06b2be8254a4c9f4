"""The command `slowscale`: it parses arguments, calls the library and prints.

Exit codes: 0 done; 1 a bug in slowscale; 2 a wrong command, option or plan; 3 data or an engine that cannot be used;
4 refused by a cap; 5 a ledger that cannot be used or fails verification; 6 not confirmed; 130 interrupted.

`--help` must answer at once, so the files imported at the start (all but `printing`) import the rest of the library
inside the functions that use it.
"""

from slowscale.cli.app import main

__all__ = ["main"]
