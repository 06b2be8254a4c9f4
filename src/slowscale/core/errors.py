"""The errors that slowscale raises. An error is data: what it is about, what was given, what is allowed, what to do.

    SlowscaleError
    ├── ParameterError (ValueError)          a value that is not allowed
    │   └── CalibrationError                 a target that no parameter meets
    ├── ParameterTypeError (TypeError)       a value of the wrong type
    ├── DataError (ValueError)               records that cannot be released as they are
    ├── EngineError (RuntimeError)           a file or an engine that failed
    ├── PlanError (ValueError)               a plan file with mistakes
    ├── CapError                             a charge that would exceed a cap
    ├── LedgerError                          a ledger that cannot be used
    ├── SignatureError                       a file that does not match its signature
    └── IncompleteError                      a charged release with files that could not be written

Each face renders the same fields: Python names arguments, a plan its line and field, the command its options.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from numbers import Number
from typing import Any, NamedTuple

from slowscale.core.data_errors import SENTENCES, Name
from slowscale.core.numbers import format_number

Place = tuple[str | int, ...]

LONGEST_GIVEN = 60  # characters of a given value that an error shows
NOT_GIVEN: Any = object()  # None may be given
_MENTION = re.compile(r"`(\w+)(=[^`\s]*)?`")


def similar(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to an unknown one, if one is; case does not matter.

    >>> similar("Catle", ["state", "cattle"])
    'cattle'
    """
    folded = {one.casefold(): one for one in known}
    near = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[near[0]] if near else None


class Shown(str):
    """A description of what was given, which an error shows as it is: "int and str"."""


class SlowscaleError(Exception):
    """The base class of all errors that slowscale raises on purpose.

    Parameters
    ----------
    subject
        What the error is about: an argument such as "sigma", a file, or a whole sentence.
    problem
        What is wrong with it, as in "is not a column"; not needed if `allowed` says it.
    code
        The kind of the mistake, for programs: it does not change when the wording does.
    path
        The place of the mistake in the request, such as ("tables", "cells", "sums", "emp", "unit"); empty if the error
        has none.
    given
        What was given, of which the beginning is shown. It comes from the caller, never from the records.
    allowed
        What is allowed, as in "a finite number > 0", or the names to choose from.
    remedy
        What to do next.

    Attributes
    ----------
    origin
        The file, the line and the field of a plan that the error is about, as text; empty for other errors.

    Notes
    -----
    Other arguments are mentioned in backquotes, as in "give `at`", so that each face can use its names for them.

    >>> error = ParameterError("sigma", allowed="a finite number > 0", given=-1, remedy="give `at` as well")
    >>> print(error)
    sigma must be a finite number > 0, got -1; give at as well
    >>> error.render("--sigma", lambda name: f"--{name}")
    '--sigma must be a finite number > 0, got -1; give --at as well'
    """

    code = "error"
    path: Place = ()
    origin = ""

    def __init__(
        self,
        subject: object = "",
        problem: str = "",
        *,
        code: str | None = None,
        path: Place = (),
        given: object = NOT_GIVEN,
        allowed: str | tuple[str, ...] | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(str(subject), problem)  # a pickle holds these, and the attributes of the instance
        self.subject, self.problem, self.allowed, self.remedy = str(subject), problem, allowed, remedy
        self.given = None if given is NOT_GIVEN else self._describe(given)
        if remedy is None and isinstance(allowed, tuple) and type(given) is str and (near := similar(given, allowed)):
            self.remedy = f"did you mean {near!r}?"
        if code is not None:
            self.code = code
        if path:
            self.path = path

    def render(self, subject: str | None = None, spell: Callable[[str], str] = str) -> str:
        """Return the error as a sentence about `subject`, with other arguments spelled by `spell`."""
        problem = self.problem
        if not problem and self.allowed is not None:
            names = self.allowed if isinstance(self.allowed, str) else f"one of {', '.join(self.allowed)}"
            problem = f"must be {names}"
        words = " ".join(part for part in (self.subject if subject is None else subject, problem) if part)
        if self.origin:
            words = f"{self.origin}: {words}"
        if self.given is not None:
            words += f", got {self.given}"
        if self.remedy:
            words += f"; {self.remedy}"
        return _MENTION.sub(lambda found: spell(found[1]) + (found[2] or ""), words)

    @staticmethod
    def _describe(given: object) -> str:
        """Return what was given: the name of a type, a number, or the beginning of its representation."""
        if isinstance(given, type):
            return given.__name__
        as_it_is = isinstance(given, Number | Shown)
        return f"{given}" if as_it_is else f"{given!r:.{LONGEST_GIVEN}}"

    def __str__(self) -> str:
        return self.render()


class ParameterError(SlowscaleError, ValueError):
    """A value that is not allowed."""

    code = "value"


class ParameterTypeError(SlowscaleError, TypeError):
    """A value of the wrong type, or an argument that is missing or unknown."""

    code = "type"

    @staticmethod
    def _describe(given: object) -> str:
        words = SlowscaleError._describe(given)
        return words if isinstance(given, type | Shown) else f"{words} of type {type(given).__name__}"


@contextmanager
def located(*place: str | int) -> Iterator[None]:
    """Put a place before the path of an error about a parameter, the data or an engine.

    >>> with located("tables", "cells"):
    ...     raise ParameterError("unit", allowed="> 0", path=("sums", "emp", "unit"))
    Traceback (most recent call last):
    slowscale.core.errors.ParameterError: unit must be > 0
    """
    try:
        yield
    except (ParameterError, ParameterTypeError, DataError, EngineError) as error:
        error.path = (*place, *error.path)
        raise


class CalibrationError(ParameterError):
    """A calibration target that no value of the free parameter meets."""

    code = "calibration"


class DataError(SlowscaleError, ValueError):
    """Records that cannot be released as they are.

    The error names the column or the file and the problem. It cannot quote a record: its sentences are constants (see
    `slowscale.core.data_errors`), filled with names that are known without the records and with whole numbers.

    Parameters
    ----------
    codes
        What is wrong: one code or, for a column with several problems, all of them. The first is the `code`.
    path
        The place of the column in the request.
    facts
        The names and whole numbers of the sentence, such as column=Name("emp") or line=12.

    >>> print(DataError("nulls", "nan", column=Name("emp")))  # doctest: +ELLIPSIS
    column 'emp' has missing values (choose nulls = "zero" for the table to count them as 0), and has values that ...
    >>> DataError("nulls", column="Ada Lovelace")
    Traceback (most recent call last):
    TypeError: a DataError takes names and whole numbers only, got str as column
    """

    code = "data"

    def __init__(self, *codes: str, path: Place = (), **facts: Name | int) -> None:
        for name, fact in facts.items():
            if type(fact) not in (Name, int):  # exactly these: a value of a record is neither by accident
                raise TypeError(f"a DataError takes names and whole numbers only, got {type(fact).__name__} as {name}")
        sentences = [SENTENCES[code] for code in codes]
        problem = ", and ".join(sentence.problem for sentence in sentences)
        subject, problem, remedy = (
            part.format(**facts) for part in (sentences[0].subject, problem, sentences[0].remedy)
        )
        super().__init__(subject, problem, code=codes[0], path=path, remedy=remedy)
        self.codes, self.facts = codes, facts

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(DataError, *self.codes, path=self.path, **self.facts), (), self.__dict__


class EngineError(SlowscaleError, RuntimeError):
    """A file that cannot be read, a database that cannot be reached, or a query that failed in the engine."""

    code = "engine"


class IncompleteError(SlowscaleError):
    """A release was made and charged, but a file of it could not be written.

    Attributes
    ----------
    missing
        The files that could not be written.
    written
        The files that were written.
    lost
        The drawn tables that are in no file: they cannot be drawn again. All other files can be made from the drawn
        tables, by `slowscale release --finish`.
    """

    code = "incomplete"
    missing: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()


def install_hint(*extras: str) -> str:
    """Return how to install the packages that slowscale needs, with those of some extras.

    slowscale is on no package index, where anyone could take its name, so the hint names the source folder and the
    wheel.
    """
    names = f"[{','.join(extras)}]" if extras else ""
    folder = f"run pip install '.{names}' in the source folder of slowscale"
    return f"{folder}, or pip install './WHEEL{names}' with its wheel"


class UnitWarning(UserWarning):
    """The unit is coarser than the noise, so that rounding biases the results."""


class ScaleWarning(UserWarning):
    """Probably not the mechanism you intended: a default scale, an unusual d, absurdly large noise.

    Noise without a mean or a variance is reported as well.
    """


class CapWarning(UserWarning):
    """No cap of the ledger limits quantiles: their total loss has no bound in advance."""


class CacheWarning(UserWarning):
    """A cached curve of a tight policy is not used, because other users can change it."""


class ConfidentialWarning(UserWarning):
    """A warning that depends on the records: for the curator only."""


@dataclass(kw_only=True, eq=False, repr=False)
class CapError(SlowscaleError):
    """A charge that would exceed a cap. Nothing was charged.

    Attributes
    ----------
    column
        The column whose cap would be exceeded; "count" for the number of records.
    influence, spent, cap
        A record size at which the cap would be exceeded, the total loss of such a record with this charge, and the cap
        at this size.
    before
        The total loss of such a record without this charge, or None if it is not known.
    ranges
        The ranges of sizes for which the cap would be exceeded; 0 and infinity if a range has no such end.
    made
        How many releases like this one were made before, if all were like it; else None.
    cap_name
        The name of the cap, if it differs from the column: "*" for the cap on all columns without a separate one.
    protects
        The column that identifies the entity of a record, or None if single records are protected.
    close
        Whether the total is too close to the cap to decide whether it is exceeded.
    fits, full
        A sentence on what would still fit, and whether nothing would.
    remedy
        How the cap can be changed.
    also
        Other caps that would be exceeded.
    band
        The factor of the band, if the cap is one on the loss between values within a band.
    """

    code = "cap"

    column: str
    influence: float
    spent: float
    cap: float
    before: float | None = None
    ranges: tuple[tuple[float, float], ...] = ((0.0, math.inf),)
    made: int | None = None
    cap_name: str | None = None
    protects: str | None = None
    close: bool = False
    fits: str | None = None
    full: bool = False
    remedy: str | None = None
    also: tuple[str, ...] = ()
    band: float | None = None

    def __post_init__(self) -> None:
        self._name = self.column if self.cap_name is None else self.cap_name
        place = ("ledger", "caps" if self.band is None else "band_caps", self._name)
        super().__init__(f"the cap on {self._name!r}", path=place, remedy=self.remedy)

    @property
    def _kind(self) -> str:
        """The kind of cap, in words."""
        return "cap" if self.band is None else f"cap on the values ({band_in_words(self.band)} more or less)"

    def __reduce__(self) -> Any:
        return partial(CapError, **{field.name: getattr(self, field.name) for field in fields(self)}), (), self.__dict__

    @property
    def sizes(self) -> str:
        """The records for which the cap would be exceeded, in words."""
        if self.protects is None and self.column == "count":
            return "for every record"
        if self.ranges == ((0, math.inf),):
            return "for records of every size" if self.protects is None else f"for every {self.protects}"
        about = "of about" if self.protects is None else "about"
        shown = [_describe_range(low, high, about) for low, high in self.ranges[:3]]
        places = ", ".join(shown[:-1]) + " and " * (len(shown) > 1) + shown[-1]
        if len(self.ranges) > 3:
            places += ", among others"
        if self.protects is not None:
            total = "number of records" if self.column == "count" else "total"
            return f"where the {total} of one {self.protects} in a cell is {places}"
        small = all(high < 1 for _, high in self.ranges)
        return f"for small records, {places}" if small else f"for records {places}"

    @property
    def _record(self) -> str:
        """The record that the numbers apply to, in words."""
        size = format_number(self.influence)
        if self.protects is not None:
            amount = f"{size} records" if self.column == "count" else f"a total of {size}"
            return f"a {self.protects} with {amount} in a cell"
        return "a record" if self.column == "count" else f"a record of size {size}"

    def render(self, subject: str | None = None, spell: Callable[[str], str] = str) -> str:
        """Return the error in words; it names no argument."""
        words = self._words()
        return f"{self.origin}: {words}" if self.origin else words

    def _words(self) -> str:
        if self.close:
            words = f"the total of {self.column!r} is too close to its {self._kind} to tell whether it is exceeded"
            tiny = self.column != "count" and self.influence < 1e-9
            words += ", for very small records" if tiny else f", for {self._record}: {self.spent:.9g} of {self.cap:.9g}"
        else:
            on = f"{self._kind} on {self.column!r}" if self.band is None else f"{self._kind} of {self.column!r}"
            words = f"the {on} would be exceeded, {self.sizes}: {self._usage}"
            if self.also:
                words += f". The cap on {' and that on '.join(map(repr, self.also))} would be exceeded as well"
        change = self.remedy or (
            f"raise the {'cap' if self.band is None else 'band cap'} on {self._name!r}, with a reason, by `slowscale "
            "ledger set-cap` or Ledger.set_cap"
        )
        if self.fits is None:
            return f"{words}. Make the release less precise, or {change}"
        if self.full:
            return f"{words}. {self.fits}. To continue, {'use another mechanism, or ' * (self.made is None)}{change}"
        return f"{words}. {self.fits}. Release that, or {change}"

    @property
    def _usage(self) -> str:
        """How much of the cap is used now and with this charge, in words."""
        cap, spent = format_number(self.cap), format_number(self.spent)
        more = f"lose a total of {spent}, and the cap is {cap}" if spent != cap else f"lose just over the cap of {cap}"
        if self.before is None or (self.before and self.made is None and self.cap == 0):
            return f"{self._record} would {more}"
        if self.before == 0:
            return f"by this release alone, {self._record} would {more}"
        if self.made is None:
            share = 100 * self.before / self.cap
            used = f"{format_number(share)} %" if share >= 0.01 else "less than 0.01 %"
            return f"earlier releases use {used} of the cap for {self._record}; with this release, it would {more}"
        made, have = f"{self.made:,}", "has" if self.made == 1 else "have"
        releases = f"such {'release' if self.made == 1 else 'releases'}"
        if self.before > self.cap * (1 + 1e-6):  # the cap was lowered
            used = f"{made} {releases} {have} been made, more than it allows"
        else:
            used = f"the cap allows {made} {releases}, and {made} {have} been made"
        example = "" if self.protects is None and self.column == "count" else "for example "
        return f"{used}; with one more, {example}{self._record} would {more}"


def band_in_words(times: float) -> str:
    """Return the width of a band as a percentage.

    >>> band_in_words(1.1)
    '10 %'
    """
    return f"{format_number(float(f'{100 * (times - 1):.12g}'))} %"


def _describe_range(low: float, high: float, about: str) -> str:
    """Return a range of sizes in words; a range of one size is `about` that size."""
    first, last = (format_number(float(f"{end:.3g}")) for end in (low, high))
    if first == last:
        return f"{about} {first}"
    if high == math.inf:
        return f"above {first}"
    return f"below about {last}" if low == 0 else f"between about {first} and about {last}"


class LedgerError(SlowscaleError):
    """A ledger that cannot be opened, read or written, or that another program changed."""

    code = "ledger"


class Mistake(NamedTuple):
    """A mistake in a plan file: its field, the line of the file, the problem, and the code of the error."""

    path: Place
    line: int
    text: str
    code: str


class PlanError(SlowscaleError, ValueError):
    """A plan file with mistakes. Each line of the error names the file, the line, the field and what is allowed.

    Attributes
    ----------
    mistakes
        The mistakes, in the order of the lines; empty if the file cannot be read at all.
    """

    code = "plan"
    mistakes: tuple[Mistake, ...] = ()


class SignatureError(SlowscaleError):
    """A published file that does not match its signature, or a signature that is not valid.

    Attributes
    ----------
    code
        "changed", "missing", "unreadable", "link" or "extra" (of a file); "unsigned", "damaged", "algorithm", "key",
        "forged" or "name" (of the signature).
    file
        The name of the file that the error is about, or None if it is about the signature.
    """

    code = "signature"

    def __init__(
        self,
        subject: object = "",
        problem: str = "",
        *,
        code: str | None = None,
        file: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(subject, problem, code=code, remedy=remedy)
        self.file = file
