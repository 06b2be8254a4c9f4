"""Binding: a query becomes one on the table of a session, with its public facts and its charge."""

from slowscale.accounting import Accountant, Charge
from slowscale.accounting.record import plain_label
from slowscale.errors import ParameterTypeError
from slowscale.facts import ABSENT, Facts, KeysFacts, PartitionFacts
from slowscale.mechanisms import TransformationMechanism
from slowscale.publishing import ALL_RECORDS, BoundQuery, Part, column_facts, description
from slowscale.query import Query
from slowscale.session.checks import check_column, check_derived_columns, check_partition
from slowscale.session.records import Records
from slowscale.tables import rowwise
from slowscale.tables.sums import Column, check_labels


def bind(query: Query, records: Records, accountant: Accountant, accounting: str) -> BoundQuery:
    """Return the query bound to the table, or raise an error that says what is wrong with it."""
    if not isinstance(query, Query):
        raise ParameterTypeError(f"query must be an ss.Query, got {type(query).__name__}")
    derived = rowwise.derive(records.table, query.derive)
    table = rowwise.keep(derived, query.where)
    source = records.source
    if query.keys is not None:
        for name in query.keys.columns:
            check_column("by", name, table, source)
        check_labels(table, query.keys)
    columns = {}
    for name, mechanism in query.columns.items():
        check_column("columns", name, table, source)
        negatives = query.negatives if isinstance(mechanism, TransformationMechanism) else None
        columns[name] = Column(name, query.units[name], query.nulls, negatives, source.text_numbers)
    bound = BoundQuery(
        table=table,
        keys=query.keys,
        columns=columns,
        mechanisms=query.mechanisms,
        units=query.units,
        count=query.counted,
        level=query.level,
        nonnegative=query.nonnegative,
        expressions=rowwise.described(derived, query.where, query.derive),
        entities=records.protect is not None,
        filtered=query.where is not None or records.filtered,
        part=_part(query, records),
        means=query.means,
        accounting=accounting,
    )
    check_derived_columns(query, records, accountant)
    return bound


def _part(query: Query, records: Records) -> Part:
    """Return which records a query is about."""
    check_partition(query, records)
    keys, partition = query.keys, query.partition
    if keys is None or partition is None:
        return ALL_RECORDS
    labels = tuple(plain_label(label) for (label,) in keys.project(partition))
    return Part(partition, labels, keys.kinds[partition])


def release_facts(query: BoundQuery, records: Records, dataset: str | None, private: bool) -> Facts:
    """Return the facts that will be public about the release of a query."""
    policy, pure, keys, part = query.policy, query.pure_policy, query.keys, query.part
    # With one column it equals the pure policy.
    pure_columns = query.pure_columns if len(query.mechanisms) > 1 else None
    return records.facts(
        dataset,
        private,
        policy,
        pure,
        query.expressions,
        accounting=query.accounting,
        pure_columns=ABSENT if pure_columns is None else description(pure_columns),
        cells=None if keys is None else KeysFacts(keys.kinds, len(keys), keys.assumption, keys.from_data),
        partition=None if part.by is None else PartitionFacts(part.by, part.labels),
        columns={name: column_facts(query, name) for name in query.mechanisms},
    )


def charge_for(query: BoundQuery, records: Records, facts: Facts) -> Charge:
    """Return the charge for the release of a query, with everything that a ledger records about it."""
    return Charge(query.policy, query.pure_policy, *query.part, records.protect, facts.to_dict(), query.pure_columns)
