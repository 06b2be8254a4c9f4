"""The errors that slowscale raises. Each names the argument, what was given and what is allowed."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

from slowscale.core.numbers import figure

Place = tuple[str | int, ...]


class SlowscaleError(Exception):
    """The base class of all errors that slowscale raises on purpose.

    Attributes
    ----------
    path
        The place of the mistake in the request, such as ("tables", "cells", "sums", "emp", "unit"); empty if the error
        has none.
    """

    path: Place = ()


class LocatedError(SlowscaleError):
    """An error that may know the place of the mistake in the request."""

    def __init__(self, *args: object, path: Place = ()) -> None:
        super().__init__(*args)
        if path:  # kept in the instance, which pickles
            self.path = path


class ParameterError(LocatedError, ValueError):
    """A value that is not allowed."""


class ParameterTypeError(LocatedError, TypeError):
    """A value of the wrong type, or an argument that is missing or unknown."""


@contextmanager
def located(*place: str | int) -> Iterator[None]:
    """Put a place before the path of an error about a parameter.

    >>> with located("tables", "cells"):
    ...     raise ParameterError("unit must be > 0", path=("sums", "emp", "unit"))
    Traceback (most recent call last):
    slowscale.core.errors.ParameterError: unit must be > 0
    """
    try:
        yield
    except LocatedError as error:
        error.path = (*place, *error.path)
        raise


class CalibrationError(ParameterError):
    """A calibration target that no value of the free parameter meets."""


class DataError(SlowscaleError, ValueError):
    """Data that cannot be released as it is. The error names the column and the problem, and quotes no record."""


class EngineError(SlowscaleError, RuntimeError):
    """A file that cannot be read, a database that cannot be reached, or a query that failed in the engine."""


class IncompleteError(SlowscaleError):
    """A release that was made and charged, but of which a file could not be written.

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

    def __init__(
        self, words: str, missing: tuple[str, ...] = (), written: tuple[str, ...] = (), lost: tuple[str, ...] = ()
    ) -> None:
        super().__init__(words, missing, written, lost)
        self.missing, self.written, self.lost = missing, written, lost

    def __str__(self) -> str:
        return str(self.args[0])


def install_hint(*extras: str) -> str:
    """Return how to install the packages of some extras.

    slowscale is on no package index, where anyone could take its name, so the hint names the source folder and the
    wheel.
    """
    names = f"[{','.join(extras)}]"
    folder = f"run pip install '.{names}' in the source folder of slowscale"
    return f"{folder}, or pip install './WHEEL{names}' with its wheel"


class UnitWarning(UserWarning):
    """A unit that is coarser than the noise, so that rounding biases the results."""


class ScaleWarning(UserWarning):
    """A mechanism that is hardly what was meant: a scale that was not given, an unusual d, absurdly large noise.

    Noise without a mean or a variance counts as such.
    """


class CapWarning(UserWarning):
    """Quantiles that no cap of the ledger limits: nothing bounds in advance what they and choices by them cost."""


class CacheWarning(UserWarning):
    """A kept curve of a tight policy that is not used, because other users can change it."""


class ConfidentialWarning(UserWarning):
    """A warning that depends on the records: for the curator only."""


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
    low, high
        The cap would be exceeded for sizes between these; 0 and infinity if the range has no such end.
    made
        How many releases like this one were made before, if all were like it; else None.
    cap_name
        The name of the cap, if it differs from the column: "*" for the cap of all columns without one of their own.
    protects
        The column that tells which records belong to one entity, or None if single records are protected.
    close
        Whether the total is too close to the cap to decide whether it is exceeded.
    fits, full
        A sentence on what would still fit, and whether nothing would.
    remedy
        How the cap can be changed.
    ranges
        All ranges of sizes for which the cap would be exceeded.
    also
        Other columns whose caps would be exceeded.
    """

    def __init__(
        self,
        column: str,
        influence: float,
        spent: float,
        cap: float,
        before: float | None = None,
        low: float = 0.0,
        high: float = math.inf,
        made: int | None = None,
        cap_name: str | None = None,
        protects: str | None = None,
        close: bool = False,
        fits: str | None = None,
        full: bool = False,
        remedy: str | None = None,
        ranges: tuple[tuple[float, float], ...] = (),
        also: tuple[str, ...] = (),
    ) -> None:
        # All arguments are kept in `args`, and __str__ turns them into words, so that copies and pickles say the same.
        super().__init__(
            column, influence, spent, cap, before, low, high, made, cap_name, protects, close, fits, full, remedy,
            ranges, also,
        )  # fmt: skip
        self.column, self.influence, self.spent, self.cap = column, influence, spent, cap
        self.before, self.low, self.high = before, low, high
        self.made, self.cap_name, self.protects = made, cap_name, protects
        self.close, self.fits, self.full, self.remedy = close, fits, full, remedy
        self.ranges, self.also = ranges or ((low, high),), also

    def with_facts(self, **facts: Any) -> "CapError":
        """Return the same error with some arguments of `__init__` changed."""
        names = list(signature(CapError.__init__).parameters)[1:]
        return CapError(**{**dict(zip(names, self.args, strict=True)), **facts})

    @property
    def sizes(self) -> str:
        """The records for which the cap would be exceeded, in words."""
        if self.protects is None and self.column == "count":
            return "for every record"
        if self.ranges == ((0, math.inf),):
            return "for records of every size" if self.protects is None else f"for every {self.protects}"
        shown = [_range_in_words(low, high) for low, high in self.ranges[:3]]
        places = ", ".join(shown[:-1]) + " and " * (len(shown) > 1) + shown[-1]
        if len(self.ranges) > 3:
            places += ", among others"
        if self.protects is not None:
            total = "number of records" if self.column == "count" else "total"
            return f"where the {total} of one {self.protects} in a cell is {places.removeprefix('of ')}"
        small = all(high < 1 for _, high in self.ranges)
        return f"for small records, {places}" if small else f"for records {places}"

    @property
    def _record(self) -> str:
        """The record that the numbers apply to, in words."""
        if self.protects is not None and self.column == "count":
            return f"a {self.protects} with {figure(self.influence)} records in a cell"
        if self.protects is not None:
            return f"a {self.protects} with a total of {figure(self.influence)} in a cell"
        return "a record" if self.column == "count" else f"a record of size {figure(self.influence)}"

    def __str__(self) -> str:
        if self.close:
            words = f"the total of {self.column!r} is too close to its cap to tell whether it is exceeded"
            tiny = self.column != "count" and self.influence < 1e-9
            words += ", for very small records" if tiny else f", for {self._record}: {self.spent:.9g} of {self.cap:.9g}"
        else:
            words = f"the cap on {self.column!r} would be exceeded, {self.sizes}: {self._usage}"
            if self.also:
                words += f". The cap on {' and that on '.join(map(repr, self.also))} would be exceeded as well"
        name = self.column if self.cap_name is None else self.cap_name
        change = self.remedy or (
            f"raise the cap on {name!r}, with a reason, by `slowscale ledger set-cap` or Ledger.set_cap"
        )
        if self.fits is None:
            return f"{words}. Make the release less precise, or {change}"
        if self.full:
            return f"{words}. {self.fits}. To continue, {'use another mechanism, or ' * (self.made is None)}{change}"
        return f"{words}. {self.fits}. Release that, or {change}"

    @property
    def _usage(self) -> str:
        """How much of the cap is used now and with this charge, in words."""
        cap, spent = figure(self.cap), figure(self.spent)
        more = f"lose {spent} in all, and the cap is {cap}" if spent != cap else f"lose just over the cap of {cap}"
        if self.before is None:
            return f"{self._record} would {more}"
        if self.before == 0:
            return f"by this release alone, {self._record} would {more}"
        if self.made is not None:
            made, have = f"{self.made:,}", "has" if self.made == 1 else "have"
            releases = f"such {'release' if self.made == 1 else 'releases'}"
            if self.before > self.cap * (1 + 1e-6):  # the cap was lowered
                used = f"{made} {releases} {have} been made, more than it allows"
            else:
                used = f"the cap allows {made} {releases}, and {made} {have} been made"
            return f"{used}; with one more, {self._record} would {more}"
        if self.cap == 0:
            return f"{self._record} would {more}"
        share = 100 * self.before / self.cap
        used = f"{figure(share)} %" if share >= 0.01 else "less than 0.01 %"
        return f"what was released before uses {used} of the cap for {self._record}; with this release, it would {more}"


def _range_in_words(low: float, high: float) -> str:
    """Return a range of sizes in words."""
    first, last = (figure(float(f"{end:.3g}")) for end in (low, high))
    if first == last:
        return f"of about {first}"
    if high == math.inf:
        return f"above {first}"
    return f"below about {last}" if low == 0 else f"between about {first} and about {last}"


class LedgerError(SlowscaleError):
    """A ledger that cannot be opened, read or written, or that another program changed."""


class PlanError(SlowscaleError, ValueError):
    """A plan file with mistakes. Each line of the error names the file, the line, the field and what is allowed."""


class SignatureError(SlowscaleError):
    """A published file that does not match its signature, or a signature that is not valid.

    Attributes
    ----------
    reason
        What is wrong, in one word for programs: "changed", "missing", "unreadable", "link" or "extra" (of a file);
        "unsigned", "damaged", "algorithm", "key", "forged" or "name" (of the signature).
    file
        The name of the file that the error is about, or None if it is about the signature.
    """

    def __init__(self, words: str, reason: str, file: str | None = None) -> None:
        super().__init__(words, reason, file)
        self.reason, self.file = reason, file

    def __str__(self) -> str:
        return str(self.args[0])
