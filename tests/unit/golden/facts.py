"""The reference facts of golden.json, and how a check is registered for them."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import pytest

# Facts about the paper's words, with nothing to compute.
WORDING_ONLY = {
    "refs.variance_formulas": "which table a sentence should cite",
    "refs.fig_sec": "which label a sentence should cite",
    "bounded.r_vs_rc": "the letter r stands for a record and for its value",
}


@dataclass(frozen=True)
class Fact:
    """One entry of golden.json; `fact["sigma"]` is a parameter as a number."""

    id: str
    source: str
    kind: str
    ok: bool | None
    paper: Any
    parameters: dict[str, Any]
    true_value: Any
    true_digits: Any

    @property
    def truth(self) -> Any:
        """The true value: its 30 digits as a double, where there are any."""
        if isinstance(self.true_digits, list):
            return [float(digits) for digits in self.true_digits]
        return self.true_value if self.true_digits is None else float(self.true_digits)

    @property
    def log_truth(self) -> float:
        """The log of the true value, which need not fit into a double."""
        return float(mpmath.log(mpmath.mpf(self.true_digits)))

    def __getitem__(self, name: str) -> float:
        return number(self.parameters[name])


def number(value: Any) -> float:
    """Return a parameter as a double: a number, decimals, e, exp(x) or sqrt(x)."""
    if value == "e":
        return math.e
    if isinstance(value, str) and (call := re.fullmatch(r"(exp|sqrt)\((.*)\)", value)):
        return getattr(math, call[1])(Fraction(call[2]))
    return float(value)


def _read() -> list[Fact]:
    entries = json.loads((Path(__file__).parents[2] / "reference" / "golden.json").read_text(encoding="utf-8"))
    names = ("id", "source", "kind", "ok", "paper_value", "parameters", "true_value", "true_value_str")
    return [Fact(*(entry[name] for name in names)) for entry in entries]


FACTS = _read()


class About(NamedTuple):
    """A computed value that is only good to an absolute error."""

    value: float
    error: float


class Check(NamedTuple):
    """How the facts whose id matches are computed, how closely, and when the paper counts as right."""

    pattern: re.Pattern[str]
    compute: Callable[..., Any]
    rel: float
    abs: float
    agrees: Callable[[Fact, Any], bool] | None


CHECKS: list[Check] = []


def check(pattern: str, rel: float = 1e-12, abs: float = 0.0, agrees: Any = None) -> Callable[..., Any]:
    """Register a check; the groups of the pattern are passed to it after the fact."""

    def register(compute: Callable[..., Any]) -> Callable[..., Any]:
        CHECKS.append(Check(re.compile(pattern), compute, rel, abs, agrees))
        return compute

    return register


def near(value: Any, expected: Any, rel: float = 1e-12, abs: float = 0.0) -> None:
    """Assert that values agree; pytest does not spell out the assertions of a helper module."""
    assert value == pytest.approx(expected, rel=rel, abs=abs), f"{value!r} is not {expected!r}"


def as_bound(fact: Fact, value: float) -> bool:
    """Whether the paper's value is a true upper bound."""
    return value <= fact.paper * (1 + 1e-12)
