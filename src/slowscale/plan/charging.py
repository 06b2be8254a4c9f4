"""The account that a plan's release is charged to, and whether it has room for the release."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slowscale.accounting import Account, Accountant, Charge, DeferredLedger
from slowscale.accounting.record import folded, plain_label
from slowscale.core.errors import CapError
from slowscale.plan.models import Plan

if TYPE_CHECKING:
    from slowscale.release.session import Session
    from slowscale.sampling import BitSource

PLAN_REMEDY = (
    "raise the cap in [ledger.caps] of the plan: the ledger does not exist yet, so its caps can still be changed"
)


def open_account(plan: Plan) -> Account:
    """Return the account that the release would be charged to, without creating a ledger."""
    return open_accountant(plan).account


def open_accountant(plan: Plan) -> Account | DeferredLedger:
    """Return what the release is charged to.

    A ledger is created only when the release is charged, because its caps are fixed from then on.
    """
    if plan.ledger is None:
        return Account(remedy=PLAN_REMEDY)
    return DeferredLedger(plan.ledger.path, plan.caps or None, dataset=plan.data.name, remedy=PLAN_REMEDY)


def open_ready(plan: Plan) -> Account | DeferredLedger:
    """Return what the release is charged to, or raise if it is not for this data set or cannot be written now."""
    accountant = open_accountant(plan)
    accountant.check_dataset(plan.data.name)
    accountant.ready()
    return accountant


def open_session(
    plan: Plan, accountant: Accountant, source: Mapping[str, Any] | None = None, bits: "BitSource | None" = None
) -> "Session":
    """Return a session on the data of a plan that charges an accountant.

    Parameters
    ----------
    plan, accountant
        The plan, and what is charged.
    source
        Another table than the data of the plan, as arguments of `Session`.
    bits
        A source of bits other than the secret one.
    """
    from slowscale.release.session import Session

    data = plan.data
    return Session._charging(
        accountant,
        **({"data": data.location, **data.reading_options} if source is None else source),
        dataset=data.name,
        accounting=plan.accounting,
        protect=data.protect,
        bits=bits,
    )


def check_room(plan: Plan) -> None:
    """Raise a `CapError` if the ledger has no room for the release, and record the refusal in the ledger."""
    accountant = open_ready(plan)
    with record_refusal(plan, accountant):
        check_charge(plan, accountant.account)


@contextmanager
def record_refusal(plan: Plan, accountant: Accountant) -> Iterator[None]:
    """Record in the ledger, if it exists, that a cap refused the release."""
    try:
        yield
    except CapError as error:
        data = plan.data
        facts = {
            "policy": plan.policy.to_dict(),
            "accounting": plan.accounting,
            "protect": data.protect,
            "where": data.where,
            "derived": data.derive,
        }
        accountant.attempt(facts, error)
        raise


def check_charge(plan: Plan, account: Account) -> bool:
    """Raise a `CapError` if the account has no room for the release.

    Return False if that cannot be known yet: a partition's labels may be in a file or in the data, which are not read.
    """
    from slowscale.accounting.refusals import explained

    charge = _charge(plan)
    if charge is None:
        return False
    with explained(account, charge, plan.mechanisms, plan.accounting):
        account.check(charge)
    return True


def _charge(plan: Plan) -> Charge | None:
    """Return what the release will be charged; None if that depends on labels that are not known yet."""
    parts = [_single_charge(single) for single in plan.drawn.values()]
    if any(part is None for part in parts):
        return None
    first = parts[0]
    assert first is not None
    return replace(first, policy=plan.policy, tables=len(parts))


def _single_charge(plan: Plan) -> Charge | None:
    from slowscale.data import rowwise
    from slowscale.data.keys import Keys

    keys, columns = plan.keys, {folded(name) for name in plan.policy.columns}
    meanings = rowwise.meanings(plan.data.derive, {})
    derived = {name: form for name, form in meanings.items() if name in columns}
    if keys is None or keys.partition is None:
        return Charge(plan.policy, protects=plan.data.protect, derived=derived)
    if keys.cross is None:
        return None
    cells = Keys.cross(keys.cross)
    labels = tuple(plain_label(label) for (label,) in cells.project(keys.partition))
    part = keys.partition, labels, cells.kinds[keys.partition]
    return Charge(plan.policy, None, *part, plan.data.protect, derived=derived)
