"""Quantiles bound to the records of a session: their table, their public facts and their charge."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction

import ibis.expr.types as ir

from slowscale.accounting import Accountant, Charge
from slowscale.accounting.caps import TOLERANCE
from slowscale.errors import CapError, ParameterError
from slowscale.facts import Facts
from slowscale.figures import figure
from slowscale.mechanisms.calibration import CLOSED
from slowscale.publishing import description
from slowscale.quantiles import QuantilesQuery
from slowscale.query import TREATMENTS
from slowscale.session.checks import check_column
from slowscale.session.records import Records
from slowscale.tables import rowwise
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
    from slowscale import __version__

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
    filtered = where is not None or records.filtered
    policy, pure = (replace(one, filtered=filtered) for one in (query.policy, query.pure_policy))
    facts = Facts(
        id=secrets.token_hex(8),
        slowscale=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        private=private,
        dataset=dataset,
        protect=records.protect,
        protects=records.protected,
        notion=policy.notion,
        accounting=CLOSED,
        formula=str(policy),
        policy=description(policy),
        pure_policy=description(pure),
        where=None if where is None else rowwise.words(derived, where),
        derived={name: rowwise.words(derived, expression) for name, expression in (derive or {}).items()},
        quantiles=query.facts(nulls),
    )
    json.dumps(facts.to_dict())  # facts that cannot be written must fail before anything is charged
    column = Column(query.column, Fraction(1), nulls, None, records.source.text_numbers)
    return BoundQuantiles(table, column, facts, Charge(policy, pure, facts=facts.to_dict()))


@contextmanager
def explained_quantiles(accountant: Accountant, loss: float) -> Iterator[None]:
    """Add to a refusal by a cap the largest loss that would still fit."""
    try:
        yield
    except CapError as error:
        left = (error.cap - (error.spent - loss)) * (1 + TOLERANCE)  # so that 0.075 is not shown as 0.0749
        fits = {"fits": f"A loss of {figure(left, -1)} would still fit"} if left > 1e-4 * error.cap else {}
        raise error.with_facts(**fits, remedy=accountant.remedy) from None
