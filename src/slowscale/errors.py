"""The errors slowscale raises. Each names the argument, what was given and what is allowed."""

import math
from inspect import signature
from typing import Any

from slowscale.figures import figure


class SlowscaleError(Exception):
    """The base of every error that slowscale raises on purpose."""


class ParameterError(SlowscaleError, ValueError):
    """A value outside what is allowed."""


class ParameterTypeError(SlowscaleError, TypeError):
    """A value of the wrong type, or an argument that is missing or unknown."""


class CalibrationError(ParameterError):
    """A target that no value of the free parameter meets."""


class DataError(SlowscaleError, ValueError):
    """Data that cannot be released as it is. It names the column and what is wrong, and quotes no record."""


class EngineError(SlowscaleError, RuntimeError):
    """A file that cannot be read, a database that cannot be reached, or a query that the engine gave up on."""


class UnitWarning(UserWarning):
    """A unit that is coarser than the noise, so that rounding to it biases the results."""


class ConfidentialWarning(UserWarning):
    """Something the curator should know about the data, and nobody else."""


class CapError(SlowscaleError):
    """A charge that would exceed a cap. Nothing was charged.

    Attributes
    ----------
    column
        The column whose cap would be exceeded; "count" for the number of records.
    influence, spent, cap
        A record size at which it would be exceeded, the total loss of such a record with this charge, the cap there.
    before
        What such a record has lost without this charge, or None where that is not known.
    low, high
        The cap would be exceeded for sizes between these; 0 and infinity where there is no such end.
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
        # All arguments are kept, and __str__ words them, so that copies and pickles say the same.
        super().__init__(
            column, influence, spent, cap, before, low, high, made, cap_name, protects, close, fits, full, remedy,
            ranges, also,
        )  # fmt: skip
        self.column, self.influence, self.spent, self.cap = column, influence, spent, cap
        self.before, self.low, self.high = before, low, high
        # So many releases like this one were made, if all were like it; whose cap it is ("*"); what is protected.
        self.made, self.cap_name, self.protects = made, cap_name, protects
        self.close = close  # whether it cannot be told if the cap is exceeded
        # A sentence on what would still fit, whether that is nothing, and how the cap can be changed.
        self.fits, self.full, self.remedy = fits, full, remedy
        # All ranges of sizes in which the cap is exceeded, and other columns whose caps are.
        self.ranges, self.also = ranges or ((low, high),), also

    def with_facts(self, **facts: Any) -> "CapError":
        """Return the same refusal with further facts: those that `__init__` takes."""
        names = list(signature(CapError.__init__).parameters)[1:]
        return CapError(**{**dict(zip(names, self.args, strict=True)), **facts})

    @property
    def sizes(self) -> str:
        """For which records the cap would be exceeded, in words."""
        if self.protects is None and self.column == "count":
            return "for every record"
        if self.ranges == ((0, math.inf),):
            return "for records of every size" if self.protects is None else f"for every {self.protects}"
        shown = [_place(low, high) for low, high in self.ranges[:3]]
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
        """The record that the numbers are about."""
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
            f"raise the cap on {name!r}, with a reason, by `slowscale ledger raise-cap` or Ledger.raise_cap"
        )
        if self.fits is None:
            return f"{words}. Make the release less precise, or {change}"
        if self.full:
            return f"{words}. {self.fits}. To go on, {'use another mechanism, or ' * (self.made is None)}{change}"
        return f"{words}. {self.fits}. Release that, or {change}"

    @property
    def _usage(self) -> str:
        """How much of the cap is used, and how much would be."""
        cap, spent = figure(self.cap), figure(self.spent)
        more = f"lose {spent} in all, and the cap is {cap}" if spent != cap else f"lose just over the cap of {cap}"
        if self.before is None:
            return f"{self._record} would {more}"
        if self.before == 0:
            return f"by this release alone, {self._record} would {more}"
        if self.made is not None:
            made, have = f"{self.made:,}", "has" if self.made == 1 else "have"
            if self.before > self.cap * (1 + 1e-6):  # the cap was lowered
                used = (
                    f"{made} such {'release' if self.made == 1 else 'releases'} {have} been made, more than it allows"
                )
            else:
                used = f"{made} of {made} such releases {have} been made"
            return f"{used}; with one more, {self._record} would {more}"
        if self.cap == 0:
            return f"{self._record} would {more}"
        share = 100 * self.before / self.cap
        used = f"{figure(share)} %" if share >= 0.01 else "less than 0.01 %"
        return f"what was released before uses {used} of the cap for {self._record}; with this release, it would {more}"


def _place(low: float, high: float) -> str:
    """Return a range of sizes in words."""
    first, last = (figure(float(f"{end:.3g}")) for end in (low, high))
    if first == last:
        return f"of about {first}"
    if high == math.inf:
        return f"above {first}"
    return f"below about {last}" if low == 0 else f"between about {first} and {last}"


class LedgerError(SlowscaleError):
    """A ledger that cannot be opened, read or written, or that was changed from outside."""


class PlanError(SlowscaleError, ValueError):
    """A plan file with a mistake. Each line names the file, the line, the field and what is allowed."""
