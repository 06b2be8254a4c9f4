"""Sets of tables: several queries bound to the records, with one charge, and the tables that are derived from them."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from slowscale.accounting import Charge, RecordPolicy
from slowscale.errors import ParameterError
from slowscale.facts import ABSENT, Facts, LedgerHead, PartitionFacts, SetFacts, SetTableFacts
from slowscale.mechanisms import Mechanism
from slowscale.parameters import lazy
from slowscale.publishing import BoundQuery, description, dry_run
from slowscale.release import Release
from slowscale.release.release_set import ReleaseSet, set_policy
from slowscale.release.rollup import biased_sums, roll_up
from slowscale.table_set import TableSet


@dataclass(frozen=True)
class BoundSet:
    """A set of tables of which the drawn ones are bound to the records and checked. Nothing has been drawn yet.

    Attributes
    ----------
    table_set
        The set.
    queries, facts
        The drawn tables as bound queries, and the facts of their releases.
    outlines
        All tables as they would be released, with numbers that are drawn from zeros: they show that all of them can be
        released, how many rows they have, and how many cells each row of a derived table is the sum of.
    ids
        The identifiers of the releases.
    id
        The identifier of the set.
    """

    table_set: TableSet
    queries: Mapping[str, BoundQuery]
    facts: Mapping[str, Facts]
    outlines: Mapping[str, Release]
    ids: Mapping[str, str]
    id: str

    @lazy
    def policy(self) -> RecordPolicy:
        """The loss of a record by the set, as PRzCDP: that by the drawn tables, added up (Lemma PRzCDP-seq)."""
        return _added([query.policy for query in self.queries.values()])

    @lazy
    def pure_policy(self) -> RecordPolicy | None:
        """The loss of a record by the set as PRDP, or None if a mechanism has no such guarantee."""
        found = [query.pure_policy for query in self.queries.values()]
        known = [policy for policy in found if policy is not None]
        return _added(known) if len(known) == len(found) else None

    @lazy
    def pure_columns(self) -> RecordPolicy | None:
        """The PRDP loss through the columns that have such a guarantee in all drawn tables, or None if none has it."""
        found = [query.pure_columns for query in self.queries.values()]
        known = [policy for policy in found if policy is not None]
        if not known:
            return None
        added = _added(known)
        wanted, pure = ([name for name, _ in policy.terms] for policy in (self.policy, added))
        terms = tuple(term for term in added.terms if pure.count(term[0]) == wanted.count(term[0]))
        return replace(added, terms=terms) if terms else None

    @property
    def mechanisms(self) -> Mapping[str, Mechanism]:
        """The mechanisms of the columns that are in one drawn table only: what would still fit can be said of these."""
        names = [name for query in self.queries.values() for name in query.mechanisms]
        return {
            name: mechanism
            for query in self.queries.values()
            for name, mechanism in query.mechanisms.items()
            if names.count(name) == 1
        }

    @property
    def unit_warnings(self) -> list[str]:
        """A warning for each column of a table whose numbers are biased because its unit is coarse."""
        found = {name: query.unit_warnings for name, query in self.queries.items()}
        found |= {name: biased_sums(one) for name, one in self.outlines.items() if one.facts.rollup}
        return [f"table {name!r}: {words}" for name in self.table_set for words in found[name]]

    @lazy
    def set_facts(self) -> SetFacts:
        """Which tables there are, and the loss of a record by all of them."""
        policy, pure = self.policy, self.pure_policy
        tables = {}
        for name in self.table_set:
            source = None if name in self.queries else self.table_set.derived[name].of
            formula = str(self.queries[name].policy) if source is None else ""
            rows = len(self.outlines[name])
            tables[name] = SetTableFacts(self.ids[name], source, self.table_set.by(name), rows, formula)
        described = description(policy), None if pure is None else description(pure)
        return SetFacts(self.id, None, tables, str(policy), *described)

    @lazy
    def whole(self) -> Facts:
        """The facts of the set as a whole."""
        first, part = next(iter(self.facts.values())), next(iter(self.queries.values())).part
        pure = self.pure_columns
        facts = replace(
            first,
            id=self.id,
            formula=self.set_facts.formula,
            policy=self.set_facts.policy,  # type: ignore[arg-type]
            pure_policy=self.set_facts.pure_policy,  # type: ignore[arg-type]
            pure_columns=ABSENT if pure is None or len(self.policy.terms) < 2 else description(pure),
            cells=None,
            partition=None if part.by is None else PartitionFacts(part.by, part.labels),
            where=None,  # each table has its own
            derived={name: text for facts in self.facts.values() for name, text in facts.derived.items()},
            columns={},
            ratios={},
            table_set=self.set_facts,
        )
        json.dumps(facts.to_dict())  # facts that cannot be written must fail before anything is charged
        return facts

    def charge(self, protect: str | None) -> Charge:
        """Return the one charge for the set, with everything that a ledger records about it."""
        part = next(iter(self.queries.values())).part
        written = {**self.whole.to_dict(), "releases": {name: one.to_dict() for name, one in self.facts.items()}}
        return Charge(self.policy, self.pure_policy, *part, protect, written, self.pure_columns, len(self.queries))

    def member(self, name: str, facts: Facts, head: LedgerHead | None) -> Facts:
        """Return the facts of the release of one table: its identifier, its set, and the ledger entry."""
        found = replace(facts, id=self.ids[name], table_set=replace(self.set_facts, table=name))
        return found if head is None else replace(found, ledger=head)

    def release_set(self, drawn: Mapping[str, Release], head: LedgerHead | None) -> ReleaseSet:
        """Return the set with the derived tables, which are sums of the cells that were drawn."""
        found = _with_derived(self.table_set, drawn)
        releases = {
            name: replace(release, facts=self.member(name, release.facts, head)) for name, release in found.items()
        }
        facts = self.whole if head is None else replace(self.whole, ledger=head)
        return ReleaseSet(releases, facts, set_policy(self.policy, len(drawn)), self.pure_policy)


def bound_set(table_set: TableSet, queries: Mapping[str, tuple[BoundQuery, Facts]]) -> BoundSet:
    """Return a set with its bound queries, after a dry run of the derived tables: they cannot fail after the charge."""
    outlines = {name: _outline(query, facts) for name, (query, facts) in queries.items()}
    ids = {name: queries[name][1].id if name in queries else secrets.token_hex(8) for name in table_set}
    return BoundSet(
        table_set,
        {name: query for name, (query, _) in queries.items()},
        {name: facts for name, (_, facts) in queries.items()},
        _with_derived(table_set, outlines),
        ids,
        secrets.token_hex(8),
    )


def _added(policies: list[RecordPolicy]) -> RecordPolicy:
    """Return the sum of policies, by sequential composition."""
    total = policies[0]
    for policy in policies[1:]:
        total = total + policy
    return total


def _outline(query: BoundQuery, facts: Facts) -> Release:
    """Return a release of the right form for all keys: each row has the numbers of the dry run, drawn from a zero."""
    release = dry_run(query, facts)
    if query.keys is None:
        return query.with_means(release)
    numbers = release.table.take(pa.array(np.zeros(len(query.keys), np.int64)))
    columns = {name: query.keys.table[name] for name in query.keys.columns}
    table = pa.table(columns | {name: numbers[name] for name in numbers.column_names})
    return query.with_means(replace(release, table=table))


def _with_derived(table_set: TableSet, drawn: Mapping[str, Release]) -> dict[str, Release]:
    """Return all tables of a set in its order, from the releases of the drawn ones."""
    found = {}
    for name in table_set:
        if name in drawn:
            found[name] = drawn[name]
            continue
        levels = table_set.used_hierarchies(name)
        try:
            found[name] = roll_up(drawn[table_set.source(name)], table_set.by(name), levels or None)
        except ParameterError as error:
            raise ParameterError(f"tables[{name!r}] cannot be derived from its cells: {error}") from None
    return found
