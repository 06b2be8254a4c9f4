"""Releases: the published table, with all that a reader needs to judge it.

A release holds public facts only. They travel with the table: in the schema of a Parquet file or Arrow table, and in a
JSON file beside a CSV.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from scipy import special

from slowscale.accounting import RecordPolicy
from slowscale.accounting.record import read_policies
from slowscale.arrays import to_numpy
from slowscale.errors import EngineError, ParameterError, ParameterTypeError, SlowscaleError
from slowscale.facts import ABSENT, FORMAT, ColumnFacts, Facts, RatioFacts
from slowscale.figures import published, rounded
from slowscale.files import free_target, write_files
from slowscale.markup import html_table, html_text
from slowscale.mechanisms import REGISTRY, Mechanism, TransformationMechanism
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.mechanisms.grid import EXACT, directed, floats, outward
from slowscale.parameters import level_quantile

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

METADATA = b"slowscale"
SHOWN = 10  # rows in a notebook
# Arrow's names for the types that a released table may have.
TYPES: dict[str, pa.DataType] = {
    str(dtype): dtype
    for dtype in (pa.string(), pa.int64(), pa.bool_(), pa.date32(), pa.float64(), pa.decimal128(38, 0))
}
DIGITS, ERROR_DIGITS = 6, 4  # of ratios, and of standard errors
INTERVALS = ("box", "fieller", "delta")
# Text that a spreadsheet takes for a formula when it opens a CSV file, unless it is a number.
FORMULA = r"^[=+\-@\t\r]"
NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A published table of sums.

    Attributes
    ----------
    table
        The key columns, then for each column `x` the estimate `x`, its standard error `x_se`, the ends `x_low` and
        `x_high` of an interval for the true sum and, for a transformation, `x_transformed`.
    facts
        What is public about it: mechanisms, units, policies, the assumption on the keys, filters, version.
    policy
        What a record may lose by this release, as PRzCDP: call it on a record, such as {"emp": 12}.
    pure_policy
        The same as PRDP, or None where a mechanism has no such guarantee.
    mechanisms
        The mechanism of each column, as far as it is known: one with a function that has no name, or that was not
        given to `read_release`, is missing.
    """

    table: pa.Table
    facts: Facts
    policy: RecordPolicy
    pure_policy: RecordPolicy | None
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)

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
        for name, column in self.facts.columns.items():
            bias = ", clipped at 0 and so biased upwards" if column.nonnegative else ""
            lines.append(f"  {name}: {column.described}, unit {column.unit}{bias}")
        for name, ratio in self.facts.ratios.items():
            approximate = ", with an approximate interval" if ratio.approximate else ""
            lines.append(f"  {name}: {ratio.numerator} / {ratio.denominator}{approximate}")
        lines.append(f"  A record may lose ({self.facts.notion}), added up:")
        return "\n".join([*lines, *(f"    {RecordPolicy((term,))}" for term in self.policy.terms)])

    def _repr_html_(self) -> str:
        shown = {name: column.grid for name, column in self.facts.columns.items()}
        keys = list(self.facts.cells.columns) if self.facts.cells else []
        rows = []
        for values in self.table.slice(0, SHOWN).to_pylist():
            cells = [
                f"{published(values[name], unit)} ({published(values[f'{name}_low'], unit, -1)} to "
                f"{published(values[f'{name}_high'], unit, 1)})"
                for name, unit in shown.items()
            ]
            rows.append([*(values[name] for name in keys), *cells])
        more = f"The first {SHOWN} of {len(self):,} rows. " if len(self) > SHOWN else ""
        return html_table(f"{more}Estimates with their intervals", [*keys, *shown], rows) + html_text(repr(self))

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table whose schema carries the facts."""
        return self.table.replace_schema_metadata({METADATA: json.dumps(self.facts.to_dict())})

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame, with the facts in its `attrs`."""
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
        """Write a Parquet file whose schema carries the facts, whole or not at all."""
        target = free_target(path, ".parquet", overwrite)
        return write_files({target: lambda file: pa.parquet.write_table(self.to_arrow(), file)}, overwrite=overwrite)

    def to_csv(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write a CSV file, and the facts in a JSON file beside it: table.csv and table.csv.json.

        Labels that a spreadsheet would run as a formula, such as =1+1, are written with an apostrophe in front. The
        JSON file lists the columns with such labels under "escaped", and `read_release` takes the apostrophes off.
        """
        target = free_target(path, ".csv", overwrite)
        beside = free_target(f"{target}.json", ".json", overwrite)
        types = {field.name: str(field.type) for field in self.table.schema}
        table, escaped = _escape(self.table)
        described = {**self.facts.to_dict(), "types": types, **({"escaped": escaped} if escaped else {})}
        text = json.dumps(described, indent=2, ensure_ascii=False)
        return write_files(
            {
                target: lambda file: pa.csv.write_csv(table, file),
                beside: lambda file: file.write_text(text + "\n", encoding="utf-8"),
            },
            overwrite=overwrite,
        )

    def report(
        self,
        path: str | os.PathLike[str],
        spent: RecordPolicy | None = None,
        *,
        overwrite: bool = False,
        sizes: Any = None,
    ) -> Path:
        """Write a report that everyone may read: one HTML file that opens offline.

        Parameters
        ----------
        path
            Where to; it must end in .html.
        spent
            What records may have lost in all after the release, such as `session.spent`.
        overwrite
            Whether to replace an existing file.
        sizes
            Example records by name, with a value for each column or one number for all columns, such as
            {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": 4e10}; one name must contain "largest". They
            are published, so they must be public knowledge, never looked up in the records. Without them the report
            speaks of powers of ten.
        """
        from slowscale.report import write_report

        return write_report(self, path, spent=spent, overwrite=overwrite, sizes=sizes)

    def interval(self, column: str, level: float = 0.95) -> tuple[Any, Any]:
        """Return the ends of intervals for the true sums of a column, at any level, from what was published.

        Parameters
        ----------
        column
            A released column that is not a ratio.
        level
            The level. Intervals are never narrower than the published ones.
        """
        level_quantile(level)
        facts, mechanism = self._facts_of("column", column), self._mechanism(column)
        low, high = self._floats(f"{column}_low", -1), self._floats(f"{column}_high", 1)
        if level <= facts.level:
            return low, high
        unit = facts.grid
        if isinstance(mechanism, TransformationMechanism):
            ends = mechanism._ends(self._floats(f"{column}_transformed"), level, unit)
            return tuple(floats(end, unit, side) for end, side in zip(ends, (-1, 1), strict=True))
        assert isinstance(mechanism, AdditiveMechanism)
        on_grid = bool(facts.on_grid)
        narrow, wide = (mechanism._half_steps(unit, one, on_grid) for one in (facts.level, level))
        earlier = int(facts.on_grid is ABSENT)  # a release of an earlier version, whose ends are between grid points
        more = math.inf if narrow is None or wide is None else float((wide - narrow + earlier) * unit)
        low, high = outward(low, more, -1), outward(high, more, 1)
        return (low, high) if _at_least(facts) is None else (np.maximum(low, 0), high)

    def unbiased_variance(self, column: str) -> Any:
        """Return estimates of the variances of a column's numbers that are right on average, for adding and averaging.

        They add up over cells as variances do. For roots and logs a single one may be far off, or below 0; to judge a
        single number, use its interval. Additive noise has one variance for all numbers, rounding included. A column
        with a median estimator has none: its numbers are biased.
        """
        facts, mechanism = self._facts_of("column", column), self._mechanism(column)
        if facts.estimator != "mean":
            raise ParameterError(
                f"column must have an unbiased estimate, but {column!r} is released with the estimator "
                f"{facts.estimator!r}; use its intervals"
            )
        transformed = self._floats(f"{column}_transformed") if mechanism._error_grows else None
        found = mechanism._variance_from(transformed, facts.grid, bool(facts.on_grid))
        return np.broadcast_to(found, len(self)).copy()

    def ratio(
        self, numerator: str, denominator: str, name: str | None = None, level: float = 0.95, interval: str = "box"
    ) -> "Release":
        """Return the release with a further column: the ratio of two released ones, such as pay per employee.

        It is computed from what was released, so no record loses more by it. Both parts are first brought to what their
        intervals allow, and a denominator such as a count, which is 0 or at least one unit, to at least one unit: where
        it is 0 there is no ratio. So the ratio lies within its interval. For small denominators it is biased, and its
        standard error (delta method) is approximate: use the interval.

        Parameters
        ----------
        numerator, denominator
            Two released columns.
        name
            The name of the new column; "pay_per_emp" for pay and emp, when not given.
        level
            The level of the interval.
        interval
            "box": all ratios of a value in an interval for the numerator and one in an interval for the denominator,
            each at the level (1 + level)/2. It holds the true ratio with probability `level` or more. "fieller" and
            "delta" are approximate: they treat the noise as normal, and may cover much less.
        """
        name = f"{numerator}_per_{denominator}" if name is None else name
        for argument, column in (("numerator", numerator), ("denominator", denominator)):
            self._facts_of(argument, column)
        if numerator == denominator:
            raise ParameterError(f"denominator must be another column than the numerator {numerator!r}")
        if not isinstance(name, str) or not name or {name, *_beside(name)} & set(self.table.column_names):
            raise ParameterError(f"name must be text that is not a column's name, got {name!r}")
        check_interval(interval)
        z = -float(special.ndtri(level_quantile(level)))
        x, y = (self._floats(column) for column in (numerator, denominator))
        x_se, y_se = (self._floats(f"{column}_se") for column in (numerator, denominator))
        with np.errstate(all="ignore"):
            if interval == "box":
                each = min((1 + level) / 2, math.nextafter(1, 0))
                x_ends, (y_low, y_high) = (self.interval(one, each) for one in (numerator, denominator))
                y_low = np.maximum(y_low, self._least(denominator))
                low, high = box(x_ends, (y_low, y_high))
                x, y = np.clip(x, *x_ends), np.where(y_low <= y_high, np.clip(y, y_low, y_high), 0.0)
            value = x / y
            se = np.hypot(x_se / y, x * y_se / y**2)
            if interval == "delta":
                low, high = value - z * se, value + z * se
            elif interval == "fieller":
                low, high = fieller(x, x_se, y, y_se, z)
        known = y != 0
        low, high = (
            rounded(np.where(known, low, -math.inf), DIGITS, -1),
            rounded(np.where(known, high, math.inf), DIGITS, 1),
        )
        columns = [
            rounded(np.where(known, value, np.nan), DIGITS),
            rounded(np.where(known, se, np.nan), ERROR_DIGITS),
            low,
            high,
        ]
        table = self.table
        for column, numbers in zip([name, *_beside(name)], columns, strict=True):
            table = table.append_column(column, pa.array(numbers, from_pandas=True))
        note = RatioFacts(numerator, denominator, float(level), interval, approximate=interval != "box")
        return replace(self, table=table, facts=replace(self.facts, ratios={**self.facts.ratios, name: note}))

    def _facts_of(self, argument: str, column: Any) -> ColumnFacts:
        """Return the facts of a released column, or raise."""
        known = self.facts.columns
        if not isinstance(column, str) or column not in known:
            raise ParameterError(f"{argument} must be one of {', '.join(known)}, got {column!r}")
        return known[column]

    def _mechanism(self, column: str) -> Mechanism:
        if column not in self.mechanisms:
            raise ParameterError(
                f"the mechanism of {column!r} has a function that is not known here: read the release with "
                "ss.read_release(path, functions={name: function})"
            )
        return self.mechanisms[column]

    def _least(self, column: str) -> float:
        """Return the least that a denominator can be, as long as there is a ratio."""
        facts = self.facts.columns[column]
        if _at_least(facts) is None:
            return -math.inf
        return float(facts.grid) if facts.surely_on_grid else 0.0

    def _floats(self, column: str, side: int = 0) -> Any:
        """Return a column as floats; where they cannot hold a number, the nearest, or the next one on a side."""
        nearest = to_numpy(self.table[column].cast(pa.float64(), safe=False))
        if not side or pa.types.is_floating(self.table[column].type) or (np.abs(nearest) < EXACT).all():
            return nearest
        return np.array([directed(Fraction(number), side) for number in self.table[column].to_pylist()])


def released_by(facts: ColumnFacts) -> type[Mechanism] | None:
    """Return the class of the mechanism that a column's facts describe, or None where it is not described."""
    name = (facts.mechanism or {}).get("type")
    return next((cls for cls in REGISTRY.values() if cls.__name__ == name), None)


def _at_least(facts: ColumnFacts) -> int | None:
    """Return the least that the true sums of a column can be; releases of earlier versions do not say."""
    kind = released_by(facts)
    transforms = kind is not None and issubclass(kind, TransformationMechanism)
    if facts.at_least is not ABSENT:
        return facts.at_least
    return 0 if facts.is_count or transforms else None


def _beside(name: str) -> list[str]:
    return [f"{name}_se", f"{name}_low", f"{name}_high"]


def check_interval(interval: Any) -> None:
    """Raise unless an interval for ratios is one that we know."""
    if interval not in INTERVALS:
        raise ParameterError(f"interval must be one of {', '.join(INTERVALS)}, got {interval!r}")


def box(x: tuple[Any, Any], y: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the least and largest ratio of a number in one interval to a number other than 0 in another.

    It is the whole line where the second interval reaches to both sides of 0, or is empty.
    """
    flipped = y[1] <= 0  # a ratio of two numbers is that of their negatives
    x_low, x_high = np.where(flipped, -x[1], x[0]), np.where(flipped, -x[0], x[1])
    y_low, y_high = np.where(flipped, -y[1], y[0]) + 0.0, np.where(flipped, -y[0], y[1])  # a 0 without a sign
    with np.errstate(all="ignore"):
        low = np.where(x_low >= 0, x_low / y_high, x_low / y_low)
        high = np.where(x_high > 0, x_high / y_low, x_high / y_high)
    endless = (y_low < 0) | (y_high <= 0) | (y_low > y_high) | np.isnan(low) | np.isnan(high)
    return np.where(endless, -math.inf, low), np.where(endless, math.inf, high)


def fieller(x: Any, x_se: Any, y: Any, y_se: Any, z: float) -> tuple[Any, Any]:
    """Return the ends of Fieller's interval: all θ with (x − θy)² <= z²(x_se² + θ²y_se²).

    Where y is not clearly away from 0 the set is not an interval, and the whole line is returned.
    """
    a, b = y**2 - (z * y_se) ** 2, x * y
    root = z * np.sqrt(np.maximum((y * x_se) ** 2 + (x * y_se) ** 2 - (z * x_se * y_se) ** 2, 0))
    bounded = a > 0
    return np.where(bounded, (b - root) / a, -math.inf), np.where(bounded, (b + root) / a, math.inf)


def read_release(path: str | os.PathLike[str], functions: Mapping[str, Callable[..., Any]] | None = None) -> Release:
    """Read a release that `to_parquet` or `to_csv` wrote, with its facts.

    Parameters
    ----------
    path
        The Parquet file, or the CSV file with its JSON beside it.
    functions
        User-given transformations by name, where the release's policy uses any.
    """
    if not isinstance(path, str | os.PathLike):
        raise ParameterTypeError(f"path must be a path, got {type(path).__name__}")
    source = Path(path)
    try:
        table, facts = _read_csv(source) if source.name.lower().endswith(".csv") else _read_parquet(source)
        if facts["format"] != FORMAT:
            raise EngineError(f"{source} has format {facts['format']}, this version of slowscale reads {FORMAT}")
        described = facts["policy"]
    except SlowscaleError:
        raise
    except FileNotFoundError as error:
        raise ParameterError(f"path: there is no file {error.filename or source}") from None
    except Exception as error:
        raise EngineError(f"{source} is not a release that slowscale wrote: {type(error).__name__}") from error
    if described is None:
        raise EngineError(f"{source} was released with a nested function or lambda, which cannot be read back")
    known = Facts.from_dict(facts)
    return Release(table, known, *read_policies(facts, functions), _read_mechanisms(known, functions))


def _read_mechanisms(facts: Facts, functions: Mapping[str, Callable[..., Any]] | None) -> dict[str, Mechanism]:
    """Return the mechanisms that can be made again."""
    found = {}
    for name, column in facts.columns.items():
        with suppress(ParameterError):
            found[name] = Mechanism.from_dict(column.mechanism or {}, functions)
    return found


def _escape(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return a table whose text no spreadsheet runs as a formula, and the columns that had to be changed for that.

    In such a column text that starts with an apostrophe gets another one, so that the first one can always be removed.
    """
    import pyarrow.compute as pc

    escaped = []
    for i, entry in enumerate(table.schema):
        if not pa.types.is_string(entry.type):
            continue
        text = table[i]
        runs = pc.and_not(pc.match_substring_regex(text, FORMULA), pc.match_substring_regex(text, NUMBER))
        if pc.any(runs).as_py():
            marked = pc.or_(runs, pc.starts_with(text, "'"))
            table = table.set_column(i, entry, pc.if_else(marked, pc.binary_join_element_wise("'", text, ""), text))
            escaped.append(entry.name)
    return table, escaped


def _unescape(table: pa.Table, columns: list[str]) -> pa.Table:
    """Return the table that `_escape` was given."""
    import pyarrow.compute as pc

    for name in columns:
        i = table.schema.get_field_index(name)
        text = pc.replace_substring_regex(table[i], "^'", "", max_replacements=1)
        table = table.set_column(i, table.schema.field(i), text)
    return table


def _read_csv(source: Path) -> tuple[pa.Table, dict[str, Any]]:
    facts = json.loads(Path(f"{source}.json").read_text(encoding="utf-8"))
    types = {name: TYPES[dtype] for name, dtype in facts.pop("types").items()}
    table = pa.csv.read_csv(
        source,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
    )
    if table.column_names != list(types):
        raise ParameterError(f"{source} and the JSON file beside it do not belong together")
    return _unescape(table, facts.pop("escaped", [])), facts


def _read_parquet(source: Path) -> tuple[pa.Table, dict[str, Any]]:
    table = pa.parquet.read_table(source)
    return table.replace_schema_metadata(None), json.loads((table.schema.metadata or {})[METADATA])
