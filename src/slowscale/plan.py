"""Plan files: a release written down in TOML, for those who do not write Python.

A plan says where the records are, which cells are public, which ledger is charged, and what is summed with which
mechanism, given by its parameters or by what is wanted of it (`std = 75`, or `loss = 1, at = 106`). Mistakes are
reported with the line and the field, and without values that may hold a password.
"""

import difflib
import glob
import json
import os
import re
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import date
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import quote, urlencode

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from slowscale.accounting import Account, Accountant, Charge, DeferredLedger, RecordPolicy
from slowscale.accounting.record import COUNT, folded, plain_label
from slowscale.columns import ColumnPolicy, column_policies, record_policy
from slowscale.errors import (
    CapError,
    ConfidentialWarning,
    DataError,
    LedgerError,
    ParameterError,
    PlanError,
    SlowscaleError,
    UnitWarning,
)
from slowscale.mechanisms import REGISTRY, Mechanism
from slowscale.mechanisms.base import ESTIMATORS
from slowscale.mechanisms.grid import as_unit
from slowscale.parameters import domains
from slowscale.policy import ConstantPolicy, Policy
from slowscale.sizes import RecordSize, read_sizes

if TYPE_CHECKING:
    from slowscale.session import Session
    from slowscale.tables.guessing import Guess
    from slowscale.tables.keys import Keys


def _check_path(path: str) -> str:
    if "://" in path:
        raise ValueError("must be a file on this machine, not an address")
    return path


def _possible_types(types: dict[str, str]) -> dict[str, str]:
    if types:
        from slowscale.tables.conversion import check_types

        _allowed(lambda: check_types(types))
    return types


def _mistake_at(place: list[str], words: str) -> PydanticCustomError:
    """Return an error about a field, for a validator of the whole plan."""
    return PydanticCustomError("value_error", "{words}", {"words": words, "place": place})


def _allowed(build: Callable[[], Any]) -> Any:
    """Return what is built, its errors turned into those that pydantic collects."""
    try:
        return build()
    except (SlowscaleError, OverflowError, ValueError) as error:
        raise ValueError(str(error)) from None


FilePath = Annotated[str, AfterValidator(_check_path)]
Types = Annotated[dict[str, str], AfterValidator(_possible_types)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
LARGEST_WHOLE = 1000  # of a parameter that is a whole number, such as which root is taken
Label = str | bool | int | date
# The mechanisms that a plan can name: all whose parameters are numbers.
MECHANISMS: dict[str, type[Mechanism]] = {
    kind: cls
    for kind, cls in REGISTRY.items()
    if {field.name for field in fields(cls)} <= {*domains(cls), "estimator"}  # type: ignore[arg-type]
}
ENDINGS = {"parquet": ".parquet", "csv": ".csv", "report": ".html"}
DATABASE_FILES = ("duckdb://", "sqlite://")
# What a data set's name leaves out of a file's.
FILE_ENDINGS = (
    *(".parquet", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz", ".zst"),
    *(".xlsx", ".xls", ".dta", ".sav", ".zsav", ".por", ".sas7bdat", ".xpt"),
)
JOURNALS = ("-wal", "-shm", "-journal")  # what SQLite writes beside a database
PARAMETERS = (*dict.fromkeys(name for cls in MECHANISMS.values() for name in domains(cls)), "estimator")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class CsvPlan(_Part):
    """How CSV files are written, where they differ from commas, double quotes, a header, UTF-8 and ISO dates."""

    delimiter: str | None = Field(None, description="What separates fields; a comma, or a tab in .tsv files.")
    quote: str = Field('"', description='What fields may be enclosed in; "" for nothing.')
    encoding: str = Field("utf-8", description='The encoding, such as "latin-1".')
    dates: str = Field("%Y-%m-%d", description='How dates are written, such as "%d/%m/%Y".')
    decimal: str = Field(".", description='The decimal separator, "." or ",".')
    header: list[str] | None = Field(None, description="The columns, where the first line does not name them.")

    @model_validator(mode="after")
    def _possible(self) -> "CsvPlan":
        from slowscale.tables.textfiles import CsvFormat

        _allowed(lambda: CsvFormat.of(self.settings))
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that were given, as a session takes them."""
        return self.model_dump(exclude_unset=True)


class DataPlan(_Part):
    """Where the records are, and what is done with each of them before the sum."""

    path: str | list[str] | None = Field(
        None,
        description="Parquet, CSV, Excel, Stata, SPSS or SAS files: a path, a glob, a folder. Relative to the plan.",
    )
    database: str | None = Field(None, description='A database table, as "postgresql://host/database#table".')
    name: str | None = Field(
        None, description="The name of the data set; a ledger that has one is used with data of that name only."
    )
    types: Types = Field({}, description='Declared types, as { emp = "int64" }; a CSV column without one is text.')
    csv: CsvPlan | None = Field(None, description='How CSV files are written, as { delimiter = ";" }.')
    protect: str | None = Field(
        None, description="A column such as firm_id: entities are protected, not single records."
    )
    where: str | None = Field(None, description="A condition that records must meet, in SQL, row by row.")
    derive: dict[str, str] = Field({}, description="New columns in SQL, row by row.")

    @field_validator("path", mode="before")
    @classmethod
    def _paths(cls, path: Any) -> Any:
        # Checked as a whole: pydantic would report a mistake once for each type that the field may have.
        if not all(isinstance(item, str) for item in (path if isinstance(path, list) else [path])):
            raise ValueError("must be a path, or a list of paths")
        if any("://" in item for item in (path if isinstance(path, list) else [path])):
            raise ValueError('must be files; for a database table use database = "postgresql://host/database#table"')
        return path

    @field_validator("name")
    @classmethod
    def _no_blank_name(cls, name: str | None) -> str | None:
        if name is not None and not name.strip():
            raise ValueError('must be a name such as "cbp-2024"; leave it out for none')
        return name

    @model_validator(mode="after")
    def _one_source(self) -> "DataPlan":
        if (self.path is None) == (self.database is None):
            raise ValueError("give either path or database")
        if self.database is not None and "://" not in self.database:
            raise ValueError('database must be an address such as "postgresql://host/database#table"')
        if self.database is not None and (self.types or self.csv is not None):
            raise ValueError("types and csv are for files: a database table has types of its own; cast with derive")
        return self

    @property
    def place(self) -> str | list[str]:
        """The paths, or the address."""
        place = self.path if self.path is not None else self.database
        assert place is not None
        return place

    @property
    def reading(self) -> dict[str, Any]:
        """How the files are read, as a session takes it."""
        return {"types": self.types or None, "csv": None if self.csv is None else self.csv.settings}


class KeysPlan(_Part):
    """The public cells. Leave the whole table out for totals over all records."""

    by: list[str] | None = Field(None, description="The key columns, in the order of the published table.")
    file: FilePath | None = Field(
        None, description="A file with one row per cell, of any kind that data may be. Relative to the plan."
    )
    types: Types = Field({}, description="Types of a CSV file's columns; those of the data's columns, when not given.")
    csv: CsvPlan | None = Field(None, description="How the file is written, where it is a CSV.")
    cross: dict[str, list[Label]] | None = Field(None, description="All combinations of these labels.")
    public_in_data: bool = Field(False, description="Take the cells that occur in the data: only if that is public.")
    partition: str | None = Field(None, description="A key column by which releases are about different records.")

    @model_validator(mode="after")
    def _one_kind(self) -> "KeysPlan":
        if (self.file is not None) + (self.cross is not None) + self.public_in_data != 1:
            raise ValueError("give one of file, cross or public_in_data = true; or leave [keys] out for totals")
        if self.public_in_data and not self.by:
            raise ValueError("public_in_data needs by, the key columns")
        if self.file is None and (self.types or self.csv is not None):
            raise ValueError("types and csv go with file: other keys have types of their own")
        if self.cross is not None:
            from slowscale.tables.keys import Keys

            cross = self.cross
            columns = _allowed(lambda: Keys.cross(cross)).columns
            if self.by is not None and sorted(self.by) != sorted(columns):
                raise ValueError(f"by must name the columns of cross ({', '.join(columns)})")
        known = [*(self.by or ()), *(self.cross or ())]
        if self.partition is not None and known and self.partition not in known:
            raise ValueError(f"partition must be a key column ({', '.join(dict.fromkeys(known))})")
        return self


def _parameter_fields() -> dict[str, Any]:
    """Return the fields of a plan for all parameters that mechanisms have, as pydantic takes them."""
    found: dict[str, Any] = {}
    for name in PARAMETERS[:-1]:
        owners = {kind: domains(cls)[name] for kind, cls in MECHANISMS.items() if name in domains(cls)}
        docs = dict.fromkeys(domain.doc for domain in owners.values())
        told = " ".join(docs if len(docs) == 1 else (f"For {kind}: {owners[kind].doc}" for kind in owners))
        if any(domain.integer for domain in owners.values()):
            low = min(domain.low for domain in owners.values())
            found[name] = (int | None, Field(None, ge=low, le=LARGEST_WHOLE, description=told))
        elif all(domain.low > 0 or (domain.low == 0 and domain.low_open) for domain in owners.values()):
            found[name] = (Positive | None, Field(None, description=told))
        else:
            found[name] = (Finite | None, Field(None, description=told))
    return found


if TYPE_CHECKING:

    class _Parameters(_Part):
        mechanism: str

else:
    _Parameters = create_model(
        "_Parameters",
        __base__=_Part,
        mechanism=(Literal[tuple(MECHANISMS)], Field(description="How noise is added.")),
        **_parameter_fields(),
        estimator=(
            Literal[ESTIMATORS] | None,
            Field(None, description="For root and log: unbiased in mean or median."),
        ),
    )


class MechanismPlan(_Parameters):
    """A mechanism, by its parameters or by what is wanted of it."""

    std: Positive | None = Field(
        None, description="Wanted: this standard deviation; for root and log, at the sum `at`."
    )
    loss: Positive | None = Field(None, description="Wanted: this PRzCDP loss for a record of size `at`.")
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="The sum, or the record size, that is meant."
    )

    _built: Mechanism | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _possible(self) -> "MechanismPlan":
        self._built = _allowed(self._build)
        return self

    def build(self) -> Mechanism:
        """Return the mechanism, which was built when the plan was read."""
        assert self._built is not None
        return self._built

    def _build(self) -> Mechanism:
        cls = MECHANISMS[self.mechanism]
        given = {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}
        known = {field.name: field.default is MISSING for field in fields(cls)}  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                raise ParameterError(f"{self.mechanism} has no {name}; it has {', '.join(known)}")
        if self.std is None and self.loss is None:
            if self.at is not None:
                raise ParameterError("at goes with std or loss")
            missing = [name for name, needed in known.items() if needed and name not in given]
            if missing:
                raise ParameterError(f"{self.mechanism} needs {', '.join(missing)}, or std or loss to solve for one")
            return cls(**given)
        return cls.calibrate(std=self.std, loss=self.loss, at=self.at, **given)


class SumPlan(MechanismPlan):
    """One column to sum."""

    column: str = Field(min_length=1, description="The column.")
    unit: int | str = Field(1, description='The grid of the results: 1, or text such as "0.01".')

    @field_validator("unit", mode="before")
    @classmethod
    def _exact(cls, unit: Any) -> Any:
        _allowed(lambda: as_unit(unit))
        return unit


class CapPlan(MechanismPlan):
    """The most that a record may ever lose through a column: what so many releases by a mechanism cost."""

    times: int = Field(1, ge=1, le=10**9, description="How many such releases the cap has room for.")
    plus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="So much more, for records of any size."
    )

    def policy(self) -> Policy:
        """Return the cap."""
        cap = self.times * self.build().policy
        return cap + ConstantPolicy(self.plus) if self.plus else cap


class LedgerPlan(_Part):
    """The file that keeps account, and the caps it is made with."""

    path: FilePath = Field(description="The file; made if there is none. Relative to the plan.")
    caps: dict[str, CapPlan] = Field({}, description='By column; "*" for any other, "count" for the number of records.')


class OutputPlan(_Part):
    """What is written. Existing files are not overwritten unless that is asked for."""

    parquet: FilePath | None = Field(None, description="The table as Parquet, with its facts in the schema.")
    csv: FilePath | None = Field(None, description="The table as CSV, with its facts in a JSON file beside it.")
    report: FilePath | None = Field(None, description="A report for readers: one HTML file.")

    @model_validator(mode="after")
    def _something(self) -> "OutputPlan":
        if self.parquet is None and self.csv is None:
            raise ValueError("give parquet or csv, or both: a release cannot be drawn again")
        return self


class ReportPlan(_Part):
    """What the report and `slowscale check` speak of. It is published: state what is public knowledge only."""

    sizes: list[float | dict[str, str | float]] | dict[str, float | dict[str, float]] = Field(
        description='Example records, as { name = "largest firm", emp = 150_000 } or { name = "largest firm", size = '
        "4e10 } for all columns; one must be called the largest. Never look them up in the records."
    )

    @field_validator("sizes", mode="before")
    @classmethod
    def _possible(cls, sizes: Any) -> Any:
        # Checked as a whole: pydantic would report a mistake once for each form that sizes may have.
        if not isinstance(sizes, list | dict):
            raise ValueError('must be a list such as [{ name = "largest firm", emp = 150_000 }]')
        _allowed(lambda: read_sizes(sizes))
        return sizes


class OptionsPlan(_Part):
    """How results are worked out."""

    level: Annotated[float, Field(gt=0, lt=1)] = Field(0.95, description="The level of the intervals.")
    nulls: Literal["error", "zero"] = Field("error", description="What missing values are.")
    negatives: Literal["error", "zero"] = Field("error", description="What negative values are, for root and log.")
    nonnegative: bool = Field(False, description="Raise negative results to 0: biased, and the release says so.")


class Plan(_Part):
    """A release, written down."""

    data: DataPlan
    keys: KeysPlan | None = None
    ledger: LedgerPlan | None = None
    sums: list[SumPlan] = Field([], description="What to sum.")
    count: MechanismPlan | None = Field(None, description="How to release the number of records.")
    source: str | None = Field(None, exclude=True, description="Where the plan was read from.")
    options: OptionsPlan = Field(default_factory=lambda: OptionsPlan.model_validate({}))
    report: ReportPlan | None = Field(None, description="Sizes of example records, for the report and for check.")
    output: OutputPlan

    @model_validator(mode="after")
    def _something(self) -> "Plan":
        names = [part.column for part in self.sums]
        if not names and self.count is None:
            raise ValueError(
                "nothing is published yet: give at least one [[sums]], with column and mechanism, or [count]"
            )
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"column {name!r} is summed twice")
        if "count" in names:
            raise ValueError("a column 'count' cannot be summed: that is what the number of records is called")
        cells = [] if self.keys is None else [*(self.keys.by or ()), *(self.keys.cross or ())]
        capped = set() if self.ledger is None else set(map(folded, self.ledger.caps))
        for name in names:
            if name in cells:
                raise ValueError(f"column {name!r} is a key column, so it cannot be summed")
            if capped and name in self.data.derive and folded(name) not in capped:
                raise _mistake_at(
                    ["ledger", "caps"],
                    f"column {name!r} is derived and has no cap of its own, which it needs where other columns have "
                    f"caps; add a table [ledger.caps.{_key(name)}]",
                )
        for field, ending in ENDINGS.items():
            path = getattr(self.output, field)
            if path is not None and not path.lower().endswith(ending):
                raise _mistake_at(["output", field], f"must end in {ending}")
        try:
            self.check_sizes(None if self.report is None else self.report.sizes)
        except SlowscaleError as error:
            raise _mistake_at(["report", "sizes"], str(error)) from None
        return self

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """The mechanism of each column; that of the number of records under "count"."""
        found = {part.column: part.build() for part in self.sums}
        return found | ({"count": self.count.build()} if self.count is not None else {})

    @property
    def policy(self) -> RecordPolicy:
        """What a record may lose by the release."""
        single = None if self.data.protect else COUNT
        policies = {name: mechanism.policy for name, mechanism in self.mechanisms.items()}
        return record_policy(policies, single, filtered=self.data.where is not None)

    @property
    def columns(self) -> tuple[ColumnPolicy, ...]:
        """The columns that are released, with what a record loses through each."""
        return column_policies(self.policy, self.mechanisms, {part.column: as_unit(part.unit) for part in self.sums})

    @property
    def sizes(self) -> tuple[RecordSize, ...]:
        """The example records that the plan states; none where it has no [report]."""
        return self.check_sizes(None if self.report is None else self.report.sizes)

    def check_sizes(self, sizes: Any) -> tuple[RecordSize, ...]:
        """Return sizes for the columns of the plan; with a ledger they may have values for other columns, too."""
        return read_sizes(sizes, self.policy.columns, None if self.ledger is not None else ())

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps that the ledger is made with."""
        return {} if self.ledger is None else {name: cap.policy() for name, cap in self.ledger.caps.items()}


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file, its paths made relative to its own folder; or raise a `PlanError` for each mistake."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeError, ValueError) as error:
        raise PlanError(f"{source} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"{source} is not TOML: {error}") from None
    except RecursionError:
        raise PlanError(f"{source} is nested too deeply") from None
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        mistakes = sorted(error.errors(), key=lambda mistake: locate(text, list(mistake["loc"])))
        lines = dict.fromkeys(_format_mistake(source, text, mistake) for mistake in mistakes)
        raise PlanError("\n".join(lines)) from None
    return _placed(plan, source.parent, str(source))


def _format_mistake(source: Path, text: str, mistake: Any) -> str:
    """Return a mistake with its line and field, and what was given only where that cannot hold a password."""
    place = mistake.get("ctx", {}).get("place") or list(mistake["loc"])
    if place and place[-1] in TAGS:  # which kind of a union was tried
        place.pop()
    line = locate(text, place)
    given, kind = mistake.get("input"), mistake["type"]
    words = mistake["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        words = f"there is no such field{_suggestion(place)}"
    elif given == "" and kind in ("literal_error", "string_too_short"):
        words = f"still to be chosen{f': {words}' if kind == 'literal_error' else ''}"
    elif kind in ("model_type", "dict_type"):
        words = f"must be a table such as {place[-1] if place else 'plan'} = {{ … }}"
    elif kind not in ("missing", "value_error") and _is_harmless(place, given):
        words = f"{words}, got {given!r:.60}"
    field = ".".join(str(part) for part in place) or "the plan"
    return f"{source}, line {line}, {ADDRESS.sub('***', field)}: {ADDRESS.sub('***', words)}"


def _is_harmless(place: list[Any], given: Any) -> bool:
    """Whether a value can be shown: a number, or one of a field that has a few names to choose from."""
    return isinstance(given, int | float) or (isinstance(given, str) and bool(place) and place[-1] in CHOICES)


def _suggestion(place: list[Any]) -> str:
    """Return the known fields of a table that are spelled much like this one."""
    part: Any = Plan
    for step in place[:-1]:
        if isinstance(part, type) and issubclass(part, BaseModel) and step in part.model_fields:
            part = _model(part.model_fields[step].annotation)
    if not (isinstance(part, type) and issubclass(part, BaseModel)):
        return ""
    known = [name for name in part.model_fields if name != "source"]
    near = difflib.get_close_matches(str(place[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _model(annotation: Any) -> Any:
    """Return the part of a plan that a field's type is, or is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for kind in get_args(annotation) if (model := _model(kind)) is not None), None)


# An address, which may hold a password; but not the example that errors give.
ADDRESS = re.compile(r"\w*://(?!host/database#table)\S*")
# Settings of a PostgreSQL address that hold no secret.
PUBLIC_OPTIONS = ("sslmode", "sslrootcert", "connect_timeout", "application_name", "target_session_attrs")
CHOICES = ("mechanism", "estimator", "nulls", "negatives")
TAGS = ("str", "int", "bool", "date", "list[str]")


def locate(text: str, place: list[Any]) -> int:
    """Return the line of a TOML text that a field is on, or the nearest table's."""
    best, depth = 1, -1
    counts: dict[str, int] = {}
    table: list[Any] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            name = stripped.strip("[] \t").split("]")[0]
            table = [part.strip().strip("\"'") for part in name.split(".")]
            if stripped.startswith("[["):
                counts[name] = counts.get(name, -1) + 1
                table.append(counts[name])
            here = table
        elif "=" in stripped and not stripped.startswith("#"):
            here = [*table, *(part.strip().strip("\"'") for part in stripped.split("=")[0].split("."))]
        else:
            continue
        if len(here) > depth and here == place[: len(here)]:
            best, depth = number, len(here)
        elif len(place) > max(depth, 0) and here[: len(place)] == place:  # a table within the one that is meant
            best, depth = number, len(place)
    return best


def _placed(plan: Plan, folder: Path, source: str) -> Plan:
    """Return the plan with its paths relative to its own folder."""

    def put(path: str | None) -> str | None:
        return None if path is None else str(folder / path)

    data, keys, ledger, output = plan.data, plan.keys, plan.ledger, plan.output
    paths = [str(folder / item) for item in data.path] if isinstance(data.path, list) else put(data.path)
    database = data.database
    if database is not None and database.lower().startswith(DATABASE_FILES):
        scheme, _, place = database.partition("://")
        database = f"{scheme}://{folder / place}"
    update: dict[str, Any] = {
        "source": source,
        "data": data.model_copy(update={"path": paths, "database": database}),
    }
    if keys is not None:
        update["keys"] = keys.model_copy(update={"file": put(keys.file)})
    if ledger is not None:
        update["ledger"] = ledger.model_copy(update={"path": put(ledger.path)})
    update["output"] = output.model_copy(update={name: put(getattr(output, name)) for name in OutputPlan.model_fields})
    return plan.model_copy(update=update)


def open_account(plan: Plan) -> Account:
    """Return the account that the release would be charged to, without making a ledger."""
    return _accountant(plan).account


def _accountant(plan: Plan) -> Account | DeferredLedger:
    """Return what the release is charged to: a ledger is made when it is charged, since that fixes its caps."""
    if plan.ledger is None:
        return Account(remedy=PLAN_REMEDY)
    return DeferredLedger(plan.ledger.path, plan.caps or None, dataset=plan.data.name, remedy=PLAN_REMEDY)


@contextmanager
def _refusals_recorded(plan: Plan, accountant: Accountant) -> Iterator[None]:
    """Write to a ledger, if there is one already, that a cap refused the release."""
    try:
        yield
    except CapError as error:
        data = plan.data
        facts = {"policy": plan.policy.to_dict(), "protect": data.protect, "where": data.where}
        accountant.attempt({**facts, "derived": data.derive}, error)
        raise


def check_room(plan: Plan) -> None:
    """Raise a `CapError` if the ledger has no room for the release, and record there that it was refused."""
    accountant = _accountant(plan)
    with _refusals_recorded(plan, accountant):
        check_charge(plan, accountant.account)


def check_charge(plan: Plan, account: Account) -> bool:
    """Raise a `CapError` if the account has no room for the release; return whether that can be known yet."""
    from slowscale.refusals import explained

    keys = plan.keys
    charge = Charge(plan.policy, protects=plan.data.protect)
    if keys is not None and keys.partition is not None:
        if keys.cross is None:
            return False  # which records the release is about is known when its keys are read
        from slowscale.tables.keys import Keys

        cells = Keys.cross(keys.cross)
        labels = tuple(plain_label(label) for (label,) in cells.project(keys.partition))
        kind = cells.kinds[keys.partition]
        charge = Charge(plan.policy, None, keys.partition, labels, kind, plan.data.protect)
    with explained(account, charge, plan.mechanisms):
        account.check(charge)
    return True


PLAN_REMEDY = "raise the cap in [ledger.caps] of the plan: the ledger is not made yet, so its caps are not fixed"


def check_columns(plan: Plan, account: Account) -> bool:
    """Try the release on a table with the columns of the data and no records.

    What this passes, the release itself does not refuse, short of what the records hold. Return whether it was
    possible: the columns of some files cannot be read without their records.
    """
    from slowscale.publishing import KnownBits
    from slowscale.session import Session
    from slowscale.tables.outlines import outline

    with outline(plan.data.place, **plan.data.reading) as given, warnings.catch_warnings():
        if given is None:
            return False
        _check_headers(plan.data)
        warnings.simplefilter("ignore", ConfidentialWarning)  # no record has any of the keys, since there are none
        session = Session(**given, ledger=account.copy(), protect=plan.data.protect, bits=KnownBits())
        keys = _stand_ins(plan, session) if plan.keys is not None and plan.keys.public_in_data else _keys(plan, session)
        _check_caps(plan, session)
        _release(plan, session, keys)
    return True


def _check_headers(data: DataPlan) -> None:
    """Raise where the header of a CSV file is more than one line."""
    from slowscale.tables import textfiles
    from slowscale.tables.sources import matching_files

    form = textfiles.CsvFormat.of(data.reading["csv"])
    if data.path is None or form.header is not None or not form.quote:
        return
    for path in [data.path] if isinstance(data.path, str) else data.path:
        for file in filter(textfiles.is_text_file, matching_files(path, "data")):
            with textfiles.opened(file) as stream:
                header = textfiles.first_line_of(stream, form, file, "data")
            if header.count(form.quote) % 2:
                raise DataError(
                    f"data: line 1 of {file} has a quote that is not closed in that line; write the header in one "
                    "line, and name columns without line breaks"
                )


def check_outputs(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> None:
    """Raise unless every file can be written: what could not be written must not be paid for."""
    from slowscale.files import free_target, new_file

    wanted = {name: getattr(plan.output, name) for name in OutputPlan.model_fields}
    named = {f"output.{name}": (path, ENDINGS[name]) for name, path in wanted.items() if path is not None}
    if plan.output.csv is not None:
        named["the facts beside output.csv"] = (f"{plan.output.csv}.json", ".json")
    if confidential is not None:
        named["--confidential-report"] = (str(confidential), ".html")
    if plan.ledger is not None:
        _check_ledger_place(Path(plan.ledger.path).absolute())
    taken = {os.path.realpath(path): name for name, path in _inputs(plan)}
    for name, (path, ending) in named.items():
        place = os.path.realpath(path)
        if place in taken:
            raise ParameterError(f"{name} would be written over {taken[place]}: {path}")
        if _is_among_data(plan, place):
            raise ParameterError(
                f"{name} would be one of the files that data.path names: {path}; choose another folder"
            )
        taken[place] = name
        try:
            new_file(free_target(path, ending, overwrite), 0o600).unlink()
        except ParameterError as error:
            words = str(error).replace("pass overwrite=True to lose it", "pass --overwrite to lose it")
            raise ParameterError(f"{name}: {words.removeprefix('path: ')}") from None
        except OSError as error:
            raise ParameterError(f"{name} cannot be written to {path}: {error.strerror or error}") from None
    if plan.output.report is not None or confidential is not None:
        from slowscale.report import check_tools

        check_tools()


def _check_ledger_place(path: Path) -> None:
    """Raise where a ledger that does not exist yet could not be made."""
    from slowscale.files import new_file

    if not path.parent.is_dir():
        raise ParameterError(f"ledger.path: there is no folder {path.parent}; make it first")
    if os.path.lexists(path):
        return
    for ending in JOURNALS:
        if os.path.lexists(f"{path}{ending}"):
            raise LedgerError(f"{path}{ending} is left of another ledger: bring that one back, or remove it")
    try:
        new_file(path, 0o600).unlink()
    except OSError as error:
        raise ParameterError(
            f"ledger.path: the ledger cannot be made ({error.strerror or error}); choose another path"
        ) from None


def _is_among_data(plan: Plan, place: str) -> bool:
    """Whether a file would be read as data, once it is written."""
    paths = [plan.data.path] if isinstance(plan.data.path, str) else plan.data.path or []
    for path in map(os.path.realpath, paths):
        if os.path.isdir(path) and os.path.commonpath([path, place]) == path and place.endswith(".parquet"):
            return True
        if glob.has_magic(path) and (fnmatch(place, path) if "**" in path else PurePath(place).match(path)):
            return True
    return False


def existing_outputs(plan: Plan) -> list[str]:
    """Return the files that a release would write and that exist already."""
    wanted = [getattr(plan.output, name) for name in OutputPlan.model_fields]
    return [path for path in wanted if path is not None and os.path.lexists(path)]


def _inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return the files that a release reads or keeps account in."""
    found = [] if plan.source is None else [("the plan", plan.source)]
    paths = [plan.data.path] if isinstance(plan.data.path, str) else plan.data.path or []
    if plan.data.database is not None and plan.data.database.lower().startswith(DATABASE_FILES):
        paths = [plan.data.database.partition("://")[2].rpartition("#")[0]]
    for path in paths:
        found += [("the data", file) for file in [path, *glob.glob(path, recursive=True)]]
    if plan.keys is not None and plan.keys.file is not None:
        found.append(("the keys", plan.keys.file))
    return found + ([("the ledger", plan.ledger.path)] if plan.ledger is not None else [])


def run_plan(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> Any:
    """Make the release that a plan describes, and write it down; return the release and the files."""
    from slowscale.session import Session

    check_outputs(plan, overwrite, confidential)
    # Opened before the data, so that data which cannot be read is recorded as an attempt.
    accountant = _accountant(plan)
    with _refusals_recorded(plan, accountant), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitWarning)  # the release itself gives it
        check_columns(plan, accountant.account)
    session = Session(
        plan.data.place, accountant, dataset=plan.data.name, protect=plan.data.protect, **plan.data.reading
    )
    keys = _keys(plan, session)
    _check_caps(plan, session)
    release = _release(plan, session, keys)
    files = []
    if plan.output.parquet is not None:
        files.append(release.to_parquet(plan.output.parquet, overwrite=overwrite))
    if plan.output.csv is not None:
        files.append(release.to_csv(plan.output.csv, overwrite=overwrite))
    if plan.output.report is not None:
        total = session.spent if session.ledger is not None else None
        sizes = plan.sizes or None
        files.append(release.report(plan.output.report, total, overwrite=overwrite, sizes=sizes))
    if confidential is not None:
        files.append(release.confidential_report(confidential, session, overwrite=overwrite))
    return release, files


def _release(plan: Plan, session: "Session", keys: "Keys | None") -> Any:
    from slowscale.query import Query

    options = plan.options
    return session.release(
        Query(
            {part.column: part.build() for part in plan.sums},
            plan.keys.by if plan.keys is not None else None,
            keys,
            count=None if plan.count is None else plan.count.build(),
            unit={part.column: part.unit for part in plan.sums},
            level=options.level,
            where=plan.data.where,
            derive=plan.data.derive or None,
            nulls=options.nulls,
            negatives=options.negatives,
            nonnegative=options.nonnegative,
            partition=plan.keys.partition if plan.keys is not None else None,
        )
    )


def _check_caps(plan: Plan, session: "Session") -> None:
    """Raise where a sum or a cap names what is not a column: the caps of a new ledger are fixed for good."""
    columns = [*session.table.columns, *plan.data.derive]
    for name in [part.column for part in plan.sums]:
        if name not in columns:
            raise ParameterError(f"sums: {name!r} is not a column; there are {', '.join(columns)}")
    known = {"*", COUNT, *map(folded, columns)}
    for name in plan.caps:
        if folded(name) not in known:
            raise ParameterError(f"ledger.caps: {name!r} is not a column; there are {', '.join(columns)}")


def _keys(plan: Plan, session: "Session") -> "Keys | None":
    """Return the public cells."""
    from slowscale.tables.keys import Keys

    keys, derive = plan.keys, plan.data.derive or None
    if keys is None:
        return None
    if keys.cross is not None:
        return Keys.cross(keys.cross)
    if keys.file is None:
        assert keys.by is not None
        return Keys.public_in(session, keys.by, derive=derive)
    csv = None if keys.csv is None else keys.csv.settings
    return Keys.from_file(keys.file, keys.by, _key_types(keys, csv, _derived(plan, session)), csv)


def _derived(plan: Plan, session: "Session") -> Any:
    from slowscale.tables import rowwise

    return rowwise.derive(session.table, plan.data.derive or None)


def _key_types(keys: KeysPlan, csv: dict[str, Any] | None, table: Any) -> dict[str, str] | None:
    """Return the types of a key file: text of a CSV or Excel file becomes what the data's column holds.

    That is the column's declared type, or text: it never depends on what the records hold.
    """
    from slowscale.tables.keys import label_kind
    from slowscale.tables.sources import open_source

    assert keys.file is not None
    source = open_source(keys.file, csv=csv, argument="keys")
    if not source.text_numbers:
        return keys.types or None
    kinds = {name: label_kind(table[name].type()) for name in source.table.columns if name in table.columns}
    types = {name: KEY_TYPES[kind] for name, kind in kinds.items() if kind is not None}
    return {**types, **keys.types} or None


# By what labels are: their declared type, and a label that stands for any.
KEY_TYPES = {"text": "string", "whole numbers": "int64", "booleans": "boolean", "dates": "date"}
STAND_INS: dict[str, Label] = {"text": "", "whole numbers": 0, "booleans": False, "dates": date(2000, 1, 1)}


def _stand_ins(plan: Plan, session: "Session") -> "Keys":
    """Return a cell of the right types, where the cells are taken from records that are not read yet."""
    from slowscale.tables.keys import Keys, label_kind

    assert plan.keys is not None
    assert plan.keys.by is not None
    table = _derived(plan, session)
    kinds = {name: label_kind(table[name].type()) for name in plan.keys.by if name in table.columns}
    return Keys.from_frame({name: [STAND_INS[kinds.get(name) or "text"]] for name in plan.keys.by})


def plan_address(address: str, folder: Path) -> tuple[str, bool]:
    """Return an address as a plan in a folder can hold it, without its password, and whether it had one."""
    from slowscale.tables.sources import Address

    place, _, table = address.rpartition("#")
    parts = Address.of(place)
    if address.lower().startswith(DATABASE_FILES):
        return f"{parts.scheme}://{os.path.relpath(parts.place, folder)}#{table}", False
    if str(parts).endswith("…"):  # something in it could be a password in the wrong place
        raise ParameterError(
            "data must be an address such as postgresql://user@host/database#table; write other characters in it as "
            "%40 for @ and %23 for #"
        )
    options = {name: value for name, value in parts.options.items() if name in PUBLIC_OPTIONS}
    owner = f"{quote(parts.user, safe='')}@" if parts.user else ""
    query = f"?{urlencode(options)}" if options else ""
    return f"{parts.scheme}://{owner}{parts.place}{query}#{table}", bool(parts.password) or options != parts.options


def starting_plan(
    place: str, columns: Mapping[str, str], guess: "Guess | None" = None, has_password: bool = False
) -> str:
    """Return a plan for some data, in which what to publish is still to be chosen.

    Parameters
    ----------
    place
        The path of the data, relative to the plan, or its address.
    columns
        The columns, with the types that they have or that are proposed for them.
    guess
        The proposed types and CSV settings, for files.
    has_password
        Whether a password was left out of the address.
    """
    lines = ["[data]", f"{'database' if '://' in place else 'path'} = {_toml(place)}"]
    lines.append(
        f"{f'name = {_toml(_dataset_name(place))}':<38} # of the data set: the ledger is for data of this name only"
    )
    if has_password:
        lines.append("# the password is not written here: set PGPASSWORD, or add a line to ~/.pgpass")
    if guess is not None and guess.csv:
        lines.append(f"csv = {_toml(guess.csv)}")
    notes = {} if guess is None else dict(guess.notes)
    lines += [f"# {name}: {notes[name]}" for name in notes if name not in columns]
    lines += ['# where = "emp > 0"                    # row by row only', '# protect = "firm_id"', ""]
    if guess is not None and guess.types:
        lines += [
            "[data.types]                           # proposed by looking at the records, which are confidential: read",
            "# and correct the types before you use or share this file",
        ]
    for name, dtype in columns.items():
        line = f"{_key(name)} = {_toml(dtype)}"
        if guess is None or name not in guess.types:
            line = f"# {line}"
        lines.append(f"{line:<38} # {notes[name]}" if name in notes else line)
    return START.replace("DATA", "\n".join(lines), 1)


def _dataset_name(place: str) -> str:
    """Return a name for the data at a path or an address: that of the file or the table."""
    name = place.rpartition("#")[2] if "://" in place else PurePath(place).name
    while "://" not in place and PurePath(name).suffix.lower() in FILE_ENDINGS:
        name = PurePath(name).stem
    return re.sub(r"[*?\[\]]+", "", name).strip(" -_.") or "data"


def _toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


START = """# A plan for slowscale: what to publish, from which records, with which protection.
# `slowscale init` without a file writes an example with every option.

DATA

[keys]                                 # to choose: the public cells; remove this table for totals over all records
by = []
# file = "cells.csv"                   # the public cells, one per row; or all combinations of labels:
# cross = { county = ["01001", "01003"], naics3 = ["111", "112"] }

[ledger]
path = "plan.ledger"                   # keeps account of what every record has lost; made if there is none
# [ledger.caps."*"]                    # the most that a record may ever lose through a column: fixed for good

[[sums]]
column = ""                            # to choose: a column of numbers
mechanism = ""                         # to choose, with its parameters or with std, or loss and at

[output]
parquet = "published.parquet"
csv = "published.csv"
report = "published.html"
"""


EXAMPLE = """# A plan for slowscale: what to publish, from which records, with which protection.
# Paths are relative to this file. Lines that start with # are comments.

[data]
path = "establishments.parquet"        # Parquet, CSV, Excel, Stata, SPSS or SAS; globs such as "2024-*.csv" too
name = "establishments-2024"           # of the data set: the ledger is for data of this name only
# database = "postgresql://host/database#table"      # instead of path
# types = { emp = "int64", opened = "date" }         # a CSV column without a declared type is text as written
# csv = { delimiter = ";", encoding = "latin-1", dates = "%d/%m/%Y" }
# where = "emp > 0"                    # row by row only
# derive = { pay_quarter = "payann / 4" }
# protect = "firm_id"                  # protect firms, not single records

[keys]                                 # leave this table out for totals over all records
by = ["county", "naics3"]
file = "cells.csv"                     # the public cells, one per row
# cross = { county = ["01001", "01003"], naics3 = ["111", "112"] }
# public_in_data = true                # instead of file: only if which cells have records is public

[ledger]
path = "census.ledger"                 # keeps account of what every record has lost; made if there is none

[ledger.caps.emp]                      # the most that a record may ever lose through a column: fixed for good
mechanism = "exponential-polylog"
std = 20
times = 10                             # as much as ten such releases cost

[ledger.caps.payann]                   # "*" would be any column that is not named
mechanism = "root"
k = 4
loss = 1
at = 106
times = 10

[[sums]]
column = "emp"
mechanism = "exponential-polylog"
std = 20                               # wanted: this standard deviation; the parameter is solved for

[[sums]]
column = "payann"
unit = 1
mechanism = "root"                     # gaussian, generalized-gaussian, exponential-polylog, root, log, unit-splitting
k = 4
loss = 1                               # wanted: a loss of 1 ...
at = 106                               # ... for a record of this size

# [count]                              # the number of records
# mechanism = "gaussian"
# sigma = 2

[options]
level = 0.95                           # of the intervals
nulls = "error"                        # or "zero"
negatives = "error"                    # or "zero", for root and log

# [report]                             # sizes that the report speaks of: published, so public knowledge only,
# sizes = [                            # never looked up in the records; one must be called the largest
#   { name = "median establishment", emp = 12, payann = 400 },
#   { name = "largest establishment", emp = 150_000, payann = 4e7 },
# ]

[output]
parquet = "published.parquet"
csv = "published.csv"
report = "published.html"
"""
