"""Every reference fact, computed again (`golden/` says how) and compared with its true value and with what the paper
prints: the verdict `ok` is tested too, since a right value rounds to what is printed and a wrong one does not.
"""

import math
import operator
import re
from decimal import Decimal

import pytest

from unit.golden import CHECKS, FACTS, WORDING_ONLY, About

COMPARE = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def matching(fact):
    return [found for found in CHECKS if found.pattern.fullmatch(fact.id)]


def agrees(fact, value):
    """Whether the paper's value is right when this is the true one."""
    if isinstance(fact.paper, str):
        if about := re.fullmatch(r"about (\d+)", fact.paper):
            return math.isclose(value, float(about[1]), rel_tol=0.15)
        if bound := re.match(r"(<=|>=|<|>) ?([\d.]+)", fact.paper):
            return COMPARE[bound[1]](value, float(bound[2]))
        return value == fact.paper
    if fact.kind in ("printed", "reference"):
        half_a_digit = 0.5 * 10 ** Decimal(repr(fact.paper)).as_tuple().exponent
        return abs(value - fact.paper) <= half_a_digit
    return math.isclose(value, fact.paper, rel_tol=1e-9, abs_tol=0 if fact.paper else 1e-6)


@pytest.mark.parametrize(
    "fact", [pytest.param(fact, id=f"{fact.source}: {fact.id}") for fact in FACTS if fact.id not in WORDING_ONLY]
)
def test_fact(fact):
    [found] = matching(fact)
    value = found.compute(fact, *found.pattern.fullmatch(fact.id).groups())
    error = found.abs
    if isinstance(value, About):
        value, error = value
    if isinstance(fact.truth, float | list):
        assert value == pytest.approx(fact.truth, rel=found.rel, abs=error)
    else:
        assert type(value) is type(fact.truth)
        assert value == fact.truth
    if "mc_se" in fact.parameters:
        assert abs(value - fact["mc"]) <= 6 * fact["mc_se"]
    if fact.ok is not None and fact.paper is not None:
        assert (found.agrees or agrees)(fact, value) == fact.ok


def test_every_fact_has_one_check_and_every_check_a_fact():
    assert len(FACTS) == 1220
    assert len({fact.id for fact in FACTS}) == len(FACTS)
    assert [fact.id for fact in FACTS if len(matching(fact)) != (fact.id not in WORDING_ONLY)] == []
    assert [c.pattern.pattern for c in CHECKS if not any(c.pattern.fullmatch(fact.id) for fact in FACTS)] == []


def test_only_facts_about_words_are_not_computed():
    facts = [fact for fact in FACTS if not matching(fact)]
    assert {fact.id for fact in facts} == set(WORDING_ONLY)
    assert all(isinstance(fact.true_value, str) and isinstance(fact.paper, str) for fact in facts)
    assert len(WORDING_ONLY) <= 5


def test_the_double_of_a_fact_is_its_digits_rounded():
    for fact in FACTS:
        if fact.true_value is None:  # nothing to compute, or beyond the doubles
            assert fact.truth in (None, 0, math.inf)
        elif fact.true_digits is not None:
            assert fact.truth == (float(fact.true_value) if isinstance(fact.true_value, str) else fact.true_value)
