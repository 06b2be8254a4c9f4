"""The policies of requested tables: the loss of a record by a drawn table, before there are any data."""

from fractions import Fraction

from slowscale.accounting import RecordPolicy
from slowscale.mechanisms.calibration import charged_policy
from slowscale.release.columns import ColumnPolicy, column_policies, record_policy
from slowscale.release.quantiles import Ranks
from slowscale.release.request import Drawn, Quantiles, Sums


def single_column(table: Sums, protect: str | None) -> str | None:
    """Return the column in which every record counts as 1, or None: an entity may have several records in a cell."""
    return None if protect is not None else table.counted


def requested_policy(table: Drawn, accounting: str, protect: str | None, filtered: bool) -> RecordPolicy:
    """Return the loss of a record by a drawn table, as PRzCDP.

    Parameters
    ----------
    table
        The table.
    accounting
        Which policy of each mechanism is charged.
    protect
        The column that identifies entities, or None if single records are protected.
    filtered
        Whether records are filtered, so that a change of value may move one in or out.
    """
    if isinstance(table, Quantiles):
        return Ranks(table).policy(filtered)
    found = {name: charged_policy(mechanism, accounting) for name, mechanism in table.mechanisms.items()}
    return record_policy(found, single_column(table, protect), filtered)


def requested_columns(
    name: str, table: Drawn, accounting: str, protect: str | None, filtered: bool
) -> tuple[ColumnPolicy, ...]:
    """Return the columns of a drawn table; quantiles count as one column with the name of the table."""
    policy = requested_policy(table, accounting, protect, filtered)
    if isinstance(table, Quantiles):
        pure = Ranks(table).pure_policy(filtered)
        return (ColumnPolicy(name, policy.column(None), pure.column(None), None, Fraction(1), True, None),)
    return column_policies(policy, table.mechanisms, table.units, accounting=accounting)
