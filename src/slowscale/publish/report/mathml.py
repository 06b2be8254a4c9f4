"""Formulas of policies as MathML, which browsers render without scripts.

A formula becomes a row of elements. As in LaTeX, an exponent is attached to the last element of its base: to the whole
bracketed expression where the brackets grow with their content, and otherwise to the closing bracket.
"""

import re
from collections.abc import Iterable
from html import escape

from markupsafe import Markup

from slowscale.policy import Policy
from slowscale.policy.tree import (
    Absolute,
    Arsinh,
    Call,
    Difference,
    Formula,
    HalfSquare,
    KthRoot,
    LaplaceShift,
    LargestRise,
    Logarithm,
    Max,
    Min,
    Number,
    Pieces,
    Power,
    Product,
    Quotient,
    RoundedUp,
    Shift,
    Sum,
    Symbol,
    Tabulated,
    Tanh,
    Times,
    per_piece,
)
from slowscale.policy.writing import number, root_square

Row = list[str]
EQUALS, PLUS, MINUS = "<mo>&#x0003D;</mo>", "<mo>&#x0002B;</mo>", "<mo>&#x02212;</mo>"
TIMES, DOT, SLASH, COMMA = "<mo>&#x000D7;</mo>", "<mo>&#x000B7;</mo>", "<mo>&#x0002F;</mo>", "<mo>&#x0002C;</mo>"
OPEN, CLOSE = '<mo stretchy="false">&#x00028;</mo>', '<mo stretchy="false">&#x00029;</mo>'
SEMICOLON = "<mo>&#x0003B;</mo>"
EPSILON, SPACE = "<mi>&#x003B5;</mi>", '<mspace width="0.167em" />'
WITH, IF = "<mtext>&#x000A0;with&#x000A0;</mtext>", "<mtext>if&#x000A0;</mtext>"
OTHERWISE, AT_MOST = "<mtext>otherwise</mtext>", "<mo>&#x02264;</mo>"
ROUND, SQUARE, CURLY = ("&#x00028;", "&#x00029;"), ("[", "]"), ("&#x0007B;", "&#x0007D;")
CEILING, BARS = ("&#x02308;", "&#x02309;"), ("|", "|")
TWO = "<mn>2</mn>"
Z, PSI = "<mi>z</mi>", "<mi>&#x003C8;</mi>"


def policy_equation(policy: Policy, column: str | None) -> Markup:
    """Return the equation of a policy, with the column's name for the influence."""
    variable = Symbol(column or "")
    return equation(policy.formula(variable), None if column is None else variable)


def equation(formula: Formula, variable: Symbol | None = None) -> Markup:
    """Return P(variable) = formula, or P = formula, as a MathML element."""
    name = [] if variable is None else [OPEN, *row(variable), CLOSE]
    parts = ["<mi>P</mi>", *name, EQUALS, *row(formula)]
    return Markup(f'<math xmlns="http://www.w3.org/1998/Math/MathML" displaystyle="true">{_group(parts)}</math>')


def row(formula: Formula) -> Row:
    """Return a formula as a sequence of MathML elements."""
    match formula:
        case Number(value):
            return _number(value)
        case Symbol(name):
            text = escape(name)
            return [f"<mtext>[{text}]</mtext>" if re.search(r"\W", name) else f"<mi>{text}</mi>"]
        case Shift(base, by):
            return [*row(base), PLUS if by >= 0 else MINUS, *_number(abs(by))]
        case Difference(left, right):
            return [*row(left), MINUS, *_factor(right)]
        case Product(left, Difference() as right):
            return [*row(left), _fenced(SQUARE, row(right))]
        case Product(left, right):
            return [*_factor(left), *_factor(right)]
        case Quotient(top, bottom):
            return [_fraction(row(top), _number(bottom))]
        case Power(base, exponent):
            return _raised(_atom(base), _group(_number(exponent)))
        case KthRoot(base, k):
            return row(base) if k == 1 else [f"<mroot>{_group(row(base))}<mn>{k}</mn></mroot>"]
        case Logarithm(base, tall):
            return ["<mi>ln</mi>", *([_fenced(ROUND, row(base))] if tall else [OPEN, *row(base), CLOSE])]
        case Arsinh(base):
            return ["<mi>arsinh</mi>", _fenced(ROUND, row(base))]
        case Absolute(base):
            return [_fenced(BARS, row(base))]
        case RoundedUp(base, step):
            return [*_number(step), _pieces(base, step)]
        case Call(_, base):
            return ["<mi>f</mi>", OPEN, *row(base), CLOSE]
    return _loss_row(formula)


def _loss_row(formula: Formula) -> Row:
    """Return a formula whose outermost node is a loss, or a combination of losses."""
    match formula:
        case HalfSquare(RoundedUp(base, step), sigma):
            return [*_number(per_piece(step, sigma)), *_raised([_pieces(base, step)], TWO)]
        case HalfSquare(KthRoot(base, k), sigma):
            power = SLASH.join(f"<mn>{part}</mn>" for part in root_square(k).split("/"))
            return [_fraction(_raised(_atom(base), _group([power])), _twice_squared(sigma))]
        case HalfSquare(rise, sigma):
            return [_fraction(_raised(_atom(rise), TWO), _twice_squared(sigma))]
        case LaplaceShift(base):
            shift = "<mi>u</mi>"
            fallen = f"<msup><mi>e</mi><mrow>{MINUS}{shift}</mrow></msup>"
            return [shift, PLUS, fallen, MINUS, "<mn>1</mn>", WITH, shift, EQUALS, *row(base)]
        case LargestRise(base, scale, shape):
            ratio = [Z, SLASH, *_number(scale)]
            tails = [*_raised(["<mi>arsinh</mi>", _fenced(ROUND, ratio)], TWO)]
            core = ["<mi>ln</mi>", _fenced(ROUND, ["<mn>1</mn>", PLUS, *_raised([_fenced(ROUND, ratio)], TWO)])]
            curve = [_fraction(tails, _twice_squared(shape)), PLUS, _fraction(core, [TWO])]
            at = [OPEN, Z, CLOSE]
            difference = [PSI, OPEN, Z, PLUS, *row(base), CLOSE, MINUS, PSI, *at]
            return [f"<munder><mo>max</mo>{Z}</munder>", _fenced(SQUARE, difference), WITH, PSI, *at, EQUALS, *curve]
        case Tanh(pure):
            factor = ["<mi>tanh</mi>", OPEN, EPSILON, SLASH, TWO, CLOSE, SPACE, EPSILON]
            return [*factor, WITH, EPSILON, EQUALS, *row(pure)]
        case Times(count, loss):
            return [f"<mn>{count}</mn>", _fenced(ROUND, row(loss))]
        case Sum(terms):
            return _separated([[_fenced(ROUND, row(term))] for term in terms], PLUS)
        case Pieces(variable, ends, parts):
            conditions = [[IF, *row(variable), AT_MOST, *_number(end)] for end in ends]
            return [_cases(zip(map(row, parts), [*conditions, [OTHERWISE]], strict=True))]
        case Max(terms):
            return ["<mo>max</mo>", _fenced(CURLY, _separated([row(term) for term in terms], COMMA))]
        case Min(terms):
            return ["<mo>min</mo>", _fenced(CURLY, _separated([row(term) for term in terms], COMMA))]
        case Tabulated(base, _, _, name):
            return ["<mi>tight</mi>", _fenced(ROUND, [*row(base), SEMICOLON, f"<mtext>{escape(name)}</mtext>"])]
    raise TypeError(f"formula must be a node of slowscale.policy.tree, got {formula!r}")


def _number(x: float) -> Row:
    digits, _, exponent = number(abs(x)).partition("e")
    sign = [MINUS] if x < 0 else []
    if not exponent:
        return [*sign, f"<mn>{digits}</mn>"]
    power = _raised(["<mn>10</mn>"], _group(_number(int(exponent))))
    return [*sign, OPEN, f"<mn>{digits}</mn>", TIMES, *power, CLOSE]


def _group(elements: Row) -> str:
    return f"<mrow>{''.join(elements)}</mrow>"


def _fraction(top: Row, bottom: Row) -> str:
    return f"<mfrac>{_group(top)}{_group(bottom)}</mfrac>"


def _twice_squared(sigma: float) -> Row:
    return [TWO, DOT, *_raised(_number(sigma), TWO)]


def _raised(base: Row, exponent: str) -> Row:
    return [*base[:-1], f"<msup>{base[-1]}{exponent}</msup>"]


def _fenced(fence: tuple[str, str], elements: Row) -> str:
    """Put elements between brackets that grow with them."""
    start, end = (
        f'<mo stretchy="true" fence="true" form="{form}">{mark}</mo>'
        for form, mark in zip(("prefix", "postfix"), fence, strict=True)
    )
    return _group([start, *elements, end])


def _cases(cases: Iterable[tuple[Row, Row]]) -> str:
    """Return values with their conditions, one below the other, after a brace."""
    rows = "".join(
        f"<mtr>{''.join(f'<mtd>{_group(side)}</mtd>' for side in (value, condition))}</mtr>"
        for value, condition in cases
    )
    brace = '<mo stretchy="true" fence="true" form="prefix">&#x0007B;</mo>'
    return _group([brace, f'<mtable columnalign="left left" displaystyle="true">{rows}</mtable>'])


def _pieces(base: Formula, step: float) -> str:
    return _fenced(CEILING, [_fraction(row(base), _number(step))])


def _factor(formula: Formula) -> Row:
    return [_fenced(ROUND, row(formula))] if isinstance(formula, Shift | Difference) else row(formula)


def _atom(formula: Formula) -> Row:
    compound = isinstance(formula, Shift | Difference | Product | Quotient)
    return [_fenced(ROUND, row(formula))] if compound else row(formula)


def _separated(rows: list[Row], mark: str) -> Row:
    return [element for i, one in enumerate(rows) for element in ([mark] if i else []) + one]
