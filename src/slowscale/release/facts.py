"""The facts of a release: everything that is public about it, typed, in a form that JSON can hold; and its files.

The facts travel with each table: in the schema metadata of a Parquet file or Arrow table, and in a JSON file beside a
CSV file. A field that is None does not apply, and is left out of files. Entries that are not known here are kept and
written again, so that files of later versions survive.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from slowscale.accounting.bands import Use
from slowscale.accounting.largest import LEAST_BOUND, MOST_BOUND
from slowscale.accounting.record import ANY
from slowscale.core.errors import EngineError, ParameterError
from slowscale.core.files import Writers, check_output_path
from slowscale.policy.bounded import BAND

FORMAT = 1

METADATA = b"slowscale"  # the key of the facts in the metadata of an Arrow schema
BASIC_METADATA = b"slowscale_facts"  # the key there in files for readers, which are not the whole release
PUBLICATION = b"slowscale_publication"  # the key of titles and notes there, if the table was published with any
# The entries of the JSON file beside a CSV file, besides the facts.
FILE_ENTRIES = ("types", "descriptions", "escaped", "escaped_names", "sha256")
# The types of the columns of released tables, by Arrow's names.
COLUMN_TYPES: dict[str, pa.DataType] = {
    str(dtype): dtype
    for dtype in (pa.string(), pa.int64(), pa.bool_(), pa.date32(), pa.float64(), pa.decimal128(38, 0))
}
# Text that a spreadsheet runs as a formula when it opens a CSV file, unless the text is a number.
SPREADSHEET_FORMULA = r"^[=+\-@\t\r]"
WRITTEN_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$"

# Lists of JSON become tuples, so that facts that are read equal those that were written.
Many = BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else given)
Texts = Annotated[tuple[str, ...], Many]
Numbers = Annotated[tuple[int | float, ...], Many]
Probability = Annotated[float, Field(gt=0, lt=1)]
Units = Mapping[str, str | None] | None  # units of measure, by column
Description = Annotated[tuple[Mapping[str, Any], ...] | None, Many]  # a policy, as `RecordPolicy.from_dict` reads it

# The stated estimator and standard error if the noise has no mean or no variance.
NO_MEAN, NO_VARIANCE = "median; the noise has no mean", "infinite: the noise has no variance"


class _Facts(BaseModel):
    """Facts: immutable, strictly typed, and with room for entries of later versions."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False, defer_build=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as a dictionary that `json.dumps` accepts and that may be changed."""
        return self.model_dump(mode="json", exclude_none=True)

    def with_(self, **changes: Any) -> Any:
        """Return a copy of the facts with other values, which are checked."""
        return type(self)(**{**dict(iter(self)), **changes})  # a field `keys` would mislead dict(self)


class LedgerHead(_Facts):
    """The ledger entry with the charge of a release: its number and its hash."""

    entry: int
    hash: str


class KeysFacts(_Facts):
    """The public cells: the kinds of labels of each key column, the number of cells, and why they are public."""

    columns: dict[str, str]
    count: int
    assumption: str
    from_data: bool


class PartitionFacts(_Facts):
    """The records that a release is about: those with certain labels in a column."""

    by: str
    labels: Annotated[tuple[Any, ...], Many]


class SelfTestFacts(_Facts):
    """The self-test that the engine of the records passed before they were read: see `data.selftest.SelfTest`."""

    engine: str
    version: str
    checks: int
    format: int


class SuppliedFacts(_Facts):
    """A drawn table whose exact sums the curator supplied: the dialect of the SQL, and its SHA-256 (without comments).

    The digest of the sums is not here: sums can be found by trying.
    """

    dialect: str
    sql_sha256: str


def _positive(unit: str) -> str:
    try:
        positive = 0 < float(Fraction(unit)) < math.inf
    except (ValueError, ArithmeticError):
        positive = False
    if not positive:
        raise ValueError("must be a number > 0, as text")
    return unit


class ColumnFacts(_Facts):
    """A released column.

    Attributes
    ----------
    kind
        "sum" or "count".
    mechanism, described
        The mechanism as `Mechanism.from_dict` reads it (None if it has a user function), and as text.
    unit, level
        The grid of the results, as text, and the level of the intervals.
    nonnegative, estimator
        Whether negative results were raised to 0, and in which sense the estimate is unbiased.
    se
        The meaning of the standard error.
    at_least
        The lower bound on the true sums, or None if none is known.
    on_grid
        Whether the type of the column implies that the true sums are multiples of the unit.
    rounding_bias
        The largest bias that rounding to the unit can add.
    nulls, negatives
        How missing and negative values were treated; None for a count.
    reads, proportional
        The stored columns that a derived column is computed from, and whether it is a multiple of the only one; None
        for a stored column and a count.
    grain
        Floats are summed in whole numbers of this grain; None if the values are whole numbers of grains.
    """

    kind: Literal["sum", "count"]
    mechanism: Mapping[str, Any] | None = None
    described: str
    unit: Annotated[str, AfterValidator(_positive)]
    level: Probability
    nonnegative: bool
    estimator: str
    se: str
    at_least: Annotated[int, Field(ge=0)] | None = None
    on_grid: bool
    rounding_bias: float
    nulls: Annotated[str, Field(pattern="^(error|zero)$")] | None = None
    negatives: Annotated[str, Field(pattern="^(error|zero|kept)$")] | None = None
    reads: Texts | None = None
    proportional: bool | None = None
    grain: float | None = None

    @property
    def is_count(self) -> bool:
        """Whether the column is the number of records."""
        return self.kind == "count"

    @property
    def grid(self) -> Fraction:
        """The unit as a number."""
        return Fraction(self.unit)


class RatioFacts(_Facts):
    """A ratio of two released columns, with the level and the kind of its interval."""

    numerator: str
    denominator: str
    level: Probability
    interval: str
    approximate: bool


class QuantilesFacts(_Facts):
    """Released quantiles of the sizes of records or of entities.

    Attributes
    ----------
    column
        The column whose absolute values are the sizes.
    entity
        The column that identifies the entities whose totals are the sizes; None for the sizes of records.
    at, grid
        The share of smaller records or entities that each quantile aims at, and the public sizes to choose from.
    rates
        By how much one rank lowers the logarithm of the probability of a size, for each quantile.
    loss, level
        The total PRzCDP loss of a record or entity by all quantiles, and the probability with which the rank error
        holds.
    nulls
        How missing values were treated.
    reads
        The stored columns that a derived column is computed from; None for a stored column.
    """

    column: str
    entity: str | None = None
    at: Numbers
    grid: Numbers
    rates: Annotated[tuple[float, ...], Many]
    loss: float
    level: Probability
    nulls: str
    reads: Texts | None = None

    @model_validator(mode="after")
    def _check_rates(self) -> "QuantilesFacts":
        if not self.rates or len(self.rates) != len(self.at) or len(self.grid) < 2 or min(self.rates) <= 0:
            raise ValueError("there must be a rate > 0 for each quantile, and a grid of sizes")
        return self


class RollupFacts(_Facts):
    """How a table was made by adding the published cells of another one.

    Attributes
    ----------
    of
        The table with the cells.
    over
        The key columns of the cells that were added over.
    levels
        The levels of hierarchies that the sums are for, each with the key column that it groups.
    groupings
        For each level, the SHA-256 of the name of its key column and of the labels of the cells there, with their
        labels of the level. Levels with the same one group the cells in the same way.
    number
        The name of the column with the number of cells in each sum.
    complete
        Whether the cells are all combinations of the labels of their key columns, or None if there are no key columns.
        Records in other cells are in no sum in either case.
    rules
        How the interval of each column was computed, in words.
    biases
        The columns whose sums are biased by rounding, each with the largest bias.
    """

    of: str
    over: Texts
    levels: dict[str, str]
    groupings: dict[str, str]
    number: str
    complete: bool | None = None
    rules: dict[str, str]
    biases: dict[str, float] = {}

    @model_validator(mode="after")
    def _check_groupings(self) -> "RollupFacts":
        if self.groupings.keys() != self.levels.keys():
            raise ValueError("there must be a grouping for each level")
        return self


class TableFacts(_Facts):
    """One table of a release.

    Attributes
    ----------
    of
        The table that it was requested to be derived from, or None if it is drawn, with independent noise.
    rows
        The number of its rows.
    formula, policy, pure_policy
        For a drawn table, the loss of a record by the table alone: as text and as `RecordPolicy.from_dict` reads it;
        then its PRDP loss (or None).
    keys, where, derived
        The public cells (None for a total), the filter and the derived columns.
    decided_by
        The stored columns that decide the cell of a record and whether it is in the table, in folded spelling; "*" if
        they are not known.
    columns, ratios
        The published columns, and the ratios of such columns.
    quantiles, rollup
        The quantiles, or how the table was made from the cells of another one, if it is such a table.
    """

    of: str | None = None
    rows: int
    formula: str = ""
    policy: Description = None
    pure_policy: Description = None
    keys: KeysFacts | None = None
    where: str | None = None
    derived: dict[str, str] = {}
    decided_by: Texts = (ANY,)
    columns: dict[str, ColumnFacts] = {}
    ratios: dict[str, RatioFacts] = {}
    quantiles: QuantilesFacts | None = None
    rollup: RollupFacts | None = None

    @property
    def drawn(self) -> bool:
        """Whether the table has independent noise."""
        return self.rollup is None

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns; empty for a total."""
        return () if self.keys is None else tuple(self.keys.columns)


class Facts(_Facts):
    """Everything that is public about a release.

    Attributes
    ----------
    format, id, slowscale, created
        The format of the facts, the identifier of the release, the version of slowscale, and the time of the release.
    private
        Whether the noise came from secret bits.
    protect, protects
        The column that tells which records belong to one entity (or None), and a text that says what is protected.
    dataset, period
        The name of the data set and the period that the release is about, or None.
    notion, accounting
        The privacy notion, and which policy of each mechanism was charged: "closed", its closed form, or "tight", the
        smallest one known.
    formula, policy, pure_policy, pure_columns
        The loss of a record by the whole release: as text, and as `RecordPolicy.from_dict` reads it; then its PRDP loss
        by all columns (or None), and by the columns that have such a guarantee.
    partition
        The part of the records that the release is about, or None for all of them.
    tables
        The tables by name.
    table
        The table that a file holds. None for the release as a whole.
    ledger
        The ledger entry with the charge, if there is a ledger.
    selftest
        The self-test that the engine passed, if it had to prove that it computes as a release needs it.
    supplied
        The drawn tables whose exact sums were computed elsewhere and supplied by the curator, on whose word they are
        those of the records; None if the sums were computed from the records.
    band
        The factor of the band within which losses between values are stated.
    largest
        The largest value of each released column that has one: the release has no larger record or, if entities are
        protected, no larger total of an entity in a cell.
    """

    format: int = FORMAT
    id: str
    slowscale: str
    created: str
    private: bool
    protect: str | None = None
    protects: str
    dataset: str | None = None
    period: str | None = None
    notion: str
    accounting: str
    formula: str
    policy: Description = None
    pure_policy: Description = None
    pure_columns: Description = None
    partition: PartitionFacts | None = None
    tables: dict[str, TableFacts]
    table: str | None = None
    ledger: LedgerHead | None = None
    selftest: SelfTestFacts | None = None
    supplied: dict[str, SuppliedFacts] | None = None
    band: Annotated[float, Field(gt=1)] = BAND
    largest: dict[str, Annotated[int | float, Field(ge=LEAST_BOUND, le=MOST_BOUND)]] | None = None

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of the drawn tables."""
        return tuple(name for name, table in self.tables.items() if table.drawn)

    @property
    def columns(self) -> dict[str, ColumnFacts]:
        """The columns of all drawn tables; of a column in several tables, the last one's facts."""
        return {name: column for table in self.drawn for name, column in self.tables[table].columns.items()}

    @property
    def uses(self) -> tuple[Use, ...]:
        """How the values of a record enter each term of the policy: those of the drawn tables, in order."""
        found: list[Use] = []
        for name in self.drawn:
            columns: list[str | None] = list(self.tables[name].columns)
            described = self.tables[name].to_dict()
            found += [Use.of(described, column, self.protect is not None) for column in columns or [None]]
        return tuple(found)

    @property
    def supplied_words(self) -> str:
        """What supplied sums mean for a reader; empty if the sums were computed from the records."""
        words = (
            "The curator supplied the exact sums, which were computed elsewhere: that they are complete and exact is "
            "the curator's word"
        )
        return words if self.supplied else ""

    @property
    def derived(self) -> dict[str, str]:
        """The derived columns of all tables. A column has the same expression in all of them."""
        return {name: text for table in self.tables.values() for name, text in table.derived.items()}

    @staticmethod
    def from_dict(description: Any) -> "Facts":
        """Return the facts that `to_dict` wrote, or raise an error that says what is wrong with them."""
        try:
            return Facts.model_validate(description)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "facts"
            words = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
            raise ParameterError(f"{place}:", words, code="damaged", path=first["loc"]) from None


def with_facts(table: pa.Table, facts: Facts) -> pa.Table:
    """Return the table with the facts in the metadata of its schema."""
    return table.replace_schema_metadata({METADATA: json.dumps(facts.to_dict())})


def described_schema(schema: pa.Schema, facts: Facts, units: Units, numbers: pa.Table | None = None) -> pa.Schema:
    """Return the schema of a file: with the facts in its metadata, and what each column is in that of the column."""
    words = _column_descriptions(schema.names, facts, units, numbers)
    fields = [field.with_metadata(words[field.name]) if field.name in words else field for field in schema]
    return pa.schema(fields, {METADATA: json.dumps(facts.to_dict())})


def _column_descriptions(
    names: Sequence[str], facts: Facts, units: Units, numbers: pa.Table | None
) -> dict[str, dict[str, str]]:
    """Return the unit of measure and the description of each column of a table."""
    from slowscale.release.describing import describe_columns

    found = {} if facts.table is None else describe_columns(facts.tables[facts.table], numbers, units)
    return {name: found[name].to_dict() for name in names if name in found}


@contextmanager
def kept_release() -> Iterator[None]:
    """Say that a release is not lost, if a file in its place exists: it is charged, and can be written elsewhere."""
    try:
        yield
    except ParameterError as error:
        if error.code == "exists":
            error.remedy = (
                "the release that was to be written is charged and still in memory: write it under another name, or "
                f"{error.remedy}"
            )
        raise


def parquet_files(
    table: pa.Table, facts: Facts, path: str | os.PathLike[str], overwrite: bool, units: Units = None
) -> Writers:
    """Return the Parquet file to write, with the facts in its schema, and the function that writes it."""
    target = check_output_path(path, ".parquet", overwrite)
    described = pa.table(table.columns, schema=described_schema(table.schema, facts, units, table))
    return {target: lambda file: pa.parquet.write_table(described, file)}


def read_parquet(source: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the table and the facts in a Parquet file."""
    schema = pa.parquet.read_schema(source)
    kept = released_schema(schema)
    return pa.parquet.read_table(source, columns=kept.names).cast(kept), json.loads(schema.metadata[METADATA])


def released_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a Parquet file that were released.

    Left out are descriptions of columns and, in a publication, the names beside the labels.
    """
    published = PUBLICATION in (schema.metadata or {})
    return pa.schema(
        field.remove_metadata()
        for field in schema
        if not (published and (field.metadata or {}).get(b"role") == b"name")
    )


def csv_files(
    table: pa.Table, facts: Facts, path: str | os.PathLike[str], overwrite: bool, units: Units = None
) -> Writers:
    """Return the CSV file, and the JSON file with its facts, column types and SHA-256, with functions to write them."""
    target = check_output_path(path, ".csv", overwrite)
    facts_target = check_output_path(f"{target}.json", ".json", overwrite)
    write_table, write_facts = csv_writers(lambda: [table], facts, units, table)
    return {target: write_table, facts_target: write_facts}


def csv_writers(
    batches: Callable[[], Iterable[pa.Table]], facts: Facts, units: Units, numbers: pa.Table | None
) -> tuple[Callable[[Path], None], Callable[[Path], None]]:
    """Return the functions that write the CSV file of a table, and then the JSON file with its facts.

    Parameters
    ----------
    batches
        Returns the rows in batches of one schema. It is called twice: text that a spreadsheet would run is looked for
        first.
    facts, units, numbers
        The facts of the table, its units of measure, and its numbers for descriptions of errors, if they are at hand.
    """
    described: dict[str, Any] = {}

    def write_table(file: Path) -> None:  # before the facts, which name its hash
        schema, escaped = _escaped_columns(batches())
        names, words = escaped_names(schema.names), _column_descriptions(schema.names, facts, units, numbers)
        described.update(facts.to_dict(), types={field.name: str(field.type) for field in schema}, descriptions=words)
        described.update({"escaped": escaped} if escaped else {})
        described.update({} if names == schema.names else {"escaped_names": True})
        header = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
        with pa.csv.CSVWriter(file, header) as writer:
            for batch in batches():
                writer.write_table(_escape_formulas(batch, escaped).rename_columns(names))
        described["sha256"] = file_hash(file)

    def write_facts(file: Path) -> None:
        file.write_text(json.dumps(described, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    return write_table, write_facts


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_csv(source: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return the table and the facts of a CSV file with its JSON file."""
    import pyarrow.compute as pc

    facts = json.loads(Path(f"{source}.json").read_text(encoding="utf-8"))
    if facts.pop("sha256") != file_hash(source):
        raise EngineError(
            source,
            f"does not belong to its facts: {source.name}.json was written with another content of the file",
            code="mismatch",
            remedy="use both files as they were released (a spreadsheet program may have saved it again)",
        )
    facts.pop("descriptions", None)
    types = {name: COLUMN_TYPES[dtype] for name, dtype in facts.pop("types").items()}
    header = escaped_names(list(types)) if facts.pop("escaped_names", False) else list(types)
    table = pa.csv.read_csv(
        source,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(zip(header, types.values(), strict=True)), strings_can_be_null=False
        ),
    )
    if table.column_names != header:
        raise ParameterError(
            source,
            f"and {source.name}.json do not belong together: the columns differ",
            code="mismatch",
            remedy="use the pair of files that one call of to_csv wrote",
        )
    table = table.rename_columns(list(types))
    for name in facts.pop("escaped", []):
        i = table.schema.get_field_index(name)
        text = pc.replace_substring_regex(table[i], "^'", "", max_replacements=1)
        table = table.set_column(i, table.schema.field(i), text)
    return table, facts


def escape_formulas(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Put an apostrophe before text that a spreadsheet would run as a formula; return also the changed columns."""
    _, names = _escaped_columns([table])
    return _escape_formulas(table, names), names


def _escaped_columns(batches: Iterable[pa.Table]) -> tuple[pa.Schema, list[str]]:
    """Return the schema of batches, and the columns with text that a spreadsheet would run as a formula."""
    schema, found = None, set[str]()
    for batch in batches:
        schema = batch.schema
        found |= {field.name for field in schema if field.name not in found and _has_formula(batch[field.name])}
    assert schema is not None
    return schema, [name for name in schema.names if name in found]


def _has_formula(column: pa.ChunkedArray) -> bool:
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return False
    runs, number = (pc.match_substring_regex(column, one) for one in (SPREADSHEET_FORMULA, WRITTEN_NUMBER))
    return bool(pc.any(pc.and_not(runs, number)).as_py())


def _escape_formulas(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Put an apostrophe before text of these columns that a spreadsheet would run as a formula.

    Text that starts with an apostrophe gets another one, so that removing the first apostrophe restores every value.
    """
    import pyarrow.compute as pc

    for name in names:
        text = table[name]
        runs, number = (pc.match_substring_regex(text, one) for one in (SPREADSHEET_FORMULA, WRITTEN_NUMBER))
        marked = pc.or_(pc.and_not(runs, number), pc.starts_with(text, "'"))
        escaped = pc.if_else(marked, pc.binary_join_element_wise("'", text, ""), text)
        table = table.set_column(table.schema.get_field_index(name), name, escaped)
    return table


def escaped_names(names: list[str]) -> list[str]:
    """Return the names of columns as a CSV file has them: with an apostrophe where a spreadsheet would run a formula.

    If there is such a name, one that starts with an apostrophe gets another one too, so that all stay different.
    """
    runs = [bool(re.match(SPREADSHEET_FORMULA, name)) and not re.match(WRITTEN_NUMBER, name) for name in names]
    if not any(runs):
        return list(names)
    return [f"'{name}" if run or name.startswith("'") else name for name, run in zip(names, runs, strict=True)]
