"""Plan files: a release written down in TOML, for those who do not write Python.

A plan says where the records are, which cells are public, which ledger is charged, and what is summed with which
mechanism, given by its parameters or by what is wanted of it (`std = 75`, or `loss = 1, at = 106`). Mistakes are told
with the line and the field.
"""

import glob
import os
import tempfile
import tomllib
from dataclasses import MISSING, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from slowscale import mechanisms
from slowscale.accounting import Account, Charge, Ledger, RecordPolicy
from slowscale.accounting.account import check_caps
from slowscale.accounting.record import plain_label
from slowscale.errors import ParameterError, PlanError, SlowscaleError
from slowscale.mechanisms import Mechanism
from slowscale.mechanisms.release import as_unit
from slowscale.policy import ConstantPolicy, Policy

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Label = str | bool | int | date
MECHANISMS: dict[str, type[Mechanism]] = {
    "gaussian": mechanisms.Gaussian,
    "generalized-gaussian": mechanisms.GeneralizedGaussian,
    "exponential-polylog": mechanisms.ExponentialPolylog,
    "root": mechanisms.Root,
    "log": mechanisms.Log,
    "unit-splitting": mechanisms.UnitSplitting,
}
ENDINGS = {"parquet": ".parquet", "csv": ".csv", "report": ".html"}
PARAMETERS = ("sigma", "p", "d", "a", "k", "threshold", "estimator")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class DataPlan(_Part):
    """Where the records are, and what is done with each of them before the sum."""

    path: str | list[str] | None = Field(None, description="Parquet or CSV files; globs too. Relative to the plan.")
    database: str | None = Field(None, description='A database table, as "postgresql://host/database#table".')
    types: dict[str, str] = Field({}, description='CSV types that are not to be guessed: { county = "string" }.')
    protect: str | None = Field(
        None, description="A column such as firm_id: entities are protected, not single records."
    )
    where: str | None = Field(None, description="A condition that records must meet, in SQL, row by row.")
    derive: dict[str, str] = Field({}, description="New columns in SQL, row by row.")

    @model_validator(mode="after")
    def _one_source(self) -> "DataPlan":
        if (self.path is None) == (self.database is None):
            raise ValueError("give either path or database")
        if self.database is not None and "://" not in self.database:
            raise ValueError('database must be an address such as "postgresql://host/database#table"')
        return self


class KeysPlan(_Part):
    """The public cells. Leave the whole table out for totals over all records."""

    by: list[str] | None = Field(None, description="The key columns, in the order of the published table.")
    file: str | None = Field(None, description="A Parquet or CSV file with one row a cell. Relative to the plan.")
    types: dict[str, str] = Field({}, description="Types of the file's columns, where it is a CSV.")
    cross: dict[str, list[Label]] | None = Field(None, description="All combinations of these labels.")
    public_in_data: bool = Field(False, description="Take the cells that occur in the data: only if that is public.")
    partition: str | None = Field(None, description="A key column by which releases are about different records.")

    @model_validator(mode="after")
    def _one_kind(self) -> "KeysPlan":
        if (self.file is not None) + (self.cross is not None) + self.public_in_data != 1:
            raise ValueError("give one of file, cross or public_in_data = true")
        if self.public_in_data and not self.by:
            raise ValueError("public_in_data needs by, the key columns")
        if self.cross is not None:
            from slowscale.tables.keys import Keys

            try:
                columns = Keys.cross(self.cross).columns
            except SlowscaleError as error:
                raise ValueError(str(error)) from None
            if self.by is not None and sorted(self.by) != sorted(columns):
                raise ValueError(f"by must name the columns of cross ({', '.join(columns)})")
        known = [*(self.by or ()), *(self.cross or ())]
        if self.partition is not None and known and self.partition not in known:
            raise ValueError(f"partition must be a key column ({', '.join(dict.fromkeys(known))})")
        return self


class MechanismPlan(_Part):
    """A mechanism, by its parameters or by what is wanted of it."""

    mechanism: Literal["gaussian", "generalized-gaussian", "exponential-polylog", "root", "log", "unit-splitting"] = (
        Field(description="How noise is added.")
    )
    sigma: Positive | None = Field(None, description="The scale of the noise.")
    p: Positive | None = Field(
        None, description="The power: at most 1 for generalized-gaussian, at least 1 for polylog."
    )
    d: Positive | None = Field(None, description="The decay of an exponential polylog.")
    a: Annotated[float, Field(allow_inf_nan=False)] | None = Field(None, description="The offset.")
    k: int | None = Field(None, ge=1, le=1000, description="Which root: 2 is the square root, 4 the fourth.")
    threshold: Positive | None = Field(None, description="The size of the pieces of unit splitting.")
    estimator: Literal["mean", "median"] | None = Field(
        None, description="For root and log: unbiased in mean or median."
    )
    std: Positive | None = Field(
        None, description="Wanted: this standard deviation; for root and log, at the sum `at`."
    )
    loss: Positive | None = Field(None, description="Wanted: this PRzCDP loss for a record of size `at`.")
    at: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="The sum, or the record size, that is meant."
    )

    @model_validator(mode="after")
    def _possible(self) -> "MechanismPlan":
        try:
            self.build()
        except (SlowscaleError, OverflowError, ValueError) as error:
            raise ValueError(str(error)) from None
        return self

    def build(self) -> Mechanism:
        """Return the mechanism."""
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
        try:
            as_unit(unit)
        except SlowscaleError as error:
            raise ValueError(str(error)) from None
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

    path: str = Field(description="The file; made if there is none. Relative to the plan.")
    caps: dict[str, CapPlan] = Field({}, description='By column; "*" for any other, "count" for the number of records.')


class OutputPlan(_Part):
    """What is written. Existing files are not overwritten unless that is asked for."""

    parquet: str | None = Field(None, description="The table as Parquet, with its facts in the schema.")
    csv: str | None = Field(None, description="The table as CSV, with its facts in a JSON file beside it.")
    report: str | None = Field(None, description="A report for readers: one HTML file.")

    @model_validator(mode="after")
    def _something(self) -> "OutputPlan":
        if self.parquet is None and self.csv is None:
            raise ValueError("give parquet or csv, or both: a release cannot be drawn again")
        return self


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
    output: OutputPlan

    @model_validator(mode="after")
    def _something(self) -> "Plan":
        names = [part.column for part in self.sums]
        if not names and self.count is None:
            raise ValueError("give at least one [[sums]], or [count]")
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"column {name!r} is summed twice")
        if "count" in names:
            raise ValueError("a column 'count' cannot be summed: that is what the number of records is called")
        cells = [] if self.keys is None else [*(self.keys.by or ()), *(self.keys.cross or ())]
        for name in names:
            if name in cells:
                raise ValueError(f"column {name!r} is a key column, so it cannot be summed")
            if (
                self.ledger is not None
                and self.ledger.caps
                and name in self.data.derive
                and name not in self.ledger.caps
            ):
                raise ValueError(f"column {name!r} is derived and has no cap of its own in [ledger.caps]")
        for field, ending in ENDINGS.items():
            path = getattr(self.output, field)
            if path is not None and not path.lower().endswith(ending):
                raise ValueError(f"output.{field} must end in {ending}, got {path!r}")
        return self

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """The mechanism of each column; that of the number of records under "count"."""
        found = {part.column: part.build() for part in self.sums}
        return found | ({"count": self.count.build()} if self.count is not None else {})

    @property
    def policy(self) -> RecordPolicy:
        """What a record may lose by the release."""
        terms: list[tuple[str | None, Policy]] = [(part.column, part.build().policy) for part in self.sums]
        if self.count is not None:
            policy = self.count.build().policy
            terms.append(("count", policy) if self.data.protect else (None, ConstantPolicy(policy(1))))
        return RecordPolicy(tuple(terms))

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
        raise PlanError(f"{source} is no TOML: {error}") from None
    except RecursionError:
        raise PlanError(f"{source} is nested too deeply") from None
    try:
        plan = Plan.model_validate(values)
    except ValidationError as error:
        told = dict.fromkeys(_told(source, text, mistake) for mistake in error.errors())
        raise PlanError("\n".join(told)) from None
    return _placed(plan, source.parent, str(source))


def _told(source: Path, text: str, mistake: Any) -> str:
    """Return a mistake with its line and field."""
    place = list(mistake["loc"])
    if place and place[-1] in TAGS:  # which kind of a union was tried
        place.pop()
    field = ".".join(str(part) for part in place) or "the plan"
    words = mistake["msg"].removeprefix("Value error, ")
    given = mistake.get("input")
    got = (
        f", got {given!r:.60}"
        if mistake["type"] not in ("missing", "value_error") and not isinstance(given, dict)
        else ""
    )
    return f"{source}, line {locate(text, place)}, {field}: {words}{got}"


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
    return best


def _placed(plan: Plan, folder: Path, source: str) -> Plan:
    """Return the plan with its paths relative to its own folder."""

    def put(path: str | None) -> str | None:
        return None if path is None else str(folder / path)

    data, keys, ledger, output = plan.data, plan.keys, plan.ledger, plan.output
    paths = [str(folder / item) for item in data.path] if isinstance(data.path, list) else put(data.path)
    update: dict[str, Any] = {"source": source, "data": data.model_copy(update={"path": paths})}
    if keys is not None:
        update["keys"] = keys.model_copy(update={"file": put(keys.file)})
    if ledger is not None:
        update["ledger"] = ledger.model_copy(update={"path": put(ledger.path)})
    update["output"] = output.model_copy(update={name: put(getattr(output, name)) for name in OutputPlan.model_fields})
    return plan.model_copy(update=update)


def open_account(plan: Plan) -> Account:
    """Return the account that the release would be charged to, without making a ledger."""
    if plan.ledger is None or not Path(plan.ledger.path).exists():
        return Account(check_caps(plan.caps))
    return Ledger(plan.ledger.path, plan.caps or None).account


def check_charge(plan: Plan, account: Account) -> bool:
    """Raise a `CapError` if the account has no room for the release; return whether that can be known yet."""
    keys = plan.keys
    if keys is None or keys.partition is None:
        account.check(Charge(plan.policy, protects=plan.data.protect))
        return True
    if keys.cross is None:
        return False  # which records the release is about is known when its keys are read
    from slowscale.tables.keys import Keys

    cells = Keys.cross(keys.cross)
    labels = tuple(plain_label(label) for (label,) in cells.project(keys.partition))
    kind = cells.kinds[keys.partition]
    account.check(Charge(plan.policy, None, keys.partition, labels, kind, plan.data.protect))
    return True


def check_outputs(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> None:
    """Raise unless every file can be written: what could not be written must not be paid for."""
    from slowscale.files import free_target

    wanted = {name: getattr(plan.output, name) for name in OutputPlan.model_fields}
    named = {f"output.{name}": (path, ENDINGS[name]) for name, path in wanted.items() if path is not None}
    if plan.output.csv is not None:
        named["the facts beside output.csv"] = (f"{plan.output.csv}.json", ".json")
    if confidential is not None:
        named["--confidential-report"] = (str(confidential), ".html")
    taken = {os.path.realpath(path): name for name, path in _inputs(plan)}
    for name, (path, ending) in named.items():
        place = os.path.realpath(path)
        if place in taken:
            raise ParameterError(f"{name} would be written over {taken[place]}: {path}")
        taken[place] = name
        try:
            target = free_target(path, ending, overwrite)
            handle, trial = tempfile.mkstemp(dir=target.parent)
            os.close(handle)
            os.unlink(trial)
        except ParameterError as error:
            words = str(error).replace("pass overwrite=True to lose it", "pass --overwrite to lose it")
            raise ParameterError(f"{name}: {words.removeprefix('path: ')}") from None
        except OSError as error:
            raise ParameterError(f"{name} cannot be written to {path}: {error.strerror or error}") from None
    if plan.output.report is not None or confidential is not None:
        from slowscale.report import check_tools

        check_tools()


def _inputs(plan: Plan) -> list[tuple[str, str]]:
    """Return the files that a release reads or keeps account in."""
    found = [] if plan.source is None else [("the plan", plan.source)]
    paths = [plan.data.path] if isinstance(plan.data.path, str) else plan.data.path or []
    for path in paths:
        found += [("the data", file) for file in [path, *glob.glob(path, recursive=True)]]
    if plan.keys is not None and plan.keys.file is not None:
        found.append(("the keys", plan.keys.file))
    return found + ([("the ledger", plan.ledger.path)] if plan.ledger is not None else [])


def run_plan(plan: Plan, overwrite: bool = False, confidential: Path | None = None) -> Any:
    """Make the release that a plan describes, and write it down; return the release and the files."""
    from slowscale.session import Session
    from slowscale.tables.keys import Keys

    check_outputs(plan, overwrite, confidential)
    data, options = plan.data, plan.options
    place = data.path if data.path is not None else data.database
    session = Session(place, protect=data.protect, types=data.types or None)
    keys = None
    if plan.keys is not None:
        if plan.keys.cross is not None:
            keys = Keys.cross(plan.keys.cross)
        elif plan.keys.file is not None:
            keys = Keys.from_file(plan.keys.file, plan.keys.by, _key_types(plan.keys, session.table))
        else:
            assert plan.keys.by is not None
            keys = Keys.public_in(session, plan.keys.by)
    columns = [*session.table.columns, *data.derive]
    for name in [part.column for part in plan.sums]:
        if name not in columns:
            raise ParameterError(f"sums: there is no column {name!r}; there are {', '.join(columns)}")
    for name in plan.caps:
        if name not in ("*", "count", *columns):
            raise ParameterError(f"ledger.caps names {name!r}, which is no column; there are {', '.join(columns)}")
    if plan.ledger is not None:  # made last: its caps are fixed for good
        session.ledger = Ledger(plan.ledger.path, plan.caps or None)
    common: dict[str, Any] = {
        "by": plan.keys.by if plan.keys is not None else None,
        "keys": keys,
        "level": options.level,
        "where": data.where,
        "derive": data.derive or None,
        "nonnegative": options.nonnegative,
        "partition": plan.keys.partition if plan.keys is not None else None,
    }
    count = None if plan.count is None else plan.count.build()
    if plan.sums:
        release = session.sum(
            {part.column: part.build() for part in plan.sums},
            unit={part.column: part.unit for part in plan.sums},
            count=count,
            nulls=options.nulls,
            negatives=options.negatives,
            **common,
        )
    else:
        assert count is not None
        release = session.count(mechanism=count, **common)
    files = []
    if plan.output.parquet is not None:
        files.append(release.to_parquet(plan.output.parquet, overwrite))
    if plan.output.csv is not None:
        files.append(release.to_csv(plan.output.csv, overwrite))
    if plan.output.report is not None:
        total = session.spent if session.ledger is not None else None
        files.append(release.report(plan.output.report, total, overwrite))
    if confidential is not None:
        from slowscale.report import write_confidential_report

        files.append(write_confidential_report(session, release, confidential, overwrite=overwrite))
    return release, files


def _key_types(keys: KeysPlan, table: Any) -> dict[str, str] | None:
    """Return the types of a key file: codes of a CSV are text where the data has them as text."""
    if keys.file is None or ".csv" not in Path(keys.file).name.lower():
        return keys.types or None
    text = {
        name: "string"
        for name in keys.by or _header(keys.file)
        if name in table.columns and table[name].type().is_string()
    }
    return {**text, **keys.types} or None


def _header(path: str) -> list[str]:
    from slowscale.tables.sources import open_table

    return list(open_table(path, argument="keys").columns)


EXAMPLE = """# A plan for slowscale: what to publish, from which records, with which protection.
# Paths are relative to this file. Lines that start with # are comments.

[data]
path = "establishments.parquet"        # Parquet or CSV; globs such as "2024-*.csv" too
# database = "postgresql://host/database#table"      # instead of path
# types = { county = "string" }        # CSV columns that are not to be guessed
# where = "emp > 0"                    # row by row only
# derive = { pay_quarter = "payann / 4" }
# protect = "firm_id"                  # protect firms, not single records

[keys]                                 # leave this table out for totals over all records
by = ["county", "naics3"]
file = "cells.csv"                     # the public cells, one a row
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

[output]
parquet = "published.parquet"
csv = "published.csv"
report = "published.html"
"""
