"""The dimensions of the grid, and a small set of combinations in which every pair of values occurs."""

from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations, product

DIMENSIONS = {
    "tables": ("one", "set"),
    "ledger": ("none", "open", "capped"),
    "protected": ("records", "entities"),
    "accounting": ("closed", "tight"),
    "column": ("stored", "derived"),
    "statistic": ("additive", "root", "log", "count", "mean"),
    "source": ("csv", "parquet", "postgres"),
    "odd": ("zero", "error"),  # missing values, and negative ones where they cannot be summed
}


@dataclass(frozen=True)
class Case:
    """One combination."""

    tables: str
    ledger: str
    protected: str
    accounting: str
    column: str
    statistic: str
    source: str
    odd: str

    def __str__(self):
        return "-".join(getattr(self, field.name) for field in fields(self))


def pairs(case):
    """Return the pairs of values that occur in a combination, each value with its dimension."""
    return set(combinations([(name, getattr(case, name)) for name in DIMENSIONS], 2))


def every_pair():
    names = list(DIMENSIONS)
    return {
        ((one, a), (other, b))
        for one, other in combinations(names, 2)
        for a, b in product(DIMENSIONS[one], DIMENSIONS[other])
    }


@cache
def covering():
    """Return combinations that cover every pair: each is the one with the most pairs that are not yet covered.

    The first one wins where several have as many, so that the result is always the same.
    """
    known = {case: pairs(case) for case in (Case(*values) for values in product(*DIMENSIONS.values()))}
    left, found = every_pair(), []
    while left:
        best = max(known, key=lambda case: len(known[case] & left))
        found.append(best)
        left -= known[best]
    return tuple(found)


@cache
def with_neighbours(kinds, each):
    """Return, for each combination, some kinds of neighbours, so that a kind meets as many values as possible.

    A kind that has met fewer values comes first; every kind meets every value if there are enough combinations.
    """
    met = {kind: set() for kind in kinds}
    found = {}
    for case in covering():
        values = {(name, getattr(case, name)) for name in DIMENSIONS}
        chosen = []
        for _ in range(each):
            rest = [kind for kind in kinds if kind not in chosen]
            chosen.append(max(rest, key=lambda kind: (len(values - met[kind]), -len(met[kind]))))
            met[chosen[-1]] |= values
        found[case] = tuple(chosen)
    return found, met
