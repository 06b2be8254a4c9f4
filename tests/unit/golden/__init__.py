"""How each reference fact is computed again, in one module per section of the paper.

A check is registered for a pattern of fact ids and returns the value it finds, by the library where it has the quantity
and from scratch where it does not, for `test_golden.py` to compare with the fact; what a fact says besides, in its
parameters and notes, is asserted inside the check.
"""

from unit.golden import (  # importing a module registers its checks
    additive,
    choosing,
    composition,
    experiment,
    grids,
    intervals,
    medians,
    protecting_values,
    transformations,
)
from unit.golden.facts import CHECKS, FACTS, WORDING_ONLY, About

__all__ = [
    "CHECKS",
    "FACTS",
    "WORDING_ONLY",
    "About",
    "additive",
    "choosing",
    "composition",
    "experiment",
    "grids",
    "intervals",
    "medians",
    "protecting_values",
    "transformations",
]
