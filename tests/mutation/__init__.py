"""Mutation testing: small faults are put into the code one at a time, and a test must notice each of them.

Cosmic Ray's operators make the mutants. `make mutants` tries each with the unit tests that reach its line, and
lists the survivors. Those that were read and change nothing a test could see are in `accepted/`, with the reason.
"""
