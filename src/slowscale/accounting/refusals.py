"""Refusals: when a cap refuses a release, find the most accurate release that the cap would still allow.

Accounts know policies, and mechanisms know their errors; this module combines the two. The advice depends on the
charges and on the caps, never on the records.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from typing import Any

from slowscale.accounting import Account, Accountant, Charge
from slowscale.accounting.caps import TOLERANCE
from slowscale.accounting.record import COUNT, folded
from slowscale.core.errors import CapError, SlowscaleError
from slowscale.core.numbers import format_number
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import charged_policy, without_warnings
from slowscale.policy import ConstantPolicy, Policy

# A release that uses a smaller share of the cap is not worth making, and may fit only because of rounding errors.
USEFUL_SHARE = 1e-4  # 0.01 %
# How often the factor on a parameter is squared in the search for a release that fits.
SEARCH_STEPS = 12


@contextmanager
def explained(
    accountant: Accountant,
    charge: Charge,
    mechanisms: Mapping[str, Mechanism],
    accounting: str,
    rank_loss: float | None = None,
) -> Iterator[None]:
    """Add to a `CapError` how the cap can be changed, and the most accurate release of this kind that still fits.

    Parameters
    ----------
    accountant, charge
        The accountant that refuses, and the charge that it refuses.
    mechanisms
        The mechanism of each column.
    accounting
        The accounting that the charge was computed with.
    rank_loss
        The loss by quantiles, if any are drawn.
    """
    try:
        yield
    except CapError as error:
        facts: dict[str, Any] = {}
        with suppress(Exception), without_warnings():  # without advice, the refusal still stands
            if rank_loss is not None and folded(error.column) not in map(folded, mechanisms):
                left = (error.cap - (error.spent - rank_loss)) * (1 + TOLERANCE)  # 0.075 is not shown as 0.0749
                if left > USEFUL_SHARE * error.cap:
                    facts = {"fits": f"A loss of {format_number(left, -1)} would still fit"}
            elif rank_loss is None or folded(error.column) != COUNT:  # a count beside quantiles: either may be changed
                facts = _advice(error, accountant.account, charge, mechanisms, accounting)
        raise replace(error, **facts, remedy=accountant.remedy) from None


def _advice(
    error: CapError, account: Account, charge: Charge, mechanisms: Mapping[str, Mechanism], accounting: str
) -> dict[str, str | bool]:
    """Return what would still fit for a column, as fields of a `CapError`."""
    name, mechanism = next(found for found in mechanisms.items() if folded(found[0]) == folded(error.column))
    counts = name == COUNT and charge.protects is None
    test = account.fits(charge, None if counts else name)

    def policy(found: Mechanism) -> Policy:
        charged = charged_policy(found, accounting)
        if charged.upper is not None and not _scaled(mechanism, found):
            charged = charged.upper
        return ConstantPolicy(charged(1)) if counts else charged

    def fits(found: Mechanism) -> bool:
        return test(policy(found))

    def matters(found: Mechanism) -> bool:
        return bool(policy(found)(error.influence) >= USEFUL_SHARE * error.cap)

    kind = type(mechanism).__name__
    found = [
        best
        for parameter in mechanism._coarser.items()
        if (best := _nearest_fitting(mechanism, *parameter, fits, matters)) is not None
    ]
    if not found:
        if charged_policy(mechanism, accounting).upper is not None and len(mechanism._coarser) > 1:
            return {}  # the search was not complete: see `_scaled`
        left = "what is left of the cap" if error.before else "the cap"
        useful = f"No {kind} fits under {left} for every record size, unless it uses less than 0.01 % of the cap"
        return {"fits": useful, "full": True}
    best = min(found, key=_error_at_zero)
    if mechanism._error_grows or not math.isfinite(_error_at_zero(best)):
        scale = _scale_parameter(mechanism)
        after, before = format_number(getattr(best, scale)), format_number(getattr(mechanism, scale))
        words = f"with {scale} {after} in place of {before}"
    else:
        after, before = format_number(_error_at_zero(best)), format_number(_error_at_zero(mechanism))
        words = f"with a standard deviation of {after} in place of {before}"
    return {"fits": f"{_constructor_call(best)} would still fit, {words}"}


def _constructor_call(mechanism: Mechanism) -> str:
    """Return a mechanism as Python code, without the parameters that have their default values."""
    given = {field.name: getattr(mechanism, field.name) for field in fields(mechanism)}  # type: ignore[arg-type]
    for name in list(given):
        fewer = {other: value for other, value in given.items() if other != name}
        with suppress(SlowscaleError, TypeError):
            if type(mechanism)(**fewer) == mechanism:
                given = fewer
    values = (getattr(value, "__name__", repr(value)) for value in given.values())
    return f"{type(mechanism).__name__}({', '.join(map('='.join, zip(given, values, strict=True)))})"


def _scaled(mechanism: Mechanism, other: Mechanism) -> bool:
    """Whether two mechanisms differ in their scale only, so that one table gives the tight policies of both.

    The search tries dozens of mechanisms, and a table of another shape takes long to compute. For these the closed form
    is used, which is never smaller: what it lets fit, fits.
    """
    scale = _scale_parameter(mechanism)
    return replace(other, **{scale: getattr(mechanism, scale)}) == mechanism  # type: ignore[type-var]


def _scale_parameter(mechanism: Mechanism) -> str:
    return next(iter(mechanism._coarser))


def _error_at_zero(mechanism: Mechanism) -> float:
    """Return the standard deviation for a sum of 0; that of additive noise is the same for every sum."""
    return float(mechanism.std(0))


def _nearest_fitting(
    mechanism: Mechanism,
    name: str,
    rises: bool,
    fits: Callable[[Mechanism], bool],
    matters: Callable[[Mechanism], bool],
) -> Mechanism | None:
    """Return the mechanism that fits and whose parameter is nearest to the given one, to three digits; or None."""

    def changed(factor: float) -> Mechanism | None:
        try:
            return replace(mechanism, **{name: start * factor if rises else start / factor})  # type: ignore[type-var]
        except SlowscaleError:  # outside the parameter's domain
            return None

    start = float(getattr(mechanism, name))
    low, high = 1.0, 2.0
    for _ in range(SEARCH_STEPS):
        found = changed(high)
        if found is None:
            return None
        if fits(found):
            break
        if not matters(found):  # a less precise mechanism matters even less
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
    """Return the numbers with three significant digits from one number to another, and one beyond the last."""
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
