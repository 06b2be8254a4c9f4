"""Accounts: what has been spent so far, and whether a charge may still be made.

An account lives in memory; the ledger makes it durable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slowscale.accounting.caps import Total, check, check_at
from slowscale.accounting.record import Parallel, RecordPolicy
from slowscale.accounting.semantics import odds_factor, posterior
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.policy import ZCDP, Policy

ANY = "*"  # the cap of every column that has none of its own
COUNT = "count"  # what caps call the number of records
SIZES = (1, 100, 10_000, 1_000_000)
RARELY = 0.01
TOTALS = (0.001, 0.01, 0.1, 1)


@dataclass(frozen=True)
class Charge:
    """What one release costs: its policies, and which records it is about.

    Attributes
    ----------
    policy, pure_policy
        What a record may lose, as PRzCDP and (or None) as PRDP.
    by, labels
        Where a release is about the records with some labels of a column only: that column, and the labels.
    protects
        The column that tells which records belong to one entity, or None where single records are protected.
    """

    policy: RecordPolicy
    pure_policy: RecordPolicy | None = None
    by: str | None = None
    labels: tuple[Any, ...] = ()
    protects: str | None = None


class Spent(RecordPolicy):
    """What a record may have lost by all releases so far: call it on a record, or print it."""

    releases: int
    pure_policy: RecordPolicy | None

    def __str__(self) -> str:
        if not self.releases:
            return "Nothing has been released yet: no record has lost anything."
        lines = [f"{self.releases} {'release' if self.releases == 1 else 'releases'} so far."]
        lines.append("What a record may have lost in all depends on its size. In PRzCDP, column by column:")
        for column in self.columns:
            policy = self.column(column)
            lines.append(f"  {column}: " + ", ".join(f"{policy(size):.3g} at {size:,}" for size in SIZES))
        counts = self.column(None)(0)
        if counts:
            lines.append(f"  being counted: {counts:.3g} for every record")
        lines.append(
            "Add up the columns of a record. What a total means for someone who thinks it as likely as not that"
        )
        lines.append(
            "the record is there: after all releases, but for one time in a hundred, they are at most this sure:"
        )
        sure = [f"{posterior(0.5, odds_factor(loss, RARELY)):.1%} at a total of {loss:g}" for loss in TOTALS]
        lines.append(f"  {', '.join(sure)}")
        if self.pure_policy is not None:
            lines.append(f"There is a pure guarantee (PRDP), too: {self.pure_policy}")
        return "\n".join(lines)


Part = tuple[str, Any] | None  # a column and a label, or None for releases about all records
Totals = dict[tuple[Part, str | None], Total]  # by part and column (None: counts)


class Account:
    """The sum of charges, by column and by part, and the caps that it must stay below."""

    def __init__(self, caps: Mapping[str, Policy] | None = None) -> None:
        self.caps = dict(caps or {})
        self.charges: list[Charge] = []
        self._totals: Totals = {}
        self._counted = 0  # so many of the charges are in the totals

    def charge(self, charge: Charge) -> None:
        """Add a charge, or raise a `CapError` and change nothing."""
        for other in self.charges[:1]:
            if other.protects != charge.protects:
                one, two = (what or "single records" for what in (other.protects, charge.protects))
                raise ParameterError(f"protect must stay what it was: earlier releases protect {one}, this one {two}")
        if self.caps:
            before = _plus(self._totals, self.charges[self._counted :])
            self._totals, self._counted = before, len(self.charges)
            after = _plus(before, [charge])
            for column in _columns(charge):
                self._check(column, charge, after)
            self._totals, self._counted = after, self._counted + 1
        self.charges.append(charge)

    def record(self, charge: Charge) -> None:
        """Add a charge that was made before, without asking whether it may be."""
        self.charges.append(charge)

    def forget(self) -> None:
        """Take the newest charge back: it could not be written down."""
        del self.charges[-1]
        self._totals, self._counted = {}, 0

    def _check(self, column: str | None, charge: Charge, totals: Totals) -> None:
        """Raise if a column's cap would be exceeded for records of any part."""
        name = COUNT if column is None else column
        cap = self.caps.get(name, self.caps.get(ANY))
        if cap is None:
            return
        for total in _possible(column, charge, totals):
            if column is None:  # every record counts as 1
                check_at(name, float(total.losses[0]), cap, 1.0)
            else:
                check(name, total, cap)

    @property
    def spent(self) -> Spent:
        """What a record may have lost by all charges so far."""
        pures = [(charge, charge.pure_policy) for charge in self.charges if charge.pure_policy is not None]
        pure = _composed(pures) if self.charges and len(pures) == len(self.charges) else None
        total = _composed([(charge, charge.policy) for charge in self.charges])
        spent = Spent(total.terms, total.parallel)
        object.__setattr__(spent, "releases", len(self.charges))
        object.__setattr__(spent, "pure_policy", pure)
        return spent


def _columns(charge: Charge) -> list[str | None]:
    counts = any(column is None for column, _ in charge.policy.terms)
    return [*charge.policy.columns, *([None] if counts else [])]


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
    """Return the totals that a record of the charge may have: one for each combination of parts it may be in."""
    possible = [totals.get((None, column), Total.zero())]
    parts = [part for part, name in totals if part is not None and name == column]
    for by in dict.fromkeys(by for by, _ in parts):
        labels = charge.labels if by == charge.by else [label for name, label in parts if name == by]
        found = [totals[(by, label), column] for label in labels if ((by, label), column) in totals]
        if found:
            possible = [total.joined(part) for total in possible for part in found]
    return possible


def _composed(charges: list[tuple[Charge, RecordPolicy]]) -> RecordPolicy:
    """Return the policy of all charges: those about some labels of a column in parallel, the rest in sequence."""
    total = RecordPolicy(())
    parts: dict[str, dict[Any, RecordPolicy]] = {}
    terms = [term for charge, policy in charges if charge.by is None for term in policy.terms]
    parallel = tuple(one for charge, policy in charges if charge.by is None for one in policy.parallel)
    for charge, policy in charges:
        for label in charge.labels if charge.by is not None else ():
            found = parts.setdefault(charge.by or "", {})
            found[label] = found.get(label, RecordPolicy(())) + policy
    total = RecordPolicy(tuple(terms), parallel)
    more = tuple(Parallel(by, tuple(found.items())) for by, found in parts.items())
    return RecordPolicy(total.terms, total.parallel + more)


def check_caps(caps: Any) -> dict[str, Policy]:
    """Return caps as a mapping of columns to PRzCDP policies."""
    if caps is None:
        return {}
    if not isinstance(caps, Mapping):
        raise ParameterTypeError(f'caps must be a mapping such as {{"payann": policy, "*": policy}}, got {caps!r:.60}')
    for name, cap in caps.items():
        if not isinstance(name, str):
            raise ParameterTypeError(f'caps must be named by a column or "*", got {name!r}')
        if not isinstance(cap, Policy):
            raise ParameterTypeError(f"caps[{name!r}] must be a policy such as ss.Gaussian(10).policy, got {cap!r:.60}")
        if cap.notion != ZCDP:
            raise ParameterError(f"caps[{name!r}] must be a PRzCDP policy: turn it with .to_zcdp()")
    return dict(caps)
