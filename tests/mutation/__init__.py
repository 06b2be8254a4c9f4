"""Mutation testing: small faults are put into the code one at a time, and a test must notice each of them.

Cosmic Ray's operators make the mutants. `python -m mutation` (see `make mutants`) runs each against the tests that reach
the mutated line, and lists the survivors.
"""
