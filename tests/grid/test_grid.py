"""Every combination is run whole; then again, with the same bits, on neighbouring records.

16 combinations have every pair of values of the eight dimensions. In each, everything that the library offers is done,
losses are compared with those that follow from the noise, and the numbers with the exact sums. Then the same is done on
records of which one was taken out, put in or changed: nothing but its own cells may move.
"""

import re
from pathlib import Path

import pytest

from grid import adapter
from grid.cases import DIMENSIONS, covering, every_pair, pairs, with_neighbours
from grid.checks import check_pair, check_run
from grid.records import NEIGHBOURS, base, disguised, is_refused

NEIGHBOURS_EACH = 3
CHOSEN, MET = with_neighbours(tuple(NEIGHBOURS), NEIGHBOURS_EACH)


def marked(case):
    return pytest.param(case, id=str(case), marks=[pytest.mark.xdist_group("postgres")] * (case.source == "postgres"))


def test_every_pair_of_values_is_covered():
    assert set().union(*map(pairs, covering())) == every_pair()
    assert len(covering()) == 16
    values = {(name, value) for name, some in DIMENSIONS.items() for value in some}
    assert all(len(values - met) <= 5 for met in MET.values())


def test_everything_that_is_offered_is_in_the_grid():
    known = Path(adapter.__file__).read_text(encoding="utf-8")
    offered = adapter.offered()
    assert offered >= adapter.ELSEWHERE
    assert {name for name in offered - adapter.ELSEWHERE if not re.search(rf'[."]{name}[("]', known)} == set()


@pytest.mark.parametrize("case", [marked(case) for case in covering()])
def test_combination(case, tmp_path):
    before = base(case)
    first = run(case, before, tmp_path / "base", adapter.WHOLE)
    for number, kind in enumerate(CHOSEN[case]):
        after = NEIGHBOURS[kind](case, before)
        depth = adapter.BRIEF if number else adapter.PUBLIC
        second = run(case, after, tmp_path / str(number), depth)
        check_pair(case, before, after, first, second, whole=depth == adapter.PUBLIC)
        if is_refused(case, after):
            other = run(case, disguised(after), tmp_path / f"{number} again", adapter.BRIEF)
            assert other.refused == second.refused, "the error depends on more than that there is such a record"


def run(case, rows, folder, depth):
    folder.mkdir()
    outcome = adapter.run(case, rows, folder, depth)
    check_run(case, rows, outcome)
    return outcome
