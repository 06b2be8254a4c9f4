"""The ledger: one SQLite file that keeps the total loss of all releases so far.

A charge is on disk before any noise is drawn, so a crash can waste budget but never leak it. This module is the public
interface; `storage` reads and writes the file, and `entries` defines its content. An account in memory, a ledger and a
deferred ledger, which is created at its first charge, have the same methods: a session uses any of them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from slowscale.accounting.account import Account, check_caps
from slowscale.accounting.charge import Charge, Spent
from slowscale.accounting.entries import (
    Attempted,
    CapSet,
    Charged,
    Created,
    LargestSet,
    cap_changes,
    describe_entry,
    serialized,
)
from slowscale.accounting.largest import Value, check_largest, in_words
from slowscale.accounting.record import ANY, folded
from slowscale.accounting.storage import LedgerFile
from slowscale.core.errors import LedgerError, ParameterError, ParameterTypeError, Shown, band_in_words
from slowscale.core.markup import terminal_text
from slowscale.core.numbers import format_number
from slowscale.core.parameters import check_flag
from slowscale.policy import Policy
from slowscale.policy.bounded import BAND, check_band


@runtime_checkable
class Described(Protocol):
    """Facts with a form that JSON can hold, such as the `facts.ledger` of a release."""

    def to_dict(self) -> dict[str, Any]:
        """Return them as a dictionary."""


class Ledger:
    """A durable account of everything released from some records.

    Parameters
    ----------
    path
        The file. It is created if it does not exist. A file of another program, a damaged file, a file of a newer
        version and a file with a second name (a hard link, or a mount of the file alone) are refused.
    caps
        The most that a record may ever lose, by column: {"payann": policy, "*": policy}. "*" stands for every column
        that is not named, and "count" for the number of records. Once the ledger exists, only `set_cap` changes or adds
        a cap.
    dataset
        The name of the data set that the ledger belongs to, such as "cbp", without a period. It is stored when the
        ledger is created, and sessions on the ledger must give the same name; surrounding whitespace is ignored.
    band_caps, band
        The most that may ever be lost between a record's values and others within the factor `band` (1.1: 10 % more or
        less), by column, in the same form. A number is the same cap for records of every size.
    largest
        The largest values, by column: {"payann": 4e10}. They are public knowledge, never looked up in the records: the
        largest absolute value of a record or, if entities are protected, of the total of an entity in a cell ("count":
        of the number of its records there). Caps are proven for sizes up to there, and a release refuses larger ones.
        Only `set_largest` changes them.

    >>> import tempfile, os, slowscale as ss
    >>> path = os.path.join(tempfile.mkdtemp(), "census.ledger")
    >>> with Ledger(path, caps={"*": ss.Gaussian(sigma=5).policy}) as ledger:  # the connection is closed at the end
    ...     ledger.verify()
    []
    """

    remedy: str | None = None  # the default text of a refusal applies: call `set_cap`

    def __init__(
        self,
        path: str | os.PathLike[str],
        caps: Mapping[str, Policy | float] | None = None,
        *,
        dataset: str | None = None,
        band_caps: Mapping[str, Policy | float] | None = None,
        band: float | None = None,
        largest: Mapping[str, Value] | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError("ledger", allowed="the path of a file", given=type(path))
        wanted, banded = check_caps(caps), check_caps(band_caps, "band_caps")
        name = dataset_name(dataset)
        times, most = None if band is None else check_band(band), check_largest(largest)
        self._file = LedgerFile(path)
        self._file.open(Created(caps=wanted, dataset=name, band_caps=banded, band=times or BAND, largest=most))
        if self._file.broken is not None:
            return
        account, first = self._file.state.account, self._first
        if caps is not None and _by_name(wanted) not in map(_by_name, (account.caps, first.caps)):
            raise self._other_caps("caps", wanted)
        if band_caps is not None and _by_name(banded) not in map(_by_name, (account.band_caps, first.band_caps)):
            raise self._other_caps("band_caps", banded)
        if times not in (None, account.band):
            problem, remedy = f"must be {account.band:g}, that of ledger {self.path}", "leave it out"
            raise ParameterError("band", problem, code="mismatch", given=band, remedy=remedy)
        known = [{folded(name): value for name, value in one.items()} for one in (account.largest, first.largest, most)]
        if largest is not None and known[2] not in known[:2]:
            raise ParameterError(
                "largest",
                f"must be that of ledger {self.path}, {in_words(account.largest) or 'which has none'}",
                code="mismatch",
                given=Shown(in_words(most) or "none"),
                remedy="leave it out, or change it by `slowscale ledger set-largest` or Ledger.set_largest",
            )
        if name is not None:
            self.check_dataset(name)

    def _other_caps(self, argument: str, wanted: Mapping[str, Policy]) -> ParameterError:
        """Return the error for caps that are not those of the ledger."""
        caps = self.caps if argument == "caps" else self.band_caps
        remedy = "by `slowscale ledger set-cap` or Ledger.set_cap"
        added = [name for name in wanted if folded(name) not in map(folded, caps)]
        if not added:
            problem, remedy = f"must be those of ledger {self.path}", f"leave them out, or change a cap {remedy}"
        else:
            has = f"has caps on {', '.join(caps)}, but not" if caps else "was created without caps, so it has none"
            problem = f"must be those of ledger {self.path}, which {has} on {', '.join(added)}"
            remedy = f"leave out {', '.join(added)}, or add a cap {remedy}"
        return ParameterError(argument, problem, code="mismatch", path=tuple(added[:1]), remedy=remedy)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def __reduce__(self) -> Any:
        return Ledger, (str(self.path),)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection to the file. It is opened again when it is needed."""
        self._file.close()

    # Reading

    @property
    def spent(self) -> Spent:
        """The total loss of a record through all charges so far."""
        with self._file.locked():
            return self._file.current_state().account.spent

    @property
    def account(self) -> Account:
        """A copy of the account in its present state, for asking what may still be charged."""
        with self._file.locked():
            return self._file.current_state().account.copy()

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps in force."""
        return dict(self._file.current_state().account.caps)

    @property
    def band_caps(self) -> dict[str, Policy]:
        """The caps in force on values within the band."""
        return dict(self._file.current_state().account.band_caps)

    @property
    def band(self) -> float:
        """The factor of the band."""
        return self._file.current_state().account.band

    @property
    def largest(self) -> dict[str, Value]:
        """The largest values in force, by column."""
        return dict(self._file.current_state().account.largest)

    @property
    def dataset(self) -> str | None:
        """The name of the data set that the ledger belongs to, or None if it was created without one."""
        self._file.current_state()
        return self._first.dataset

    @property
    def _first(self) -> Created:
        """The entry with which the ledger was created, of the entries read so far."""
        entries = self._file.state.entries
        return entries[0] if entries and isinstance(entries[0], Created) else Created(caps={})

    def check_dataset(self, dataset: str | None) -> None:
        """Raise a `LedgerError` unless releases of a data set of this name may be charged here.

        A ledger without a name accepts every data set; a ledger with a name accepts only that name.
        """
        given, own = dataset_name(dataset), self.dataset
        if own is None or given == own:
            return
        if given is None:
            raise LedgerError(
                f"ledger {self.path}",
                f"belongs to the data set {own!r}, and no data set was named",
                code="missing",
                remedy=f"if the records are of this data set, give the name {own!r}; otherwise use another ledger",
            )
        raise LedgerError(
            f"ledger {self.path}",
            f"belongs to the data set {own!r}, not to {given!r}",
            code="mismatch",
            remedy=f"use the ledger of {given!r}, or correct the name",
        )

    @property
    def head(self) -> dict[str, Any]:
        """The number and the hash of the newest entry. Keep it to verify later that no entries were removed."""
        state = self._file.current_state()
        return {"entry": state.id, "hash": state.hash}

    def history(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first: what was requested, when, and what it cost."""
        return [entry.to_dict() for entry in self._file.current_state().entries]

    def describe(self) -> str:
        """Return the total and the caps as text."""
        state = self._file.current_state()
        spent = state.account.spent
        dataset = self._first.dataset
        lines: list[str] = []
        above = state.account.above_caps()
        for name, cap in state.account.caps.items():
            what = "any other column" if folded(name) == ANY else name
            thing = f"{spent.protects}, in one cell," if spent.protects else "record"
            if name in above:
                lines.append(f"Cap on {what}: {cap}. The total already exceeds it {above[name].sizes}")
            else:
                lines.append(f"Cap on {what}: a {thing} never loses more than {cap}")
        within, above = band_in_words(state.account.band), state.account.above_caps(band=True)
        for name, cap in state.account.band_caps.items():
            what = "any other column that is summed or ranked" if folded(name) == ANY else name
            never = f"values {within} more or less are never told apart at a loss of more than {cap}"
            exceeds = f"{cap}. The total already exceeds it {above[name].sizes}" if name in above else never
            lines.append(f"Band cap on {what}: {exceeds}")
        for name, value in state.account.largest.items():
            lines.append(f"Largest value of {name}: {format_number(float(value))}. Caps hold for sizes up to it")
        for one in state.entries:
            if isinstance(one, LargestSet):
                lines.append(f"On {one.time}, {describe_entry(one.to_dict())}")
        for entry, old in cap_changes(state.entries):
            change = f"was added on {entry.time}," if old is None else f"was changed on {entry.time}, from {old} to"
            kind = "band cap" if entry.band else "cap"
            lines.append(f"The {kind} on {entry.column} {change} {entry.cap}: {entry.reason}")
        attempts = sum(isinstance(entry, Attempted) for entry in state.entries)
        if attempts:
            failed = "1 attempt was" if attempts == 1 else f"{attempts:,} attempts were"
            lines.append(f"{failed} refused or failed; see the history.")
        first = [] if dataset is None else [terminal_text(f"Data set: {dataset}.", "")]
        # A name or a reason with a line break must not look like another line.
        return "\n".join([*first, str(spent), *(terminal_text(line, "") for line in lines)])

    def verify(self, head: Mapping[str, Any] | Described | None = None) -> list[str]:
        """Return the problems of the file: an empty list if there are none.

        Parameters
        ----------
        head
            An earlier `head`, or the `facts.ledger` of a release. It must still be in the chain.
        """
        head = head.to_dict() if isinstance(head, Described) else head
        if head is not None and not (isinstance(head, Mapping) and {"entry", "hash"} <= set(head)):
            raise ParameterTypeError("head", allowed='a mapping with "entry" and "hash"', given=head)
        return self._file.verify(head)

    # Writing

    def charge(self, charge: Charge) -> dict[str, Any]:
        """Record a release before its noise is drawn, or raise and write nothing.

        The facts of the charge are written. The policy that is read back from them must equal the policy of the
        charge.

        Returns
        -------
        The new head.
        """
        return self._file.append(self._charged(charge))

    def check(self, charge: Charge) -> None:
        """Raise the error that `charge` would raise now, and write nothing."""
        charge = self._charged(charge).charge
        with self._file.locked():  # no other thread may add entries to the account during the check
            self._file.current_state().account.check(charge)

    def _charged(self, charge: Charge) -> Charged:
        """Return the entry of a charge, as it will be read back."""
        if not isinstance(charge, Charge):
            raise ParameterTypeError(
                "charge", allowed="a Charge, for instance Charge.from_facts(facts)", given=type(charge)
            )
        entry = serialized(Charged(charge=charge))
        assert isinstance(entry, Charged)
        if entry.charge.policy != charge.policy:
            problem = "must describe the policy of the charge, but it describes another one"
            raise ParameterError("facts['policy']", problem, code="mismatch")
        return entry

    def ready(self) -> None:
        """Raise a `LedgerError` unless an entry can be written now; write nothing.

        Call it before the records are read. An error that depends on the records must be recorded, so the ledger must
        not be locked by another program, and its journal must be writable.
        """
        self._file.ready()

    def attempt(self, asked: Charge | Mapping[str, Any], error: BaseException) -> dict[str, Any]:
        """Record a release that was refused or failed. It costs nothing, and stays in the history.

        An error can depend on the records, so the history must show how often it was provoked.

        Parameters
        ----------
        asked
            The charge that was requested or, if there was none yet, the facts of the release that are known.
        error
            The reason. Its type and its message are kept.

        Returns
        -------
        The new head.
        """
        if not isinstance(asked, Charge | Mapping):
            raise ParameterTypeError("asked", allowed="a Charge or a mapping of facts", given=type(asked))
        if not isinstance(error, BaseException):
            raise ParameterTypeError("error", allowed="an exception", given=type(error))
        entry = Attempted(asked=asked, error=type(error).__name__, message=str(error))
        return self._file.append(serialized(entry))

    def set_cap(self, column: str, cap: Policy | float, reason: str, *, band: bool = False) -> None:
        """Set the cap on a column: change one, or add one for a further column. It stays in the history.

        The new cap may be lower than the old one or than earlier charges, at some or all record sizes. Earlier charges
        stay, so the total may exceed the new cap; further charges to the column are then refused. A column without a
        separate cap is limited by that on "*", if there is one; a cap on the column takes its place.

        Parameters
        ----------
        column
            A column, or "count" for the number of records, or "*" for all columns without a separate cap.
        cap
            The new cap: a PRzCDP policy, or a number, the same for records of every size.
        reason
            Why the cap is set, as text.
        band
            Whether it is the cap on values within the ledger's band.
        """
        check_flag("band", band)
        if not isinstance(column, str):
            raise ParameterTypeError("column", allowed='a column, "count" or "*", as text', given=column)
        (cap,) = check_caps({column: cap}).values()
        _check_reason(reason, "the cap is set")
        spelled = self.account.set_cap(column, cap, band)
        self._file.append(serialized(CapSet(column=spelled, cap=cap, reason=reason, band=band)))

    def set_largest(self, column: str, value: Value | None, reason: str) -> None:
        """Set the largest value of a column: change it, declare one, or remove it. It stays in the history.

        If it is raised, all caps are proven again, for sizes up to the new value. Where one no longer holds, a
        `CapError` is raised, and nothing changes: raise the cap first.

        Parameters
        ----------
        column
            A column, or "count" for the number of records of an entity in a cell.
        value
            The new value, from public knowledge. None: values of any size are allowed.
        reason
            Why it is set, as text.
        """
        if not isinstance(column, str):
            raise ParameterTypeError("column", allowed='a column or "count", as text', given=column)
        checked = check_largest({column: 1 if value is None else value}, "value")
        _check_reason(reason, "the largest value is set")
        spelled = self.account.set_largest(column, value)
        most = None if value is None else checked[column]
        self._file.append(serialized(LargestSet(column=spelled, value=most, reason=reason)))


def _check_reason(reason: Any, what: str) -> None:
    if not isinstance(reason, str) or not reason.strip():
        raise ParameterError(
            "reason", allowed=f"text that says why {what}", given=reason, remedy="it stays in the history"
        )


def dataset_name(dataset: Any) -> str | None:
    """Return the name of a data set without surrounding whitespace, or raise."""
    if dataset is None:
        return None
    if not isinstance(dataset, str):
        raise ParameterTypeError("dataset", allowed='text such as "cbp"', given=type(dataset))
    if not dataset.strip():
        raise ParameterError(
            "dataset", allowed='a name such as "cbp"', given=dataset, remedy="leave it out if there is no name"
        )
    return dataset.strip()


def _by_name(caps: Mapping[str, Policy]) -> dict[str, Policy]:
    """Return caps by folded name, to compare them. The knots of the ledger count, not those that are computed now."""
    return {folded(name): cap.parameters() for name, cap in caps.items()}


class DeferredLedger:
    """A ledger that is opened if its file exists, and is otherwise created at the first charge.

    A ledger keeps the caps that it is created with, so a release that fails before it is charged must not create one.
    Until the first charge, an account in memory with the same caps decides what may be charged.

    Parameters
    ----------
    path, caps, dataset, band_caps, band, largest
        As for `Ledger`.
    remedy
        How a cap can be changed while there is no ledger, as text for error messages.

    >>> import tempfile, os, slowscale as ss
    >>> path = os.path.join(tempfile.mkdtemp(), "census.ledger")
    >>> deferred = DeferredLedger(path, {"emp": ss.Gaussian(sigma=5).policy})
    >>> deferred.check(Charge(ss.RecordPolicy((("emp", ss.Gaussian(sigma=10).policy),))))
    >>> os.path.exists(path)
    False
    >>> deferred.charge(Charge(ss.RecordPolicy((("emp", ss.Gaussian(sigma=10).policy),))))["entry"]
    2
    >>> deferred.ledger.spent.releases
    1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        caps: Mapping[str, Policy | float] | None = None,
        *,
        dataset: str | None = None,
        remedy: str | None = None,
        band_caps: Mapping[str, Policy | float] | None = None,
        band: float | None = None,
        largest: Mapping[str, Value] | None = None,
    ) -> None:
        self.ledger: Ledger | None = None
        self._path = path
        self._caps, self._dataset = caps, dataset_name(dataset)
        self._options: dict[str, Any] = {"band_caps": band_caps, "band": band, "largest": largest}
        banded, times = check_caps(band_caps, "band_caps"), BAND if band is None else check_band(band)
        most = check_largest(largest)
        self._account = Account(check_caps(caps), remedy, band_caps=banded, band=times, largest=most)
        if _exists(path):
            self.make()

    def __repr__(self) -> str:
        return f"DeferredLedger({str(self._path)!r})"

    def make(self) -> Ledger:
        """Return the ledger; create it if there is none."""
        if self.ledger is None:
            ledger = Ledger(self._path, self._caps, dataset=self._dataset, **self._options)
            ledger.check_dataset(self._dataset)  # another process may have created it in the meantime
            self.ledger = ledger
        return self.ledger

    @property
    def _current(self) -> Account | Ledger:
        return self._account if self.ledger is None else self.ledger

    @property
    def remedy(self) -> str | None:
        """How a cap can be changed, as text for error messages. None: with the ledger."""
        return self._current.remedy

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps in force."""
        return self._current.caps

    @property
    def band_caps(self) -> dict[str, Policy]:
        """The caps in force on values within the band."""
        return self._current.band_caps

    @property
    def band(self) -> float:
        """The factor of the band."""
        return self._current.band

    @property
    def largest(self) -> dict[str, Value]:
        """The largest values in force, by column."""
        return self._current.largest

    @property
    def spent(self) -> Spent:
        """The total loss of a record through all charges so far."""
        return self._current.spent

    @property
    def account(self) -> Account:
        """A copy of the account in its present state, for asking what may still be charged."""
        return self._current.account

    def check_dataset(self, dataset: str | None) -> None:
        """Raise a `LedgerError` unless releases of a data set of this name may be charged here."""
        self._current.check_dataset(dataset)

    def check(self, charge: Charge) -> None:
        """Raise the error that `charge` would raise now, and write nothing."""
        self._current.check(charge)

    def ready(self) -> None:
        """Raise a `LedgerError` if there is a ledger and no entry can be written to it now."""
        self._current.ready()

    def charge(self, charge: Charge) -> dict[str, Any]:
        """Record a release before its noise is drawn; return the new head. The ledger is created if there is none."""
        return self.make().charge(charge)

    def attempt(self, asked: Charge | Mapping[str, Any], error: BaseException) -> dict[str, Any] | None:
        """Record a release that was refused or failed, if there is a ledger."""
        if self.ledger is not None:
            return self.ledger.attempt(asked, error)
        # Another process may have created the ledger in the meantime. The attempt is recorded there, whatever its caps.
        return Ledger(self._path).attempt(asked, error) if _exists(self._path) else None


Accountant = Account | Ledger | DeferredLedger


def _exists(path: Any) -> bool:
    # A broken symbolic link counts as existing, so that opening it raises now and not at the first charge.
    return isinstance(path, str | os.PathLike) and os.path.lexists(path)
