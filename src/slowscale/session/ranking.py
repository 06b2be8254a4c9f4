"""Quantiles bound to the records of a session: their table, their public facts and their charge."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import ibis.expr.types as ir

from slowscale.accounting import Charge
from slowscale.errors import ParameterError
from slowscale.facts import Facts
from slowscale.mechanisms.calibration import CLOSED
from slowscale.quantiles import QuantilesQuery
from slowscale.query import TREATMENTS
from slowscale.session.checks import check_column
from slowscale.session.records import Records
from slowscale.tables import rowwise
from slowscale.tables.ranks import check_comparable
from slowscale.tables.rowwise import Expression
from slowscale.tables.sums import Column


@dataclass(frozen=True)
class BoundQuantiles:
    """Quantiles that are bound to a table and checked: the records, the column, the public facts and the charge."""

    table: ir.Table
    column: Column
    facts: Facts
    charge: Charge


def bind_quantiles(
    query: QuantilesQuery,
    records: Records,
    where: Expression | None,
    derive: Mapping[str, Expression] | None,
    nulls: str,
    dataset: str | None,
    private: bool,
) -> BoundQuantiles:
    """Return quantiles bound to the table, or raise an error that says what is wrong with them."""
    if records.protect is not None:
        raise ParameterError(
            f"quantiles protect single records, but the session protects each {records.protect}, which may have "
            "several records: it could move a rank by more than one. Open the session on a table with one row per "
            f"{records.protect}, without protect="
        )
    if nulls not in TREATMENTS:
        raise ParameterError(f'nulls must be "error" or "zero", got {nulls!r}')
    derived = rowwise.derive(records.table, derive)
    table = rowwise.keep(derived, where)
    check_column("column", query.column, table, records.source)
    column = Column(query.column, Fraction(1), nulls, None, records.source.text_numbers, use="ranked")
    check_comparable(table, column)
    filtered = where is not None or records.filtered
    policy, pure = (replace(one, filtered=filtered) for one in (query.policy, query.pure_policy))
    expressions = rowwise.described(derived, where, derive)
    facts = records.facts(dataset, private, policy, pure, expressions, accounting=CLOSED, quantiles=query.facts(nulls))
    return BoundQuantiles(table, column, facts, Charge(policy, pure, facts=facts.to_dict()))
