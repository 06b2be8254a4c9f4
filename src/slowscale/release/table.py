"""One published table: its numbers and public facts, intervals, ratios and roll-ups."""

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slowscale.accounting import RecordPolicy
from slowscale.core.arrays import to_numpy
from slowscale.core.errors import ParameterError, UnitWarning
from slowscale.core.files import write_files
from slowscale.core.markup import html_table, html_text
from slowscale.core.numbers import published
from slowscale.core.parameters import Array, lazy, level_quantile
from slowscale.mechanisms import REGISTRY, Mechanism, TransformationMechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.grid import ceilings, floors, shift
from slowscale.mechanisms.sum_intervals import sum_variances
from slowscale.release.facts import (
    ColumnFacts,
    Facts,
    RatioFacts,
    RollupFacts,
    TableFacts,
    csv_files,
    kept_release,
    parquet_files,
    with_facts,
)
from slowscale.release.numbers import (
    RATIO_SUFFIXES,
    NumberColumn,
    as_floats,
    check_interval,
    number_column,
    whole_units,
)
from slowscale.release.stored import StoredTable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from slowscale.data.hierarchies import Hierarchy
    from slowscale.publish.charts import ReleasePlot
    from slowscale.release.derived import DerivedTable
    from slowscale.release.release import Release
    from slowscale.release.rollup import Margin

SHOWN_ROWS = 10  # in a notebook
NOT_PRIVATE = "NOT PRIVATE (drawn from test bits). "


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedTable:
    """A published table.

    Attributes
    ----------
    name
        Its name in the release.
    numbers
        The numbers, as an Arrow table or in files.
    whole
        The public facts of its release.
    policy
        The PRzCDP loss of a record by this table alone. A roll-up has the loss of the table with its cells.
    pure_policy
        The PRDP loss of a record, or None if a mechanism has no such guarantee.
    """

    name: str
    numbers: pa.Table | StoredTable
    whole: Facts
    policy: RecordPolicy
    pure_policy: RecordPolicy | None

    def __len__(self) -> int:
        return int(self.numbers.num_rows)

    @lazy
    def table(self) -> pa.Table:
        """The numbers, as an Arrow table. Numbers in files are read now."""
        return self.numbers.read() if isinstance(self.numbers, StoredTable) else self.numbers

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self.numbers.column_names)

    def read_column(self, name: str) -> pa.ChunkedArray:
        """Return one column; of numbers in files, no others are read."""
        return self.numbers.column(name)

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows, as an Arrow table; of numbers in files, no others are read."""
        return self.numbers.head(rows) if isinstance(self.numbers, StoredTable) else self.numbers.slice(0, rows)

    @property
    def facts(self) -> TableFacts:
        """The public facts of the table: its keys, columns, units, filters and mechanisms."""
        return self.whole.tables[self.name]

    @property
    def file_facts(self) -> Facts:
        """The facts in a file of the table: those of the release, and which of its tables this is."""
        facts: Facts = self.whole.with_(table=self.name)
        return facts

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the facts in the metadata of its schema."""
        return with_facts(self.table, self.file_facts)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as an Arrow stream: `polars.DataFrame(table)`, `pyarrow.table(table)`, DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame with the facts in its `attrs`."""
        frame = self.table.to_pandas()
        frame.attrs["slowscale"] = self.file_facts.to_dict()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return a polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_parquet(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, measured_in: Mapping[str, str] | None = None
    ) -> Path:
        """Write a Parquet file with the facts in its schema, whole or not at all, and return its path.

        The metadata of each column have its description and, if `measured_in` has it, its unit of measure.
        """
        with kept_release():
            files = parquet_files(self.table, self.file_facts, path, overwrite, measured_in)
            return write_files(files, overwrite=overwrite)

    def to_csv(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, measured_in: Mapping[str, str] | None = None
    ) -> Path:
        """Write a CSV file and, beside it, the facts in a JSON file: table.csv and table.csv.json.

        The JSON file describes each column under "descriptions". `measured_in` has the units of measure of released
        columns, such as {"payann": "thousand USD"}; they are published, too.

        Labels that a spreadsheet would run as a formula, such as =1+1, are written with an apostrophe in front. The
        JSON file lists the columns with such labels under "escaped", and `read_release` removes the apostrophes. The
        names of columns are treated like labels.
        """
        with kept_release():
            files = csv_files(self.table, self.file_facts, path, overwrite, measured_in)
            return write_files(files, overwrite=overwrite)


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedSums(ReleasedTable):
    """A published table of sums.

    The table has the key columns, then for each column `x` the estimate `x`, its standard error `x_se`, the ends
    `x_low` and `x_high` of an interval for the true sum and, for a transformation, `x_transformed`.

    Attributes
    ----------
    mechanisms
        The mechanism of each column. One with a user function is missing if the table was read from a file.
    """

    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)
    # The cells that a roll-up was made of, and the groups, while they are in memory.
    _added: "tuple[ReleasedSums, Margin] | None" = field(default=None, repr=False)

    def __repr__(self) -> str:
        groups = f"{len(self):,} groups by {', '.join(self.facts.by)}" if self.facts.by else "totals"
        lines = [f"{'' if self.whole.private else NOT_PRIVATE}{self.name}: {groups}"]
        if self.facts.rollup:
            lines.append(f"  {rollup_in_words(self.facts.rollup)}")
        for name, column in self.facts.columns.items():
            bias = ", clipped at 0 and so biased upwards" if column.nonnegative else ""
            lines.append(f"  {name}: {column.described}, unit {column.unit}{bias}")
        for name, ratio in self.facts.ratios.items():
            approximate = ", with an approximate interval" if ratio.approximate else ""
            lines.append(f"  {name}: {ratio.numerator} / {ratio.denominator}{approximate}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        shown: dict[str, Fraction | None] = {name: column.grid for name, column in self.facts.columns.items()}
        shown |= dict.fromkeys(self.facts.ratios)  # ratios have no grid
        rows = []
        for values in self.head(SHOWN_ROWS).to_pylist():
            cells = [
                f"{published(values[name], unit)} ({published(values[f'{name}_low'], unit, -1)} to "
                f"{published(values[f'{name}_high'], unit, 1)})"
                for name, unit in shown.items()
            ]
            rows.append([*(values[name] for name in self.facts.by), *cells])
        more = f"The first {SHOWN_ROWS} of {len(self):,} rows. " if len(self) > SHOWN_ROWS else ""
        heads = [*self.facts.by, *shown]
        return html_table(f"{more}Estimates with their intervals", heads, rows) + html_text(repr(self))

    def plot(self, column: str, *, top: int = 50) -> "ReleasePlot":
        """Return a chart of a column: cells with their intervals, sorted by estimate.

        Notebooks show it. Its method `save` writes it as an interactive page that opens offline (.html), or as a
        picture (.svg, .png).

        Parameters
        ----------
        column
            A released column, or a ratio.
        top
            How many cells to show: those with the largest estimates.

        Examples
        --------
        >>> import pandas as pd
        >>> import slowscale as ss
        >>> session = ss.Session(pd.DataFrame({"state": ["IA", "TX"], "cattle": [4120, 31000]}))
        >>> release = session.sum({"cattle": ss.Gaussian(sigma=50)}, keys=ss.Keys.cross({"state": ["IA", "TX"]}))
        >>> release.plot("cattle")
        <ReleasePlot cattle: all 2 cells>
        """
        from slowscale.publish.charts import plot_release

        return plot_release(self, column, top)

    def interval(self, column: str, level: float = 0.95) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the lower and upper ends of intervals for the true sums of a column, at any level.

        They are computed from published numbers, and are never narrower than the published intervals. They are numbers
        as in the table: integers where the unit is an integer (`Decimal` beyond 64 bits), otherwise floats. Ends that
        are infinite are floats.

        Parameters
        ----------
        column
            A released column that is not a ratio.
        level
            The probability with which an interval holds the true sum.
        """
        low, high = self._interval(column, level)
        return to_numpy(low), to_numpy(high)

    def _interval(self, column: str, level: float) -> tuple[NumberColumn, NumberColumn]:
        """Return the ends of intervals as columns of a table."""
        level_quantile(level)
        facts, mechanism = self._column_facts("column", column), self._known_mechanism(column)
        low, high = self.table[f"{column}_low"], self.table[f"{column}_high"]
        if level <= facts.level:
            return low, high
        if self.facts.rollup:
            from slowscale.release.rollup import rollup_interval

            return rollup_interval(self, column, level)
        unit = facts.grid
        if isinstance(mechanism, TransformationMechanism):
            return end_columns(*mechanism._ends(self._as_floats(f"{column}_transformed"), level, unit), facts)
        assert isinstance(mechanism, AdditiveMechanism)
        narrow, wide = (mechanism._half_steps(unit, one, facts.on_grid) for one in (facts.level, level))
        if narrow is None or wide is None:
            return end_columns(np.full(len(self), -math.inf), np.full(len(self), math.inf), facts)
        more = wide - narrow
        return end_columns(shift(whole_units(low, unit), -more), shift(whole_units(high, unit), more), facts)

    def unbiased_variance(self, column: str) -> Array:
        """Return unbiased estimates of the variances of a column's numbers.

        They may be added up over cells. For roots and logarithms a single estimate may be far from the variance, or
        negative; to judge a single number, use its interval. Additive noise has one variance for all numbers, rounding
        included. A column with a median estimator has no such estimates, because its numbers are biased.
        """
        facts, mechanism = self._column_facts("column", column), self._known_mechanism(column)
        if facts.estimator != "mean":
            raise ParameterError(
                f"column {column!r}",
                f"has no unbiased estimate: it was released with the estimator {facts.estimator!r}",
                code="biased",
                remedy="use its intervals",
            )
        if self.facts.rollup and mechanism._error_grows:
            raise ParameterError(
                f"column {column!r}",
                "of a roll-up has no unbiased variances",
                code="unsupported",
                remedy=f"add up the estimates of the table {self.facts.rollup.of!r}, or use {column}_se",
            )
        transformed = self._as_floats(f"{column}_transformed") if mechanism._error_grows else None
        found = mechanism._variance_from(transformed, facts.grid, facts.on_grid)
        if self.facts.rollup:
            cells = to_numpy(self.table[self.facts.rollup.number])
            return sum_variances(mechanism, None, None, cells, facts.grid, facts.on_grid)
        return np.broadcast_to(found, len(self)).copy()

    def ratio(
        self, numerator: str, denominator: str, name: str | None = None, level: float = 0.95, interval: str = "box"
    ) -> "ReleasedSums":
        """Return the release with one more column: the ratio of two released columns, such as pay per employee.

        It is computed from published numbers, so no record loses more by it. With the interval "box", both
        numbers are first clipped to their intervals, so that the ratio lies within its own interval. The denominator is
        also raised to at least one unit if it is 0 or at least one unit, as a count is: where it is 0, there is no
        ratio. For small denominators the ratio is biased and its standard error (delta method) is approximate; use the
        interval.

        Parameters
        ----------
        numerator, denominator
            Two released columns.
        name
            The name of the new column. The default for pay and emp is "pay_per_emp".
        level
            The level of the interval.
        interval
            "box": all ratios of a value in an interval for the numerator to a value in an interval for the denominator,
            each at the level (1 + level)/2. "exact": from the known noise of a test, if both columns have additive
            noise or the same root without an offset. It is about half as wide where both numbers are large against
            their noise, but has no upper end where the denominator may be 0. Both hold the true ratio with probability
            `level` or more. "fieller" and "delta" are approximate: they treat the noise as normal, and may hold the
            true ratio much less often.
        """
        name = f"{numerator}_per_{denominator}" if name is None else name
        for argument, column in (("numerator", numerator), ("denominator", denominator)):
            self._column_facts(argument, column)
        if numerator == denominator:
            raise ParameterError("denominator", allowed="another column than the numerator", given=denominator)
        taken = set(self.table.column_names)
        if not isinstance(name, str) or not name or {name + suffix for suffix in RATIO_SUFFIXES} & taken:
            raise ParameterError("name", allowed="text that is not a column's name", given=name)
        check_interval(interval)
        level_quantile(level)
        from slowscale.release.derived import Numbers, ratios

        table, rows = self.table, np.arange(len(self))
        x, y = (Numbers(self, column, rows) for column in (numerator, denominator))
        columns = ratios(x, y, level, interval).columns()
        for suffix, numbers in zip(RATIO_SUFFIXES, columns, strict=True):
            table = table.append_column(name + suffix, pa.array(numbers, from_pandas=True))
        facts = RatioFacts(
            numerator=numerator,
            denominator=denominator,
            level=float(level),
            interval=interval,
            approximate=interval not in ("box", "exact"),
        )
        return self.with_facts(self.facts.with_(ratios={**self.facts.ratios, name: facts}), table=table)

    def growth(
        self,
        earlier: "ReleasedSums | Release | Mapping[str, object]",
        *,
        columns: str | Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "DerivedTable":
        """Return by how much published sums grew, relative to an earlier release: 0.05 is 5 % more.

        Rows are matched by their keys. The interval of `x_growth` holds the true growth with probability `level` or
        more. With additive noise in both releases, or the same root without an offset, it is exact: all growth rates
        are in it that a test with the known noise does not reject. It has no upper end where the earlier sum may be 0.
        With other transformations it is the box of an interval for each sum, at the level (1 + level)/2.

        Parameters
        ----------
        earlier
            A release, or one of its tables, with independent noise and the same key columns. To compare the rows of
            one table, the label of the earlier rows, such as {"year": 2023}.
        columns
            The columns; by default all that both tables have.
        level
            The level of the intervals. Below 0.5, they are about as wide as at 0.5.
        """
        from slowscale.release.derived import growth

        return growth(self, earlier, columns, level)

    def difference(
        self,
        earlier: "ReleasedSums | Release | Mapping[str, object]",
        *,
        columns: str | Sequence[str] | None = None,
        level: float = 0.95,
    ) -> "DerivedTable":
        """Return the differences of published sums to those of an earlier release; the arguments are as for `growth`.

        The interval of `x_difference` holds the true difference with probability `level` or more. With additive noise
        it comes from the distribution of the difference of both noises, otherwise it is a box.
        """
        from slowscale.release.derived import difference

        return difference(self, earlier, columns, level)

    def share(
        self,
        of: "str | Sequence[str] | ReleasedSums | Release" = (),
        *,
        columns: str | Sequence[str] | None = None,
        level: float = 0.95,
        hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None,
    ) -> "DerivedTable":
        """Return the shares of the cells in totals.

        The interval of `x_share` holds the true share with probability `level` or more. With additive noise it is
        exact, as that of `growth` is, and accounts for the noise that a cell and its total share. With a
        transformation it is a box.

        Parameters
        ----------
        of
            The key columns, or levels of the hierarchy, within which the published cells are added to totals; by
            default there is one total of all cells. Or a table of totals, of this release or of another one. If it
            is a roll-up of the same cells, its levels must group them as those of this table do.
        columns
            The columns; by default all that both tables have.
        level
            The level of the intervals. Below 0.5, they are about as wide as at 0.5.
        hierarchy
            An `ss.Hierarchy` of a key column, or a list of them.
        """
        from slowscale.release.derived import share

        return share(self, of, columns, level, hierarchy)

    def with_facts(self, facts: TableFacts, name: str | None = None, table: pa.Table | None = None) -> "ReleasedSums":
        """Return the table with other facts and, if given, under another name and with other numbers."""
        name, numbers = self.name if name is None else name, self.numbers if table is None else table
        whole = self.whole.with_(tables={**self.whole.tables, name: facts})
        return replace(self, name=name, numbers=numbers, whole=whole)

    def rollup(
        self, by: str | Sequence[str] = (), *, hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None
    ) -> "ReleasedSums":
        """Return the sums of the published cells over all key columns but some, such as states from counties.

        Estimates are added exactly. No record loses more by it: the sums are computed from published numbers.
        The intervals hold the true sums with the level of the cells' intervals; `facts.rollup.rules` says how they are
        computed. A sum covers the published cells only. A
        `UnitWarning` is given if the cells were rounded so coarsely that their sums are biased.

        Parameters
        ----------
        by
            The key columns to keep, or levels of the hierarchy. Without any, the result is one row with the totals.
        hierarchy
            An `ss.Hierarchy` of a key column, or a list of them.
        """
        from slowscale.release.rollup import biased_sums, roll_up

        rolled = roll_up(self, by, hierarchy)
        for words in biased_sums(rolled):
            warnings.warn(words, UnitWarning, stacklevel=2)
        return rolled

    def _column_facts(self, argument: str, column: object) -> ColumnFacts:
        """Return the facts of a released column, or raise an error that names the argument."""
        known = self.facts.columns
        if not isinstance(column, str) or column not in known:
            raise ParameterError(argument, allowed=tuple(known), given=column)
        return known[column]

    def _known_mechanism(self, column: str) -> Mechanism:
        if column not in self.mechanisms:
            raise ParameterError(
                f"the mechanism of {column!r}",
                "has a user function, which is not in files",
                code="user-function",
                remedy="use the release in the process that made it",
            )
        return self.mechanisms[column]

    def _as_floats(self, column: str, side: int = 0) -> Array:
        """Return a column as floats, rounded to nearest or, with a side of −1 or 1, down or up."""
        return as_floats(self.read_column(column), side)


def end_columns(low: Any, high: Any, facts: ColumnFacts) -> tuple[NumberColumn, NumberColumn]:
    """Return the ends of intervals, in units, as columns of a table. Floats are rounded to whole units outwards."""
    if facts.at_least is not None:
        low = np.maximum(low, 0)
    low = floors(low) if low.dtype.kind == "f" else low
    high = ceilings(high) if high.dtype.kind == "f" else high
    return number_column(low, facts.grid, -1), number_column(high, facts.grid, 1)


def released_by(facts: ColumnFacts) -> type[Mechanism] | None:
    """Return the class of the mechanism that a column's facts describe, or None if they describe none."""
    name = (facts.mechanism or {}).get("type")
    return next((cls for cls in REGISTRY.values() if cls.__name__ == name), None)


def rollup_in_words(facts: RollupFacts) -> str:
    """Return what the numbers of a roll-up are sums of."""
    over = f", added over {', '.join(facts.over)}" if facts.over else ""
    some = "" if facts.complete is not False else " (not all combinations of their labels are cells)"
    return f"Sums of the published cells of {facts.of}{over}{some}; records in other cells are not in them."
