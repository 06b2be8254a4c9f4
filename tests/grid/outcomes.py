"""What a run of a combination returns, in words of the grid."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Statement:
    """A loss that the library states, and for whom.

    Attributes
    ----------
    place
        Where it is stated.
    person
        The totals in the cells of each drawn table that it counts.
    loss
        The loss that is stated.
    columns
        The columns that it is about; None: all.
    releases
        The number of releases that it is about.
    digits
        The digits that are shown; None: all.
    """

    place: str
    person: dict[str, list[dict[str, Any]]]
    loss: float
    columns: tuple[str, ...] | None = None
    releases: int = 1
    digits: int | None = None


@dataclass(frozen=True)
class Table:
    """A published table: the values and the type of each column."""

    columns: dict[str, list[Any]]
    types: dict[str, str]


@dataclass
class Outcome:
    """Everything that left the library in one run.

    Attributes
    ----------
    tables
        The published tables, by release and name.
    statements
        The losses that were stated.
    texts
        Public texts that do not show published numbers, by the step that returned them.
    showing
        Public texts that show published numbers, or are computed from them.
    codes
        The exit codes of commands.
    files
        The names of all files that were written.
    warned
        All warnings.
    refusals
        Documented refusals: the step, the kind of error and its words.
    refused
        The error with which the release was refused because of the records, or None.
    charges, attempts
        The numbers of entries of the ledger, or None without one.
    confidential
        What the curator alone may see, by step.
    """

    tables: dict[tuple[str, str], Table] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    showing: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    refused: str | None = None
    charges: int | None = None
    attempts: int | None = None
    confidential: dict[str, Any] = field(default_factory=dict)
