"""The plan: data, ledger, request and outputs, as frozen models that describe the fields of a TOML file.

The rules about tables are those of `slowscale.release.request`: a plan builds its tables and its request while it is
validated, with a stand-in for public cells that are in a file or in the data, and reports an error of the request at
its place in the plan. `plan.tables["cells"].build(plan.data, keys)` returns a table of the request, for given cells;
`plan.built` has all tables with stand-ins for cells that are not known yet.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, field_validator, model_validator

from slowscale.accounting.record import COUNT
from slowscale.accounting.sizes import RecordSize, read_sizes
from slowscale.core.errors import Place, located
from slowscale.mechanisms.calibration import ACCOUNTING, ACCOUNTINGS, CLOSED
from slowscale.plan.inputs import (
    DATABASE_FILE,
    CsvPlan,
    DataPlan,
    FilePath,
    HierarchyPlan,
    KeysPlan,
    PlanPart,
    as_mistakes,
    mistake_at,
)
from slowscale.plan.mechanisms import CapPlan, MechanismPlan, SumPlan
from slowscale.plan.publication import PublicationPlan
from slowscale.policy import Policy

if TYPE_CHECKING:
    from slowscale.accounting import RecordPolicy
    from slowscale.data.keys import Keys
    from slowscale.release.columns import ColumnPolicy
    from slowscale.release.request import Drawn, Quantiles, Rollup, Sums, Table

__all__ = [
    "DATABASE_FILE",
    "CapPlan",
    "CsvPlan",
    "DataPlan",
    "HierarchyPlan",
    "KeysPlan",
    "LedgerPlan",
    "MechanismPlan",
    "OutputPlan",
    "Plan",
    "PublicationPlan",
    "QuantilesPlan",
    "ReleasePlan",
    "ReportPlan",
    "RollupPlan",
    "SumPlan",
    "SumsPlan",
    "TablePlan",
    "place_in_plan",
]

Treatment = Literal["error", "zero"]
NULLS = 'Missing values: refuse them ("error"), or count them as 0 ("zero").'


class LedgerPlan(PlanPart):
    """The file that records the cost of every release, and the caps that it is created with."""

    path: FilePath = Field(description="The ledger's file, created if it does not exist. Relative to the plan.")
    caps: dict[str, CapPlan] = Field(
        {},
        description='The caps, by column: "count" is for the number of records, where policies are compared at size 1; '
        '"*" is for every stored column without a cap, and for the count if that has none, but not for derived '
        "columns. They are fixed when the ledger is created; `slowscale ledger set-cap` can change them.",
    )


class ReleasePlan(PlanPart):
    """How the release is made, and the period that it is about."""

    level: float = Field(0.95, description="The level of all intervals, between 0 and 1.")
    accounting: Literal[ACCOUNTINGS] = Field(  # type: ignore[valid-type]
        ACCOUNTING,
        description='Which policy of each mechanism is charged: the smallest policy that is known ("tight"), or its '
        'formula ("closed"), which is never smaller. The noise is the same.',
    )
    partition: str | None = Field(
        None,
        description="A key column of every drawn table that divides the records into parts. Releases about different "
        "parts cost a record the largest of their losses, not the sum.",
    )
    period: str | None = Field(None, description='The period that the release is about, such as "2024".')


class SumsPlan(PlanPart):
    """A drawn table of sums: of columns, of the number of records, or both; by public cell or in total."""

    keys: KeysPlan | None = Field(
        None, description="The public cells. Leave them out to publish totals over all records."
    )
    sums: dict[str, SumPlan] = Field({}, description="The columns to sum, each with its mechanism.")
    count: MechanismPlan | None = Field(
        None, description="The mechanism that the number of records is published with, if it is to be published."
    )
    means: Literal["box", "fieller", "delta"] | None = Field(
        None,
        description="The kind of interval for means, to publish the mean of each column too: its sum divided by the "
        "count.",
    )
    nulls: Treatment = Field("error", description=NULLS)
    negatives: Treatment = Field(
        "error",
        description='Negative values, for root and log: refuse them ("error"), or count them as 0 ("zero").',
    )
    nonnegative: bool = Field(
        False, description="Raise negative results to 0. This biases them upwards, and the release says so."
    )

    def build(self, data: DataPlan, keys: "Keys | None" = None) -> "Sums":
        """Return the table of the request, with these cells."""
        from slowscale.release.request import Sums

        return Sums(
            {name: part.build() for name, part in self.sums.items()},
            keys,
            count=None if self.count is None else self.count.build(),
            unit={name: part.unit for name, part in self.sums.items()},
            means=self.means,
            where=data.where,
            derive=data.derive or None,
            nulls=self.nulls,
            negatives=self.negatives,
            nonnegative=self.nonnegative,
        )

    @property
    def mechanisms(self) -> dict[str, MechanismPlan]:
        """The mechanism of each column; that of the number of records under "count"."""
        return {**self.sums, **({} if self.count is None else {COUNT: self.count})}


class QuantilesPlan(PlanPart):
    """A drawn table of private quantiles of record sizes, on a public grid of sizes."""

    quantiles: str = Field(min_length=1, description="The column whose absolute values are the sizes.")
    at: list[float] = Field([0.1, 0.5, 0.9], description="The share of smaller records that each quantile aims at.")
    loss: float = Field(description="The PRzCDP loss of every record by all the quantiles together.")
    grid: list[float] | None = Field(
        None,
        description="The public sizes to choose from, increasing. If not given, 20 per factor of ten from 1 to 10¹².",
    )
    nulls: Treatment = Field("error", description=NULLS)

    def build(self, data: DataPlan, keys: None = None) -> "Quantiles":
        """Return the table of the request."""
        from slowscale.release.request import Quantiles

        return Quantiles(
            self.quantiles,
            self.at,
            loss=self.loss,
            grid=self.grid,
            where=data.where,
            derive=data.derive or None,
            nulls=self.nulls,
        )


class RollupPlan(PlanPart):
    """A table whose numbers are sums of the published cells of another table. It adds nothing to any loss."""

    rollup: str = Field(min_length=1, description="The table whose cells are added up.")
    by: list[str] = Field(
        [], description="The key columns to keep, or levels of [[hierarchies]]. Leave it out for the total."
    )

    def build(self, data: DataPlan, keys: None = None) -> "Rollup":
        """Return the table of the request."""
        from slowscale.release.request import Rollup

        return Rollup(self.rollup, self.by)


def _kind_of_table(table: Any) -> str:
    """Return which kind of table a plan describes, by the field that only this kind has."""
    for field in ("quantiles", "rollup"):
        if (field in table) if isinstance(table, dict) else hasattr(table, field):
            return field
    return "sums"


TablePlan = Annotated[
    Annotated[SumsPlan, Tag("sums")]
    | Annotated[QuantilesPlan, Tag("quantiles")]
    | Annotated[RollupPlan, Tag("rollup")],
    Discriminator(_kind_of_table),
]


class ReportPlan(PlanPart):
    """Example records for the report and `slowscale check`. They are published: state public knowledge only."""

    sizes: list[float | dict[str, str | float]] | dict[str, float | dict[str, float]] = Field(
        description="The sizes of example records, such as "
        '{ name = "largest firm", emp = 150_000 }, or { name = "largest firm", size = 4e10 } for one size in all '
        "columns; if entities are protected, `count` is the number of records of one in a cell, and 1 is assumed "
        'without it. One name must contain the word "largest". Never look the sizes up in the records.'
    )

    @field_validator("sizes", mode="before")
    @classmethod
    def _check_sizes(cls, sizes: Any) -> Any:
        # One check for all forms: pydantic would report a mistake once for each form that sizes may have.
        if not isinstance(sizes, list | dict):
            raise ValueError('must be a list such as [{ name = "largest firm", emp = 150_000 }]')
        with as_mistakes():
            read_sizes(sizes)
        return sizes


class OutputPlan(PlanPart):
    """The files to write. The command replaces existing files only with --overwrite."""

    folder: FilePath = Field(
        description="The folder for the files of the tables, which have the names of the tables. It is created if it "
        "does not exist."
    )
    formats: list[Literal["parquet", "csv"]] = Field(
        ["parquet", "csv"],
        min_length=1,
        description="The formats of the tables: Parquet with the facts in the schema, CSV with the facts in a JSON "
        "file beside it.",
    )
    report: FilePath | None = Field(
        None, description="A report for readers, as one HTML file. It may lie in the folder of the tables."
    )
    sign: FilePath | None = Field(
        None,
        description="The secret key that signs the files, with SHA256SUMS and SHA256SUMS.minisig in each folder. "
        "`slowscale keygen` makes keys. The passphrase of an encrypted key is taken from the environment variable "
        "SLOWSCALE_KEY_PASSPHRASE.",
    )

    @field_validator("report")
    @classmethod
    def _check_ending(cls, path: str | None) -> str | None:
        if path is not None and not path.lower().endswith(".html"):
            raise ValueError("must end in .html")
        return path


class Plan(PlanPart):
    """A release: the records, the ledger, the tables to publish, and the files to write."""

    data: DataPlan
    ledger: LedgerPlan | None = None
    release: ReleasePlan = Field(default_factory=lambda: ReleasePlan.model_validate({}))
    tables: dict[str, TablePlan] = Field(
        {},
        description="The tables to publish, by name: letters, digits, _ and -. A table with `sums` or `count` and one "
        "with `quantiles` is drawn, with independent noise; one with `rollup` is derived from another table.",
    )
    hierarchies: list[HierarchyPlan] = Field([], description="Levels above key columns, for roll-ups.")
    report: ReportPlan | None = Field(
        None, description="The sizes of example records, for the report and `slowscale check`."
    )
    publication: PublicationPlan | None = Field(
        None, description="Titles, labels and code lists, and the files for readers."
    )
    output: OutputPlan | None = None

    _built: "Mapping[str, Table]" = PrivateAttr({})
    _origin: "tuple[Path, str] | None" = PrivateAttr(None)  # the file that the plan was read from, and its text

    @model_validator(mode="after")
    def _check_request(self) -> "Plan":
        """Build the tables, and the request if all key columns are known: these hold the rules."""
        from slowscale.release.request import Request

        with as_mistakes(place_in_plan):
            built = {}
            for name, table in self.tables.items():
                with located("tables", name):
                    keys = table.keys.stand_in() if isinstance(table, SumsPlan) and table.keys is not None else None
                    built[name] = table.build(self.data, keys)  # type: ignore[arg-type]
            self._built = built
            if built and not self.unknown_keys:
                Request(built, [part.stand_in() for part in self.hierarchies], **self.request_options)
        return self

    @model_validator(mode="after")
    def _check_output(self) -> "Plan":
        if self.tables and self.output is None:
            raise mistake_at(
                ("output",), 'is missing: add the table [output] with folder = "published", or the tables would be lost'
            )
        return self

    @model_validator(mode="after")
    def _check_accounting(self) -> "Plan":
        for name, table in self.tables.items() if self.release.accounting == CLOSED else ():
            for column, part in table.mechanisms.items() if isinstance(table, SumsPlan) else ():
                mechanism = part.build()
                tight = part.loss is not None and part.accounting != CLOSED
                if tight and mechanism.tight_policy != mechanism.policy:
                    raise mistake_at(
                        ("tables", name, *((COUNT,) if column == COUNT else ("sums", column)), "accounting"),
                        "the target is a loss by the tight policy, but the plan charges the closed form, which is "
                        'larger; write accounting = "closed" here, or remove accounting under [release]',
                    )
        return self

    @model_validator(mode="after")
    def _check_report_sizes(self) -> "Plan":
        with as_mistakes(lambda _: ("report", "sizes")):
            self.check_sizes(None if self.report is None else self.report.sizes)
        return self

    @property
    def unknown_keys(self) -> set[str]:
        """The tables whose key columns are named by a file only."""
        found = {name: table.keys for name, table in self.tables.items() if isinstance(table, SumsPlan)}
        return {name for name, keys in found.items() if keys is not None and keys.columns is None}

    @property
    def request_options(self) -> dict[str, Any]:
        """The options of the request as a whole."""
        return self.release.model_dump(include={"level", "partition", "period"})

    @property
    def built(self) -> "Mapping[str, Table]":
        """The tables of the request, with one cell in place of cells that are in a file or in the data."""
        return self._built

    @property
    def drawn(self) -> "dict[str, Drawn]":
        """The drawn tables, as in `built`."""
        from slowscale.release.request import Drawn

        return {name: table for name, table in self._built.items() if isinstance(table, Drawn)}

    @property
    def file(self) -> Path | None:
        """The file that the plan was read from."""
        return None if self._origin is None else self._origin[0]

    @property
    def scales(self) -> dict[str, dict[str, str]]:
        """By table and column, where the scale of the noise need not be given: the scale, and where it comes from."""
        found = {
            name: {column: words for column, part in table.mechanisms.items() if (words := part.scale_words)}
            for name, table in self.tables.items()
            if isinstance(table, SumsPlan)
        }
        return {name: scales for name, scales in found.items() if scales}

    @property
    def columns(self) -> "dict[str, tuple[ColumnPolicy, ...]]":
        """The columns of each drawn table, with the loss of a record through each."""
        from slowscale.release.columns import requested_columns

        options = self.release.accounting, self.data.protect, self.data.where is not None
        return {name: requested_columns(name, table, *options) for name, table in self.drawn.items()}

    @property
    def policy(self) -> "RecordPolicy":
        """The loss of a record by the release: that by all drawn tables, added up."""
        from slowscale.release.columns import requested_policy

        options = self.release.accounting, self.data.protect, self.data.where is not None
        first, *others = (requested_policy(table, *options) for table in self.drawn.values())
        return sum(others, first)

    @property
    def sizes(self) -> tuple[RecordSize, ...]:
        """The sizes of example records that [report] states; empty without [report]."""
        return self.check_sizes(None if self.report is None else self.report.sizes)

    def check_sizes(self, sizes: Any) -> tuple[RecordSize, ...]:
        """Return sizes of example records, or raise if they do not fit the columns of the plan.

        With a ledger they may have values for other columns as well, which earlier releases were about.
        """
        # The names are those of the policy, which is not computed here: a tight policy takes long.
        counted = () if self.data.protect is None else (COUNT,)
        columns = [
            column
            for table in self.tables.values()
            if isinstance(table, SumsPlan)
            for column in (*table.sums, *(counted if table.count is not None else ()))
        ]
        return read_sizes(sizes, list(dict.fromkeys(columns)), None if self.ledger is not None or not columns else ())

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps that the ledger is created with."""
        return {} if self.ledger is None else {name: cap.cap() for name, cap in self.ledger.caps.items()}


def place_in_plan(path: Place) -> Place:
    """Return the field of a plan that a place in the request stands for."""
    match path:
        case ("tables", _, "where" | "derive" as field, *rest):
            return ("data", field, *rest)
        case ("level" | "partition" | "period" as field, *rest):
            return ("release", field, *rest)
    return path
