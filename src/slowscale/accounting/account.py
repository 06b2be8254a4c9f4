"""Accounts: what has been spent so far, and whether a charge may still be made.

An account lives in memory; the ledger makes it durable. Column names are compared by `folded`, which ignores case,
surrounding whitespace and invisible characters: a column has one allowance, however its name is spelled. Reports and
errors use the spelling that was given first, in a cap or in a charge.
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slowscale.accounting.bands import Band, Use, summed_or_ranked
from slowscale.accounting.caps import Total, check, check_at
from slowscale.accounting.charge import Charge, Spent, total_of
from slowscale.accounting.largest import Value, exact, proven_to, value_of
from slowscale.accounting.record import ANY, COUNT, RecordPolicy, check_column_name, folded
from slowscale.core.errors import CapError, ParameterError, ParameterTypeError, Shown, located
from slowscale.core.numbers import format_number
from slowscale.policy import ZCDP, ConstantPolicy, Policy
from slowscale.policy.bounded import BAND

# The most totals that `Account.fits` compares with a cap one by one, and the most different policies in one total.
MOST_TOTALS = 200

Part = tuple[str, Any] | None  # a column and a label, or None for releases about all records
Totals = dict[tuple[Part, str | None], Total]  # by part and column (None: counts)


@dataclass(frozen=True)
class Currency:
    """The losses that a kind of cap limits: those of presence, or those between values within a band."""

    band: Band | None = None

    @property
    def times(self) -> float | None:
        """The factor of the band; None for presence."""
        return None if self.band is None else self.band.times

    def policy(self, charge: Charge) -> RecordPolicy:
        """Return the losses of a charge."""
        return charge.policy if self.band is None else charge.band_policy(self.band)


PRESENCE = Currency()


class Account:
    """The sum of all charges, by column and by part of a partition, and the caps that it must not exceed.

    Parameters
    ----------
    caps
        The most that a record may lose, by column.
    remedy
        How a cap can be changed, as text for error messages. None: with the ledger.
    band_caps, band
        The most that may be lost between a record's values and others within the factor `band`, by column.
    largest
        The largest values, by column. Caps are proven for sizes up to there, and a charge must be of a release that
        refuses larger ones.
    """

    def __init__(
        self,
        caps: Mapping[str, Policy] | None = None,
        remedy: str | None = None,
        *,
        band_caps: Mapping[str, Policy] | None = None,
        band: float = BAND,
        largest: Mapping[str, Value] | None = None,
    ) -> None:
        self.caps = dict(caps or {})
        self.band_caps = dict(band_caps or {})
        self.band = band
        self.largest = dict(largest or {})
        self.remedy = remedy
        self.charges: list[Charge] = []
        # The totals in each currency, with the number of charges that they include.
        self._totals: dict[Currency, tuple[Totals, int]] = {}
        self._uses: set[Use] = set()  # how values entered the charges
        self._label_kinds: dict[str | None, str | None] = {}  # the type of the labels of each partition
        self._spellings = self._declared_names()
        self._meanings: dict[str, str | None] = {}  # how each column is computed, by folded name; None: it is stored
        self._lock = threading.Lock()

    def charge(self, charge: Charge) -> None:
        """Add a charge. Where it would exceed a cap, raise a `CapError` and change nothing."""
        _check_columns(charge)
        with self._lock:
            charge = self._first_spelling_of(charge)
            after = self._totals_with_charge(charge)
            self._totals = {currency: (totals, len(self.charges) + 1) for currency, totals in after.items()}
            self.record(charge)

    def check(self, charge: Charge) -> None:
        """Raise the error that `charge` would raise, and change nothing."""
        _check_columns(charge)
        with self._lock:
            self._totals_with_charge(self._first_spelling_of(charge))

    def set_cap(self, name: str, cap: Policy, band: bool = False) -> str:
        """Set the cap on a column, whether it has one or not; return the column in its first spelling.

        Totals are kept by the first spelling, so a cap under another one would not see the earlier charges. With
        `band`, it is the cap on the loss between values within the account's band.
        """
        spelled = self._spellings.setdefault(folded(name), name)
        if band:
            self.band_caps = {**self.band_caps, spelled: cap}
        else:
            self.caps = {**self.caps, spelled: cap}
        return spelled

    def set_largest(self, name: str, value: Value | None, checked: bool = False) -> str:
        """Set the largest value of a column, or remove it (None); return the column in its first spelling.

        If it is raised and `checked`, all caps are proven again: raise a `CapError` and change nothing where one does
        not hold for the larger sizes.
        """
        spelled = self._spellings.setdefault(folded(name), name)
        exceeded = self._exceeded() if checked else {}
        old, rest = self.largest, {one: size for one, size in self.largest.items() if folded(one) != folded(name)}
        self.largest = rest if value is None else {**rest, spelled: value}
        for key, error in (self._exceeded() if checked else {}).items():
            if key not in exceeded:
                self.largest = old
                words = f"With a larger value of {spelled!r}, earlier releases count for larger sizes"
                raise replace(error, cap_name=key[0], fits=words, full=True, made=0)
        return spelled

    def _exceeded(self) -> dict[tuple[str, bool], CapError]:
        """Return the caps that the total exceeds, by name and by whether they are on values within the band."""
        return {(name, band): error for band in (False, True) for name, error in self.above_caps(band).items()}

    def _declared_names(self) -> dict[str, str]:
        """Return the names of caps and largest values by folded name: the first spelling of each column."""
        return {folded(name): name for name in (*self.caps, *self.band_caps, *self.largest)}

    def attempt(self, asked: Charge | Mapping[str, Any], error: BaseException) -> None:
        """Do nothing: an account in memory keeps no history of releases that were refused or that failed."""

    def ready(self) -> None:
        """Do nothing: an account in memory can always be written."""

    def check_dataset(self, dataset: str | None) -> None:
        """Do nothing: an account in memory is not tied to a data set."""

    @property
    def account(self) -> "Account":
        """A copy of the account in its present state, for asking what may still be charged."""
        return self.copy()

    def copy(self) -> "Account":
        """Return a new account with the same charges and caps."""
        other = Account(self.caps, self.remedy, band_caps=self.band_caps, band=self.band, largest=self.largest)
        with self._lock:
            for charge in self.charges:
                other.record(charge)
            other._totals = dict(self._totals)
        return other

    def _first_spelling_of(self, charge: Charge) -> Charge:
        """Return a charge with every name in its first spelling, and without its facts, which are spelled as given."""
        spellings = dict(self._spellings)
        names = {name: spellings.setdefault(folded(name), name) for name in _names_in(charge)}
        if all(name == spelled for name, spelled in names.items()):
            return charge if charge.facts is None else replace(charge, facts=None)
        # If two spellings turn out to be one column, its pure policies may not cover all of its terms.
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

    def _totals_with_charge(self, charge: Charge) -> dict[Currency, Totals]:
        """Return the totals with a charge added, in each currency with caps; raise if the charge is not allowed."""
        if self.charges and self.charges[0].protects != charge.protects:
            one, two = (what or "single records" for what in (self.charges[0].protects, charge.protects))
            raise ParameterError(
                "protect",
                f"must be the same in all releases: earlier ones protect {one}, this one {two}",
                code="mismatch",
                remedy="use the earlier value, or another ledger",
            )
        for name, meaning in _meanings_in(charge).items():
            earlier = self._meanings.get(name, meaning)
            if earlier != meaning:
                was, now = ("stored in the data" if one is None else f"derived as {one}" for one in (earlier, meaning))
                raise ParameterError(
                    f"column {self._spellings.get(name, name)!r}",
                    f"must be the same in all releases, because its losses are added up: in earlier ones it was {was}, "
                    f"and here it is {now}",
                    code="mismatch",
                    remedy="use the earlier one, or give the column another name",
                )
        kind = self._label_kinds.get(charge.by, charge.kind)
        if kind != charge.kind:
            raise ParameterError(
                f"partition {charge.by!r}",
                f"has {charge.kind} as labels, but earlier releases had {kind}",
                code="mismatch",
                remedy="use labels of the same type",
            )
        self._check_largest(charge)
        after: dict[Currency, Totals] = {}
        refusals: list[CapError] = []
        before = self._currencies()
        for currency in self._currencies(charge):
            grown = bool(self.charges) and currency not in before
            self._check_moved(charge, currency)
            after[currency] = _add_charges(self._current_totals(currency), [charge], currency)
            for column in _columns_of(currency.policy(charge)):
                try:
                    self._check_column(column, charge, after[currency], currency)
                except CapError as error:
                    refusals.append(error)
            if grown and not refusals:  # earlier charges may count for more, because more values may change
                refusals += self._exceeding([*self.charges, charge], after[currency], currency).values()
        if refusals:
            raise replace(refusals[0], also=tuple(error.column for error in refusals[1:]))
        return after

    def _check_largest(self, charge: Charge) -> None:
        """Raise if the release of a charge does not refuse all values above the largest ones."""
        for column in charge.policy.columns:
            most, allowed = value_of(self.largest, column), value_of(charge.largest, column)
            if most is None or (allowed is not None and exact(allowed) <= exact(most)):
                continue
            given = "values of any size" if allowed is None else f"values up to {format_number(float(allowed))}"
            raise ParameterError(
                f"the largest value of {column!r}",
                f"is {format_number(float(most))}, but the release allows {given}",
                code="mismatch",
                path=("largest", column),
                remedy="make the release again: it then refuses larger values",
            )

    def _currencies(self, charge: Charge | None = None) -> list[Currency]:
        """Return the currencies that have caps; the values of all columns with a band cap may change.

        A band cap on all other columns is one on each column that was charged, or is charged now.
        """
        found = [PRESENCE] if self.caps else []
        if self.band_caps:
            uses = self._uses if charge is None else self._uses.union(charge.uses)
            named = {folded(name) for name in self.band_caps}
            if ANY in named:
                named |= set(summed_or_ranked(uses))
            found.append(Currency(Band.of(self.band, uses, named - {ANY, COUNT})))
        return found

    def _check_moved(self, charge: Charge, currency: Currency) -> None:
        """Raise if a term without a band cap would tell about values that have one."""
        losses = currency.policy(charge)
        for column in _columns_of(losses) if currency.band is not None else ():
            if self._cap_of(column, currency) is None and losses.column(column)(1.0) > 0:
                name = COUNT if column is None else column
                raise ParameterError(
                    f"column {name!r}",
                    "changes or moves with values that have a band cap, and has none",
                    code="no-cap",
                    path=("ledger", "band_caps", name),
                    remedy=f"give a band cap on {name!r}, or leave the column out",
                )

    def above_caps(self, band: bool = False) -> dict[str, CapError]:
        """Return the caps that the total exceeds already, by name: caps that were lowered, or set after the charges.

        With `band`, they are those on values within the band.
        """
        with self._lock:
            currencies = [currency for currency in self._currencies() if (currency.band is not None) == band]
            totals = {currency: self._current_totals(currency) for currency in currencies}
            charges = list(self.charges)
        found: dict[str, CapError] = {}
        for currency in currencies:
            found |= self._exceeding(charges, totals[currency], currency)
        return found

    def _exceeding(self, charges: list[Charge], totals: Totals, currency: Currency) -> dict[str, CapError]:
        """Return the caps that the totals of charges exceed, by name."""
        found: dict[str, CapError] = {}
        for by in {charge.by for charge in charges}:
            here = [charge for charge in charges if charge.by == by]
            every = replace(here[0], labels=tuple(dict.fromkeys(label for charge in here for label in charge.labels)))
            for column in dict.fromkeys(column for charge in here for column in _columns_of(currency.policy(charge))):
                try:
                    for name, total in self._capped_totals(column, every, totals, currency):
                        self._check_total(name, total, self._cap_of(column, currency))
                except CapError as error:
                    exceeded = replace(error, protects=every.protects, band=currency.times)
                    found.setdefault(self._cap_name(column, currency), exceeded)
        return found

    def _capped_totals(
        self, column: str | None, charge: Charge, totals: Totals, currency: Currency
    ) -> Iterator[tuple[str | None, Total]]:
        """Yield the totals that the cap on a column must not be below, each with the column that it is compared by."""
        cap = self._cap_of(column, currency)
        for total in _possible_totals(column, charge, totals):
            yield column, total
        ranks = Total.zero() if cap is None or column not in (None, COUNT) else _ranks_as_counts(charge, totals, cap)
        if ranks.shapes:  # quantiles and numbers of records of entities have one cap
            for total in _possible_totals(COUNT, charge, totals):
                yield COUNT, total.joined(ranks)

    def _current_totals(self, currency: Currency) -> Totals:
        """Return the totals of all charges so far, and keep them."""
        totals, included = self._totals.get(currency, ({}, 0))
        totals = _add_charges(totals, self.charges[included:], currency)
        self._totals[currency] = totals, len(self.charges)
        return totals

    def record(self, charge: Charge) -> None:
        """Add a charge that was made earlier, without checking it against the caps."""
        charge = self._first_spelling_of(charge)
        for name in _names_in(charge):
            self._spellings.setdefault(folded(name), name)
        for name, meaning in _meanings_in(charge).items():
            self._meanings.setdefault(name, meaning)
        self._label_kinds.setdefault(charge.by, charge.kind)
        self._uses.update(charge.uses)
        self.charges.append(charge)

    def forget(self) -> None:
        """Remove the newest charge, because it could not be written to the ledger."""
        kept, self.charges = self.charges[:-1], []
        self._totals = {}
        self._spellings = self._declared_names()
        self._meanings, self._label_kinds, self._uses = {}, {}, set()
        for charge in kept:
            self.record(charge)

    def _check_column(self, column: str | None, charge: Charge, totals: Totals, currency: Currency) -> None:
        """Raise if these totals exceed a column's cap for the records of any part."""
        cap = self._cap_of(column, currency)
        if cap is None:
            return
        try:
            for name, total in self._capped_totals(column, charge, totals, currency):
                self._check_total(name, total, cap)
        except CapError as error:
            with np.errstate(over="ignore"):
                loss = currency.policy(charge).column(column)(0.0 if column is None else error.influence)
            before = error.spent - loss if error.spent < math.inf else None
            if before is not None and before <= 1e-12 * error.spent:  # rounding
                before = 0.0
            raise replace(
                error,
                before=before,
                made=self._equal_charges_before(column, charge, before, loss, currency),
                cap_name=self._cap_name(column, currency),
                protects=charge.protects,
                band=currency.times,
            ) from None

    def _equal_charges_before(
        self, column: str | None, charge: Charge, before: float | None, loss: float, currency: Currency
    ) -> int | None:
        """Return how many charges a record has had, if all charges of the column equal this one; else None."""
        policies = [currency.policy(other) for other in self.charges]
        same = currency.policy(charge).column(column).shapes()
        if not before or any(one.column(column).shapes() != same for one in policies if column in _columns_of(one)):
            return None
        times = round(before / loss)
        return times if times and math.isclose(before, times * loss, rel_tol=1e-6) else None

    def fits(self, charge: Charge, column: str | None) -> Callable[[Policy], bool]:
        """Return a function that says whether a policy could replace the charge's policy on a column (None: counts).

        It compares with the caps of this column only. Raise if there are too many policies for a quick answer.
        """
        _check_columns(charge)
        with self._lock:
            charge = self._first_spelling_of(charge)
            if column is not None:
                column = next(name for name in charge.policy.columns if folded(name) == folded(column))
            before = [
                (currency, cap, self._totals_before(column, charge, cap, currency))
                for currency in self._currencies(charge)
                if (cap := self._cap_of(column, currency)) is not None
            ]
        use = charge.uses[[name for name, _ in charge.policy.terms].index(column)]

        def fits(policy: Policy) -> bool:
            changed = replace(charge, policy=RecordPolicy(((column, policy),)), uses=(use,), pure_columns=None)
            try:
                for currency, cap, totals in before:
                    new = currency.policy(changed).column(column)
                    for total in totals:
                        self._check_total(column, total + new, cap)
            except (CapError, ParameterError):
                return False
            return True

        return fits

    def _totals_before(self, column: str | None, charge: Charge, cap: Policy, currency: Currency) -> list[Total]:
        """Return the totals that a charge to a column would be added to; raise if there are too many policies."""
        totals = self._current_totals(currency)
        possible = _possible_totals(column, charge, totals)
        if column == COUNT:
            possible = [total.joined(_ranks_as_counts(charge, totals, cap)) for total in possible]
        parts = {frozenset(total.shapes.items()): total for total in possible}
        before = list(parts.values()) if len(parts) <= MOST_TOTALS else [Total.largest(list(parts.values()))]
        if any(len(total.shapes) > MOST_TOTALS for total in before):
            raise ParameterError(
                f"column {column!r}",
                f"was charged with more than {MOST_TOTALS} different policies, too many to search for one that still "
                "fits",
                code="too-many",
                remedy="choose the mechanism yourself",
            )
        return before

    def _cap_of(self, column: str | None, currency: Currency = PRESENCE) -> Policy | None:
        """Return the cap of a column, or None if it has none."""
        return self._caps_in(currency).get(self._cap_name(column, currency))

    def _caps_in(self, currency: Currency) -> dict[str, Policy]:
        return self.caps if currency.band is None else self.band_caps

    def _cap_name(self, column: str | None, currency: Currency = PRESENCE) -> str:
        """Return the name under which a column has its cap: its own name, or "*"."""
        names = {folded(name): name for name in self._caps_in(currency)}
        return names.get(folded(COUNT if column is None else column), names.get(ANY, ANY))

    @property
    def spent(self) -> Spent:
        """The total loss of a record through all charges so far."""
        return total_of(self.charges, self.band, self.largest)

    def _check_total(self, column: str | None, total: Total, cap: Policy | None) -> None:
        """Raise a `CapError` if a total exceeds a cap, at a size up to the column's largest value."""
        if cap is None:
            return
        if column is None:  # every record counts as 1
            check_at(COUNT, float(total.losses[0]), cap, 1.0)
        else:
            check(column, total, cap, proven_to(value_of(self.largest, column)))


def _ranks_as_counts(charge: Charge, totals: Totals, cap: Policy) -> Total:
    """Return a policy for the number of records of an entity that is at least its loss by quantiles; 0 without any.

    By quantiles, an entity loses ρ, however many records n it has. A cap does not decrease, so for n >= 1 this is at
    most ρ/cap(1)·cap(n).
    """
    ranks, base = totals.get((None, None)), float(cap(1.0))
    if charge.protects is None or ranks is None or base == 0:
        return Total.zero()
    share, whole = float(ranks.losses[0]) / base, Total.zero() + cap
    return Total({shape: share * times for shape, times in whole.shapes.items()}, share * whole.losses)


def _check_columns(charge: Charge) -> None:
    """Raise if a column has a reserved name."""
    for name in charge.policy.columns:
        # If entities are protected, the number of records of an entity is a column called "count".
        if name != COUNT or charge.protects is None:
            check_column_name(name)


def _columns_of(policy: RecordPolicy) -> list[str | None]:
    counts = any(column is None for column, _ in policy.terms)
    return [*policy.columns, *([None] if counts else [])]


def _names_in(charge: Charge) -> list[str]:
    """Return all names in a charge: the columns, the partition and the entity."""
    policies = [charge.policy] if charge.pure_policy is None else [charge.policy, charge.pure_policy]
    columns = [column for policy in policies for column in policy.columns]
    return [*columns, *(name for name in (charge.by, charge.protects) if name is not None)]


def _meanings_in(charge: Charge) -> dict[str, str | None]:
    """Return how each column of a charge is computed, by folded name; None for a column that is stored."""
    return {
        **dict.fromkeys(map(folded, _names_in(charge))),
        **{folded(name): one for name, one in charge.derived.items()},
    }


def _add_charges(totals: Totals, charges: list[Charge], currency: Currency) -> Totals:
    """Return totals with further charges added."""
    added: dict[tuple[Part, str | None], list[Policy]] = {}
    for charge in charges:
        parts: list[Part] = [None] if charge.by is None else [(charge.by, label) for label in charge.labels]
        losses = currency.policy(charge)
        for column in _columns_of(losses):
            policy = losses.column(column)
            for part in parts:
                added.setdefault((part, column), []).append(policy)
    return totals | {key: totals.get(key, Total.zero()).plus(policies) for key, policies in added.items()}


def _possible_totals(column: str | None, charge: Charge, totals: Totals) -> list[Total]:
    """Return the totals that a record of the charge may have: one for each part of the charge's own partition.

    In any other partition the part of the record is not known, so the largest coefficients of its parts are used.
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


def check_caps(caps: Any, argument: str = "caps") -> dict[str, Policy]:
    """Return caps as a mapping of columns to PRzCDP policies; a number is the same cap for records of every size."""
    if caps is None:
        return {}
    if not isinstance(caps, Mapping):
        raise ParameterTypeError(argument, allowed='a mapping such as {"payann": policy, "*": policy}', given=caps)
    seen: dict[str, str] = {}
    found: dict[str, Policy] = {}
    for name, given in caps.items():
        if not isinstance(name, str):
            raise ParameterTypeError("the names of caps", allowed='columns, "count" or "*", as text', given=name)
        if not folded(name):
            raise ParameterError("the names of caps", allowed="not empty, and not of invisible characters", given=name)
        if folded(name) in seen:
            raise ParameterError(
                argument,
                f"names {seen[folded(name)]!r} and {name!r}, which are the same column: case, surrounding whitespace "
                "and invisible characters are ignored",
                code="duplicate",
                path=(name,),
                remedy="keep one of the two",
            )
        seen[folded(name)] = name
        number = isinstance(given, int | float) and not isinstance(given, bool)
        with located(name):
            cap = ConstantPolicy(given) if number else given
        if not isinstance(cap, Policy):
            raise ParameterTypeError(
                f"{argument}[{name!r}]",
                allowed="a policy such as ss.Gaussian(sigma=10).policy, or a number",
                given=given,
                path=(name,),
            )
        if cap.notion != ZCDP:
            raise ParameterError(
                f"{argument}[{name!r}]",
                allowed="a PRzCDP policy",
                given=Shown(f"a {cap.notion} policy"),
                path=(name,),
                remedy="convert it with .to_zcdp()",
            )
        found[name] = cap
    return found
