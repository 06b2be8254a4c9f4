"""The release itself: a published table of sums, with its facts, intervals, ratios and reports."""

import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from slowscale.accounting import RecordPolicy
from slowscale.arrays import to_numpy
from slowscale.errors import ParameterError, UnitWarning
from slowscale.facts import ABSENT, ColumnFacts, Facts, RatioFacts, RollupFacts
from slowscale.figures import published
from slowscale.markup import html_table, html_text
from slowscale.mechanisms import REGISTRY, Mechanism, TransformationMechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.charged import notion_in_words
from slowscale.mechanisms.grid import EXACT, directed, floats, outward
from slowscale.mechanisms.sum_intervals import sum_variances
from slowscale.parameters import Array, level_quantile
from slowscale.release.files import with_facts, write_csv, write_parquet
from slowscale.release.ratios import (
    RATIO_SUFFIXES,
    Estimates,
    Ratios,
    box_level,
    box_ratios,
    check_interval,
    normal_ratios,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from slowscale.hierarchies import Hierarchy
    from slowscale.publication import Publication
    from slowscale.release.rollup import Margin
    from slowscale.report.release_plot import ReleasePlot
    from slowscale.session import Session
    from slowscale.sizes import SizesLike

SHOWN_ROWS = 10  # in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A published table of sums.

    Attributes
    ----------
    table
        The key columns, then for each column `x` the estimate `x`, its standard error `x_se`, the ends `x_low` and
        `x_high` of an interval for the true sum and, for a transformation, `x_transformed`.
    facts
        Everything that is public about the release: mechanisms, units, policies, why the keys are public, filters, the
        version of slowscale. `json.dumps(release.facts.to_dict())` writes them as JSON.
    policy
        The PRzCDP loss of a record by this release. Call it on a record, such as {"emp": 12}.
    pure_policy
        The PRDP loss of a record, or None if a mechanism has no such guarantee.
    mechanisms
        The mechanism of each column. A mechanism is missing if it uses a function without a name, or one that was not
        given to `read_release`.
    """

    table: pa.Table
    facts: Facts
    policy: RecordPolicy
    pure_policy: RecordPolicy | None
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)
    # The cells that a roll-up was made of, and the groups, while they are in memory.
    _added: "tuple[Release, Margin] | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.facts, Facts):
            object.__setattr__(self, "facts", Facts.from_dict(self.facts))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        by = self.facts.cells.columns if self.facts.cells else {}
        warning = "" if self.facts.private else "NOT PRIVATE (drawn from test bits). "
        groups = f"{len(self):,} groups by {', '.join(by)}" if by else "totals"
        lines = [f"{warning}Release of {groups}"]
        if self.facts.rollup:
            lines.append(f"  {rollup_in_words(self.facts.rollup)}")
        if self.facts.combined:
            combined = self.facts.combined
            lines.append(
                f"  Estimates of {', '.join(combined.columns)} combined from the drawn tables "
                f"{', '.join(combined.tables)} by {combined.method}"
            )
        for name, column in self.facts.columns.items():
            bias = ", clipped at 0 and so biased upwards" if column.nonnegative else ""
            lines.append(f"  {name}: {column.described}, unit {column.unit}{bias}")
        for name, ratio in self.facts.ratios.items():
            approximate = ", with an approximate interval" if ratio.approximate else ""
            lines.append(f"  {name}: {ratio.numerator} / {ratio.denominator}{approximate}")
        notion = notion_in_words(self.facts.notion, self.facts.accounting)
        lines.append(f"  A record may lose ({notion}), added up:")
        lines += [f"    {RecordPolicy((term,))}" for term in self.policy.terms]
        described = self.facts.table_set
        if described:
            lines.append(
                f"  This is the table {described.table}, one of {len(described.tables)} of a set. By all of them a "
                f"record may lose {described.formula}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        shown: dict[str, Fraction | None] = {name: column.grid for name, column in self.facts.columns.items()}
        shown |= dict.fromkeys(self.facts.ratios)  # ratios have no grid
        keys = list(self.facts.cells.columns) if self.facts.cells else []
        rows = []
        for values in self.table.slice(0, SHOWN_ROWS).to_pylist():
            cells = [
                f"{published(values[name], unit)} ({published(values[f'{name}_low'], unit, -1)} to "
                f"{published(values[f'{name}_high'], unit, 1)})"
                for name, unit in shown.items()
            ]
            rows.append([*(values[name] for name in keys), *cells])
        more = f"The first {SHOWN_ROWS} of {len(self):,} rows. " if len(self) > SHOWN_ROWS else ""
        return html_table(f"{more}Estimates with their intervals", [*keys, *shown], rows) + html_text(repr(self))

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table with the facts in the metadata of its schema."""
        return with_facts(self.table, self.facts)

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame with the facts in its `attrs`."""
        frame = self.table.to_pandas()
        frame.attrs["slowscale"] = self.facts.to_dict()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return a polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_parquet(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a Parquet file with the facts in its schema, whole or not at all, and return its path."""
        return write_parquet(self.table, self.facts, path, overwrite)

    def to_csv(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a CSV file and, beside it, the facts in a JSON file: table.csv and table.csv.json.

        Labels that a spreadsheet would run as a formula, such as =1+1, are written with an apostrophe in front. The
        JSON file lists the columns with such labels under "escaped", and `read_release` removes the apostrophes. The
        names of columns are treated like labels.
        """
        return write_csv(self.table, self.facts, path, overwrite)

    def publish(
        self,
        path: str | os.PathLike[str],
        publication: "Publication",
        *,
        profile: str = "research",
        overwrite: bool = False,
    ) -> Path:
        """Write the table for readers, with titles, units and names, whole or not at all, and return its path.

        Everything is computed from what was released, so no record loses more by it.

        Parameters
        ----------
        path
            The file to write. It may end in .parquet; in .csv, with a data package beside it (table.datapackage.json)
            that says what the columns are; or in .xlsx, with a sheet of notes.
        publication
            The title, the source, labels of columns and further texts.
        profile
            "research": the numbers as they were released, with standard errors and intervals. `read_release` reads
            such a Parquet file. "basic": rounded estimates with intervals, coefficients of variation and reliability
            flags.
        overwrite
            Whether to replace existing files.
        """
        from slowscale.publication import publish

        return publish(self, path, publication, profile=profile, overwrite=overwrite)[0]

    def report(
        self,
        path: str | os.PathLike[str],
        spent: RecordPolicy | None = None,
        *,
        overwrite: bool = False,
        sizes: "SizesLike | None" = None,
        publication: "Publication | None" = None,
    ) -> Path:
        """Write a report that everyone may read: one HTML file that opens offline.

        Parameters
        ----------
        path
            The file to write. Its name must end in .html.
        spent
            The total loss of a record over all releases up to and including this one, such as `session.spent`.
        overwrite
            Whether to replace an existing file.
        sizes
            Example records by name, each with a value for each column or one number for all columns, such as
            {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": 4e10}. One name must contain "largest". The
            sizes are published, so they must be public knowledge, never looked up in the records. Without them the
            report uses powers of ten.
        publication
            Titles, units of measure and names of groups, which the report then shows in place of the names of columns.
        """
        from slowscale.report import write_report

        return write_report(self, path, spent=spent, overwrite=overwrite, sizes=sizes, publication=publication)

    def confidential_report(self, path: str | os.PathLike[str], session: "Session", *, overwrite: bool = False) -> Path:
        """Write a report for the curator only: one HTML file with the losses of the records and the true errors.

        CONFIDENTIAL: the report is computed from the records and contains no noise. Only the owner of the file may read
        it (mode 0600). Never publish it.

        Parameters
        ----------
        path
            The file to write. Its name must end in .html.
        session
            The session that made this release. A release holds no confidential facts, so the session computes them.
        overwrite
            Whether to replace an existing file.
        """
        from slowscale.report import write_confidential_report

        return write_confidential_report(self, path, session, overwrite=overwrite)

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
        >>> release = session.sum({"cattle": ss.Gaussian(50)}, keys=ss.Keys.cross({"state": ["IA", "TX"]}))
        >>> release.plot("cattle")
        <ReleasePlot cattle: all 2 cells>
        """
        from slowscale.report.release_plot import plot_release

        return plot_release(self, column, top)

    def interval(self, column: str, level: float = 0.95) -> tuple[Array, Array]:
        """Return the lower and upper ends of intervals for the true sums of a column, at any level.

        They are computed from what was published, and are never narrower than the published intervals.

        Parameters
        ----------
        column
            A released column that is not a ratio.
        level
            The probability with which an interval holds the true sum.
        """
        level_quantile(level)
        facts, mechanism = self._column_facts("column", column), self._known_mechanism(column)
        low, high = self._as_floats(f"{column}_low", -1), self._as_floats(f"{column}_high", 1)
        if level <= facts.level:
            return low, high
        self._check_not_combined(column, f"its intervals are known at the level {facts.level:g} only")
        if self.facts.rollup:
            from slowscale.release.rollup import rollup_interval

            low, high = rollup_interval(self, column, level)
            return (low, high) if lower_bound(facts) is None else (np.maximum(low, 0), high)
        unit = facts.grid
        if isinstance(mechanism, TransformationMechanism):
            low, high = mechanism._ends(self._as_floats(f"{column}_transformed"), level, unit)
            return floats(low, unit, -1), floats(high, unit, 1)
        assert isinstance(mechanism, AdditiveMechanism)
        on_grid = bool(facts.on_grid)
        narrow, wide = (mechanism._half_steps(unit, one, on_grid) for one in (facts.level, level))
        # Earlier versions published ends that lie between grid points, so one more step is needed.
        earlier = int(facts.on_grid is ABSENT)
        more = math.inf if narrow is None or wide is None else float((wide - narrow + earlier) * unit)
        low, high = outward(low, more, -1), outward(high, more, 1)
        return (low, high) if lower_bound(facts) is None else (np.maximum(low, 0), high)

    def unbiased_variance(self, column: str) -> Array:
        """Return unbiased estimates of the variances of a column's numbers.

        They may be added up over cells. For roots and logarithms a single estimate may be far from the variance, or
        negative; to judge a single number, use its interval. Additive noise has one variance for all numbers, rounding
        included. A column with a median estimator has no such estimates, because its numbers are biased.
        """
        facts, mechanism = self._column_facts("column", column), self._known_mechanism(column)
        self._check_not_combined(column, f"its errors depend on each other; use {column}_se")
        if facts.estimator != "mean":
            raise ParameterError(
                f"column must have an unbiased estimate, but {column!r} is released with the estimator "
                f"{facts.estimator!r}; use its intervals"
            )
        if self.facts.rollup and mechanism._error_grows:
            raise ParameterError(
                f"release must be one of cells for the variances of {column!r}, but this one is a roll-up; add up the "
                f"estimates of release {self.facts.rollup.of}, or use {column}_se"
            )
        transformed = self._as_floats(f"{column}_transformed") if mechanism._error_grows else None
        found = mechanism._variance_from(transformed, facts.grid, bool(facts.on_grid))
        if self.facts.rollup:
            cells = to_numpy(self.table[self.facts.rollup.number])
            return sum_variances(mechanism, None, None, cells, facts.grid, facts.surely_on_grid)
        return np.broadcast_to(found, len(self)).copy()

    def ratio(
        self, numerator: str, denominator: str, name: str | None = None, level: float = 0.95, interval: str = "box"
    ) -> "Release":
        """Return the release with one more column: the ratio of two released columns, such as pay per employee.

        The ratio is computed from what was released, so no record loses more by it. With the interval "box", both
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
            each at the level (1 + level)/2. It holds the true ratio with probability `level` or more. "fieller" and
            "delta" are approximate: they treat the noise as normal, and may hold the true ratio much less often.
        """
        name = f"{numerator}_per_{denominator}" if name is None else name
        for argument, column in (("numerator", numerator), ("denominator", denominator)):
            self._column_facts(argument, column)
        if numerator == denominator:
            raise ParameterError(f"denominator must be another column than the numerator {numerator!r}")
        taken = set(self.table.column_names)
        if not isinstance(name, str) or not name or {name + suffix for suffix in RATIO_SUFFIXES} & taken:
            raise ParameterError(f"name must be text that is not a column's name, got {name!r}")
        check_interval(interval)
        level_quantile(level)
        table = self.table
        columns = self._ratios(numerator, denominator, level, interval).columns()
        for suffix, numbers in zip(RATIO_SUFFIXES, columns, strict=True):
            table = table.append_column(name + suffix, pa.array(numbers, from_pandas=True))
        facts = RatioFacts(numerator, denominator, float(level), interval, approximate=interval != "box")
        return replace(self, table=table, facts=replace(self.facts, ratios={**self.facts.ratios, name: facts}))

    def rollup(
        self, by: str | Sequence[str] = (), *, hierarchy: "Hierarchy | Iterable[Hierarchy] | None" = None
    ) -> "Release":
        """Return the sums of the published cells over all key columns but some, such as states from counties.

        Estimates are added exactly. No record loses more by it, because the sums are computed from what was released.
        The intervals hold the true sums with the level of the cells' intervals; `facts.rollup.rules` says how they are
        computed. A sum is that of the published cells: records in cells that are not published are not in it. A
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

    def _ratios(self, numerator: str, denominator: str, level: float, interval: str) -> Ratios:
        x, y = (
            Estimates(self._as_floats(column), self._as_floats(f"{column}_se")) for column in (numerator, denominator)
        )
        if interval != "box":
            return normal_ratios(x, y, level, interval)
        x_ends, (y_low, y_high) = (self.interval(column, box_level(level)) for column in (numerator, denominator))
        return box_ratios(x, y, x_ends, (np.maximum(y_low, self._smallest_denominator(denominator)), y_high))

    def _column_facts(self, argument: str, column: object) -> ColumnFacts:
        """Return the facts of a released column, or raise an error that names the argument."""
        known = self.facts.columns
        if not isinstance(column, str) or column not in known:
            raise ParameterError(f"{argument} must be one of {', '.join(known)}, got {column!r}")
        return known[column]

    def _check_not_combined(self, column: str, words: str) -> None:
        """Raise, in these words, if the numbers of a column are estimates from several drawn tables."""
        if self.facts.combined and column in self.facts.combined.columns:
            raise ParameterError(f"column {column!r} is combined from several drawn tables, and {words}")

    def _known_mechanism(self, column: str) -> Mechanism:
        if column not in self.mechanisms:
            raise ParameterError(
                f"the mechanism of {column!r} has a function that is not known here: read the release with "
                "ss.read_release(path, functions={name: function})"
            )
        return self.mechanisms[column]

    def _smallest_denominator(self, column: str) -> float:
        """Return the smallest value that a denominator can have where the ratio exists."""
        facts = self.facts.columns[column]
        if lower_bound(facts) is None:
            return -math.inf
        return float(facts.grid) if facts.surely_on_grid else 0.0

    def _as_floats(self, column: str, side: int = 0) -> Array:
        """Return a column as floats, rounded to nearest or, with a side of −1 or 1, down or up."""
        return as_floats(self.table[column], side)


def as_floats(column: pa.ChunkedArray, side: int = 0) -> Array:
    """Return a column of numbers as floats, rounded to nearest or, with a side of −1 or 1, down or up."""
    nearest: Array = to_numpy(column.cast(pa.float64(), safe=False))
    if not side or pa.types.is_floating(column.type) or (np.abs(nearest) < EXACT).all():
        return nearest
    return np.array([directed(Fraction(number), side) for number in column.to_pylist()])


def released_by(facts: ColumnFacts) -> type[Mechanism] | None:
    """Return the class of the mechanism that a column's facts describe, or None if they describe none."""
    name = (facts.mechanism or {}).get("type")
    return next((cls for cls in REGISTRY.values() if cls.__name__ == name), None)


def rollup_in_words(facts: RollupFacts) -> str:
    """Return what the numbers of a roll-up are sums of."""
    over = f", added over {', '.join(facts.over)}" if facts.over else ""
    some = "" if facts.complete is not False else " (not all combinations of their labels are cells)"
    return f"Sums of the published cells of release {facts.of}{over}{some}; records in other cells are not in them."


def lower_bound(facts: ColumnFacts) -> int | None:
    """Return the lower bound on the true sums of a column, or None; releases of earlier versions do not state it."""
    kind = released_by(facts)
    transforms = kind is not None and issubclass(kind, TransformationMechanism)
    if facts.at_least is not ABSENT:
        return facts.at_least
    return 0 if facts.is_count or transforms else None
