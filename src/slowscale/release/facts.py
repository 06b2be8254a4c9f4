"""The facts of a release: everything that is public about it, typed, and in a form that JSON can hold.

They travel with each table. A field that is None does not apply, and is left out of files. Entries that are not known
here are kept and written again, so that files of later versions survive.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from slowscale.core.errors import ParameterError

FORMAT = 1

# Lists of JSON become tuples, so that facts that are read equal those that were written.
Many = BeforeValidator(lambda given: tuple(given) if isinstance(given, list) else given)
Texts = Annotated[tuple[str, ...], Many]
Numbers = Annotated[tuple[int | float, ...], Many]
Description = Annotated[tuple[Mapping[str, Any], ...] | None, Many]  # a policy, as `RecordPolicy.from_dict` reads it

# What is stated as the estimator, and as the standard error, if the noise has no mean or no variance.
NO_MEAN, NO_VARIANCE = "median; the noise has no mean", "infinite: the noise has no variance"


class _Facts(BaseModel):
    """Facts: immutable, strictly typed, and with room for entries of later versions."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, allow_inf_nan=False)

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


def _positive(unit: str) -> str:
    try:
        positive = Fraction(unit) > 0
    except (ValueError, ZeroDivisionError):
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
        The mechanism as `Mechanism.from_dict` reads it (None if it has a user-given function), and as text.
    unit, level
        The grid of the results, as text, and the level of the intervals.
    nonnegative, estimator
        Whether negative results were raised to 0, and in which sense the estimate is unbiased.
    se
        What the standard error is.
    at_least
        The lower bound on the true sums, or None if none is known.
    on_grid
        Whether the type of the column implies that the true sums are multiples of the unit.
    rounding_bias
        The largest bias that rounding to the unit can add.
    nulls, negatives
        How missing and negative values were treated; None for a count.
    """

    kind: Literal["sum", "count"]
    mechanism: Mapping[str, Any] | None = None
    described: str
    unit: Annotated[str, AfterValidator(_positive)]
    level: float
    nonnegative: bool
    estimator: str
    se: str
    at_least: int | None = None
    on_grid: bool
    rounding_bias: float
    nulls: Annotated[str, Field(pattern="^(error|zero)$")] | None = None
    negatives: Annotated[str, Field(pattern="^(error|zero|kept)$")] | None = None

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
    level: float
    interval: str
    approximate: bool


class QuantilesFacts(_Facts):
    """Released quantiles of record sizes.

    Attributes
    ----------
    column
        The column whose absolute values are the sizes.
    at, grid
        The share of smaller records that each quantile aims at, and the public sizes, one of which each quantile is.
    rates
        By how much one rank lowers the logarithm of the probability of a size, for each quantile.
    loss, level
        The total PRzCDP loss of a record by all quantiles, and the probability with which the rank error holds.
    nulls
        How missing values were treated.
    """

    column: str
    at: Numbers
    grid: Numbers
    rates: Annotated[tuple[float, ...], Many]
    loss: float
    level: Annotated[float, Field(gt=0, lt=1)]
    nulls: str

    @model_validator(mode="after")
    def _check_rates(self) -> "QuantilesFacts":
        if len(self.rates) != len(self.at) or len(self.grid) < 2 or min(self.rates, default=0) <= 0:
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
    number: str
    complete: bool | None = None
    rules: dict[str, str]
    biases: dict[str, float] = {}


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

    @property
    def drawn(self) -> tuple[str, ...]:
        """The names of the drawn tables."""
        return tuple(name for name, table in self.tables.items() if table.drawn)

    @property
    def columns(self) -> dict[str, ColumnFacts]:
        """The columns of all drawn tables; of a column in several tables, the last one's facts."""
        return {name: column for table in self.drawn for name, column in self.tables[table].columns.items()}

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
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "facts"
            raise ParameterError(f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
