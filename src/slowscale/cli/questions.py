"""The questions of `slowscale init`: what is published, about whom, by which public cells, how accurately, where to.

Every question has a short explanation, which the answer "?" shows; a wrong answer is asked again. Only the columns and
their types come from the records, as in every new plan: sizes and the accuracy are typed.
"""

import csv
import itertools
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from slowscale.cli.shared import ask_yes, echo
from slowscale.core.markup import is_unicode, terminal_text

if TYPE_CHECKING:
    from slowscale.accounting import Ledger
    from slowscale.accounting.explanation import Explanation
    from slowscale.accounting.largest import Value
    from slowscale.advice import Advice
    from slowscale.core.typing import UnitLike
    from slowscale.plan.starting import Choices, PlannedData

T = TypeVar("T")

NUMBERS = ("int", "uint", "float", "decimal")  # how the types of columns that can be summed begin
LABELS = ("string", "int", "uint", "date", "bool")  # and those of columns of labels
SIZE_WORDS = {"typical": "a typical one", "large": "a large one", "largest": "the largest that may occur"}
VALUE_LOSS = 2.0  # the limit on the loss of the largest value, where it is to be hidden to about 10 %
RELATIVES = (*range(1, 21), 25, 30, 40, 50, 75, 100)  # errors of large sums in percent, for one that can be reached
MOST_GUESSED = 0.6  # how often the presence of a typical record may be guessed right without a word
COARSE = 100  # an error that is this many times a typical record is asked for twice
TRIALS = 3  # of errors at which it is guessed less often
GROUPED = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?")  # 1,200 and 1,200,000.5; in 1,5 the comma may be a decimal one
SEPARATED = re.compile(r"\d{1,3}(,\d{3})+(\.\d*)?|\d{1,3}\.\d{3}")  # the mark may be meant as the other one
NONE = ("", "-", "none", "no")

PUBLIC_SIZES = (
    "The noise is chosen by such sizes, which are published in the report. They must be public knowledge: from a "
    "publication, a law, a list of the largest firms, or an assumption. Never look them up in the records: the promise "
    "would no longer hold. If nothing is public, stop with Ctrl-C, and ask for private sizes: slowscale quantiles "
    "--help."
)
EXPLANATIONS = {
    "protect": (
        "Everything a record holds is protected, and the report states how well. If several records belong to "
        "one person, firm or farm, name the column that identifies it: then all its records are protected "
        "together."
    ),
    "sums": ("The columns of numbers whose sums are published. Each of them adds to what a record loses."),
    "by": (
        "The columns by which the sums are broken down, such as state, industry. Without them, totals over "
        "all records are published."
    ),
    "cells": (
        "Which cells are published must not depend on the records: a cell that appears only because one firm "
        "is in it would betray that firm. Name a file (CSV, Parquet …) with these columns and one row per "
        'public cell. Or answer "data": then you declare that everyone may know which cells have records. "back" asks '
        "for the columns again."
    ),
    "typical": (
        "About what half of them have at most: the noise should hide whether such a one is there. " + PUBLIC_SIZES
    ),
    "large": (
        "What few of them have more than: sums of this size and more are large sums, and the report shows what such "
        'a one loses. "none" leaves it out; then the largest one stands for it. ' + PUBLIC_SIZES
    ),
    "largest": (
        "The most that one may ever have. Its value is hidden to about 10 %, if you answer yes to the next question. "
        "Err upwards: a larger one loses more than the report shows. " + PUBLIC_SIZES
    ),
    "hide": (
        "Yes: it stays uncertain by about 10 % what the largest one has, however large, and the error of "
        "large sums grows to about as much. No: large sums are as accurate as small ones, and the value of "
        "the largest one can be known almost exactly."
    ),
    "accuracy": (
        'How much noise readers can bear. "30": 95 % of small sums are within ±30 of the truth. "5 %": 95 % '
        'of large sums are within ±5 %. "30, 5 %": both. Less accuracy protects records better.'
    ),
    "title": ("The title of the report and of formatted files. It is published."),
    "period": ('The year or month that the records are about, such as 2024 or 2024-03. Answer "-" if there is none.'),
    "releases": (
        "The ledger adds up what records lose by all releases, and refuses a release beyond its caps. They "
        "have room for so many releases like this one, such as one a year for five years."
    ),
    "files": (
        "csv and parquet: the numbers with their intervals. excel: a formatted table for readers. report: a "
        "page (HTML) for readers, with what was promised."
    ),
}
DECLARED_PUBLIC = (
    "This declares that it is public knowledge which cells have records: the noise does not hide it, and the report "
    "says so."
)


class WrongAnswerError(Exception):
    """An answer that cannot be used; its text says why."""


class OneBackError(Exception):
    """The answer "back": the question before is asked again."""


def ask_choices(data: "PlannedData", folder: Path) -> "Choices":
    """Ask everything that a plan for some data needs, and return the answers with the advised noise.

    Parameters
    ----------
    data
        The data of the plan.
    folder
        The folder that the plan will be in.
    """
    from slowscale.accounting.sizes import LARGEST_WORD, LONGEST_NAME
    from slowscale.core.errors import ParameterError
    from slowscale.plan.outputs import check_new
    from slowscale.plan.starting import YEAR, Choices, proposed_ledger, proposed_name

    columns = data.columns
    ledger = proposed_ledger(data.place)
    check_new(folder / ledger, "the folder of the plan")
    charged = _known_ledger(folder / ledger, proposed_name(data.place))
    known = charged is not None
    echo(f"{data.place} has {len(columns)} column{'s' * (len(columns) != 1)}:", err=True)
    for name, dtype in columns.items():
        echo(f"  {name}: {dtype}", err=True)
    echo("Enter takes the answer in brackets, ? explains a question, Ctrl-C stops and writes nothing.\n", err=True)

    if any(_needs_quotes(name) for name in columns):
        echo('Columns whose names could be mistaken for answers are typed in quotes, as in "a, b".\n', err=True)
    owner = _ask("What is protected: a record, or what a column identifies?", "protect", "record", _one_of(columns))
    numbers = [
        name
        for name, dtype in columns.items()
        if dtype.startswith(NUMBERS) and name != owner and _table_problem([name], ()) is None
    ]
    if not numbers:
        raise ParameterError(
            data.place,
            "has no column of numbers that can be summed",
            code="empty",
            remedy="write a plan with --no-questions, and declare types in [data.types] of it, or how the file is read "
            "(csv = { delimiter, decimal, header })",
        )
    sums = _ask(
        "Which columns are summed?",
        "sums",
        _typed(numbers[0]) if len(numbers) == 1 else "",
        _some_of(numbers, least=1, problem=lambda chosen: _table_problem(chosen, ())),
    )
    labels = [name for name, dtype in columns.items() if dtype.startswith(LABELS) and name not in {*sums, owner}]
    confidential = [*sums, *([] if owner is None else [owner])]
    while True:
        by = _ask(
            "By which columns of labels?",
            "by",
            "none",
            _some_of(labels, problem=lambda chosen: _table_problem(sums, chosen)),
        )
        try:
            cells = _ask_cells(by, confidential, data, folder) if by else None
            break
        except OneBackError:
            continue

    who = "record" if owner is None else owner
    if len(f"largest {who}") > LONGEST_NAME or LARGEST_WORD.search(who):  # it is in the names of sizes
        who = "entity"
    advised = _ask_noise(sums, who, charged)
    title = _ask("Title?", "title", f"{' and '.join(sums)}{' by ' if by else ''}{' and '.join(by)}", _text)
    year = YEAR.search(Path(data.place.rpartition("#")[2]).name)
    period = _ask("Period?", "period", "-" if year is None else year[0], lambda text: None if text in NONE else text)
    releases = (
        None if known else _ask("For how many such releases shall the ledger have room?", "releases", "5", _count)
    )
    formats = _ask("Which files: csv, parquet, excel, report?", "files", "csv, parquet, report", _formats)
    return Choices(
        advised=advised,
        protect=owner,
        by=by,
        cells=cells,
        ledger=ledger,
        releases=releases,
        folder=_free_folder(folder),
        title=title,
        period=period,
        formats=formats,
    )


def _known_ledger(path: Path, name: str) -> "Ledger | None":
    """Return the ledger of the plan, if it exists; raise if releases of the data cannot be charged to it."""
    from slowscale.accounting import Ledger

    if not os.path.lexists(path):
        return None
    ledger = Ledger(path)
    ledger.check_dataset(name)
    ledger.ready()
    return ledger


def _check_caps(ledger: "Ledger | None", column: str, advice: "Advice") -> "Advice":
    """Return the advice, or raise if the caps of the ledger refuse a release with it."""
    from slowscale.accounting import Charge, RecordPolicy
    from slowscale.core.errors import CapError

    try:
        if ledger is not None:
            ledger.check(Charge(RecordPolicy(((column, advice.best.policy),)), largest=ledger.largest))
    except CapError as error:
        raise WrongAnswerError(
            f"{error}. The ledger {ledger.path if ledger else ''} has this cap: ask for less accuracy, or stop with "
            "Ctrl-C. A trial on simulated data can be made in another folder, with a new ledger"
        ) from None
    return advice


def _free_folder(folder: Path) -> str:
    """Return the name of a folder for the files of a release, which is new, or empty."""
    for number in itertools.count(1):
        name = f"published-{number}" if number > 1 else "published"
        if not os.path.lexists(folder / name) or ((folder / name).is_dir() and not any((folder / name).iterdir())):
            return name
    raise AssertionError  # the numbers do not end


def _ask(question: str, topic: str, default: str, parse: Callable[[str], T]) -> T:
    """Ask until the answer can be used, and return it as `parse` does."""
    while True:
        shown = terminal_text(f"{question} [{default}]" if default else question)
        text = str(typer.prompt(shown, default=default, show_default=False, prompt_suffix=" ", err=True)).strip()
        if text == "?":
            echo(textwrap.fill(EXPLANATIONS[topic], 100, initial_indent="  ", subsequent_indent="  "), err=True)
            continue
        if not is_unicode(text):
            echo("  Some of its bytes are not text in UTF-8.", err=True)
            continue
        try:
            return parse(text)
        except WrongAnswerError as wrong:
            echo(f"  {wrong}", err=True)


def _ask_cells(by: Sequence[str], confidential: Sequence[str], data: "PlannedData", folder: Path) -> str | None:
    """Return the file with the public cells, relative to the plan; None if they are declared public as in the data.

    It is read as `slowscale check` does, without columns that are confidential: those that are summed or protected.
    """
    names = ", ".join(by)

    def file_with_cells(text: str) -> str | None:
        from slowscale.core.errors import SlowscaleError
        from slowscale.core.files import relative_path
        from slowscale.data.keys import label_kind
        from slowscale.data.sources import open_table
        from slowscale.plan.checking import read_public_cells
        from slowscale.plan.outputs import check_not_among, files_of

        if text.casefold() == "back":
            raise OneBackError
        if text == "data":
            echo(f"  {DECLARED_PUBLIC}", err=True)
            if ask_yes("  Is that so?", default=False, err=True):
                return None
            raise WrongAnswerError("Then name a file with the public cells.")
        if not text:
            raise WrongAnswerError(f'Type the name of a file with the columns {names}, or "data"; ? explains.')
        place = data.place.partition("://")[2].rpartition("#")[0] if "://" in data.place else data.place
        kinds = {name: kind for name, dtype in data.columns.items() if (kind := label_kind(dtype)) is not None}
        try:
            check_not_among(files_of([str(folder / place)]), text)
            found = open_table(text, argument="the file").columns
            if missing := [name for name in by if name not in found]:
                raise WrongAnswerError(f"{text} lacks the column {missing[0]}; it must have {names}.")
            read_public_cells(text, by, kinds, confidential)
        except SlowscaleError as error:
            remedy = 'Name another file, or answer "data"; "back" asks for the columns again.'
            raise WrongAnswerError(f"{error}. {remedy}") from None
        return relative_path(text, folder)

    default = "cells.csv" if os.path.isfile("cells.csv") else ""
    return _ask(f'Which cells are public: a file with {names}, or "data"?', "cells", default, file_with_cells)


def _ask_noise(sums: Sequence[str], who: str, ledger: "Ledger | None") -> "dict[str, Advice]":
    """Ask for sizes and accuracy, and return what is advised for each column, within the caps of a ledger."""
    from slowscale.accounting.largest import value_of

    echo(
        "\nSizes that are public knowledge choose the noise, and are published. Do not look them up in the records.",
        err=True,
    )
    largest = {} if ledger is None else ledger.largest
    sizes = {column: _ask_sizes(column, who, value_of(largest, column)) for column in sums}
    common = [name for name in next(iter(sizes.values())) if all(name in one for one in sizes.values())]
    hide = _ask(f"Hide the value of the largest {who}, to about 10 %?", "hide", "yes", _yes_or_no)
    return {
        column: _ask_accuracy(column, {name: one[name] for name in common}, who, hide, ledger)
        for column, one in sizes.items()
    }


def _ask_accuracy(column: str, records: Mapping[str, float], who: str, hide: bool, ledger: "Ledger | None") -> "Advice":
    """Ask how accurate a column shall be until noise is found that the answer stands by, and return the advice."""
    from slowscale.advice.advising import usual_large
    from slowscale.core.errors import CalibrationError, ParameterError

    default, kept = _usual_accuracy(list(records.values())), None
    while True:
        wanted = _ask(f"How accurate shall {column} be, ±?", "accuracy", default, _accuracy)
        name, size = next(iter(records.items()))
        if wanted.get("interval", 0) >= COARSE * size and wanted != kept:
            kept, many = wanted, f"{wanted['interval'] / size:,.0f}"
            words = f"  That is {many} times a {name} ({size:g}): small sums would tell readers nothing."
            echo(f"{words} To keep ±{_in_words(kept)}, type it again.", err=True)
            default = _usual_accuracy(list(records.values()))
            continue
        echo("  choosing the noise …", err=True)
        try:
            advice = _check_caps(ledger, column, _advise(records, wanted, hide))
        except CalibrationError as refusal:
            if not hide or "relative" not in wanted:
                echo(f"  {refusal}.", err=True)
                continue
            found = _reachable(records, wanted)
            hide = _ask_to_hide(column, who, wanted, found, usual_large(list(records.values()), wanted.get("interval")))
            default = _in_words(found or wanted) if hide else _in_words(wanted)
            continue
        except (ParameterError, WrongAnswerError) as refusal:
            echo(f"  {refusal}.", err=True)
            continue
        now = _presence(advice, size)
        if now.guessed <= MOST_GUESSED or wanted == kept:
            return advice
        kept, better = wanted, _protecting(advice, records, wanted, hide)
        words = f"  Whether a {name} ({size:g}) is in the data can be guessed right in up to {now.texts['guessed']}"
        words += " of cases; 50 % is a coin toss."
        if better is not None:
            wanted, share = better
            words += f" At ±{_in_words(wanted)} it would be {share}."
        echo(f"{words} To keep ±{_in_words(kept)}, type it again.", err=True)
        default = _in_words(wanted)


def _advise(records: Mapping[str, float], wanted: Mapping[str, float], hide: bool) -> "Advice":
    """Return the noise for an accuracy."""
    import slowscale as ss

    *_, largest = records
    interval, relative = wanted.get("interval"), wanted.get("relative")
    bands = {largest: VALUE_LOSS} if hide else None
    unit = _fitting_unit(min(records.values()) if interval is None else interval)
    return ss.advise(records, interval=interval, relative=relative, bands=bands, unit=unit)


def _ask_to_hide(
    column: str, who: str, wanted: Mapping[str, float], found: Mapping[str, float] | None, large: float
) -> bool:
    """Say that an accuracy of large sums and a hidden value exclude each other, and ask which one is given up."""
    accept = f", or accept ±{_in_words({'relative': found['relative']})} there" if found else ""
    echo(
        f"  Sums of {column} of {large:g} and more cannot be within ±{_in_words({'relative': wanted['relative']})} "
        f"while the value of the largest {who} is hidden to about 10 %. Give up hiding it{accept}.",
        err=True,
    )
    return _ask(f"Hide the value of the largest {who}, to about 10 %?", "hide", "yes", _yes_or_no)


def _reachable(records: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float] | None:
    """Return an accuracy with the least of some errors of large sums that can be reached while values are hidden."""
    from slowscale.core.errors import ParameterError

    found = None
    left = [share / 100 for share in RELATIVES if share / 100 > wanted["relative"]]
    while left:
        middle = left[len(left) // 2]
        tried = {**wanted, "relative": middle}
        try:
            _advise(records, tried, hide=True)
        except ParameterError:
            left = [share for share in left if share > middle]
        else:
            found, left = tried, [share for share in left if share < middle]
    return found


def _presence(advice: "Advice", size: float) -> "Explanation":
    """Return what an attacker can learn about the presence of a record of some size."""
    from slowscale.accounting.explanation import Loss, explain

    return explain([Loss(float(advice.best.tight_loss(size)), None, advice.best, size)])


def _protecting(
    advice: "Advice", records: Mapping[str, float], wanted: Mapping[str, float], hide: bool
) -> tuple[dict[str, float], str] | None:
    """Return a lower accuracy at which the presence of the smallest record is protected, and how often it is guessed.

    Noise and records that grow alike lose the same. So the error grows by the factor by which a record must be smaller
    to be protected; the noise that is advised then is another, which decides whether that was enough.
    """
    from slowscale.core.errors import ParameterError

    error = wanted.get("interval", advice.table[0].common)  # an answer such as "5 %" is completed by one
    size = next(iter(records.values()))
    for _ in range(TRIALS):
        low, high = 0.0, math.log(1e6)
        while high - low > 0.005:
            middle = (low + high) / 2
            enough = _presence(advice, size / math.exp(middle)).guessed <= MOST_GUESSED
            low, high = (low, middle) if enough else (middle, high)
        error = _rounded_up(error * math.exp(high))
        wanted = {**wanted, "interval": error}
        try:
            advice = _advise(records, wanted, hide)
        except ParameterError:
            return None
        found = _presence(advice, size)
        if found.guessed <= MOST_GUESSED:
            return wanted, found.texts["guessed"]
    return None


def _rounded_up(number: float) -> float:
    """Return the next number with two digits.

    >>> _rounded_up(1234.0), _rounded_up(0.051)
    (1300.0, 0.051)
    """
    step = Decimal(10) ** (math.floor(math.log10(number)) - 1)
    return float(math.ceil(Decimal(f"{number:.12g}") / step) * step)


def _in_words(wanted: Mapping[str, float]) -> str:
    """Write limits on errors as they are typed.

    >>> _in_words({"interval": 1300.0, "relative": 0.05})
    '1300, 5 %'
    """
    shares = {"interval": (1, ""), "relative": (100, " %")}
    return ", ".join(f"{wanted[name] * by:.6g}{sign}" for name, (by, sign) in shares.items() if name in wanted)


def _ask_sizes(column: str, who: str, most: "Value | None") -> dict[str, float]:
    """Return the named sizes of a column up to its largest value, which may leave out the large one."""
    from slowscale.accounting.largest import proven_to
    from slowscale.accounting.sizes import LARGEST_SIZE

    found: dict[str, float] = {}
    for name, words in SIZE_WORDS.items():

        def size(text: str, name: str = name) -> float | None:
            if name == "large" and text in NONE:
                return None
            number = _number(text)
            if not 1 / LARGEST_SIZE <= number <= LARGEST_SIZE:
                raise WrongAnswerError(f"Type a number from {1 / LARGEST_SIZE:g} to {LARGEST_SIZE:g}.")
            if SEPARATED.fullmatch(text):
                echo(f"  {text} is read as {number:.10g}.", err=True)
            if number > proven_to(most):
                raise WrongAnswerError(f"It must be at most {most}: by the ledger, releases refuse larger values.")
            if found and number < max(found.values()):
                raise WrongAnswerError(
                    f"It must be at least {max(found.values()):g}: sizes are asked for in increasing order."
                )
            return number

        default = "none" if name == "large" else str(most) if name == "largest" and most is not None else ""
        number = _ask(f"{column} of {words.replace('one', who)}:", name, default, size)
        if number is not None:
            found[f"{name} {who}"] = number
    return found


def _one_of(columns: Iterable[str]) -> Callable[[str], str | None]:
    """Return what reads the name of one column, or "record" for none."""
    names = list(columns)

    def read(text: str) -> str | None:
        if text in ("record", *NONE):
            return None
        typed = _parts(text)
        return _column(typed[0] if len(typed) == 1 and text.startswith('"') else text, names)

    return read


def _some_of(
    columns: Sequence[str], least: int = 0, problem: Callable[[list[str]], str | None] = lambda _: None
) -> Callable[[str], list[str]]:
    """Return what reads names of columns between commas; `problem` says why some cannot be chosen together."""

    def read(text: str) -> list[str]:
        if text.casefold() in NONE:
            if least:
                raise WrongAnswerError(f"Type at least one of {_listed(columns)}, with commas between several.")
            return []
        chosen = list(dict.fromkeys(_column(part, columns) for part in _parts(text)))
        if wrong := problem(chosen):
            raise WrongAnswerError(wrong)
        return chosen

    return read


def _parts(text: str) -> list[str]:
    """Return names between commas, each of which may be in quotes: a quotation mark in them is doubled."""
    return next(csv.reader([text], skipinitialspace=True), [""])


def _needs_quotes(name: str) -> bool:
    """Return whether a name is typed in quotes, because it would otherwise be an answer or several names."""
    return name.strip() != name or name.casefold() in ("?", "record", *NONE) or "," in name or name.startswith('"')


def _typed(name: str) -> str:
    """Return a name as it is typed."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"' if _needs_quotes(name) else name


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(_typed, columns))


def _table_problem(sums: Sequence[str], by: Sequence[str]) -> str | None:
    """Return why a table cannot have some sums and keys: the names of its columns, or None if nothing is wrong."""
    import slowscale as ss
    from slowscale.accounting.record import ANY
    from slowscale.core.errors import SlowscaleError

    if ANY in sums:
        return f"A column named {ANY} cannot be summed: a cap of that name is for all other columns."
    keys = ss.Keys.from_frame({name: [""] for name in by}) if by else None
    try:
        ss.Sums(dict.fromkeys(sums, ss.Log(sigma=1)), keys)
    except SlowscaleError as error:
        return f"{error}."
    return None


def _column(text: str, columns: Sequence[str]) -> str:
    """Return the column with a name; upper and lower case, and blanks around it, may differ."""
    if text not in columns:
        text = text.strip()
    alike = [name for name in columns if name.casefold() == text.casefold()]
    if text in columns or len(alike) == 1:
        return text if text in columns else alike[0]
    raise WrongAnswerError(f"{text!r} is not one of {_listed(columns) or 'the columns, of which none is suitable'}.")


def _number(text: str) -> float:
    """Return a number > 0, which may have commas between groups of three digits."""
    plain = text.replace(",", "") if GROUPED.fullmatch(text) else text
    try:
        number = float(plain)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise WrongAnswerError("Type a number above 0, such as 1200, 0.5 or 4e10; ? explains.")
    return number


def _accuracy(text: str) -> dict[str, float]:
    """Return the limits on errors in text such as "30", "5 %" or "30, 5 %"."""
    wanted: dict[str, float] = {}
    for part in text.replace("±", "").split(", "):
        number, kind = _number(part.rstrip("% ")), "relative" if part.rstrip().endswith("%") else "interval"
        if kind in wanted:
            raise WrongAnswerError('Type one number, one percentage, or one of each, as in "30, 5 %".')
        wanted[kind] = number
    if "relative" in wanted:
        wanted["relative"] /= 100
        if wanted["relative"] >= 1:
            raise WrongAnswerError("Type less than 100 %: an error as large as the sum tells readers nothing.")
    return wanted


def _usual_accuracy(sizes: Sequence[float]) -> str:
    """Return a half-width to start from: a tenth of a large record, but at most of the ends' geometric mean."""
    usual = min([(sizes[0] * sizes[-1]) ** 0.5, *sizes[1:-1]]) / 10
    return f"{float(f'{usual:.1g}'):g}"


def _fitting_unit(error: float) -> "UnitLike":
    """Return 1, or a power of ten below the tenth of a small error."""
    return 1 if error >= 10 else f"{Decimal(10) ** math.floor(math.log10(error / 10)):f}"


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1000:
        return int(text)
    raise WrongAnswerError("Type a whole number from 1 to 1000.")


def _text(text: str) -> str:
    if not text:
        raise WrongAnswerError("Type some text.")
    return text


def _yes_or_no(text: str) -> bool:
    if text.casefold() in ("y", "yes", "n", "no"):
        return text.casefold().startswith("y")
    raise WrongAnswerError("Answer yes or no; ? explains.")


def _formats(text: str) -> list[str]:
    from slowscale.core.errors import EngineError
    from slowscale.plan.starting import FILE_FORMATS
    from slowscale.publish.charts import tools
    from slowscale.publish.excel import excel_tools

    names = list(dict.fromkeys(part.strip().casefold() for part in text.split(",")))
    if wrong := [name for name in names if name not in FILE_FORMATS]:
        raise WrongAnswerError(f"{wrong[0]!r} is not one of {', '.join(FILE_FORMATS)}.")
    try:
        for name, needed in {"excel": excel_tools, "report": tools}.items():
            if name in names:
                needed()
    except EngineError as error:
        raise WrongAnswerError(f"{error}. Or leave it out.") from None
    return names
