"""Refusals: what a cap that refuses a release would still allow.

Accounts know policies, and mechanisms know their error; here they meet. The advice depends on what was charged and on
the caps, never on the records.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from typing import Any

from slowscale.accounting import Account, Accountant, Charge
from slowscale.accounting.record import COUNT, folded
from slowscale.errors import CapError, SlowscaleError
from slowscale.figures import figure
from slowscale.mechanisms import Mechanism
from slowscale.policy import ConstantPolicy, Policy

LEAST_SHARE = 1e-4  # what uses a smaller share of the cap is not worth a release, and may be rounding
STEPS = 12  # how often a parameter is changed by twice the factor before, until a release fits


@contextmanager
def explained(accountant: Accountant, charge: Charge, mechanisms: Mapping[str, Mechanism]) -> Iterator[None]:
    """Add to a `CapError` the largest such release that would still fit.

    Parameters
    ----------
    accountant, charge
        Who refuses, and the charge that is refused.
    mechanisms
        The mechanism of each column.
    """
    try:
        yield
    except CapError as error:
        facts: dict[str, Any] = {}
        with suppress(Exception):  # the refusal stands, without advice
            facts = _advice(error, accountant.account, charge, mechanisms)
        raise error.with_facts(**facts, remedy=accountant.remedy) from None


def _advice(
    error: CapError, account: Account, charge: Charge, mechanisms: Mapping[str, Mechanism]
) -> dict[str, str | bool]:
    """Return what would still fit in a column, as facts of the refusal."""
    name, mechanism = next(found for found in mechanisms.items() if folded(found[0]) == folded(error.column))
    counts = name == COUNT and charge.protects is None
    test = account.fits(charge, None if counts else name)

    def policy(found: Mechanism) -> Policy:
        return ConstantPolicy(found.policy(1)) if counts else found.policy

    def fits(found: Mechanism) -> bool:
        return test(policy(found))

    def matters(found: Mechanism) -> bool:
        return bool(policy(found)(error.influence) >= LEAST_SHARE * error.cap)

    kind = type(mechanism).__name__
    found = [best for knob in _knobs(mechanism) if (best := _best(mechanism, *knob, fits, matters)) is not None]
    if not found:
        left = "what is left of the cap" if error.before else "the cap"
        useful = f"No {kind} that would use a ten-thousandth of the cap or more fits under {left} at every size"
        return {"fits": useful, "full": True}
    best = min(found, key=_error)
    if mechanism._error_grows or not math.isfinite(_error(best)):
        words = f"with sigma {figure(_sigma(best))} in place of {figure(_sigma(mechanism))}"
    else:
        words = f"with a standard deviation of {figure(_error(best))} in place of {figure(_error(mechanism))}"
    return {"fits": f"{_written(best)} would still fit, {words}"}


def _written(mechanism: Mechanism) -> str:
    """Return a mechanism as it can be typed, without the parameters that are what they are by default."""
    given = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}  # type: ignore[arg-type]
    for name in list(given):
        fewer = {other: value for other, value in given.items() if other != name}
        with suppress(SlowscaleError, TypeError):
            if type(mechanism)(**fewer) == mechanism:
                given = fewer
    values = (getattr(value, "__name__", repr(value)) for value in given.values())
    return f"{type(mechanism).__name__}({', '.join(map('='.join, zip(given, values, strict=True)))})"


def _sigma(mechanism: Any) -> float:
    return float(mechanism.sigma)


def _error(mechanism: Mechanism) -> float:
    """Return the standard deviation; for mechanisms whose error depends on the sum, at 0."""
    return float(mechanism.std(0))


def _knobs(mechanism: Mechanism) -> list[tuple[str, bool]]:
    """Return the parameters by which a mechanism can be made less precise, each with whether it must rise."""
    # The policy of an exponential polylog tends to d·ln(Δ)^p, whatever sigma is: d can fit where sigma cannot.
    return [("sigma", True), *([("d", False)] if any(field.name == "d" for field in fields(mechanism)) else [])]  # type: ignore[arg-type]


def _best(
    mechanism: Mechanism,
    name: str,
    rises: bool,
    fits: Callable[[Mechanism], bool],
    matters: Callable[[Mechanism], bool],
) -> Mechanism | None:
    """Return the mechanism that fits with a parameter as near as possible to its own, to three digits, or None."""

    def changed(factor: float) -> Mechanism | None:
        try:
            return replace(mechanism, **{name: start * factor if rises else start / factor})  # type: ignore[type-var]
        except SlowscaleError:  # outside the parameter's domain
            return None

    start = float(getattr(mechanism, name))
    low, high = 1.0, 2.0
    for _ in range(STEPS):
        found = changed(high)
        if found is None:
            return None
        if fits(found):
            break
        if not matters(found):  # nor does anything less precise
            return None
        low, high = high, high**2
    else:
        return None
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        found = changed(middle)
        low, high = (low, middle) if found is not None and fits(found) else (middle, high)
    ends = (start * low, start * high) if rises else (start / low, start / high)
    for value in _round_values(*ends):
        found = replace(mechanism, **{name: value})  # type: ignore[type-var]
        if fits(found):
            return found if matters(found) else None
    return None


def _round_values(first: float, last: float) -> list[float]:
    """Return the numbers of three digits from one number to another, and one beyond the last."""
    exponent = math.floor(math.log10(min(first, last))) - 2
    rises = last >= first
    at = math.floor(first / 10.0**exponent) if rises else math.ceil(first / 10.0**exponent)
    values: list[float] = []
    while len(values) < 20:
        value = float(f"{at}e{exponent}")
        values.append(value)
        if (value >= last) if rises else (value <= last):
            break
        at += 1 if rises else -1
    return values
