"""The plan as a whole, and its tables [ledger], [options], [report] and [output]."""

import os
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from slowscale.accounting import RecordPolicy
from slowscale.accounting.record import COUNT, folded
from slowscale.columns import ColumnPolicy, column_policies, record_policy
from slowscale.errors import SlowscaleError
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.calibration import TIGHT
from slowscale.mechanisms.charged import charged_policy
from slowscale.mechanisms.grid import as_unit
from slowscale.plan.base import FilePath, PlanPart, as_value_errors, mistake_at
from slowscale.plan.inputs import DataPlan, KeysPlan
from slowscale.plan.mechanisms import CapPlan, MechanismPlan, SumPlan
from slowscale.plan.publication import PublicationPlan
from slowscale.plan.toml import toml_key
from slowscale.policy import Policy
from slowscale.sizes import RecordSize, read_sizes

OUTPUT_ENDINGS = {"parquet": ".parquet", "csv": ".csv", "report": ".html"}


class LedgerPlan(PlanPart):
    """The file that records what every release cost, and the caps that it is created with."""

    path: FilePath = Field(description="The ledger's file, created if it does not exist. Relative to the plan.")
    caps: dict[str, CapPlan] = Field(
        {},
        description='The caps, by column: "count" is for the number of records, where policies are compared at size 1; '
        '"*" is for every stored column without a cap of its own, and for the count if that has none, but not for '
        "derived columns. They are fixed when the ledger is created; `slowscale ledger raise-cap` can change them.",
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
        description="The private key (Ed25519, PEM) that signs the files, those of each folder together, in a file "
        "that ends in .sig. `slowscale keygen` makes keys. The passphrase of an encrypted key is taken from the "
        "environment variable SLOWSCALE_KEY_PASSPHRASE.",
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
        if self.parquet is None and self.csv is None:
            raise ValueError("give parquet or csv, or both: without a file the published table would be lost")
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
        'columns. One name must contain the word "largest". Never look the sizes up in the records.'
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
            columns = [part.column for part in self.sums] + [COUNT] * (self.count is not None)
            self.publication.check_names(columns, [] if self.keys is None else self.keys.known_columns)
        return self

    @model_validator(mode="after")
    def _check_sums(self) -> "Plan":
        names = [part.column for part in self.sums]
        if not names and self.count is None:
            raise ValueError("nothing to publish: give at least one [[sums]] with column and mechanism, or [count]")
        for i, name in enumerate(names):
            if name in names[:i]:
                raise mistake_at(["sums", i, "column"], f"column {name!r} is summed twice; keep one [[sums]] for it")
        if COUNT in names:
            raise ValueError(
                "a column 'count' cannot be summed, because the number of records has that name; derive a column with "
                "another name"
            )
        keys = [] if self.keys is None else self.keys.known_columns
        for i, name in enumerate(names):
            if name in keys:
                raise mistake_at(
                    ["sums", i, "column"],
                    f"column {name!r} is a key column, so it cannot be summed; sum another column, or change [keys]",
                )
        return self

    @model_validator(mode="after")
    def _check_caps(self) -> "Plan":
        capped = set() if self.ledger is None else set(map(folded, self.ledger.caps))
        for name in [part.column for part in self.sums]:
            if capped and name in self.data.derive and folded(name) not in capped:
                raise mistake_at(
                    ["ledger", "caps"],
                    f"column {name!r} is derived and has no cap of its own, which it needs where other columns have "
                    f"caps; add a table [ledger.caps.{toml_key(name)}]",
                )
        return self

    @model_validator(mode="after")
    def _check_accounting(self) -> "Plan":
        parts: list[tuple[list[str | int], MechanismPlan]] = [(["sums", i], part) for i, part in enumerate(self.sums)]
        parts += [] if self.count is None else [(["count"], self.count)]
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
    def mechanisms(self) -> dict[str, Mechanism]:
        """The mechanism of each column; that of the number of records under "count"."""
        found = {part.column: part.build() for part in self.sums}
        return found | ({COUNT: self.count.build()} if self.count is not None else {})

    @property
    def scales(self) -> dict[str, str]:
        """The scale of the noise of columns in whose mechanism it need not be given, and where it comes from."""
        parts = {part.column: part.scale_words for part in self.sums}
        parts |= {} if self.count is None else {COUNT: self.count.scale_words}
        return {name: scale for name, scale in parts.items() if scale is not None}

    @property
    def policy(self) -> RecordPolicy:
        """What a record may lose by the release."""
        policies = {name: charged_policy(found, self.accounting) for name, found in self.mechanisms.items()}
        return record_policy(policies, self._single, filtered=self.data.where is not None)

    @property
    def written_files(self) -> list[str]:
        """The files that the release writes, without signatures."""
        published = [] if self.publication is None else [path for _, path, _ in self.publication.all_files]
        return [*self.output.files.values(), *published]

    @property
    def signatures(self) -> dict[str, list[str]]:
        """The signature files to write, each with the files that it is for: those of one folder."""
        folders: dict[str, list[str]] = {}
        for path in self.written_files if self.output.sign is not None else ():
            folders.setdefault(os.path.realpath(os.path.dirname(path)), []).append(path)
        return {f"{paths[0]}.sig": paths for paths in folders.values()}

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
        """The released columns, each with what a record may lose through it."""
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
        columns = [name for name in self.mechanisms if name != self._single]
        return read_sizes(sizes, columns, None if self.ledger is not None else ())

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps that the ledger is created with."""
        return {} if self.ledger is None else {name: cap.cap() for name, cap in self.ledger.caps.items()}
