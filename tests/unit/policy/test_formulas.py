"""Formulas as trees: they have the values of their policies, and are written in several ways."""

import re
from dataclasses import FrozenInstanceError, dataclass, fields
from xml.etree import ElementTree

import numpy as np
import pytest
from helpers.errors import refused
from helpers.strategies import log_uniform, policies, pure_policies
from hypothesis import given, settings
from hypothesis import strategies as st

import slowscale as ss
from slowscale.policy import (
    POLICY_KINDS,
    ArsinhNormalPolicy,
    ArsinhPolicy,
    ComposedPolicy,
    ConstantPolicy,
    LaplacePolicy,
    LogPolicy,
    MaxPolicy,
    PointsPolicy,
    Policy,
    PolylogPolicy,
    PowerPolicy,
    RankPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    TransformationPolicy,
    UnitSplittingPolicy,
)
from slowscale.policy.tree import (
    Absolute,
    Difference,
    Formula,
    KthRoot,
    LargestRise,
    Number,
    Product,
    Quotient,
    RoundedUp,
    Shift,
    Symbol,
    contains,
    formula_value,
)
from slowscale.policy.writing import latex, text
from slowscale.publish.report.mathml import equation, policy_equation

GAUSSIAN = RootPolicy(k=1, sigma=75)
LAPLACE = PowerPolicy(sigma=2, p=1)
# One policy per kind of formula: its text, its LaTeX, and the characters of its MathML.
FORMS = [
    (ConstantPolicy(0.5), "0.5", "0.5", "P(x)=0.5"),
    (RankPolicy(0.25), "0.25", "0.25", "P(x)=0.25"),
    (GAUSSIAN, "Δ² / (2·75²)", r"\frac{\Delta(r)^{2}}{2 \cdot 75^2}", "P(x)=x22·752"),
    (RootPolicy(k=2, sigma=5), "Δ / (2·5²)", r"\frac{\Delta(r)^{1}}{2 \cdot 5^2}", "P(x)=x12·52"),
    (RootPolicy(k=2.5, sigma=5), "Δ^(0.8) / (2·5²)", r"\frac{\Delta(r)^{0.8}}{2 \cdot 5^2}", "P(x)=x0.82·52"),
    (RootPolicy(k=3, sigma=5), "Δ^(2/3) / (2·5²)", r"\frac{\Delta(r)^{2/3}}{2 \cdot 5^2}", "P(x)=x2/32·52"),
    (
        RootPolicy(k=4, sigma=2, a=1),
        "((Δ + 1)^(1/4) − 1^(1/4))² / (2·2²)",
        r"\frac{\left(\sqrt[4]{\Delta(r) + 1} - \sqrt[4]{1}\right)^2}{2 \cdot 2^2}",
        "P(x)=(x+14−14)22·22",
    ),
    (
        LogPolicy(sigma=0.5),
        "ln(Δ + 1)² / (2·0.5²)",
        r"\frac{\ln(\Delta(r) + 1)^2}{2 \cdot 0.5^2}",
        "P(x)=ln(x+1)22·0.52",
    ),
    (
        LogPolicy(sigma=2e-5, a=3),
        "(ln(Δ + 3) − ln(3))² / (2·2e-05²)",
        r"\frac{\left(\ln(\Delta(r) + 3) - \ln(3)\right)^2}{2 \cdot 2e-05^2}",
        "P(x)=(ln(x+3)−ln(3))22·(2×10−5)2",
    ),
    (
        TransformationPolicy(np.log1p, 2, -0.5),
        "(f(Δ − 0.5) − f(-0.5))² / (2·2²)",
        r"\frac{\left(f(\Delta(r) - 0.5) - f(-0.5)\right)^2}{2 \cdot 2^2}",
        "P(x)=(f(x−0.5)−f(−0.5))22·22",
    ),
    (
        LaplacePolicy(sigma=2),
        "u + e^(−u) − 1 with u = Δ / 2",
        r"u + e^{-u} - 1 \text{ with } u = \frac{\Delta(r)}{2}",
        "P(x)=u+e−u−1\u00a0with\u00a0u=x2",
    ),
    (
        ArsinhPolicy(s=50, sigma=2),
        "(2·arsinh(Δ / 100))² / (2·2²)",
        r"\frac{\left(2 \operatorname{arsinh}\left(\frac{\Delta(r)}{100}\right)\right)^2}{2 \cdot 2^2}",
        "P(x)=(2arsinh(x100))22·22",
    ),
    (
        ComposedPolicy(LAPLACE, RootPolicy(k=4, sigma=1, a=3)),
        "((Δ + 3)^(1/4) − 3^(1/4)) / 2",
        r"\frac{\sqrt[4]{\Delta(r) + 3} - \sqrt[4]{3}}{2}",
        "P(x)=x+34−342",
    ),
    (LAPLACE, "Δ / 2", r"\frac{\Delta(r)}{2}", "P(x)=x2"),
    (
        PowerPolicy(sigma=6.84e9, p=0.5),
        "(Δ / 6.84e+09)^0.5",
        r"\left(\frac{\Delta(r)}{6.84e+09}\right)^{0.5}",
        "P(x)=(x(6.84×109))0.5",
    ),
    (
        PolylogPolicy(d=0.2),
        "0.2·(ln(Δ + 2.71828)^2 − 1)",
        r"0.2 \left[\ln\left(\Delta(r) + 2.71828\right)^{2} - 1\right]",
        "P(x)=0.2[ln(x+2.71828)2−1]",
    ),
    (
        PolylogPolicy(d=4, sigma=5, a=3, p=1),
        "4·(ln(Δ/5 + 3) − 1.09861)",
        r"4 \left[\ln\left(\frac{\Delta(r)}{5} + 3\right) - 1.09861\right]",
        "P(x)=4[ln(x5+3)−1.09861]",
    ),
    (PointsPolicy([(10, 0.5)]), "Δ / 20", r"\frac{\Delta(r)}{20}", "P(x)=x20"),
    (
        PointsPolicy([(10, 0.5), (1000, 5)]),
        "{Δ / 20 up to 10; 0.5·(Δ / 10)^0.5 beyond}",
        r"\begin{cases} \frac{\Delta(r)}{20} & \text{if } \Delta(r) \le 10 \\ "
        r"0.5 \left(\frac{\Delta(r)}{10}\right)^{0.5} & \text{otherwise} \end{cases}",
        "P(x)={x20if\u00a0x≤100.5(x10)0.5otherwise",
    ),
    (
        ArsinhNormalPolicy(scale=4.95, shape=1.6),
        "max over z of ψ(z + Δ) − ψ(z) with ψ(z) = arsinh(z/4.95)² / (2·1.6²) + ln(1 + (z/4.95)²) / 2",
        r"\max_z \left[\psi(z + \Delta(r)) - \psi(z)\right] \text{ with } \psi(z) = "
        r"\frac{\operatorname{arsinh}(z/4.95)^2}{2 \cdot 1.6^2} + \frac{\ln(1 + (z/4.95)^2)}{2}",
        "P(x)=maxz[ψ(z+x)−ψ(z)]\u00a0with\u00a0ψ(z)=arsinh(z/4.95)22·1.62+ln(1+(z/4.95)2)2",
    ),
    (
        UnitSplittingPolicy(threshold=10, sigma=50),
        "0.02·⌈Δ / 10⌉²",
        r"0.02 \left\lceil \frac{\Delta(r)}{10} \right\rceil^2",
        "P(x)=0.02⌈x10⌉2",
    ),
    (
        TanhPolicy(LAPLACE),
        "tanh(ε/2)·ε with ε = Δ / 2",
        r"\tanh(\varepsilon/2)\,\varepsilon \text{ with } \varepsilon = \frac{\Delta(r)}{2}",
        "P(x)=tanh(ε/2)ε\u00a0with\u00a0ε=x2",
    ),
    (
        SumPolicy((GAUSSIAN, TimesPolicy(1234567, TanhPolicy(LAPLACE)))),
        "Δ² / (2·75²) + (1234567·(tanh(ε/2)·ε with ε = Δ / 2))",
        r"\left(\frac{\Delta(r)^{2}}{2 \cdot 75^2}\right) + \left(1234567 \left(\tanh(\varepsilon/2)\,\varepsilon "
        r"\text{ with } \varepsilon = \frac{\Delta(r)}{2}\right)\right)",
        "P(x)=(x22·752)+(1234567(tanh(ε/2)ε\u00a0with\u00a0ε=x2))",
    ),
    (
        MaxPolicy((GAUSSIAN, ConstantPolicy(1))),
        "max(Δ² / (2·75²); 1)",
        r"\max\left\{\frac{\Delta(r)^{2}}{2 \cdot 75^2}, 1\right\}",
        "P(x)=max{x22·752,1}",
    ),
]


@pytest.mark.parametrize(("policy", "as_text", "as_latex", "as_mathml"), FORMS)
def test_each_form_is_written(policy, as_text, as_latex, as_mathml):
    assert str(policy) == as_text
    assert policy.latex() == as_latex
    tree = ElementTree.fromstring(policy_equation(policy, "x"))
    assert "".join(tree.itertext()) == as_mathml
    # A power has a base and an exponent, a fraction two parts, a root two.
    assert all(len(e) == 2 for e in tree.iter() if e.tag.endswith(("msup", "mfrac", "mroot")))


@pytest.mark.parametrize(
    ("formula", "as_text", "as_latex"),
    [
        (Shift(Symbol("x"), 0.5), "x + 0.5", "x + 0.5"),
        (Shift(Symbol("x"), 0.0), "x + 0", "x + 0"),
        (Shift(Symbol("x"), -0.5), "x − 0.5", "x - 0.5"),
        (KthRoot(Symbol("x"), 1), "x", "x"),
        (KthRoot(Symbol("x"), 2), "x^(1/2)", r"\sqrt[2]{x}"),
    ],
)
def test_shifts_and_roots_are_written(formula, as_text, as_latex):
    assert text(formula) == as_text
    assert latex(formula) == as_latex


def test_formulas_are_values():
    """Equal formulas are interchangeable, also as keys of a dictionary, and none of them can be changed."""
    kinds, todo = [], [Formula]
    while todo:
        todo += (found := todo.pop().__subclasses__())
        kinds += [kind for kind in found if kind.__module__ == Formula.__module__]
    assert len(kinds) == 24
    for kind in kinds:
        one, two = (kind(*["x"] * len(fields(kind))) for _ in range(2))
        assert (one, hash(one)) == (two, hash(two))
        with pytest.raises(FrozenInstanceError):
            setattr(one, fields(kind)[0].name, "y")
        assert contains(one, kind)


def test_the_forms_are_of_every_kind():
    """A new kind needs an example above, so that all its notations are tested."""
    assert {policy.kind for policy, *_ in FORMS} | {"times", "tight", "band"} == set(
        POLICY_KINDS
    )  # see test_tabulated.py and below


# --- values ----------------------------------------------------------------------------------------------------------


def scale(policy):
    """Return roughly the largest size below which a plain evaluation loses digits."""
    inner = [*getattr(policy, "terms", ()), *(getattr(policy, name, None) for name in ("pure", "policy"))]
    own = getattr(policy, "sigma", 1) * getattr(policy, "a", 1), getattr(policy, "a", 1), getattr(policy, "sigma", 1)
    return max([*own, *(scale(part) for part in inner if part is not None)])


def accuracy(policy):
    """Return how near formula and policy are; the policy of the arsinh-normal is read from a table, slightly above."""
    return 5e-7 if contains(policy.formula(), LargestRise) else 1e-7


@settings(max_examples=300)
@given(policy=st.one_of(policies, pure_policies), ratio=log_uniform(0.01, 1e6))
def test_formulas_have_the_values_of_their_policies(policy, ratio):
    sizes = scale(policy) * ratio * np.array([1, 2.5, 1e3])
    np.testing.assert_allclose(formula_value(policy.formula(), {"Δ": sizes}), policy(sizes), rtol=accuracy(policy))


@pytest.mark.parametrize("f", [np.sqrt, np.log1p])
def test_formulas_of_user_given_functions(f):
    policy = TransformationPolicy(f, 2, 1)
    assert formula_value(policy.formula(), {"Δ": 7.0}) == pytest.approx(policy(7.0))


CHANGES = [{}, {"add": 1}, {"add": 1, "loose": True}]
BANDS = [{}, {"loose": True}, {"moves": True}]


@settings(max_examples=200)
@given(policy=policies, ratio=log_uniform(0.1, 1e4))
def test_formulas_between_values_have_the_values_of_bounded_policies(policy, ratio):
    size = scale(policy) * ratio
    for change in CHANGES:
        change = {**change, "add": size / 2} if "add" in change else change
        bounded = ss.BoundedPolicy(policy, **change)
        given_values = (size,) if change else (size, 3 * size)
        found = formula_value(bounded.formula(), {"r": size, "r'": 3 * size})
        assert found == pytest.approx(bounded(*given_values), rel=accuracy(policy)), str(bounded)
    for how in BANDS:
        band = ss.BandPolicy(policy, 2.5, **how)
        assert formula_value(band.formula(), {"Δ": size}) == pytest.approx(band(size), rel=accuracy(policy)), str(band)


def test_texts_between_values_say_what_is_evaluated():
    assert str(ss.Root(k=4, sigma=2).band_policy(times=3)) == "(Δ^(1/4) − (3·Δ)^(1/4))² / (2·2²)"
    twice = ss.BoundedPolicy(2 * (RootPolicy(k=4, sigma=2, a=1) + ConstantPolicy(0.5)))
    assert str(twice) == "2·(((r + 1)^(1/4) − (r' + 1)^(1/4))² / (2·2²) + 2)"


# --- names and brackets ----------------------------------------------------------------------------------------------


def test_names_of_columns_are_not_parsed():
    """Brackets depend on the formula only; the name of a column may contain any text."""
    record = ss.RecordPolicy((("farms with cattle", LAPLACE.to_zcdp()), ("work with pay", LogPolicy(sigma=1))))
    assert str(record) == "(tanh(ε/2)·ε with ε = farms with cattle / 2) + ln(work with pay + 1)² / (2·1²)"
    assert str(ss.RecordPolicy((("annual pay", GAUSSIAN),))) == "(annual pay)² / (2·75²)"
    parts = ss.RecordPolicy((("pay", GAUSSIAN),)) | ss.RecordPolicy((("pay", LAPLACE.to_zcdp()),))
    assert str(parts) == "max of [pay² / (2·75²); tanh(ε/2)·ε with ε = pay / 2]"
    assert str(parts + ss.RecordPolicy(((None, ConstantPolicy(1)),))) == f"1 + ({parts})"
    assert str(ss.RecordPolicy(())) == "0"


def test_names_in_mathml_are_escaped():
    drawn = str(policy_equation(GAUSSIAN, '<i>"&'))
    assert '[<i>"&]' in "".join(ElementTree.fromstring(drawn).itertext())
    assert re.search(r"<i>|\"&", drawn.replace('"&#', "")) is None


def test_formulas_that_no_single_policy_has():
    x = Symbol("x")
    for formula, as_text, as_latex, as_mathml in [
        (Absolute(x), "|x|", r"\left|x\right|", "P=|x|"),
        (RoundedUp(x, 5), "5·⌈x / 5⌉", r"5 \left\lceil \frac{x}{5} \right\rceil", "P=5⌈x5⌉"),
        (Product(Number(2), Quotient(x, 3)), "2·x / 3", r"2 \frac{x}{3}", "P=2x3"),
        (Difference(x, Shift(x, 3)), "x − (x + 3)", r"x - \left(x + 3\right)", "P=x−(x+3)"),
    ]:
        assert (text(formula), latex(formula)) == (as_text, as_latex)
        assert "".join(ElementTree.fromstring(equation(formula)).itertext()) == as_mathml


def test_unknown_nodes_are_refused():
    class Other(Formula):
        pass

    for write in (text, latex, formula_value, equation):
        with pytest.raises(TypeError, match=r"formula must be a node of slowscale\.policy\.tree"):
            write(Other())


def test_contains():
    assert contains((GAUSSIAN + ConstantPolicy(1)).formula(), Symbol)
    assert not contains((2 * ConstantPolicy(1)).formula(), Symbol)


# --- kinds -----------------------------------------------------------------------------------------------------------


def test_a_policy_registers_itself():
    try:

        @dataclass(frozen=True)
        class Toy(Policy):
            kind = "toy"
            loss: float = 1.0

            def _loss(self, influence):
                return np.full_like(influence, self.loss)

            def formula(self, x=None):
                return Number(self.loss)

        assert ss.Policy.from_dict({"kind": "toy", "loss": 2.0}) == Toy(2.0)
        assert str(Toy(2.0) + GAUSSIAN) == "2 + Δ² / (2·75²)"
        with refused(ss.ParameterError, "kind", code="value"):
            ss.Policy.from_dict({"kind": "none"})
        with refused(ss.ParameterError, "kind", code="duplicate"):
            type("Another", (Policy,), {"kind": "toy"})
    finally:
        POLICY_KINDS.pop("toy", None)
