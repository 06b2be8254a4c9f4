"""The table [publication] of a plan: titles, labels and code lists, and the files for readers."""

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator, model_validator

from slowscale.core.errors import ParameterError, SlowscaleError, located
from slowscale.plan.inputs import PlanPart, as_mistakes, check_local, given_words

if TYPE_CHECKING:
    from slowscale.publish import Publication
    from slowscale.release.request import Request

FILES = ("basic", "research")  # the fields with files, by profile
CODES_STAND_IN = {"": "not read yet"}  # in place of a code list in a file, while the rest of the table is checked


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
                raise ValueError(str(error).removeprefix("path ")) from None
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

    def all_files(self, tables: Sequence[str]) -> Iterator[tuple[str, Path]]:
        """Yield all files to write, for these tables of sums, each as its name in errors and its path."""
        from slowscale.publish.writing import Targets

        names = list(tables) if len(tables) > 1 else None
        for profile, file in self.files:
            for what, path in Targets.of(file).files(names).items():
                beside = f"the {what} beside" if what not in tables else f"table {what!r} of"
                yield f"{beside} publication.{profile}" if what else f"publication.{profile}", path

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
            raise ParameterError("titles of tables are for several tables: write title", path=("publication", "tables"))
        known = {
            **dict.fromkeys(("columns", "rounding", "negatives"), ("a published column", columns)),
            **dict.fromkeys(("keys", "codes"), ("a key column", keys)),
            "tables": ("a table of sums", tables),
        }
        for field, (what, names) in known.items():
            given = getattr(self, field)
            for name in given if isinstance(given, dict) else ():
                if name not in names:
                    hint = nearest(name, list(names)) if names else f"there is no such {what.rpartition(' ')[2]}"
                    raise ParameterError(f"{name!r}", f"is not {what}", remedy=hint, path=("publication", field, name))
        with located("publication", "columns"):
            self._build({}).check_titles(columns)


def check_labels(publication: "Publication", request: "Request", excel: bool, unknown: Container[str]) -> None:
    """Raise unless the labels of the cells can be published, before anything is charged.

    Parameters
    ----------
    publication, request
        The publication, and the tables.
    excel
        Whether Excel files are written, whose cells hold no long texts.
    unknown
        The drawn tables whose cells are not known yet.
    """
    from slowscale.publish.excel import check_cell_texts, check_publication_texts, check_rows
    from slowscale.publish.profiles import check_codes
    from slowscale.release.request import Sums

    if excel:
        check_publication_texts(publication)
    known = {level: one for one in request.hierarchies for level in one.levels}
    for name in request:
        source = request.source(name)
        drawn = request.drawn[source]
        if not isinstance(drawn, Sums) or drawn.keys is None or source in unknown:
            continue
        for key in request.by(name):
            if key not in publication.codes and not excel:
                continue
            level = None if key in drawn.keys.columns else known[key]
            cells = drawn.keys.table
            column = cells[key] if level is None else level.label_column(key, cells[level.column])
            labels = column.unique().to_pylist()
            check_codes(publication, key, labels)
            if excel:
                check_cell_texts(f"the column {key!r}", [label for label in labels if isinstance(label, str)])
                if key in publication.codes:
                    check_cell_texts(f"codes[{key!r}]", [publication.key_name(key, label) for label in labels])
        if excel and name in request.drawn:
            check_rows(f"table {name!r}", len(drawn.keys))
