"""The tables [data] and [keys] of a plan: where the records are, and which cells are public."""

from datetime import date
from typing import Any

from pydantic import Field, field_validator, model_validator

from slowscale.plan.base import FilePath, Label, PlanPart, Types, as_value_errors, given_words

DATABASE_FILE = "duckdb://"  # the address of a database that is a file


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

        with as_value_errors():
            CsvFormat.of(self.settings)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the plan gives, in the form that a session takes."""
        return self.model_dump(exclude_unset=True)


class DataPlan(PlanPart):
    """Where the records are, which of them are used, and which columns are derived from each."""

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
        description="The name of the data set. A ledger created for a named data set accepts only data of that name.",
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
        if any("://" in item for item in paths):
            raise ValueError('must be files; for a database table use database = "postgresql://host/database#table"')
        return path

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not name.strip():
            raise ValueError('must be a name such as "cbp-2024"; remove the line if the data set has no name')
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
    """The public cells. Leave out this table to publish totals over all records."""

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
    public_in_data: bool = Field(
        False,
        description="Take the cells that occur in the data. Use this only if it is public which cells have records.",
    )
    partition: str | None = Field(
        None,
        description="A key column that divides the records into parts. Releases about different parts cost a record "
        "the largest of their losses, not the sum.",
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
        if (self.file is not None) + (self.cross is not None) + self.public_in_data != 1:
            raise ValueError(
                "give one of file, cross or public_in_data = true; or leave out [keys] to publish totals over all "
                "records"
            )
        if self.public_in_data and not self.by:
            raise ValueError('public_in_data = true needs the key columns, such as by = ["county"]')
        if self.file is None and (self.types or self.csv is not None):
            raise ValueError("types and csv go with file: labels of cross and of the data have types already")
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> "KeysPlan":
        if self.cross is not None:
            from slowscale.data.keys import Keys

            with as_value_errors():
                columns = Keys.cross(self.cross).columns
            if self.by is not None and sorted(self.by) != sorted(columns):
                raise ValueError(f"by must name the columns of cross ({', '.join(columns)})")
        known = self.known_columns
        if self.partition is not None and known and self.partition not in known:
            raise ValueError(f"partition must be a key column ({', '.join(known)})")
        return self

    @property
    def known_columns(self) -> list[str]:
        """The key columns that the plan itself names; a file of cells may name them instead."""
        return list(dict.fromkeys([*(self.by or ()), *(self.cross or ())]))
