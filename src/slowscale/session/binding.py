"""Binding: a query becomes one on the table of a session, with its public facts and its charge."""

import json
import secrets
from dataclasses import replace
from datetime import UTC, datetime

from slowscale.accounting import Accountant, Charge
from slowscale.accounting.record import plain_label
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.facts import Facts, KeysFacts, PartitionFacts
from slowscale.mechanisms import TransformationMechanism
from slowscale.publishing import ALL_RECORDS, BoundQuery, Part, column_facts, description
from slowscale.query import Query
from slowscale.release import Release
from slowscale.session.checks import check_column, check_derived_columns, check_partition
from slowscale.session.records import Records
from slowscale.tables import rowwise
from slowscale.tables.keys import Keys
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
        where=None if query.where is None else rowwise.words(derived, query.where),
        derived={name: rowwise.words(derived, expression) for name, expression in (query.derive or {}).items()},
        entities=records.protect is not None,
        filtered=query.where is not None or records.filtered,
        part=_part(query, records),
        means=query.means,
        accounting=accounting,
    )
    check_derived_columns(query, records, accountant)
    return bound


def query_of(release: Release, dataset: str | None, protect: str | None) -> Query:
    """Return the query that a release came from, made from its public facts.

    Parameters
    ----------
    release
        The release, which may have been read from a file.
    dataset, protect
        The name of the data set and the column of protected entities, which must be those of the release.
    """
    facts = release.facts
    if facts.rollup:
        raise ParameterError(
            f"release must be one that was drawn, but this one is a roll-up of release {facts.rollup.of}; use that one"
        )
    for argument, here, there in (("dataset", dataset, facts.dataset or None), ("protect", protect, facts.protect)):
        if here != there:
            raise ParameterError(
                f"release must be one of these records: it has {argument}={there!r}, and this session has "
                f"{argument}={here!r}; open the session with the same {argument}"
            )
    unknown = [name for name in facts.columns if name not in release.mechanisms]
    if unknown:
        raise ParameterError(
            f"release has a mechanism with a function that is not known ({', '.join(unknown)}); read it with "
            "ss.read_release(path, functions=…)"
        )
    sums = {name: column for name, column in facts.columns.items() if not column.is_count}
    counts = [name for name, column in facts.columns.items() if column.is_count]
    nulls, negatives = (
        "zero" if any(getattr(column, argument) == "zero" for column in sums.values()) else "error"
        for argument in ("nulls", "negatives")
    )
    try:
        return Query(
            {name: release.mechanisms[name] for name in sums},
            keys=None if facts.cells is None else Keys(release.table.select(list(facts.cells.columns))),
            count=release.mechanisms[counts[0]] if counts else None,
            unit={name: column.grid for name, column in sums.items()},
            where=facts.where,
            derive=dict(facts.derived) or None,
            partition=None if facts.partition is None else facts.partition.by,
            nulls=nulls,
            negatives=negatives,
        )
    except ParameterError as error:
        raise ParameterError(f"release cannot be repeated on these records: {error}") from None


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
    from slowscale import __version__

    policy, pure, keys, part = query.policy, query.pure_policy, query.keys, query.part
    facts = Facts(
        id=secrets.token_hex(8),
        slowscale=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        private=private,
        dataset=dataset,
        protect=records.protect,
        protects=records.protected,
        notion="PRzCDP",
        accounting=query.accounting,
        formula=str(policy),
        policy=description(policy),
        pure_policy=None if pure is None else description(pure),
        cells=None if keys is None else KeysFacts(keys.kinds, len(keys), keys.assumption, keys.from_data),
        partition=None if part.by is None else PartitionFacts(part.by, part.labels),
        where=query.where,
        derived=query.derived,
        columns={name: column_facts(query, name) for name in query.mechanisms},
    )
    if query.pure_columns is not None and len(query.mechanisms) > 1:  # otherwise it equals the pure policy
        facts = replace(facts, pure_columns=description(query.pure_columns))
    json.dumps(facts.to_dict())  # facts that cannot be written must fail before anything is charged
    return facts


def charge_for(query: BoundQuery, records: Records, facts: Facts) -> Charge:
    """Return the charge for the release of a query, with everything that a ledger records about it."""
    return Charge(query.policy, query.pure_policy, *query.part, records.protect, facts.to_dict(), query.pure_columns)
