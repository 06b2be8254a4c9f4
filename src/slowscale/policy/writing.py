"""Formulas written for people: as text and as LaTeX."""

from fractions import Fraction

from slowscale.policy.tree import (
    Absolute,
    Arsinh,
    Call,
    Difference,
    Disjoint,
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
    contains,
    per_piece,
)


def number(x: float) -> str:
    """Write a parameter with at most six significant digits."""
    return f"{x:.6g}"


def root_square(k: float) -> str:
    """Write 2/k, the exponent of the square of a kth root, as a fraction if k is whole."""
    return str(Fraction(2, k)) if isinstance(k, int) else number(2 / k)


def text(formula: Formula) -> str:
    """Return a formula as text."""
    match formula:
        case Number(value):
            return number(value)
        case Symbol(name):
            return name
        case Shift(Quotient(top, bottom), by):
            return f"{_factor(top)}/{number(bottom)} {_signed(by)}"
        case Shift(base, by):
            return f"{text(base)} {_signed(by)}"
        case Difference(left, right):
            return f"{text(left)} − {_factor(right)}"
        case Product(left, right):
            return f"{_factor(left)}·{_factor(right)}"
        case Quotient(top, bottom):
            return f"{_factor(top)} / {number(bottom)}"
        case Power(base, exponent):
            return f"{_atom(base)}^{number(exponent)}"
        case KthRoot(base, k):
            return text(base) if k == 1 else f"{_atom(base)}^(1/{k})"
        case Logarithm(base):
            return f"ln({text(base)})"
        case Arsinh(base):
            return f"arsinh({text(base)})"
        case Absolute(base):
            return f"|{text(base)}|"
        case RoundedUp(base, step):
            return f"{number(step)}·⌈{_factor(base)} / {number(step)}⌉"
        case Call(_, base):
            return f"f({text(base)})"
        case HalfSquare(RoundedUp(base, step), sigma):
            return f"{number(per_piece(step, sigma))}·⌈{_factor(base)} / {number(step)}⌉²"
        case HalfSquare(KthRoot(base, k), sigma):
            squared = "²" if k == 1 else "" if k == 2 else f"^({root_square(k)})"
            return f"{_atom(base)}{squared} / (2·{number(sigma)}²)"
        case HalfSquare(rise, sigma):
            return f"{_atom(rise)}² / (2·{number(sigma)}²)"
        case LaplaceShift(base):
            return f"u + e^(−u) − 1 with u = {text(base)}"
        case LargestRise(base, scale, shape):
            ratio = f"z/{number(scale)}"
            curve = f"arsinh({ratio})² / (2·{number(shape)}²) + ln(1 + ({ratio})²) / 2"
            return f"max over z of ψ(z + {text(base)}) − ψ(z) with ψ(z) = {curve}"
        case Tanh(pure):
            return f"tanh(ε/2)·ε with ε = {text(pure)}"
        case Times(count, loss):
            return f"{count}·({text(loss)})"
        case Sum(terms):
            # A term that defines ε, ψ or u needs brackets, to show where the definition ends.
            defines = [any(contains(term, node) for node in (Tanh, LargestRise, LaplaceShift)) for term in terms]
            written = zip(map(text, terms), defines, strict=True)
            return " + ".join(f"({term})" if bracketed else term for term, bracketed in written)
        case Pieces(_, ends, parts):
            pieces = [f"{text(part)} up to {number(end)}" for part, end in zip(parts[:-1], ends, strict=True)]
            return f"{{{'; '.join([*pieces, f'{text(parts[-1])} beyond'])}}}"
        case Disjoint(terms, by):
            return f"max{f' over {by}' if by else ''} of [{'; '.join(map(text, terms))}]"
        case Max(terms):
            return f"max({'; '.join(map(text, terms))})"
        case Min(terms):
            return f"min({'; '.join(map(text, terms))})"
        case Tabulated(base, _, _, name):
            return f"tight({text(base)}; {name})"
    raise TypeError(f"formula must be a node of slowscale.policy.tree, got {formula!r}")


def _signed(by: float) -> str:
    return f"{'+' if by >= 0 else '−'} {number(abs(by))}"


def _factor(formula: Formula) -> str:
    """Write a formula as a factor of a product: sums and differences get brackets."""
    return f"({text(formula)})" if isinstance(formula, Shift | Difference) else text(formula)


def _atom(formula: Formula) -> str:
    """Write a formula as the base of a power: everything but a single symbol, number or function gets brackets."""
    spaced = isinstance(formula, Symbol) and " " in formula.name
    compound = isinstance(formula, Shift | Difference | Product | Quotient)
    return f"({text(formula)})" if spaced or compound else text(formula)


def latex(formula: Formula) -> str:
    """Return a formula in LaTeX."""
    match formula:
        case Number(value):
            return number(value)
        case Symbol(name, special):
            return name if special is None else special
        case Shift(base, by):
            return f"{latex(base)} {'+' if by >= 0 else '-'} {number(abs(by))}"
        case Difference(left, right):
            return f"{latex(left)} - {_latex_factor(right)}"
        case Product(left, Difference() as right):
            return f"{latex(left)} \\left[{latex(right)}\\right]"
        case Product(left, right):
            return f"{_latex_factor(left)} {_latex_factor(right)}"
        case Quotient(top, bottom):
            return f"\\frac{{{latex(top)}}}{{{number(bottom)}}}"
        case Power(base, exponent):
            return f"{_latex_atom(base)}^{{{number(exponent)}}}"
        case KthRoot(base, k):
            return latex(base) if k == 1 else f"\\sqrt[{k}]{{{latex(base)}}}"
        case Logarithm(base, tall):
            return f"\\ln\\left({latex(base)}\\right)" if tall else f"\\ln({latex(base)})"
        case Arsinh(base):
            return f"\\operatorname{{arsinh}}\\left({latex(base)}\\right)"
        case Absolute(base):
            return f"\\left|{latex(base)}\\right|"
        case RoundedUp(base, step):
            return f"{number(step)} {_latex_pieces(base, step)}"
        case Call(_, base):
            return f"f({latex(base)})"
        case HalfSquare(RoundedUp(base, step), sigma):
            return f"{number(per_piece(step, sigma))} {_latex_pieces(base, step)}^2"
        case HalfSquare(KthRoot(base, k), sigma):
            return f"\\frac{{{_latex_atom(base)}^{{{root_square(k)}}}}}{{2 \\cdot {number(sigma)}^2}}"
        case HalfSquare(rise, sigma):
            return f"\\frac{{{_latex_atom(rise)}^2}}{{2 \\cdot {number(sigma)}^2}}"
        case LaplaceShift(base):
            return f"u + e^{{-u}} - 1 \\text{{ with }} u = {latex(base)}"
        case LargestRise(base, scale, shape):
            ratio = f"z/{number(scale)}"
            normal = f"\\frac{{\\operatorname{{arsinh}}({ratio})^2}}{{2 \\cdot {number(shape)}^2}}"
            curve = f"{normal} + \\frac{{\\ln(1 + ({ratio})^2)}}{{2}}"
            largest = f"\\max_z \\left[\\psi(z + {latex(base)}) - \\psi(z)\\right]"
            return f"{largest} \\text{{ with }} \\psi(z) = {curve}"
        case Tanh(pure):
            return f"\\tanh(\\varepsilon/2)\\,\\varepsilon \\text{{ with }} \\varepsilon = {latex(pure)}"
        case Times(count, loss):
            return f"{count} \\left({latex(loss)}\\right)"
        case Sum(terms):
            return " + ".join(f"\\left({latex(term)}\\right)" for term in terms)
        case Pieces(variable, ends, parts):
            conditions = [f"\\text{{if }} {latex(variable)} \\le {number(end)}" for end in ends]
            whens = [*conditions, "\\text{otherwise}"]
            rows = [f"{latex(part)} & {when}" for part, when in zip(parts, whens, strict=True)]
            return "\\begin{cases} " + " \\\\ ".join(rows) + " \\end{cases}"
        case Max(terms):
            return f"\\max\\left\\{{{', '.join(map(latex, terms))}\\right\\}}"
        case Min(terms):
            return f"\\min\\left\\{{{', '.join(map(latex, terms))}\\right\\}}"
        case Tabulated(base, _, _, name):
            plain = "".join(f"\\{letter}" if letter in "#$%&_{}" else letter for letter in name)
            return f"\\operatorname{{tight}}\\left({latex(base)};\\ \\text{{{plain}}}\\right)"
    raise TypeError(f"formula must be a node of slowscale.policy.tree, got {formula!r}")


def _latex_pieces(base: Formula, step: float) -> str:
    return f"\\left\\lceil \\frac{{{latex(base)}}}{{{number(step)}}} \\right\\rceil"


def _latex_factor(formula: Formula) -> str:
    return f"\\left({latex(formula)}\\right)" if isinstance(formula, Shift | Difference) else latex(formula)


def _latex_atom(formula: Formula) -> str:
    compound = isinstance(formula, Shift | Difference | Product | Quotient)
    return f"\\left({latex(formula)}\\right)" if compound else latex(formula)
