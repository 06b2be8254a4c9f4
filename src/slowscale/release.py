"""Releases: the published table, with all that a reader needs to judge it.

A release holds public facts only. They travel with the table: in the schema of a Parquet file or Arrow table, and in a
JSON file beside a CSV.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
from slowscale.files import free_target, write_files
from slowscale.parameters import level_quantile

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

FORMAT = 1
METADATA = b"slowscale"
# Arrow's names for the types that a released table may have.
TYPES: dict[str, pa.DataType] = {
    str(dtype): dtype
    for dtype in (pa.string(), pa.int64(), pa.bool_(), pa.date32(), pa.float64(), pa.decimal128(38, 0))
}
INTERVALS = ("fieller", "delta")
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
    """

    table: pa.Table
    facts: dict[str, Any]
    policy: RecordPolicy
    pure_policy: RecordPolicy | None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        by = self.facts["keys"]["columns"] if self.facts["keys"] else {}
        warning = "" if self.facts["private"] else "NOT PRIVATE (drawn from test bits). "
        groups = f"{len(self):,} groups by {', '.join(by)}" if by else "totals"
        lines = [f"{warning}Release of {groups}"]
        for name, column in self.facts["columns"].items():
            bias = ", clipped at 0 and so biased upwards" if column["nonnegative"] else ""
            lines.append(f"  {name}: {column['described']}, unit {column['unit']}{bias}")
        for name, ratio in self.facts["ratios"].items():
            lines.append(f"  {name}: {ratio['numerator']} / {ratio['denominator']}, approximate")
        lines.append(f"  A record may lose ({self.facts['notion']}), added up:")
        return "\n".join([*lines, *(f"    {RecordPolicy((term,))}" for term in self.policy.terms)])

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table whose schema carries the facts."""
        return self.table.replace_schema_metadata({METADATA: json.dumps(self.facts)})

    def to_pandas(self) -> "pd.DataFrame":
        """Return a pandas frame, with the facts in its `attrs`."""
        frame = self.table.to_pandas()
        frame.attrs["slowscale"] = self.facts
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return a polars frame."""
        import polars as pl

        frame = pl.from_arrow(self.table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def to_parquet(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write a Parquet file whose schema carries the facts, whole or not at all."""
        target = free_target(path, ".parquet", overwrite)
        return write_files({target: lambda file: pa.parquet.write_table(self.to_arrow(), file)}, overwrite=overwrite)

    def to_csv(self, path: str | os.PathLike[str], overwrite: bool = False) -> Path:
        """Write a CSV file, and the facts in a JSON file beside it: table.csv and table.csv.json.

        Labels that a spreadsheet would run as a formula, such as =1+1, are written with an apostrophe in front. The
        JSON file lists the columns with such labels under "escaped", and `read_release` takes the apostrophes off.
        """
        target = free_target(path, ".csv", overwrite)
        beside = free_target(f"{target}.json", ".json", overwrite)
        types = {field.name: str(field.type) for field in self.table.schema}
        table, escaped = _escape(self.table)
        described = {**self.facts, "types": types, **({"escaped": escaped} if escaped else {})}
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
            Whether another file may be lost.
        sizes
            Example records by name, with a value for each column or one number for all columns, such as
            {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": 4e10}; one name must contain "largest". They
            are published, so they must be public knowledge, never looked up in the records. Without them the report
            speaks of powers of ten.
        """
        from slowscale.report import write_report

        return write_report(self, path, spent=spent, overwrite=overwrite, sizes=sizes)

    def ratio(
        self, numerator: str, denominator: str, name: str | None = None, level: float = 0.95, interval: str = "fieller"
    ) -> "Release":
        """Return the release with a further column: the ratio of two released ones, such as pay per employee.

        It is computed from what was released, so no record loses more by it. Its standard error (delta method) and
        interval are approximate: they treat the noise as normal.

        Parameters
        ----------
        numerator, denominator
            Two released columns.
        name
            The name of the new column; "pay_per_emp" for pay and emp, when not given.
        level
            The level of the interval.
        interval
            "fieller", which is infinite where the denominator may be 0, or "delta".
        """
        name = f"{numerator}_per_{denominator}" if name is None else name
        for argument, column in (("numerator", numerator), ("denominator", denominator)):
            if not isinstance(column, str) or column not in self.facts["columns"]:
                raise ParameterError(f"{argument} must be one of {', '.join(self.facts['columns'])}, got {column!r}")
        if numerator == denominator:
            raise ParameterError(f"denominator must be another column than the numerator {numerator!r}")
        if not isinstance(name, str) or not name or {name, *_beside(name)} & set(self.table.column_names):
            raise ParameterError(f"name must be text that is no column's name yet, got {name!r}")
        check_interval(interval)
        z = -float(special.ndtri(level_quantile(level)))
        x, y = (self._floats(column) for column in (numerator, denominator))
        x_se, y_se = (self._floats(f"{column}_se") for column in (numerator, denominator))
        with np.errstate(all="ignore"):
            value = x / y
            se = np.hypot(x_se / y, x * y_se / y**2)
            low, high = (value - z * se, value + z * se) if interval == "delta" else fieller(x, x_se, y, y_se, z)
        known = y != 0
        columns = [np.where(known, value, np.nan), np.where(known, se, np.nan)]
        columns += [np.where(known, low, -math.inf), np.where(known, high, math.inf)]
        table = self.table
        for column, values in zip([name, *_beside(name)], columns, strict=True):
            table = table.append_column(column, pa.array(values, from_pandas=True))
        note = {
            "numerator": numerator,
            "denominator": denominator,
            "level": float(level),
            "interval": interval,
            "approximate": True,
        }
        return replace(self, table=table, facts={**self.facts, "ratios": {**self.facts["ratios"], name: note}})

    def _floats(self, column: str) -> Any:
        return to_numpy(self.table[column].cast(pa.float64(), safe=False))


def _beside(name: str) -> list[str]:
    return [f"{name}_se", f"{name}_low", f"{name}_high"]


def check_interval(interval: Any) -> None:
    """Raise unless an interval for ratios is one that we know."""
    if interval not in INTERVALS:
        raise ParameterError(f"interval must be one of {', '.join(INTERVALS)}, got {interval!r}")


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
        raise EngineError(f"{source} is no release that slowscale wrote: {type(error).__name__}") from error
    if described is None:
        raise EngineError(f"{source} was released with a nested function or lambda, which cannot be read back")
    return Release(table, facts, *read_policies(facts, functions))


def _escape(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return a table whose text no spreadsheet runs as a formula, and the columns that had to be changed for that.

    In such a column text that starts with an apostrophe gets another one, so that the first one can always be removed.
    """
    import pyarrow.compute as pc

    escaped = []
    for i, field in enumerate(table.schema):
        if not pa.types.is_string(field.type):
            continue
        text = table[i]
        runs = pc.and_not(pc.match_substring_regex(text, FORMULA), pc.match_substring_regex(text, NUMBER))
        if pc.any(runs).as_py():
            marked = pc.or_(runs, pc.starts_with(text, "'"))
            table = table.set_column(i, field, pc.if_else(marked, pc.binary_join_element_wise("'", text, ""), text))
            escaped.append(field.name)
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
