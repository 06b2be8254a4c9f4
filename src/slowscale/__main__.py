"""`python -m slowscale` is the command `slowscale`."""

from slowscale.cli import main

main()
