"""The plan: data, ledger, request and outputs, as frozen models that describe the fields of a TOML file.

The rules about tables are those of `slowscale.release.request`: a plan builds its tables and its request while it is
validated, with a stand-in for public cells that are in a file or in the data, and reports an error of the request at
its place in the plan. `plan.tables["cells"].build(plan.data, keys)` returns a table of the request, for given cells;
`plan.built` has all tables with stand-ins for cells that are not known yet.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, field_validator, model_validator

from slowscale.accounting.largest import Value
from slowscale.accounting.record import COUNT
from slowscale.accounting.sizes import RecordSize, read_sizes
from slowscale.core.errors import ParameterError, Place, SlowscaleError, located
from slowscale.mechanisms.calibration import ACCOUNTING, ACCOUNTINGS, CLOSED
from slowscale.plan.parts import (
    CapPlan,
    DataPlan,
    FilePath,
    HierarchyPlan,
    KeysPlan,
    MechanismPlan,
    NotNegative,
    PlanPart,
    SumPlan,
    as_mistakes,
    check_local,
    given_words,
    mistake_at,
)
from slowscale.policy import ConstantPolicy, Policy
from slowscale.policy.bounded import BAND, LARGEST_BAND

if TYPE_CHECKING:
    from slowscale.accounting import RecordPolicy
    from slowscale.data.keys import Keys
    from slowscale.publish import Publication
    from slowscale.release.columns import ColumnPolicy
    from slowscale.release.request import Drawn, Quantiles, Rollup, Sums, Table

Treatment = Literal["error", "zero"]
DEVICE = re.compile(r"(?i)con|prn|aux|nul|com\d|lpt\d")
FILES = ("basic", "research")  # the fields with files, by profile
CODES_STAND_IN = {"": "not read yet"}  # in place of a code list in a file, while the rest of the table is checked
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
    band: Annotated[float, Field(gt=1, le=LARGEST_BAND)] | None = Field(
        None,
        description=f"The factor of the band within which the values of a record are protected; {BAND} by default, "
        "10 % more or less. It is fixed when the ledger is created.",
    )
    band_caps: dict[str, NotNegative] = Field(
        {},
        description="The largest loss, by column, between the value of a record and any value within the band, the "
        'same for records of every size; "*" is for every column without another one.',
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

    @field_validator("formats")
    @classmethod
    def _check_formats(cls, formats: list[Any]) -> list[Any]:
        if len(set(formats)) < len(formats):
            raise ValueError("names a format twice; remove one of them")
        return formats

    @field_validator("report")
    @classmethod
    def _check_ending(cls, path: str | None) -> str | None:
        if path is not None and not path.lower().endswith(".html"):
            raise ValueError("must end in .html")
        return path


class ColumnLabelPlan(PlanPart):
    """The words that readers see in place of a column's name."""

    title: str = Field(description='The title, such as "Annual payroll".')
    unit: str | None = Field(None, description='The unit of measure, such as "thousand USD".')
    description: str | None = Field(None, description="A longer description.")


class PublicationPlan(PlanPart):
    """Titles, labels and notes beside the numbers, and the files for readers. All of it is published."""

    title: str = Field(description="The title of the publication.")
    source: str | None = Field(None, description="Where the records come from.")
    period: str | None = Field(
        None, description="The period that the records are about; if not given, that of [release]."
    )
    contact: str | None = Field(None, description="Whom readers may ask.")
    notes: list[str] = Field([], description="Further notes, each a paragraph.")
    columns: dict[str, ColumnLabelPlan] = Field(
        {},
        description="Titles and units of measure of the published columns, such as "
        '{ payann = { title = "Annual payroll", unit = "thousand USD" } }.',
    )
    tables: dict[str, str] = Field(
        {}, description='Titles of the tables of sums, if there are several, such as { states = "By state" }.'
    )
    keys: dict[str, str] = Field({}, description='Titles of the key columns, such as { state = "State" }.')
    codes: dict[str, str | dict[str, str]] = Field(
        {},
        description='Names for the labels of key columns: a table such as { state = { "01" = "Alabama" } }, or a CSV '
        "file with a header, then one line with a label and its name for each label. Relative to the plan.",
    )
    rounding: int | str | dict[str, int | str] | None = Field(
        None,
        description="The step that estimates are rounded to in the basic files: one for all columns, or one for each. "
        'A whole number such as 100, or text such as "0.1".',
    )
    cv_limits: list[float] | None = Field(
        None,
        description="The highest coefficients of variation, in percent, of all flags but the last. If not given, 16.5 "
        "and 33.3.",
    )
    flags: list[str] | None = Field(
        None,
        description='The reliability flags. If not given, "reliable", "use with caution" and "unreliable".',
    )
    negatives: str | dict[str, str] = Field(
        "flag",
        description='Negative estimates in the basic files, for all columns or for each: flag them ("flag"), '
        'show 0 ("zero"), or treat them like others ("keep").',
    )
    basic: str | list[str] = Field(
        [],
        description="Files with rounded estimates, intervals, coefficients of variation and reliability flags: .xlsx, "
        ".csv or .parquet. Relative to the plan.",
    )
    research: str | list[str] = Field(
        [],
        description="Files with the numbers as they were released: .xlsx, .csv or .parquet. Relative to the plan.",
    )

    @field_validator("codes", "rounding", "negatives", mode="before")
    @classmethod
    def _check_forms(cls, given: Any) -> Any:
        # One check for all forms: pydantic would report a mistake once for each form that a field may have.
        parts = list(given.values()) if isinstance(given, dict) else [given]
        for value in [one for part in parts for one in (part.values() if isinstance(part, dict) else [part])]:
            if not isinstance(value, str | int) or isinstance(value, bool):
                write = f'; write "{value}"' if isinstance(value, float) else ""
                raise ValueError(f"must be text, a whole number, or a table of these, got {given_words(value)}{write}")
        return given

    @field_validator("basic", "research", mode="before")
    @classmethod
    def _check_files(cls, files: Any) -> Any:
        from slowscale.publish.writing import Targets

        for file in files if isinstance(files, list) else [files]:
            if not isinstance(file, str):
                raise ValueError(f"must be the path of a file, or a list of paths, got {given_words(file)}")
            try:
                Targets.of(check_local(file))
            except SlowscaleError as error:
                raise ValueError(error.render("")) from None
        return files

    @model_validator(mode="after")
    def _check_values(self) -> "PublicationPlan":
        with as_mistakes():
            self._build({name: CODES_STAND_IN if isinstance(one, str) else one for name, one in self.codes.items()})
        return self

    def build(self, period: str | None = None) -> "Publication":
        """Return the publication, with the code lists that are in files, and a period if the plan gives none here."""
        from slowscale.publish.publication import read_codes

        codes = {name: read_codes(one) if isinstance(one, str) else one for name, one in self.codes.items()}
        return self._build(codes, period)

    def _build(self, codes: Mapping[str, Mapping[str, str]], period: str | None = None) -> "Publication":
        from slowscale.publish import Publication

        given = {"period": period, **self.model_dump(exclude_unset=True, exclude={"codes", *FILES})}
        return Publication.from_dict({**{name: one for name, one in given.items() if one is not None}, "codes": codes})

    @property
    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the files for readers, each with its profile before it."""
        for profile in FILES:
            given = getattr(self, profile)
            yield from ((profile, file) for file in ([given] if isinstance(given, str) else given))

    def all_files(self, tables: Sequence[str]) -> Iterator[tuple[str, str, Path]]:
        """Yield all files to write, for these tables of sums: their profiles, names in errors and paths."""
        from slowscale.publish.writing import Targets

        names = list(tables) if len(tables) > 1 else None
        for profile, file in self.files:
            for what, path in Targets.of(file).files(names).items():
                beside = f"the {what} beside" if what not in tables else f"table {what!r} of"
                yield profile, f"{beside} the {profile} file" if what else f"the {profile} file", path

    def resolved(self, folder: Path) -> "PublicationPlan":
        """Return the table with its paths resolved against a folder."""
        codes = {name: str(folder / one) if isinstance(one, str) else one for name, one in self.codes.items()}
        update: dict[str, Any] = {"codes": codes} if codes else {}
        for profile in FILES:
            files = [str(folder / file) for kind, file in self.files if kind == profile]
            update |= {profile: files} if files else {}
        return self.model_copy(update=update)

    @property
    def code_files(self) -> list[str]:
        """The files with code lists."""
        return [one for one in self.codes.values() if isinstance(one, str)]

    @property
    def excel(self) -> bool:
        """Whether a file for readers is an Excel file."""
        return any(os.path.splitext(file)[1].lower() == ".xlsx" for _, file in self.files)

    def check_names(self, columns: Sequence[str], keys: Sequence[str], tables: Sequence[str]) -> None:
        """Raise if it names a column that is not published, or a key column or a table that does not exist."""
        from slowscale.publish.publication import nearest

        if self.tables and len(tables) < 2:
            raise ParameterError(
                "titles of tables",
                "are for several tables",
                code="conflict",
                remedy="write title",
                path=("publication", "tables"),
            )
        known = {
            **dict.fromkeys(("columns", "rounding", "negatives"), ("published column", columns)),
            **dict.fromkeys(("keys", "codes"), ("key column", keys)),
            "tables": ("table of sums", tables),
        }
        for field, (noun, names) in known.items():
            given = getattr(self, field)
            for name in given if isinstance(given, dict) else ():
                if name not in names:
                    hint = nearest(name, list(names)) if names else f"there is no {noun}"
                    place = ("publication", field, name)
                    raise ParameterError(f"{name!r}", f"is not a {noun}", code="unknown-name", remedy=hint, path=place)
        with located("publication", "columns"):
            self._build({}).check_titles(columns)


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

    @field_validator("tables")
    @classmethod
    def _check_file_names(cls, tables: dict[str, Any]) -> dict[str, Any]:
        for name in tables:
            if DEVICE.fullmatch(name):
                words = f"is the name of a device on Windows, so no file can have it; write {name}_table, for example"
                raise mistake_at(("tables", name), words, "reserved")
        return tables

    @model_validator(mode="after")
    def _check_output(self) -> "Plan":
        if self.tables and self.output is None:
            words = 'is missing: add the table [output] with folder = "published", or the tables would be lost'
            raise mistake_at(("output",), words, "missing")
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
                        "conflict",
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
        return self.columns_within(self.data.largest)

    def columns_within(self, largest: Mapping[str, Value]) -> "dict[str, tuple[ColumnPolicy, ...]]":
        """Return the columns of each drawn table, for sizes up to these largest values."""
        from slowscale.release.columns import requested_columns

        options = self.release.accounting, self.data.protect, self.data.where is not None
        hidden = self.data.database is not None  # it may be a view with a filter
        return {name: requested_columns(name, table, *options, hidden, largest) for name, table in self.drawn.items()}

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

    def check_sizes(self, sizes: Any, argument: str = "sizes") -> tuple[RecordSize, ...]:
        """Return sizes of example records, or raise if they do not fit the columns of the plan.

        With a ledger they may have values for other columns as well, which earlier releases were about. Errors are
        about the `argument`.
        """
        # The names are those of the policy, which is not computed here: a tight policy takes long.
        counted = () if self.data.protect is None else (COUNT,)
        columns = [
            column
            for table in self.tables.values()
            if isinstance(table, SumsPlan)
            for column in (*table.sums, *(counted if table.count is not None else ()))
        ]
        others = None if self.ledger is not None or not columns else ()
        return read_sizes(sizes, list(dict.fromkeys(columns)), others, argument)

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps that the ledger is created with."""
        return {} if self.ledger is None else {name: cap.cap() for name, cap in self.ledger.caps.items()}

    @property
    def band_caps(self) -> dict[str, Policy]:
        """The caps on values within the band that the ledger is created with."""
        return {} if self.ledger is None else {name: ConstantPolicy(cap) for name, cap in self.ledger.band_caps.items()}


def place_in_plan(path: Place) -> Place:
    """Return the field of a plan that a place in the request stands for."""
    match path:
        case ("tables", _, "where" | "derive" as field, *rest):
            return ("data", field, *rest)
        case ("level" | "partition" | "period" as field, *rest):
            return ("release", field, *rest)
    return path
