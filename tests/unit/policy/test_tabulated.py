"""Losses that are read from tables: between the knots, at the ends, and in all notations."""

import math
from bisect import bisect_right
from dataclasses import replace
from xml.etree import ElementTree

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slowscale.policy import PowerPolicy
from slowscale.policy.tree import (
    LazyNumbers,
    Min,
    Number,
    Quotient,
    Symbol,
    Tabulated,
    Times,
    contains,
    formula_value,
)
from slowscale.policy.writing import latex, text
from slowscale.publish.report.mathml import equation

X = Symbol("x")
TABLE = Tabulated(Quotient(X, 2.0), (-1.0, 0.0, 2.0), (-3.0, -1.0, 0.5), "p=0.5")
CLOSED = PowerPolicy(sigma=2, p=0.5).to_zcdp()


def exact(size, table=TABLE):
    """Return the loss at a size with 30 digits, from the definition, by another search than numpy's."""
    with mpmath.workdps(30):
        if size == 0:
            return 0.0
        at = mpmath.log(mpmath.mpf(size) / 2)
        if at <= table.log_sizes[0]:
            return float(mpmath.exp(table.log_losses[0]))
        if at > table.log_sizes[-1]:
            return math.inf
        i = min(bisect_right(table.log_sizes, at), len(table.log_sizes) - 1)
        (x0, x1), (y0, y1) = (values[i - 1 : i + 1] for values in (table.log_sizes, table.log_losses))
        return float(mpmath.exp(y0 + (y1 - mpmath.mpf(y0)) * (at - x0) / (x1 - mpmath.mpf(x0))))


@given(st.floats(0, 1e3, allow_subnormal=False))
def test_values_are_interpolated_in_logarithms(size):
    assert formula_value(TABLE, {"x": size}) == pytest.approx(exact(size), rel=1e-13)


def test_knots_and_ends():
    sizes = 2 * np.exp([-50, -1, 0, 2])
    losses = formula_value(TABLE, {"x": sizes})
    np.testing.assert_allclose(losses, np.exp([-3, -3, -1, 0.5]), rtol=1e-12)
    assert formula_value(TABLE, {"x": 0.0}) == 0
    assert formula_value(TABLE, {"x": np.array([0.0, 1e300])}).tolist() == [0, math.inf]
    assert type(formula_value(TABLE, {"x": 1.0})) is np.float64


def test_the_smallest_of_several_bounds():
    both = Min((TABLE, CLOSED.formula(X)))
    sizes = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 50)])
    expected = np.minimum([exact(size) for size in sizes], CLOSED(sizes))
    np.testing.assert_allclose(formula_value(both, {"x": sizes}), expected, rtol=1e-9)
    assert formula_value(Min((Number(3), Number(2)))) == 2


def test_notations():
    both = Min((TABLE, Number(1)))
    assert text(TABLE) == "tight(x / 2; p=0.5)"
    assert text(both) == "min(tight(x / 2; p=0.5); 1)"
    assert text(Times(3, both)) == "3·(min(tight(x / 2; p=0.5); 1))"
    assert latex(both) == r"\min\left\{\operatorname{tight}\left(\frac{x}{2};\ \text{p=0.5}\right), 1\right\}"
    drawn = ElementTree.fromstring(equation(both, X))
    assert "".join(drawn.itertext()) == "P(x)=min{tight(x2;p=0.5),1}"
    assert len(repr(TABLE)) < 100


def test_names_are_escaped():
    named = Tabulated(X, (0.0, 1.0), (0.0, 1.0), "50 % <of> a_b & {c}")
    assert r"\text{50 \% <of> a\_b \& \{c\}}" in latex(named)
    assert "50 % <of> a_b & {c}" in "".join(ElementTree.fromstring(equation(named)).itertext())


def test_a_table_depends_on_its_base():
    assert contains(TABLE, Symbol)
    assert contains(TABLE, Quotient)
    assert not contains(Tabulated(Number(1), (0.0, 1.0), (0.0, 1.0), ""), Symbol)


def test_knots_are_computed_when_they_are_needed():
    computed = []

    def knots():
        computed.append(1)
        return np.array(TABLE.log_losses)

    lazy = replace(TABLE, log_losses=LazyNumbers(knots))
    for write in (text, latex, equation, repr):
        write(Times(2, Min((lazy, Number(1)))))
    contains(lazy, Number)
    assert not computed
    assert formula_value(lazy, {"x": 1.5}) == formula_value(TABLE, {"x": 1.5})
    assert (lazy, hash(lazy)) == (TABLE, hash(TABLE))
    assert TABLE == lazy == replace(TABLE, log_losses=LazyNumbers(knots))
    assert lazy.log_losses[1:] == TABLE.log_losses[1:]
    assert lazy != replace(TABLE, log_losses=LazyNumbers(lambda: (0.0, 1.0, 2.0)))
    assert len(computed) == 2
