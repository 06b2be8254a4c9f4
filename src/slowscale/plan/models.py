"""The plan as a whole, and its tables [ledger], [options], [report] and [output]."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from slowscale.accounting import RecordPolicy
from slowscale.accounting.record import COUNT, folded
from slowscale.accounting.sizes import RecordSize, read_sizes
from slowscale.core.errors import SlowscaleError
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import TIGHT
from slowscale.mechanisms.charged import charged_policy
from slowscale.mechanisms.grid import as_unit
from slowscale.plan.base import FilePath, PlanPart, as_value_errors, mistake_at
from slowscale.plan.inputs import DataPlan, KeysPlan
from slowscale.plan.mechanisms import CapPlan, MechanismPlan, SumPlan
from slowscale.plan.publication import PublicationPlan
from slowscale.plan.tables import HierarchyPlan, TablePlan, own_parts, table_chain
from slowscale.plan.toml import toml_key
from slowscale.policy import Policy
from slowscale.release.columns import ColumnPolicy, column_policies, record_policy
from slowscale.release.request import ONLY

OUTPUT_ENDINGS = {"parquet": ".parquet", "csv": ".csv", "report": ".html"}


class LedgerPlan(PlanPart):
    """The file that records what every release cost, and the caps that it is created with."""

    path: FilePath = Field(description="The ledger's file, created if it does not exist. Relative to the plan.")
    caps: dict[str, CapPlan] = Field(
        {},
        description='The caps, by column: "count" is for the number of records, where policies are compared at size 1; '
        '"*" is for every stored column without a cap of its own, and for the count if that has none, but not for '
        "derived columns. They are fixed when the ledger is created; `slowscale ledger set-cap` can change them.",
    )


class OutputPlan(PlanPart):
    """The files to write. The command replaces existing files only with --overwrite."""

    parquet: FilePath | None = Field(None, description="The published table as Parquet, with its facts in the schema.")
    csv: FilePath | None = Field(
        None, description="The published table as CSV, with its facts in a JSON file beside it."
    )
    report: FilePath | None = Field(None, description="A report for readers, as one HTML file.")
    sign: FilePath | None = Field(
        None,
        description="The secret key that signs the files, with SHA256SUMS and SHA256SUMS.minisig in each folder. "
        "`slowscale keygen` makes keys. The passphrase of an encrypted key is taken from the environment variable "
        "SLOWSCALE_KEY_PASSPHRASE.",
    )
    folder: FilePath | None = Field(
        None,
        description="For several tables: the folder for their files, which have the names of the tables. It is created "
        "if it does not exist.",
    )
    formats: list[Literal["parquet", "csv"]] = Field(
        ["parquet"], min_length=1, description="For several tables: the formats of their files."
    )

    @field_validator("parquet", "csv", "report")
    @classmethod
    def _check_ending(cls, path: str | None, info: ValidationInfo) -> str | None:
        assert info.field_name is not None
        ending = OUTPUT_ENDINGS[info.field_name]
        if path is not None and not path.lower().endswith(ending):
            raise ValueError(f"must end in {ending}")
        return path

    @model_validator(mode="after")
    def _check_table(self) -> "OutputPlan":
        if self.folder is None and self.parquet is None and self.csv is None:
            raise ValueError("give parquet or csv, or both: without a file the published table would be lost")
        if self.folder is not None and (self.parquet is not None or self.csv is not None):
            raise ValueError("folder is for several tables, parquet and csv are for one: give one kind")
        return self

    @property
    def files(self) -> dict[str, str]:
        """The files to write, by field."""
        paths = {name: getattr(self, name) for name in OUTPUT_ENDINGS}
        return {name: path for name, path in paths.items() if path is not None}


class ReportPlan(PlanPart):
    """What the report and `slowscale check` show. It is published, so state only what is public knowledge."""

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
        with as_value_errors():
            read_sizes(sizes)
        return sizes


class OptionsPlan(PlanPart):
    """How values are read and results computed."""

    level: Annotated[float, Field(gt=0, lt=1)] = Field(0.95, description="The level of the intervals.")
    nulls: Literal["error", "zero"] = Field(
        "error", description='What to do with missing values: refuse them ("error"), or count them as 0 ("zero").'
    )
    negatives: Literal["error", "zero"] = Field(
        "error",
        description='What root and log do with negative values: refuse them ("error"), or count them as 0 ("zero").',
    )
    accounting: Literal["closed", "tight"] = Field(
        "closed",
        description='Which policy of each mechanism is charged: its formula ("closed"), or the smallest policy that is '
        'known ("tight"), which is never larger. The noise is the same.',
    )
    nonnegative: bool = Field(
        False, description="Raise negative results to 0. This biases them upwards, and the release says so."
    )


class Plan(PlanPart):
    """A release: which records, which cells, which mechanisms, which ledger and which files."""

    data: DataPlan
    keys: KeysPlan | None = None
    ledger: LedgerPlan | None = None
    sums: list[SumPlan] = Field([], description="The columns to sum.")
    count: MechanismPlan | None = Field(
        None, description="The mechanism that the number of records is published with, if it is to be published."
    )
    table: list[TablePlan] = Field(
        [], description="Several tables instead of one: each drawn, with noise of its own, or derived from another."
    )
    hierarchy: list[HierarchyPlan] = Field([], description="Levels above key columns, for derived tables.")
    source: str | None = Field(None, exclude=True, description="The file that the plan was read from.")
    options: OptionsPlan = Field(default_factory=lambda: OptionsPlan.model_validate({}))
    report: ReportPlan | None = Field(
        None, description="The sizes of example records, for the report and `slowscale check`."
    )
    publication: PublicationPlan | None = Field(
        None, description="Titles, labels and code lists, and the files for readers."
    )
    output: OutputPlan

    @model_validator(mode="after")
    def _check_publication(self) -> "Plan":
        if self.publication is not None:
            drawn = self.drawn.values()
            columns = [part.column for single in drawn for part in single.sums]
            columns += [COUNT] * any(single.count is not None for single in drawn)
            keys = [name for single in drawn if single.keys is not None for name in single.keys.known_columns]
            keys += [level for part in self.hierarchy for level in part.levels or part.digits or ()]
            tables = self.table_names or []
            self.publication.check_names(list(dict.fromkeys(columns)), list(dict.fromkeys(keys)), tables)
        return self

    @model_validator(mode="after")
    def _check_tables(self) -> "Plan":
        if not self.table:
            if self.hierarchy:
                raise mistake_at(["hierarchy"], "a hierarchy is for derived tables: describe them with [[table]]")
            if self.output.folder is not None:
                raise mistake_at(["output", "folder"], "folder is for several tables: give parquet or csv")
            return self
        if self.keys is not None:
            raise mistake_at(["keys"], "with [[table]], each drawn table has keys of its own: write [table.keys]")
        if self.output.folder is None:
            raise mistake_at(["output"], 'several tables need a folder for their files: write folder = "tables"')
        names = [part.name for part in self.table]
        for i, part in enumerate(self.table):
            if part.name.lower() in [name.lower() for name in names[:i]]:
                raise mistake_at(["table", i, "name"], f"there are two tables {part.name!r}; rename one of them")
        for i, part in enumerate(self.table):
            try:
                table_chain(self.table, part.name)
            except ValueError as error:
                raise mistake_at(["table", i, "from"], str(error)) from None
        return self

    @model_validator(mode="after")
    def _check_sums(self) -> "Plan":
        for place, plan in self._single_plans():
            plan._check_published(place)
        return self

    def _check_published(self, place: list[str | int]) -> None:
        """Raise unless there is something to publish, and each column once; `place` is where the sums are."""
        names = [part.column for part in self.sums]
        if not names and self.count is None:
            message = "nothing to publish: give at least one [[sums]] with column and mechanism, or [count]"
            raise mistake_at(place, message) if place else ValueError(message)
        for i, name in enumerate(names):
            if name in names[:i]:
                raise mistake_at(
                    [*place, "sums", i, "column"], f"column {name!r} is summed twice; keep one [[sums]] for it"
                )
        if COUNT in names:
            raise ValueError(
                "a column 'count' cannot be summed, because the number of records has that name; derive a column with "
                "another name"
            )
        keys = [] if self.keys is None else self.keys.known_columns
        for i, name in enumerate(names):
            if name in keys:
                raise mistake_at(
                    [*place, "sums", i, "column"],
                    f"column {name!r} is a key column, so it cannot be summed; sum another column, or change [keys]",
                )

    @model_validator(mode="after")
    def _check_caps(self) -> "Plan":
        capped = set() if self.ledger is None else set(map(folded, self.ledger.caps))
        for name in self.summed:
            if capped and name in self.data.derive and folded(name) not in capped:
                raise mistake_at(
                    ["ledger", "caps"],
                    f"column {name!r} is derived and has no cap of its own, which it needs where other columns have "
                    f"caps; add a table [ledger.caps.{toml_key(name)}]",
                )
        return self

    @model_validator(mode="after")
    def _check_accounting(self) -> "Plan":
        parts: list[tuple[list[str | int], MechanismPlan]] = []
        for place, plan in self._single_plans():
            parts += [([*place, "sums", i], part) for i, part in enumerate(plan.sums)]
            parts += [] if plan.count is None else [([*place, "count"], plan.count)]
        for place, part in parts:
            mechanism = part.build()
            if part.policy == TIGHT != self.accounting and mechanism.tight_policy != mechanism.policy:
                raise mistake_at(
                    [*place, "policy"],
                    "the target is a loss by the tight policy, but the plan charges the closed form, which is larger; "
                    'write accounting = "tight" under [options], or remove policy',
                )
        return self

    @model_validator(mode="after")
    def _check_report_sizes(self) -> "Plan":
        try:
            self.check_sizes(None if self.report is None else self.report.sizes)
        except SlowscaleError as error:
            raise mistake_at(["report", "sizes"], str(error)) from None
        return self

    @property
    def is_set(self) -> bool:
        """Whether the plan describes several tables."""
        return bool(self.table)

    @property
    def drawn(self) -> "dict[str, Plan]":
        """The drawn tables, each as a plan for this table alone."""
        if not self.table:
            return {ONLY: self}
        return {
            part.name: self.model_copy(
                update={**own_parts(part, self.sums, self.count), "table": [], "hierarchy": [], "report": None}
            )
            for part in self.table
            if part.drawn
        }

    def _single_plans(self) -> "list[tuple[list[str | int], Plan]]":
        """Return the drawn tables as plans, each with the place in the file where its sums are."""
        plans = self.drawn
        if not self.table:
            return [([], self)]
        own = {part.name: bool(part.sums) or part.count is not None for part in self.table}
        return [
            (["table", i] if own[part.name] else [], plans[part.name])
            for i, part in enumerate(self.table)
            if part.drawn
        ]

    @property
    def summed(self) -> list[str]:
        """The summed columns, of all tables."""
        return list(dict.fromkeys(part.column for plan in self.drawn.values() for part in plan.sums))

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """The mechanism of each column; that of the number of records under "count".

        Of several tables, only the columns that are in one drawn table.
        """
        if self.table:
            found = [plan.mechanisms for plan in self.drawn.values()]
            names = [name for one in found for name in one]
            return {name: mechanism for one in found for name, mechanism in one.items() if names.count(name) == 1}
        single = {part.column: part.build() for part in self.sums}
        return single | ({COUNT: self.count.build()} if self.count is not None else {})

    @property
    def published(self) -> list[str]:
        """The columns that are published, of all drawn tables; the number of records is "count"."""
        return list(dict.fromkeys(name for plan in self.drawn.values() for name in plan.mechanisms))

    @property
    def scales(self) -> dict[str, str]:
        """The scale of the noise of columns in whose mechanism it need not be given, and where it comes from."""
        parts = {part.column: part.scale_words for part in self.sums}
        parts |= {} if self.count is None else {COUNT: self.count.scale_words}
        return {name: scale for name, scale in parts.items() if scale is not None}

    @property
    def policy(self) -> RecordPolicy:
        """What a record may lose by the release: that by all drawn tables, added up."""
        if self.table:
            first, *others = (plan.policy for plan in self.drawn.values())
            return sum(others, first)
        policies = {name: charged_policy(found, self.accounting) for name, found in self.mechanisms.items()}
        return record_policy(policies, self._single, filtered=self.data.where is not None)

    @property
    def written_files(self) -> list[str]:
        """The files that the release writes, without signatures."""
        part, names = self.publication, self.table_names
        published = [] if part is None else [path for _, path, _ in part.all_files(names)]
        tables = [str(path) for paths in self.table_files.values() for path in paths]
        return [*self.output.files.values(), *tables, *published]

    @property
    def table_files(self) -> dict[str, list[Path]]:
        """The files of each table of a plan for several tables."""
        folder = self.output.folder
        if folder is None:
            return {}
        formats = self.output.formats
        return {part.name: [Path(folder) / f"{part.name}.{kind}" for kind in formats] for part in self.table}

    @property
    def table_names(self) -> list[str] | None:
        """The names of the tables, or None for a plan for one table."""
        return [part.name for part in self.table] or None

    @property
    def signed_files(self) -> dict[str, list[str]]:
        """The files that the release signs, by their folders; empty for a plan without a key."""
        folders: dict[str, list[str]] = {}
        for path in self.written_files if self.output.sign is not None else ():
            folders.setdefault(os.path.realpath(os.path.dirname(path)), []).append(path)
        return folders

    @property
    def signatures(self) -> list[str]:
        """The signature files that the release writes."""
        if self.output.sign is None:
            return []
        from slowscale.publish.signing import SIGNATURE, SUMS

        folders = [Path(paths[0]).parent for paths in self.signed_files.values()]
        return [str(folder / name) for folder in folders for name in (SUMS, SIGNATURE)]

    @property
    def accounting(self) -> str:
        """Which policy of each mechanism is charged."""
        return self.options.accounting

    @property
    def _single(self) -> str | None:
        """The column in which every record counts as 1, or None: an entity may have several records in a cell."""
        return None if self.data.protect else COUNT

    @property
    def columns(self) -> tuple[ColumnPolicy, ...]:
        """The released columns of all drawn tables, each with what a record may lose through it."""
        if self.table:
            return tuple(column for plan in self.drawn.values() for column in plan.columns)
        units = {part.column: as_unit(part.unit) for part in self.sums}
        return column_policies(self.policy, self.mechanisms, units, accounting=self.accounting)

    @property
    def sizes(self) -> tuple[RecordSize, ...]:
        """The sizes of example records that [report] states; empty without [report]."""
        return self.check_sizes(None if self.report is None else self.report.sizes)

    def check_sizes(self, sizes: Any) -> tuple[RecordSize, ...]:
        """Return sizes of example records, or raise if they do not fit the columns of the plan.

        With a ledger they may have values for other columns as well, which earlier releases were about.
        """
        columns = [name for name in self.published if name != self._single]
        return read_sizes(sizes, columns, None if self.ledger is not None else ())

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps that the ledger is created with."""
        return {} if self.ledger is None else {name: cap.cap() for name, cap in self.ledger.caps.items()}
