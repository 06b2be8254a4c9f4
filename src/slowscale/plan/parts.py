"""The parts of a plan: how a table of a plan reports a mistake, and the tables for data, public cells, hierarchies and
mechanisms.

The fields of a mechanism are derived from the registry, so a plan can name every mechanism whose parameters are numbers
or tables of pairs of numbers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import date, time
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from slowscale.accounting.largest import check_largest
from slowscale.core.errors import ParameterError, Place, SlowscaleError, similar
from slowscale.core.parameters import Domain, domains, tables
from slowscale.mechanisms import REGISTRY, Mechanism
from slowscale.mechanisms.base import ESTIMATORS
from slowscale.mechanisms.calibration import ACCOUNTING, ACCOUNTINGS, CLOSED, LEVEL, TIGHT, charged_policy
from slowscale.mechanisms.transformation import NOISES, is_noise, scale_name
from slowscale.policy import ConstantPolicy, Policy

if TYPE_CHECKING:
    from slowscale.data.hierarchies import Hierarchy
    from slowscale.data.keys import Keys
    from slowscale.mechanisms.additive import AdditiveMechanism

DATABASE_FILE = "duckdb://"  # the address of a database that is a file


class PlanPart(BaseModel):
    """A table of a plan: immutable, strictly typed ("1" is not 1), and without fields that it does not declare."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def mistake_at(field: Place, message: str, code: str) -> PydanticCustomError:
    """Return an error about one field, for a validator that checks the plan as a whole."""
    return _as_mistake(ParameterError("", message, code=code), field)


def _as_mistake(error: SlowscaleError, field: Place | None) -> PydanticCustomError:
    return PydanticCustomError("slowscale", "{message}", {"message": str(error), "error": error, "field": field})


@contextmanager
def as_mistakes(at: Callable[[Place], Place] | None = None) -> Iterator[None]:
    """Raise errors of the library as errors that pydantic collects.

    Parameters
    ----------
    at
        Returns the field of the plan that the path of an error stands for. Without it, the mistake is that of the table
        or field which is being validated.
    """
    try:
        yield
    except SlowscaleError as error:
        raise _as_mistake(error, None if at is None else at(error.path)) from None
    except OverflowError as error:
        raise ValueError(str(error)) from None


def given_words(value: Any) -> str:
    """Return a value of a plan for an error: a number, boolean or date itself, and otherwise only its kind.

    Text is not shown, because it may be a password.
    """
    match value:
        case bool():
            return str(value).lower()
        case int() | float() | date() | time():
            return str(value)
        case str():
            return "text" if value.strip() else "an empty text"
        case list():
            return "a list" if value else "an empty list"
        case dict():
            return "a table"
    return type(value).__name__


def check_local(path: str) -> str:
    """Return the path of a file on this machine, or raise."""
    if not path.strip():
        raise ValueError("must be the path of a file, got an empty text")
    if "://" in path:
        raise ValueError("must be a file on this machine, not an address")
    if "\0" in path:
        raise ValueError("must be the path of a file, which cannot have a null character")
    return path


def _check_types(types: dict[str, str]) -> dict[str, str]:
    if types:
        from slowscale.data.conversion import check_types

        with as_mistakes():
            check_types(types)
    return types


def _check_pairs(pairs: Any) -> list[list[Any]]:
    """Return pairs of numbers as lists, or raise."""
    for pair in pairs if isinstance(pairs, list | tuple) else [pairs]:
        numbers = [type(one) in (int, float) for one in pair] if isinstance(pair, list | tuple) else []
        if numbers != [True, True]:
            raise ValueError(f"must be pairs of numbers such as [[100, 0.5], [10000, 5]], got {given_words(pair)}")
    return [list(pair) for pair in pairs]


FilePath = Annotated[str, AfterValidator(check_local)]
Types = Annotated[dict[str, str], AfterValidator(_check_types)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NumberPairs = Annotated[list[list[Finite]], BeforeValidator(_check_pairs)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Label = str | bool | int | date


class CsvPlan(PlanPart):
    """The format of CSV files, where it differs from commas, double quotes, a header line, UTF-8 and ISO dates."""

    delimiter: str | None = Field(
        None, description="The character between fields: a comma if not given, a tab in .tsv files."
    )
    quote: str = Field('"', description='The character around quoted fields; "" if fields are never quoted.')
    encoding: str = Field("utf-8", description='The encoding, such as "latin-1".')
    dates: str = Field("%Y-%m-%d", description='The format of dates, such as "%d/%m/%Y".')
    decimal: str = Field(".", description='The decimal separator, "." or ",".')
    header: list[str] | None = Field(None, description="The names of the columns, if the files have no header line.")

    @model_validator(mode="after")
    def _check_format(self) -> "CsvPlan":
        from slowscale.data.textfiles import CsvFormat

        with as_mistakes():
            CsvFormat.of(self.settings)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the plan gives, in the form that a session takes."""
        return self.model_dump(exclude_unset=True)


class DataPlan(PlanPart):
    """The records: their place, the filter, and the columns that are derived from each of them."""

    path: str | list[str] | None = Field(
        None,
        description="Parquet, CSV, Excel, Stata, SPSS or SAS files: a path, a glob, a folder, or a list of these. "
        "Relative to the plan.",
    )
    database: str | None = Field(
        None, description='A database table instead of files, such as "postgresql://host/database#table".'
    )
    name: str | None = Field(
        None,
        description="The name of the data set. A ledger created for a named data set accepts only data of that name. "
        "The name has no year: `period` in [release] states it.",
    )
    types: Types = Field(
        {}, description='Declared column types, such as { emp = "int64" }. A CSV column without a type is text.'
    )
    csv: CsvPlan | None = Field(None, description='The format of CSV files, such as { delimiter = ";" }.')
    protect: str | None = Field(
        None,
        description="A column such as firm_id that identifies entities: entities are then protected instead of single "
        "records.",
    )
    largest: dict[str, int | float] = Field(
        {},
        description="The largest absolute value in each column, such as { payann = 4e10 }, as public knowledge: of a "
        "record or, if entities are protected, of the total of one in a cell. Caps and losses are for sizes up to "
        "there, and the release refuses larger values. A ledger keeps it; `slowscale ledger set-largest` changes it.",
    )
    where: str | None = Field(None, description="A condition in SQL that records must meet, evaluated row by row.")
    derive: dict[str, str] = Field({}, description="New columns, each an SQL expression evaluated row by row.")

    @field_validator("path", mode="before")
    @classmethod
    def _check_path(cls, path: Any) -> Any:
        # One check for both types: pydantic would report a mistake once for each type that the field may have.
        paths = path if isinstance(path, list) else [path]
        if not all(isinstance(item, str) for item in paths):
            wrong = next(item for item in paths if not isinstance(item, str))
            got = given_words(wrong) if path is wrong else f"a list with {given_words(wrong)} in it"
            raise ValueError(f"must be a path, or a list of paths, got {got}")
        if not paths or not all(item.strip() for item in paths):
            got = "an empty path" if paths else "an empty list"
            raise ValueError(f'must be a path such as "farms.csv", or a list of paths, got {got}')
        if any("\0" in item for item in paths):
            raise ValueError("must be a path, which cannot have a null character")
        if any("://" in item for item in paths):
            raise ValueError('must be files; for a database table use database = "postgresql://host/database#table"')
        return path

    @field_validator("largest", mode="before")
    @classmethod
    def _check_largest(cls, largest: Any) -> Any:
        with as_mistakes():
            return check_largest(largest)

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not name.strip():
            raise ValueError('must be a name such as "farms"; remove the line if the data set has no name')
        return name

    @model_validator(mode="after")
    def _check_one_source(self) -> "DataPlan":
        if (self.path is None) == (self.database is None):
            raise ValueError("give either path or database")
        if self.database is not None and "://" not in self.database:
            raise ValueError('database must be an address such as "postgresql://host/database#table"')
        if self.database is not None and (self.types or self.csv is not None):
            raise ValueError(
                "types and csv are for files: a database table has types already; to change one, use a cast in derive"
            )
        return self

    @property
    def location(self) -> str | list[str]:
        """The paths of the files, or the address of the database table."""
        location = self.path if self.path is not None else self.database
        assert location is not None
        return location

    @property
    def paths(self) -> list[str]:
        """The paths as a list, which is empty for a database table."""
        return [self.path] if isinstance(self.path, str) else self.path or []

    @property
    def reading_options(self) -> dict[str, Any]:
        """The declared types and the CSV format, in the form that a session takes."""
        return {"types": self.types or None, "csv": None if self.csv is None else self.csv.settings}

    @property
    def is_database_file(self) -> bool:
        """Whether the records are in a database that is a file, as with DuckDB."""
        return self.database is not None and self.database.lower().startswith(DATABASE_FILE)


class KeysPlan(PlanPart):
    """The public cells of a table of sums: those of a file, all combinations of labels, or those in the data."""

    by: list[str] | None = Field(None, description="The key columns, in the order of the published table.")
    file: FilePath | None = Field(
        None, description="A file with one row per cell, in any format that data may have. Relative to the plan."
    )
    types: Types = Field(
        {}, description="Types of the columns of a CSV file; if not given, those of the same columns of the data."
    )
    csv: CsvPlan | None = Field(None, description="The format of the file, if it is a CSV file.")
    cross: dict[str, list[Label]] | None = Field(
        None, description="Labels by key column: every combination of them is a cell."
    )
    from_data: bool = Field(
        False,
        description="Take the cells that occur in the data. This declares that it is public which cells have records.",
    )

    @field_validator("cross", mode="before")
    @classmethod
    def _check_cross(cls, cross: Any) -> Any:
        # One check for all types: pydantic would report a mistake once for each type that a label may have.
        for name, labels in cross.items() if isinstance(cross, dict) else ():
            for label in labels if isinstance(labels, list) else ():
                if not isinstance(label, str | int | date):
                    got = "floats, which cannot be labels" if isinstance(label, float) else type(label).__name__
                    raise ValueError(
                        f"the labels of {name} must be text, whole numbers, booleans or dates, got {got}; write whole "
                        "numbers without a decimal point, and other labels as text"
                    )
        return cross

    @model_validator(mode="after")
    def _check_one_kind(self) -> "KeysPlan":
        if (self.file is not None) + (self.cross is not None) + self.from_data != 1:
            raise ValueError(
                "give one of file, cross or from_data = true; or remove keys to publish totals over all records"
            )
        if self.from_data and not self.by:
            raise ValueError('from_data = true needs the key columns, such as by = ["county"]')
        if self.file is None and (self.types or self.csv is not None):
            raise ValueError("types and csv go with file: labels of cross and of the data have types already")
        if self.cross is not None and self.by is not None and sorted(self.by) != sorted(self.cross):
            raise ValueError(f"by must name the columns of cross ({', '.join(self.cross)})")
        with as_mistakes():
            self.stand_in()
        return self

    @property
    def columns(self) -> list[str] | None:
        """The key columns, or None if only the file names them."""
        return self.by or (None if self.cross is None else list(self.cross))

    def stand_in(self) -> "Keys | None":
        """Return the cells of `cross`, or one cell in place of others; None if the key columns are not known yet."""
        from slowscale.data.keys import Keys

        if self.columns is None:
            return None
        keys = Keys.from_frame({name: [""] for name in self.columns}) if self.cross is None else Keys.cross(self.cross)
        return keys.project(*self.columns)


class HierarchyPlan(PlanPart):
    """Levels above a key column, such as county, state and nation: roll-ups can be by such a level."""

    column: str = Field(min_length=1, description="The key column.")
    digits: dict[str, int] | None = Field(
        None,
        description="Levels that are the first characters of a label, such as { sector = 2, subsector = 3 } for NAICS.",
    )
    file: FilePath | None = Field(
        None,
        description="A file with one row for each label of the column, and a column for each level. Relative to the "
        "plan.",
    )
    levels: list[str] | None = Field(None, description="The levels: columns of the file, in ascending order.")
    types: Types = Field(
        {}, description="Types of the columns of a CSV file; if not given, those of the same columns of the data."
    )
    csv: CsvPlan | None = Field(None, description="The format of the file, if it is a CSV file.")

    @model_validator(mode="after")
    def _check_form(self) -> "HierarchyPlan":
        if (self.digits is None) == (self.file is None):
            raise ValueError("give either digits = { sector = 2 }, or file and levels")
        if self.file is not None and not self.levels:
            raise ValueError('file needs the levels, such as levels = ["state"]')
        if self.file is None and self.levels is not None:
            raise ValueError("levels are columns of a file: give file, or remove levels")
        if self.file is None and (self.types or self.csv is not None):
            raise ValueError("types and csv go with file")
        with as_mistakes():
            self.stand_in()
        return self

    def stand_in(self) -> "Hierarchy":
        """Return the hierarchy of `digits`, or one with the levels of the file and one label in each."""
        from slowscale.data.hierarchies import Hierarchy

        if self.digits is not None:
            return Hierarchy.digits(self.column, self.digits)
        return Hierarchy(self.column, {level: {"": ""} for level in self.levels or ()})


# The mechanisms that a plan can name: all whose parameters are numbers or pairs of numbers, apart from the
# noise and the estimator.
MECHANISMS: dict[str, type[Mechanism]] = {
    kind: cls
    for kind, cls in REGISTRY.items()
    if {field.name for field in fields(cls)} <= {*domains(cls), *tables(cls), "estimator", "noise"}  # type: ignore[arg-type]
}
NUMBER_PARAMETERS = tuple(dict.fromkeys(name for cls in MECHANISMS.values() for name in domains(cls)))
# The name in plans of each parameter that is a table of pairs, with its description.
TABLE_PARAMETERS = {table.name: table.doc for cls in MECHANISMS.values() for table in tables(cls).values()}
# What other libraries call these mechanisms.
SIMILAR_MECHANISMS = {
    **dict.fromkeys(("normal", "gauss", "discrete-gaussian"), "gaussian"),
    **dict.fromkeys(("geometric", "exponential", "discrete-laplace"), "laplace"),
    **dict.fromkeys(("polylog", "exponential polylog"), "exponential-polylog"),
    **dict.fromkeys(("square-root", "fourth-root", "sqrt"), "root"),
    "logarithm": "log",
}
PARAMETERS = (*NUMBER_PARAMETERS, *TABLE_PARAMETERS, "noise", "estimator")
# The mechanisms whose noise a transformation can have; sigma is its scale, so that it has no other one.
NOISE_MECHANISMS = {kind: cls for kind, cls in MECHANISMS.items() if is_noise(cls)}
NOISE_PARAMETERS = tuple(
    dict.fromkeys(name for cls in NOISE_MECHANISMS.values() for name in domains(cls) if name != scale_name(cls))
)
NOISE_EXAMPLE = '{ mechanism = "generalized-gaussian", p = 0.5 }'
BY_NAME, WITH_PARAMETERS = "noise by name", "noise with parameters"  # tags, which pydantic inserts in places
LIMITS = {"k": 1000}  # the largest value that a plan may give to a parameter: a release by a kth root takes k steps


# As descriptions of fields name them: the mechanisms that have an estimator, and those whose error depends on the sum.
WITH_ESTIMATOR = ", ".join(kind for kind, cls in MECHANISMS.items() if hasattr(cls, "estimator"))
WITH_GROWING_ERROR = ", ".join(kind for kind, cls in MECHANISMS.items() if cls._error_grows)


def _number_field(name: str, owners: dict[str, Domain]) -> tuple[Any, Any]:
    """Return the type and the field of a parameter, from its domain in each mechanism that has it.

    The field accepts the values that any of them accepts; the mechanism then checks its domain.
    """
    docs = dict.fromkeys(domain.doc for domain in owners.values())
    kinds = {doc: ", ".join(kind for kind in owners if owners[kind].doc == doc) for doc in docs}
    description = " ".join(docs if len(docs) == 1 else (f"For {kinds[doc]}: {doc}" for doc in docs))
    if name in LIMITS:
        low = min(domain.low for domain in owners.values())
        limited = Annotated[float, Field(ge=low, le=LIMITS[name], allow_inf_nan=False), AfterValidator(_plain)]
        return limited | None, Field(None, description=description)
    positive = all(domain.low > 0 or (domain.low == 0 and domain.low_open) for domain in owners.values())
    return (Positive if positive else Finite) | None, Field(None, description=description)


def _parameter_fields(names: Iterable[str], mechanisms: Mapping[str, type[Mechanism]]) -> dict[str, Any]:
    """Return the fields of parameters that are numbers, and of those that are tables of pairs."""
    owners = {
        name: {kind: domains(cls)[name] for kind, cls in mechanisms.items() if name in domains(cls)} for name in names
    }
    tables = {name: (NumberPairs | None, Field(None, description=doc)) for name, doc in TABLE_PARAMETERS.items()}
    return {name: _number_field(name, known) for name, known in owners.items()} | tables


def _plain(number: float) -> float:
    """Return a whole number as an integer, which is written without a decimal point."""
    return int(number) if number.is_integer() else number


def noise_named(name: str) -> str | None:
    """Return the noise in a name of a transformation with noise, which is in two fields of a plan.

    >>> noise_named("Log-Laplace")
    'laplace'
    """
    words = _words(name)
    transformed = any(word in MECHANISMS and word not in NOISE_MECHANISMS for word in words)
    return next((word for word in words if word in NOISES), None) if transformed else None


def _words(name: str) -> list[str]:
    return re.findall("[a-z]+", name.casefold())


def mechanism_like(name: str) -> str | None:
    """Return the mechanism that a wrong name probably means, if one is similar."""
    # "polylog" is a part of "exponential-polylog", although "log" is closer by its letters.
    whole = next((one for one in MECHANISMS if name and name in one.split("-")[1:]), None)
    if noise_named(name):
        return next(part for part in _words(name) if part in MECHANISMS and part not in NOISE_MECHANISMS)
    return SIMILAR_MECHANISMS.get(name.casefold()) or whole or similar(name, MECHANISMS)


def constructor_arguments(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return parameters by the names that the mechanism's class has for them, given those that plans have.

    Raise if the mechanism has no such parameter, or if a table is missing, which cannot be solved for.
    """
    cls = MECHANISMS[kind]
    renamed = {parameter: table.name for parameter, table in tables(cls).items()}
    known = {renamed.get(field.name, field.name): field.name for field in fields(cls)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            problem, remedy = f"has no parameter {name}", f"it has {', '.join(known)}"
            raise ParameterError(f"mechanism {kind}", problem, code="unknown-name", remedy=remedy)
    for table in tables(cls).values():
        if table.name not in given:
            raise ParameterError(kind, f"needs `{table.name}`. {table.doc}", code="missing")
    return {known[name]: value for name, value in given.items()}


def noise_of(kind: str, given: Mapping[str, Any]) -> "str | AdditiveMechanism":
    """Return the noise of a transformation: its name if that is enough, or the mechanism of scale 1 that adds it."""
    if kind not in NOISE_MECHANISMS:
        raise ParameterError("noise", allowed=tuple(NOISE_MECHANISMS), given=kind)
    cls: Any = NOISE_MECHANISMS[kind]
    scale = scale_name(cls)
    _check_no_scale(kind, given)
    arguments = constructor_arguments(kind, dict(given))
    if kind in NOISES and not arguments:
        return kind
    required = [field.name for field in fields(cls) if field.default is MISSING and field.name != scale]
    if missing := [name for name in required if name not in arguments]:
        raise ParameterError(f"noise {kind}", f"needs {', '.join(missing)}", code="missing")
    made: AdditiveMechanism = cls(**{scale: 1.0, **arguments})
    return made


def _check_no_scale(kind: str, given: Mapping[str, Any]) -> None:
    name = scale_name(NOISE_MECHANISMS[kind])
    if name in given:
        remedy = f"remove {name}: that of the transformation is the scale of its noise"
        raise ParameterError(f"noise {kind}", "must not have a scale", code="conflict", remedy=remedy)


def _tag_of_noise(noise: Any) -> str:
    return WITH_PARAMETERS if isinstance(noise, Mapping | PlanPart) else BY_NAME


def _check_noise_name(noise: Any) -> Any:
    if isinstance(noise, str) and noise in NOISE_MECHANISMS and noise not in NOISES:
        raise ValueError(f"{noise} has parameters: write a table such as {NOISE_EXAMPLE}")
    return noise


if TYPE_CHECKING:

    class _NoiseParameters(PlanPart):
        mechanism: str

    class _Parameters(PlanPart):
        mechanism: str

else:
    _NoiseParameters = create_model(
        "_NoiseParameters",
        __base__=PlanPart,
        mechanism=(Literal[tuple(NOISE_MECHANISMS)], Field(description="The mechanism that has this noise.")),
        **_parameter_fields(NOISE_PARAMETERS, NOISE_MECHANISMS),
    )


class NoisePlan(_NoiseParameters):
    """The noise of a transformation: an additive mechanism without its scale, which is sigma."""

    _noise: "str | AdditiveMechanism" = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _check_scale(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and isinstance(kind := given.get("mechanism"), str) and kind in NOISE_MECHANISMS:
            with as_mistakes():
                _check_no_scale(kind, given)
        return given

    @model_validator(mode="after")
    def _build_noise(self) -> "NoisePlan":
        with as_mistakes():
            self._noise = noise_of(self.mechanism, self._given)
        return self

    @property
    def _given(self) -> dict[str, Any]:
        names = (*NOISE_PARAMETERS, *TABLE_PARAMETERS)
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {
            name: [tuple(pair) for pair in value] if name in TABLE_PARAMETERS else value
            for name, value in given.items()
        }

    def build(self) -> "str | AdditiveMechanism":
        """Return the noise: its name if that is enough, or the mechanism of scale 1 that adds it."""
        return self._noise


if not TYPE_CHECKING:
    _Parameters = create_model(
        "_Parameters",
        __base__=PlanPart,
        mechanism=(Literal[tuple(MECHANISMS)], Field(description="The mechanism that adds the noise.")),
        **_parameter_fields(NUMBER_PARAMETERS, MECHANISMS),
        noise=(
            Annotated[
                Annotated[Literal[tuple(NOISES)], BeforeValidator(_check_noise_name), Tag(BY_NAME)]
                | Annotated[NoisePlan, Tag(WITH_PARAMETERS)],
                Discriminator(_tag_of_noise),
            ]
            | None,
            Field(
                None,
                description=f"For {WITH_ESTIMATOR}: the noise that is added to the transformed sum, by its name or "
                f"with its parameters, such as {NOISE_EXAMPLE}.",
            ),
        ),
        estimator=(
            Literal[ESTIMATORS] | None,
            Field(
                None,
                description=f"For {WITH_ESTIMATOR}: whether results are unbiased in the mean or in the median.",
            ),
        ),
    )


class MechanismPlan(_Parameters):
    """A mechanism, given by its parameters or by a target (std, interval or loss) that one parameter is solved for."""

    std: Positive | None = Field(
        None, description=f"Target: the standard deviation of the result; for {WITH_GROWING_ERROR}, at the sum `at`."
    )
    interval: Positive | None = Field(
        None,
        description="Target: the half-width of the interval around the true sum that contains the result with "
        f"probability `level`; for {WITH_GROWING_ERROR}, half the length of that interval at the sum `at`.",
    )
    level: float | None = Field(
        None, gt=0, lt=1, description=f"With `interval`: the probability. If it is not given, it is {LEVEL}."
    )
    loss: Positive | None = Field(None, description="Target: the PRzCDP loss of a record of size `at`.")
    accounting: Literal[ACCOUNTINGS] | None = Field(  # type: ignore[valid-type]
        None,
        description=f'With `loss`: "{TIGHT}", which is the default, for the loss by the tight policy, or "{CLOSED}" '
        "for the loss by the closed form of the policy, which needs more noise.",
    )
    at: NotNegative | None = Field(
        None,
        description="The sum that `std` or `interval` is for, or the record size that `loss` is for. With `std` or "
        "`interval`, it is also the scale sigma of exponential-polylog, unless that is given.",
    )

    _mechanism: Mechanism | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _build_mechanism(self) -> "MechanismPlan":
        with as_mistakes():
            self._mechanism = self._built()
        return self

    def _built(self) -> Mechanism:
        """Return the mechanism with the parameters that the plan states, or the one that meets the target."""
        for name, needed in (("level", "interval"), ("accounting", "loss")):
            used = name not in self._used_only_with_a_target or getattr(self, name) is None
            if not used and getattr(self, needed) is None:
                remedy = f"give `{needed}`, or remove `{name}`"
                raise ParameterError(name, f"is used only with `{needed}`", code="conflict", remedy=remedy)
        if len(self._targets) > 1:
            found = " and ".join(f"`{name}`" for name in self._targets)
            raise ParameterError("give one target, `std`, `interval` or `loss`,", f"not {found}", code="conflict")
        cls, given = MECHANISMS[self.mechanism], self._given_parameters()
        if self._targets:
            return cls.calibrate(
                std=self.std,
                interval=self.interval,
                level=LEVEL if self.level is None else self.level,
                loss=self.loss,
                at=self.at,
                accounting=ACCOUNTING if self.accounting is None or self.loss is None else self.accounting,
                **given,
            )
        if self.at is not None:
            raise ParameterError(
                "at",
                "is used only with `std`, `interval` or `loss`",
                code="conflict",
                remedy="give one of them, or remove `at`",
            )
        required = [field.name for field in fields(cls) if field.default is MISSING]  # type: ignore[arg-type]
        if missing := [f"`{name}`" for name in required if name not in given]:
            problem = f"needs {', '.join(missing)}, or `std`, `interval` or `loss` to solve for one"
            raise ParameterError(self.mechanism, problem, code="missing")
        return cls(**given)

    # In a cap the accounting has an effect with every target and with none: the cap is one of the two policies.
    _used_only_with_a_target: ClassVar[tuple[str, ...]] = ("level", "accounting")

    @property
    def _targets(self) -> list[str]:
        return [name for name in ("std", "interval", "loss") if getattr(self, name) is not None]

    def build(self) -> Mechanism:
        """Return the mechanism. It was built, and thereby checked, when the plan was read."""
        assert self._mechanism is not None
        return self._mechanism

    @property
    def scale_words(self) -> str | None:
        """The scale of the noise and where it comes from, in words, if it need not be given."""
        return self.build()._scale_words(self._given_parameters(), next(iter(self._targets), None), self.at)

    def _given_parameters(self) -> dict[str, Any]:
        """Return the parameters that the plan gives, or raise if the mechanism does not have one of them."""
        given = {name: getattr(self, name) for name in PARAMETERS if getattr(self, name) is not None}
        given |= {name: [tuple(pair) for pair in given[name]] for name in TABLE_PARAMETERS if name in given}
        if isinstance(given.get("noise"), NoisePlan):
            given["noise"] = given["noise"].build()
        return constructor_arguments(self.mechanism, given)


class SumPlan(MechanismPlan):
    """The mechanism that the sums of a column are published with, and their unit."""

    unit: int | str = Field(
        1, description='The unit that results are rounded to: a whole number such as 1, or text such as "0.01".'
    )

    @field_validator("unit", mode="before")
    @classmethod
    def _check_form(cls, unit: Any) -> Any:
        # One check for both types: pydantic would report a mistake once for each type that the field may have.
        if isinstance(unit, bool) or not isinstance(unit, int | str):
            write = f'; write unit = "{unit}"' if isinstance(unit, float) and unit else ""
            got = "" if write else f", got {given_words(unit)}"
            raise ValueError(f'must be a whole number such as 1, or text such as "0.01"{got}{write}')
        return unit


class CapPlan(MechanismPlan):
    """The largest total loss of a record through a column: that of `times` releases by a mechanism, and `plus`."""

    times: int = Field(1, ge=1, le=10**9, description="The number of such releases that the cap has room for.")
    plus: NotNegative = Field(0.0, description="A loss to add to the cap, the same for records of every size.")
    accounting: Literal[ACCOUNTINGS] = Field(  # type: ignore[valid-type]
        ACCOUNTING,
        description=f'"{TIGHT}" or "{CLOSED}": whether the cap, and `loss` if it is given, is the tight policy of the '
        "mechanism or the closed form of its policy.",
    )

    _used_only_with_a_target: ClassVar[tuple[str, ...]] = ("level",)

    def cap(self) -> Policy:
        """Return the cap, as a policy."""
        cap = self.times * charged_policy(self.build(), self.accounting)
        return cap + ConstantPolicy(self.plus) if self.plus else cap
