"""Plans to start from: an example with most options, a plan for some data in which the choices are left open, and one
in which they were made: by advice, or by the answers to the questions of `slowscale init`."""

import json
import os
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from slowscale.accounting.sizes import LARGEST_WORD, names_the_largest
from slowscale.core.errors import ConfidentialWarning, ParameterError
from slowscale.core.files import check_output_path, relative_path, write_files
from slowscale.core.markup import terminal_text
from slowscale.core.parameters import tables
from slowscale.mechanisms.grid import as_unit
from slowscale.plan.parts import DATABASE_FILE

if TYPE_CHECKING:
    from slowscale.advice import Advice
    from slowscale.data.guessing import Guess

EXAMPLE = files("slowscale.plan").joinpath("example.toml").read_text(encoding="utf-8")
TEMPLATE = files("slowscale.plan").joinpath("template.toml").read_text(encoding="utf-8")
# The lines of the template that are replaced.
DATA_TABLE = "# The table [data] goes here."
LEDGER_LINE = 'path = "data.ledger"                   # records the cost of every release; created if it does not exist'
COMMENT_COLUMN = 38  # where comments start, in the template too
OPTIONAL_FIELDS = ('# where = "emp > 0"                    # evaluated row by row', '# protect = "firm_id"')
# The text of an advised plan about the sizes that the advice was asked with.
PROVENANCE = (
    "Where the sizes come from: the mechanism was chosen by the record sizes under [report], where they are published. "
    "The guarantee covers this choice only if the sizes are public or assumed without a look at the records, or are "
    "private quantiles (`slowscale quantiles`, or session.quantiles in Python) that were charged to the ledger of "
    "this plan. Caps that were fixed before the quantiles bound the total whatever is chosen by them; without caps, "
    "nothing bounds it in advance. Sizes that "
    "were looked up in the records, or chosen after `slowscale inspect`, depend on the records and are outside the "
    "guarantee: replace them by private quantiles, and ask for advice again."
)
# The text of an advised plan about caps.
CAPS = (
    "Caps bound what all releases together may cost. They are fixed when the ledger is created: before private "
    "quantiles, if the sizes are such. A ledger that exists keeps the caps that it has, and a plan need not "
    "repeat them."
)
# Endings that are left out where a file's name becomes the name of a data set.
FILE_ENDINGS = (
    *(".parquet", ".csv", ".tsv", ".txt", ".gz", ".bz2", ".xz", ".zst"),
    *(".xlsx", ".dta", ".sav", ".zsav", ".por", ".sas7bdat", ".xpt"),
)
YEAR = re.compile(r"(?<!\d)(19|20)\d\d(?!\d)")
# Options of a PostgreSQL address that hold no secret.
PUBLIC_OPTIONS = ("sslmode", "sslrootcert", "connect_timeout", "application_name", "target_session_attrs")

PASSWORD_NOTE = (
    "The plan has the address without its password. Before you check or release the plan, set the environment variable "
    "PGPASSWORD, or add a line to the file ~/.pgpass."
)
COUNT_HINT = 'count = { mechanism = "gaussian", sigma = 2 }'
FILE_FORMATS = ("csv", "parquet", "excel", "report")  # that a new plan can ask for
TYPES_NOTE = "The proposed types come from the records, which are confidential. Read them before you use them."


@dataclass(frozen=True)
class PlannedData:
    """The data of a new plan: a file, or a database table.

    Attributes
    ----------
    place
        The path relative to the plan, or the address without a password.
    columns
        The columns, with the types that they have or that are proposed for them.
    guess
        For files: the proposed types and CSV format.
    has_password
        Whether a password was left out of the address.
    """

    place: str
    columns: Mapping[str, str]
    guess: "Guess | None" = None
    has_password: bool = False

    @classmethod
    def of(cls, data: str, plan: Path, has_header: bool | None = None) -> "PlannedData":
        """Open data for a plan that will be at a path; raise if the names of its columns may be a record.

        Parameters
        ----------
        data
            The path of the file, or the address of the table.
        plan
            Where the plan will be.
        has_header
            Whether the first line of a file has the names of the columns. If None, it may not look like a record.
        """
        if "://" in data:
            from slowscale.data.sources import open_table

            place, has_password = plan_address(data, plan.parent)
            stored = {name: str(dtype) for name, dtype in open_table(data).schema().items()}
            return cls(place, stored, has_password=has_password)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfidentialWarning)  # TYPES_NOTE says the same
            return cls(relative_path(data, plan.parent), *_guessed(data, has_header))

    @property
    def notes(self) -> list[str]:
        """What to say when the plan is written."""
        if self.guess is None:
            return [PASSWORD_NOTE] * self.has_password
        proposed = [TYPES_NOTE] if self.guess.types else []
        return [*proposed, *(f"  {name}: {note}" for name, note in self.guess.notes.items())]


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What a plan publishes, and how: the answers to the questions of `slowscale init`.

    Attributes
    ----------
    advised
        The advice for each column to sum.
    protect
        The column that identifies the protected entities; None if single records are protected.
    by, cells
        The columns of labels, and the file with the public cells, relative to the plan. Without a file, it is declared
        public which cells have records; without columns, totals are published.
    ledger, releases
        The ledger's file, and how many such releases its caps have room for; None for a ledger that has its caps.
    title, period
        The title of the publication, and the period that the release is about.
    folder, formats
        The folder for the files, and the files to write: some of FILE_FORMATS.
    """

    advised: "Mapping[str, Advice]"
    protect: str | None = None
    by: Sequence[str] = ()
    cells: str | None = None
    ledger: str
    releases: int | None = 5
    folder: str = "published"
    title: str
    period: str | None = None
    formats: Sequence[str] = ("csv", "parquet", "report")


def plan_for(data: str, plan: Path) -> tuple[str, list[str]]:
    """Return the text of a plan for a file or a database table, and notes to print.

    Parameters
    ----------
    data
        The path of the file, or the address of the table.
    plan
        Where the plan will be.
    """
    planned = PlannedData.of(data, plan)
    return starting_plan(planned), planned.notes


def _guessed(data: str, has_header: bool | None = None) -> "tuple[dict[str, str], Guess]":
    """Return the columns of files with the types that they have or that are proposed, and the proposal.

    Names that may be a record are neither written nor shown, unless the file is known to have a header.
    """
    from slowscale.data.guessing import guess_types
    from slowscale.data.sources import matching_files, open_table
    from slowscale.data.textfiles import is_text_file

    guess = guess_types(data)
    if "header" in guess.notes and not has_header:
        is_text = all(map(is_text_file, matching_files(data, "data")))
        declared = ', or state them in the plan: csv = { header = ["NAME", "NAME"] }'
        raise ParameterError(
            f"data: the first line of {data}",
            "may be a record: a number or a date is in it" if has_header is None else "is a record",
            code="first-line",
            remedy="add a first line with the names of the columns to the file" + (declared if is_text else ""),
        )
    guess = replace(guess, notes={name: note for name, note in guess.notes.items() if name != "header"})
    dtypes = open_table(data, guess, guess.csv).schema()
    return {name: guess.get(name, str(dtype)) for name, dtype in dtypes.items()}, guess


def plan_address(address: str, folder: Path) -> tuple[str, bool]:
    """Return a database address as a plan in a folder should hold it, and whether a secret was left out of it.

    The password is left out, and so are options that could hold a secret. The path of a database file is made relative
    to the folder.
    """
    from slowscale.data.sources import Address

    place, _, table = address.rpartition("#")
    parts = Address.of(place)
    if address.lower().startswith(DATABASE_FILE):
        return f"{parts.scheme}://{relative_path(parts.place, folder)}#{table}", False
    if str(parts).endswith("…"):  # something in it could be a password in the wrong place
        raise ParameterError(
            "data",
            allowed="an address such as postgresql://user@host/database#table",
            remedy="write other characters in it as %40 for @ and %23 for #",
        )
    options = {name: value for name, value in parts.options.items() if name in PUBLIC_OPTIONS}
    owner = f"{quote(parts.user, safe='')}@" if parts.user else ""
    query = f"?{urlencode(options)}" if options else ""
    return f"{parts.scheme}://{owner}{parts.place}{query}#{table}", bool(parts.password) or options != parts.options


def starting_plan(data: PlannedData) -> str:
    """Return the text of a plan for some data, in which the tables are still to be chosen."""
    source, types = _source_lines(data.place, data.has_password), _column_lines(data.columns, data.guess)
    return template_for(data.place, ["[data]", *source, *types])


def template_for(place: str, lines: Sequence[str]) -> str:
    """Return the template with the lines of its table [data], and the ledger of this data set."""
    before, behind = template_around(place)
    return before + "\n".join(lines) + behind


def template_around(place: str) -> tuple[str, str]:
    """Return the template before and behind its table [data], with the ledger of a data set."""
    before, _, behind = TEMPLATE.replace(LEDGER_LINE, _ledger_line(place), 1).partition(DATA_TABLE)
    return before, behind


def chosen_plan(data: PlannedData, chosen: Choices) -> str:
    """Return the text of a complete plan, with every choice explained."""
    who = "one record" if chosen.protect is None else f"one {chosen.protect}, with all its records"
    protect = (
        "# protect = " + toml_value("firm_id") if chosen.protect is None else f"protect = {toml_value(chosen.protect)}"
    )
    table = "cells" if chosen.by else "total"
    lines = [
        "# A plan for slowscale: what to publish, from which records, with which protection.",
        "# `slowscale init` wrote it from the answers to its questions. Change it, then run `slowscale check`.",
        "",
        "[data]",
        *_source_lines(data.place, data.has_password),
        _with_comment(protect, f"protected is {who}"),
        *_column_lines(data.columns, data.guess, OPTIONAL_FIELDS[:1]),
        "",
        "[ledger]",
        _with_comment(f"path = {toml_value(chosen.ledger)}", "records the cost of every release"),
        *_chosen_caps(chosen),
        "",
        "[release]",
        _with_comment(
            '# period = "2024"' if chosen.period is None else f"period = {toml_value(chosen.period)}",
            "the period that the release is about: change it for the next one",
        ),
        "",
        f"[tables.{table}]",
        *_chosen_cells(chosen),
        *_count_hint(chosen),
        "",
        *(line for column, advice in chosen.advised.items() for line in _explained_sum(table, column, advice)),
        "[report]",
        *_comment(
            "Example records, whose losses the report and `slowscale check` show. The noise was chosen by them. They "
            "are published: keep them public knowledge, not looked up in the records."
        ),
        *_size_lines({column: advice.records for column, advice in chosen.advised.items()}),
        "",
        "[publication]",
        _with_comment(f"title = {toml_value(chosen.title)}", "published, as are all texts in this part"),
        *([f"keys = {toml_value({key: key for key in chosen.by})}"] if chosen.by else []),
        *([f"basic = [{toml_value(f'{chosen.folder}/{table}.xlsx')}]"] if "excel" in chosen.formats else []),
        "",
        "[publication.columns]",
        *(f"{toml_key(column)} = {toml_value({'title': column})}" for column in chosen.advised),
        *_comment('With a unit of measure: emp = { title = "Employees", unit = "persons" }'),
        "",
        "[output]",
        f"folder = {toml_value(chosen.folder)}",
        f"formats = {toml_value([one for one in ('parquet', 'csv') if one in chosen.formats] or ['parquet'])}",
        *([f"report = {toml_value(f'{chosen.folder}/report.html')}"] if "report" in chosen.formats else []),
    ]
    return "\n".join(lines) + "\n"


def _chosen_caps(chosen: Choices) -> Iterator[str]:
    """Yield the caps: as much as some releases cost, and next to nothing through other columns."""
    if chosen.releases is None:
        yield "# This ledger exists, and keeps the caps that it was created with."
        return
    who = "a record" if chosen.protect is None else f"a {chosen.protect}"
    yield ""
    yield from _comment(
        f"Caps: the most that {who} may ever lose through a column, in all releases together. They are fixed when the "
        "ledger is created; `slowscale ledger set-cap` changes one, with a reason. A release above them is refused."
    )
    for column, advice in chosen.advised.items():
        yield f"[ledger.caps.{toml_key(column)}]"
        yield from _mechanism_lines(advice)
        yield _with_comment(f"times = {chosen.releases}", "as many such releases as the ledger has room for")
        yield ""
    yield _with_comment("# [ledger.caps.count]", "for the number of records: see count, below")
    yield '# mechanism = "gaussian"'
    yield "# sigma = 2"
    yield f"# times = {chosen.releases}"
    yield ""
    yield _with_comment('[ledger.caps."*"]', "next to nothing through any other column")
    yield 'mechanism = "gaussian"'
    yield "sigma = 1e9"


def _count_hint(chosen: Choices) -> Iterator[str]:
    """Yield a count as a comment; a ledger that exists may have no cap for it."""
    if chosen.releases is not None:
        hint = "publishes the number of records, too, with the cap above on count"
        yield _with_comment(f"# {COUNT_HINT}", hint)


def _chosen_cells(chosen: Choices) -> Iterator[str]:
    """Yield the public cells, and what they mean."""
    by = toml_value(list(chosen.by))
    if not chosen.by:
        yield "# Totals over all records. For sums by cell, name the public cells, one per row of a file:"
        yield '# keys = { file = "cells.csv", by = ["county"] }'
    elif chosen.cells is not None:
        yield "# The public cells, one per row of the file. A cell that no record has is published, too, with noise."
        yield f"keys = {{ file = {toml_value(chosen.cells)}, by = {by} }}"
    else:
        yield "# This declares that it is public which cells have records: the noise does not hide it."
        yield f"keys = {{ by = {by}, from_data = true }}"


def _explained_sum(table: str, column: str, advice: "Advice") -> Iterator[str]:
    """Yield the fields of a column's sums, and why this noise was chosen."""
    yield from _comment(f"{column}. Wanted: {advice.goal}. {advice.reason}")
    yield from _sum_lines(column, advice, table)


def write_advised_plan(path: Path, advised: "Mapping[str, Advice]", data: str | None, overwrite: bool = False) -> Path:
    """Write a plan with the mechanisms that were advised, by column, and return its path; see `Advice.plan`.

    The plan can be read as it is. It publishes the totals over all records, until public cells are chosen in it.
    """
    target = check_output_path(path, ".toml", overwrite)
    place, has_password = "records.parquet" if data is None else relative_path(data, target.parent), False
    if data is not None and "://" in data:
        place, has_password = plan_address(data, target.parent)
    known = _guessed(data) if data is not None and os.path.exists(data) else None
    reasons = [
        f"{column}: {advice.reason}" if len(advised) > 1 else advice.reason for column, advice in advised.items()
    ]
    lines = [
        "# A plan for slowscale: what to publish, from which records, with which protection.",
        *(line for text in (*reasons, "", PROVENANCE) for line in _comment(text)),
        "",
        "[data]",
        *_source_lines(place, has_password),
        *_largest_lines(advised),
        *(() if known is None else _column_lines(*known)),
        "",
        "[ledger]",
        _ledger_line(place),
        *_cap_lines(advised),
        "",
        "[release]",
        _with_comment('# period = "2024"', "the period that the release is about"),
        "",
        "[tables.total]",
        "# To publish sums by cell, choose the public cells:",
        '# keys = { file = "cells.csv", by = ["county"] }',
        "",
        *(line for column, advice in advised.items() for line in _sum_lines(column, advice)),
        *_report_lines({column: advice.records for column, advice in advised.items()}),
        "",
        TEMPLATE[TEMPLATE.index("[output]") :],
    ]
    text = "\n".join(lines)
    return write_files({target: lambda file: file.write_text(text, encoding="utf-8")}, overwrite=overwrite)


def _largest_lines(advised: "Mapping[str, Advice]") -> list[str]:
    """Return the line that declares the largest values."""
    largest = {column: advice.largest for column, advice in advised.items() if advice.largest is not None}
    return [_with_comment(f"largest = {toml_value(largest)}", "the release refuses larger values")] if largest else []


def _comment(text: str) -> list[str]:
    text = terminal_text(text)  # TOML allows no control characters in comments
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="# ") or ["#"]


def _mechanism_lines(advice: "Advice") -> list[str]:
    """Return the fields of the recommended mechanism."""
    mechanism = advice.best
    given = {name: value for name, value in mechanism.to_dict().items() if name != "type"}
    for name, table in tables(type(mechanism)).items():  # plans give a promise by its points
        given[table.name] = given.pop(name)["points"]
    return [f"{name} = {toml_value(value)}" for name, value in {"mechanism": mechanism.kind, **given}.items()]


def _sum_lines(column: str, advice: "Advice", table: str = "total") -> Iterator[str]:
    """Yield the fields of a column's sums."""
    unit = as_unit(advice.unit)
    yield f"[tables.{table}.sums.{toml_key(column)}]"
    yield from _mechanism_lines(advice)
    yield f"unit = {toml_value(unit.numerator if unit.denominator == 1 else str(advice.unit))}"
    yield ""


def _cap_lines(advised: "Mapping[str, Advice]") -> Iterator[str]:
    """Yield caps as comments: as much as ten releases with the mechanisms cost, and a loss by counts and quantiles."""
    yield from _comment(CAPS)
    for column, advice in advised.items():
        if len(advised) == 1:
            yield _with_comment('# [ledger.caps."*"]', "through each column of the data without another cap")
        else:
            yield f"# [ledger.caps.{toml_key(column)}]"
        yield from (f"# {line}" for line in _mechanism_lines(advice))
        yield _with_comment("# times = 10", "as much as ten such releases cost")
    yield _with_comment("# [ledger.caps.count]", "through counts and private quantiles together")
    yield '# mechanism = "gaussian"'
    yield _with_comment("# sigma = 5", "a loss of 1/(2·5²) = 0.02 for every record")


def _report_lines(records: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield the table of the report's sizes: as a comment to be completed if no name says which record is the largest.

    A report must show what the largest record loses. Which one that is, only the curator can say: the largest of some
    quantiles is not the largest record. Of several columns, the names are shown that have a size in each of them.
    """
    source = _with_comment("# Source of the sizes:", "fill in: a publication, an assumption, or private quantiles")
    named = {column: report_sizes(sizes) for column, sizes in records.items()}
    common = _common_names(named)
    if common and all(names_the_largest({name: one[name] for name in common}) for one in named.values()):
        yield from ("[report]", source, *_size_lines(named))
        return
    yield source
    yield "# No size was named the largest, so the report shows powers of ten. To show these sizes, add the size of"
    yield "# the largest record that may occur, by public knowledge or assumption, and remove the # from these lines."
    *sizes, _ = _size_lines(named)
    yield from ("# [report]", *(f"# {line}" for line in sizes))
    columns = "size = …" if len(named) == 1 else ", ".join(f"{toml_key(column)} = …" for column in named)
    yield f'#   {{ name = "largest record", {columns} }},'
    yield "# ]"


def _common_names(sizes: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the names that have a size in each column."""
    return [name for name in next(iter(sizes.values())) if all(name in one for one in sizes.values())]


def _size_lines(sizes: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield the field `sizes` of the report, from the sizes in each column by name."""
    written = {"size": next(iter(sizes.values()))} if len(sizes) == 1 else sizes
    yield "sizes = ["
    for name in _common_names(sizes):
        values = {column: int(one[name]) if one[name] % 1 == 0 else one[name] for column, one in written.items()}
        yield f"  {toml_value({'name': name} | values)},"
    yield "]"


def report_sizes(records: Mapping[str, float]) -> dict[str, float]:
    """Return named sizes such that at most the name of the largest one contains the word "largest"."""
    top = max(records, key=lambda name: (records[name], LARGEST_WORD.search(name) is not None))
    named: dict[str, float] = {}
    for name, size in records.items():
        new = name if name == top else LARGEST_WORD.sub("large", name)
        while new in named or (new != name and new in records):
            new += " (2)"
        named[new] = size
    return named


def _source_lines(place: str, has_password: bool) -> Iterator[str]:
    """Yield the fields that say which records the plan is about."""
    yield f"{'database' if '://' in place else 'path'} = {toml_value(place)}"
    yield _with_comment(
        f"name = {toml_value(proposed_name(place))}",
        "the name of the data set: the ledger accepts only data of this name",
    )
    if has_password:
        yield "# the password is not written here: set PGPASSWORD, or add a line to ~/.pgpass"


def _column_lines(
    columns: Mapping[str, str], guess: "Guess | None", fields: Sequence[str] = OPTIONAL_FIELDS
) -> Iterator[str]:
    """Yield the format of the files, further fields that are left open, and the columns with their types."""
    if guess is not None:
        if guess.csv:
            yield f"csv = {toml_value(guess.csv)}"
        # Notes that are not about a column are about the files as a whole.
        yield from (f"# {name}: {note}" for name, note in guess.notes.items() if name not in columns)
    yield from (*fields, "", *_type_lines(columns, guess))


def _type_lines(columns: Mapping[str, str], guess: "Guess | None") -> Iterator[str]:
    """Yield one line per column with its type, as a comment where the data has the type already."""
    proposed = {} if guess is None else guess.types
    notes = {} if guess is None else guess.notes
    if proposed:
        yield "# These types are proposed from the records, which are confidential. Read and correct them before you"
        yield "# use or share this file."
        yield "[data.types]"
    elif guess is not None:
        yield "# To declare types, remove the # from the next line and from the lines of their columns."
        yield "# [data.types]"
    else:
        yield "# The columns of the table have these types:"
    for name, dtype in columns.items():
        line = f"{toml_key(name)} = {toml_value(dtype)}"
        if name not in proposed:
            # A timestamp of a file can only be kept as it is, or be converted with derive.
            line = f"# {toml_key(name)} is a {dtype}" if dtype.startswith("timestamp") else f"# {line}"
        yield _with_comment(line, notes[name]) if name in notes else line


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN}} # {terminal_text(comment, keep='')}"


def proposed_name(place: str) -> str:
    """Return a name for the data set at a path or an address: that of the file or the table, without a year.

    A ledger is for a data set, whatever the period is: the releases have one.
    """
    if "://" in place:
        name = place.rpartition("#")[2]
    else:
        name = PurePath(place).name
        while PurePath(name).suffix.lower() in FILE_ENDINGS:
            name = PurePath(name).stem
    name = YEAR.sub("", re.sub(r"[*?\[\]]+", "", name))
    return re.sub(r"[ _.-]{2,}", "-", name).strip(" -_.") or "data"


def proposed_ledger(place: str) -> str:
    """Return the file of the ledger of the data set at a path or an address, which is beside the plan.

    >>> proposed_ledger("establishments-2024.parquet")
    'establishments.ledger'
    """
    return f"{''.join(letter if letter.isalnum() or letter == '_' else '-' for letter in proposed_name(place))}.ledger"


def _ledger_line(place: str) -> str:
    path = f"path = {toml_value(proposed_ledger(place))}"
    return _with_comment(path, "records the cost of every release; created if it does not exist")


def toml_value(value: Any) -> str:
    """Return text, a number, a boolean, a list or a mapping as TOML on one line.

    >>> toml_value({"delimiter": ";", "first name": [1, True]})
    '{ delimiter = ";", "first name" = [1, true] }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # TOML writes these as JSON does, apart from DEL, which it allows only as an escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Return a name as a TOML key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)
