"""Accounts: what has been spent so far, and whether a charge may still be made.

An account lives in memory; the ledger makes it durable. Names of columns are compared as `folded` returns them, without
case, surrounding blanks and invisible characters, so that another spelling has no allowance of its own; what people
read keeps the spelling that was given first.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from slowscale.accounting.caps import Total, check, check_at, coefficients
from slowscale.accounting.charge import Charge
from slowscale.accounting.composition import total_of
from slowscale.accounting.record import ANY, COUNT, check_column_name, folded
from slowscale.accounting.spent import Spent
from slowscale.errors import CapError, ParameterError, ParameterTypeError
from slowscale.policy import ZCDP, Policy

MANY = 200  # the most totals that are tried one by one, and policies in one, when it is asked what would still fit

Part = tuple[str, Any] | None  # a column and a label, or None for releases about all records
Totals = dict[tuple[Part, str | None], Total]  # by part and column (None: counts)


class Account:
    """The sum of charges, by column and by part, and the caps that it must stay below.

    Parameters
    ----------
    caps
        The most that a record may lose, by column.
    remedy
        How a cap can be changed, in words, where that is not by a ledger.
    """

    def __init__(self, caps: Mapping[str, Policy] | None = None, remedy: str | None = None) -> None:
        self.caps = dict(caps or {})
        self.remedy = remedy
        self.charges: list[Charge] = []
        self._totals: Totals = {}
        self._counted = 0  # so many of the charges are in the totals
        self._kinds: dict[str | None, str | None] = {}  # what the labels of each partition are
        self._names: dict[str, str] = {}  # how each name was spelled first
        self._lock = threading.Lock()

    def charge(self, charge: Charge) -> None:
        """Add a charge, or raise a `CapError` and change nothing."""
        _check_columns(charge)
        with self._lock:
            charge = self._spelled(charge)
            after = self._checked(charge)
            if after is not None:
                self._totals, self._counted = after, len(self.charges) + 1
            self.record(charge)

    def check(self, charge: Charge) -> None:
        """Raise what `charge` would raise, and change nothing."""
        _check_columns(charge)
        with self._lock:
            self._checked(self._spelled(charge))

    def attempt(self, asked: Charge | Mapping[str, Any], error: BaseException) -> None:
        """Do nothing: an account in memory has no history, so a release that was refused or failed leaves no trace."""

    def ready(self) -> None:
        """Do nothing: memory can always be written to."""

    def check_dataset(self, dataset: str | None) -> None:
        """Do nothing: an account in memory belongs to no data set."""

    @property
    def account(self) -> "Account":
        """A copy of the account as it stands, to ask what may be charged."""
        return self.copy()

    def copy(self) -> "Account":
        """Return an account of the same charges and caps."""
        other = Account(self.caps, self.remedy)
        with self._lock:
            for charge in self.charges:
                other.record(charge)
            other._totals, other._counted = self._totals, self._counted
        return other

    def _spelled(self, charge: Charge) -> Charge:
        """Return a charge with every name as it was spelled first, and without its facts, which spell them as given."""
        spellings: dict[str, str] = {}
        for name in (*self.caps, *self._names.values(), *_names(charge)):
            spellings.setdefault(folded(name), name)
        names = {name: spellings[folded(name)] for name in _names(charge)}
        if all(name == spelled for name, spelled in names.items()):
            return charge if charge.facts is None else replace(charge, facts=None)
        # Where two spellings of a column become one, its pure policies may not cover all of its terms.
        pure = charge.pure_columns if len(set(names.values())) == len(names) else None
        return replace(
            charge,
            facts=None,
            policy=charge.policy.renamed(names),
            pure_policy=None if charge.pure_policy is None else charge.pure_policy.renamed(names),
            pure_columns=None if pure is None else pure.renamed(names),
            by=charge.by and names[charge.by],
            protects=charge.protects and names[charge.protects],
        )

    def _checked(self, charge: Charge) -> Totals | None:
        """Return the totals with a charge, where there are caps; or raise."""
        for other in self.charges[:1]:
            if other.protects != charge.protects:
                one, two = (what or "single records" for what in (other.protects, charge.protects))
                raise ParameterError(f"protect must stay what it was: earlier releases protect {one}, this one {two}")
        kind = self._kinds.get(charge.by, charge.kind)
        if kind != charge.kind:
            raise ParameterError(f"partition {charge.by!r} has {charge.kind} here, and had {kind} before")
        if not self.caps:
            return None
        after = _plus(self._counted_totals(), [charge])
        refusals = []
        for column in _columns(charge):
            try:
                self._check(column, charge, after)
            except CapError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0].with_facts(also=tuple(error.column for error in refusals[1:]))
        return after

    def above_caps(self) -> dict[str, CapError]:
        """Return the caps that are exceeded already, by the names they have: those that were lowered."""
        with self._lock:
            totals, charges = self._counted_totals() if self.caps else {}, list(self.charges)
        found: dict[str, CapError] = {}
        for by in {charge.by for charge in charges}:
            here = [charge for charge in charges if charge.by == by]
            every = replace(here[0], labels=tuple(dict.fromkeys(label for charge in here for label in charge.labels)))
            for column in dict.fromkeys(column for charge in here for column in _columns(charge)):
                try:
                    for total in _possible(column, every, totals):
                        for cap in self._caps(column):
                            _check_total(column, total, cap)
                except CapError as error:
                    name = self._cap_name(column) or error.column
                    found.setdefault(name, error.with_facts(protects=every.protects))
        return found

    def _counted_totals(self) -> Totals:
        """Return the totals of all charges so far."""
        self._totals = _plus(self._totals, self.charges[self._counted :])
        self._counted = len(self.charges)
        return self._totals

    def record(self, charge: Charge) -> None:
        """Add a charge that was made before, without asking whether it may be."""
        charge = self._spelled(charge)
        for name in _names(charge):
            self._names.setdefault(folded(name), name)
        self.charges.append(charge)
        self._kinds.setdefault(charge.by, charge.kind)

    def forget(self) -> None:
        """Take the newest charge back: it could not be written down."""
        del self.charges[-1]
        self._totals, self._counted = {}, 0

    def _check(self, column: str | None, charge: Charge, totals: Totals) -> None:
        """Raise if a column's cap would be exceeded for records of any part."""
        caps = self._caps(column)
        try:
            for total in _possible(column, charge, totals) if caps else ():
                for cap in caps:
                    _check_total(column, total, cap)
        except CapError as error:
            loss = charge.policy.column(column)(0.0 if column is None else error.influence)
            before = error.spent - loss if error.spent < math.inf else None
            if before is not None and before <= 1e-12 * error.spent:  # rounding
                before = 0.0
            raise error.with_facts(
                before=before,
                made=self._made(column, charge, before, loss),
                cap_name=self._cap_name(column),
                protects=charge.protects,
            ) from None

    def _made(self, column: str | None, charge: Charge, before: float | None, loss: float) -> int | None:
        """Return how many such charges a record has had, if all those of the column were like this one."""
        charges = [other for other in self.charges if column in _columns(other)]
        same = coefficients(charge.policy.column(column))
        if not before or any(coefficients(other.policy.column(column)) != same for other in charges):
            return None
        times = round(before / loss)
        return times if times and math.isclose(before, times * loss, rel_tol=1e-6) else None

    def fits(self, charge: Charge, column: str | None) -> Callable[[Policy], bool]:
        """Return a function that tells whether a charge could have another policy on a column (None: counts).

        It asks for the caps of this column only. Raise where the answer would take long.
        """
        _check_columns(charge)
        with self._lock:
            charge = self._spelled(charge)
            if column is not None:
                column = next(name for name in charge.policy.columns if folded(name) == folded(column))
            caps = self._caps(column)
            totals = self._counted_totals()
        parts = {frozenset(total.shapes.items()): total for total in _possible(column, charge, totals)}
        before = list(parts.values()) if len(parts) <= MANY else [Total.largest(list(parts.values()))]
        if any(len(total.shapes) > MANY for total in before):
            raise ParameterError(f"too many different policies were charged to {column!r} to tell soon what would fit")

        def fits(policy: Policy) -> bool:
            try:
                for total in before:
                    for cap in caps:
                        _check_total(column, total + policy, cap)
            except (CapError, ParameterError):
                return False
            return True

        return fits

    def _caps(self, column: str | None) -> list[Policy]:
        """Return the caps of a column: a ledger of an earlier version may have several that count as one; all hold."""
        used = folded(self._cap_name(column))
        return [cap for name, cap in self.caps.items() if folded(name) == used]

    def _cap_name(self, column: str | None) -> str:
        """Return by which name a column has its cap: its own, or "*"."""
        own = COUNT if column is None else column
        return next((name for name in self.caps if folded(name) == folded(own)), ANY)

    @property
    def spent(self) -> Spent:
        """What a record may have lost by all charges so far."""
        return total_of(self.charges)


def _check_total(column: str | None, total: Total, cap: Policy) -> None:
    """Raise a `CapError` where a total exceeds a cap."""
    if column is None:  # every record counts as 1
        check_at(COUNT, float(total.losses[0]), cap, 1.0)
    else:
        check(column, total, cap)


def _check_columns(charge: Charge) -> None:
    """Raise if a column has a reserved name. Earlier charges may have one: `record` still takes them."""
    for name in charge.policy.columns:
        # Where entities are protected, the number of an entity's records is a column of its own.
        if name != COUNT or charge.protects is None:
            check_column_name(name)


def _columns(charge: Charge) -> list[str | None]:
    counts = any(column is None for column, _ in charge.policy.terms)
    return [*charge.policy.columns, *([None] if counts else [])]


def _names(charge: Charge) -> list[str]:
    """Return all names in a charge: the columns, the partition and what is protected."""
    policies = [charge.policy] if charge.pure_policy is None else [charge.policy, charge.pure_policy]
    columns = [column for policy in policies for column in policy.columns]
    return [*columns, *(name for name in (charge.by, charge.protects) if name is not None)]


def _plus(totals: Totals, charges: list[Charge]) -> Totals:
    """Return totals with further charges."""
    more: dict[tuple[Part, str | None], list[Policy]] = {}
    for charge in charges:
        parts: list[Part] = [None] if charge.by is None else [(charge.by, label) for label in charge.labels]
        for column in _columns(charge):
            policy = charge.policy.column(column)
            for part in parts:
                more.setdefault((part, column), []).append(policy)
    return totals | {key: totals.get(key, Total.zero()).plus(policies) for key, policies in more.items()}


def _possible(column: str | None, charge: Charge, totals: Totals) -> list[Total]:
    """Return the totals that a record of the charge may have: one for each part of the charge's own partition.

    Of another partition the record may be in any part: of that the largest coefficients are taken.
    """
    base = totals.get((None, column), Total.zero())
    own: list[Total] = []
    others: dict[str, list[Total]] = {}
    for (part, name), total in totals.items():
        if part is None or name != column:
            continue
        if part[0] != charge.by:
            others.setdefault(part[0], []).append(total)
        elif part[1] in charge.labels:
            own.append(total)
    for found in others.values():
        base = base.joined(Total.largest(found))
    return [base.joined(total) for total in own] if own else [base]


def check_caps(caps: Any) -> dict[str, Policy]:
    """Return caps as a mapping of columns to PRzCDP policies."""
    if caps is None:
        return {}
    if not isinstance(caps, Mapping):
        raise ParameterTypeError(f'caps must be a mapping such as {{"payann": policy, "*": policy}}, got {caps!r:.60}')
    seen: dict[str, str] = {}
    for name, cap in caps.items():
        if not isinstance(name, str):
            raise ParameterTypeError(f'caps must be named by a column or "*", got {name!r}')
        if folded(name) in seen:
            raise ParameterError(
                f"caps names {seen[folded(name)]!r} and {name!r}, which count as one column: names are compared "
                "without case, surrounding blanks and invisible characters. Keep one of the two"
            )
        seen[folded(name)] = name
        if not isinstance(cap, Policy):
            raise ParameterTypeError(f"caps[{name!r}] must be a policy such as ss.Gaussian(10).policy, got {cap!r:.60}")
        if cap.notion != ZCDP:
            raise ParameterError(f"caps[{name!r}] must be a PRzCDP policy: turn it with .to_zcdp()")
    return dict(caps)
