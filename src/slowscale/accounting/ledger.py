"""The ledger: one SQLite file that knows what every record has lost so far.

A charge is on disk before any noise is drawn, so a crash can waste budget but never leak it. This is what people use;
`storage` keeps the file and `entries` says what is in it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slowscale.accounting.account import Account, check_caps
from slowscale.accounting.charge import Charge, Functions
from slowscale.accounting.entries import Attempted, CapRaised, Charged, Created, cap_changes, written
from slowscale.accounting.record import ANY, folded
from slowscale.accounting.spent import Spent
from slowscale.accounting.storage import LedgerFile
from slowscale.errors import LedgerError, ParameterError, ParameterTypeError
from slowscale.policy import Policy


class Ledger:
    """A durable account of everything released from some records.

    Parameters
    ----------
    path
        The file. It is made if there is none; another program's, a broken one or one of a newer version is refused,
        and so is one with a second name (a hard link, or a mount of the file alone).
    caps
        The most that a record may ever lose, by column: {"payann": policy, "*": policy} ("*": any column not named;
        "count": the number of records). Fixed when the ledger is made.
    functions
        User-given transformations by name, where charged policies use any.
    dataset
        The name of the data set that the ledger belongs to, such as "cbp-2024": kept when the ledger is made, and
        compared exactly, apart from blanks around it. Sessions on the ledger must then give the same name.

    >>> import tempfile, os, slowscale as ss
    >>> path = os.path.join(tempfile.mkdtemp(), "census.ledger")
    >>> with Ledger(path, caps={"*": ss.Gaussian(5).policy}) as ledger:  # closes its connection at the end
    ...     ledger.verify()
    []
    """

    remedy: str | None = None  # a cap is changed by `raise_cap`, as every refusal says

    def __init__(
        self,
        path: str | os.PathLike[str],
        caps: Mapping[str, Policy] | None = None,
        functions: Functions | None = None,
        *,
        dataset: str | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError(f"ledger must be a path, got {type(path).__name__}")
        wanted = check_caps(caps)
        name = dataset_name(dataset)
        self._file = LedgerFile(path, functions)
        self._file.open(wanted, name)
        if self._file.broken is not None:
            return
        known = [_by_name(some) for some in (self._file.state.account.caps, self._first.caps)]
        if caps is not None and _by_name(wanted) not in known:
            raise ParameterError(f"caps differ from those that {self.path} was made with: leave them out, or raise one")
        if name is not None:
            self.check_dataset(name)

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def __reduce__(self) -> Any:
        return Ledger, (str(self.path), None, self._file.functions)

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close this thread's connection to the file; it opens again when it is needed."""
        self._file.close()

    # Reading

    @property
    def spent(self) -> Spent:
        """What a record may have lost by everything charged so far."""
        with self._file.here():
            return self._file.refreshed().account.spent

    @property
    def account(self) -> Account:
        """A copy of the account as it stands, to ask what may be charged."""
        with self._file.here():
            return self._file.refreshed().account.copy()

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps in force."""
        return dict(self._file.refreshed().account.caps)

    @property
    def dataset(self) -> str | None:
        """The name of the data set that the ledger belongs to, or None where it was made without one."""
        self._file.refreshed()
        return self._first.dataset

    @property
    def _first(self) -> Created:
        """The entry that tells how the ledger was made, of those that were read."""
        entries = self._file.state.entries
        return entries[0] if entries and isinstance(entries[0], Created) else Created(caps={})

    def check_dataset(self, dataset: str | None) -> None:
        """Raise a `LedgerError` unless records of a data set of this name may be charged here.

        A ledger without a name accepts any; one with a name accepts no other, nor records without one.
        """
        given, own = dataset_name(dataset), self.dataset
        if own is None or given == own:
            return
        if given is None:
            raise LedgerError(
                f"ledger {self.path} belongs to the data set {own!r}, and no data set was named; if these records are "
                f"its, say dataset={own!r}, else use another ledger"
            )
        raise LedgerError(
            f"ledger {self.path} belongs to the data set {own!r}, not to {given!r}; use the ledger of {given!r}, or "
            f"correct the name"
        )

    @property
    def head(self) -> dict[str, Any]:
        """The number and the hash of the newest entry: what to compare with later, to see that nothing was cut off."""
        state = self._file.refreshed()
        return {"entry": state.id, "hash": state.hash}

    def history(self) -> list[dict[str, Any]]:
        """Return all entries, oldest first: what was asked, when, and what it cost."""
        return [entry.to_dict() for entry in self._file.refreshed().entries]

    def describe(self) -> str:
        """Return the total in plain words, with the caps."""
        state = self._file.refreshed()
        spent = state.account.spent
        dataset = self._first.dataset
        lines = [] if dataset is None else [f"Data set: {dataset}."]
        lines.append(str(spent))
        above = state.account.above_caps()
        for name, cap in state.account.caps.items():
            what = "any other column" if folded(name) == ANY else name
            thing = f"{spent.protects}, in one cell," if spent.protects else "record"
            if name in above:
                lines.append(f"Cap on {what}: {cap}. It was lowered, and is exceeded already, {above[name].sizes}")
            else:
                lines.append(f"Cap on {what}: a {thing} never loses more than {cap}")
        lines += [
            f"The cap on {entry.column} was changed on {entry.time}, from {old} to {entry.cap}: {entry.reason}"
            for entry, old in cap_changes(state.entries)
        ]
        attempts = sum(isinstance(entry, Attempted) for entry in state.entries)
        if attempts:
            failed = "1 attempt was" if attempts == 1 else f"{attempts:,} attempts were"
            lines.append(f"{failed} refused or failed; see the history.")
        return "\n".join(lines)

    def verify(self, head: Mapping[str, Any] | None = None) -> list[str]:
        """Return what is wrong with the file, nothing if all is well.

        Parameters
        ----------
        head
            The `head` of an earlier day, or the one that a release carries: it must still be in the chain.
        """
        if head is not None and not (isinstance(head, Mapping) and {"entry", "hash"} <= set(head)):
            raise ParameterTypeError(f'head must be a mapping with "entry" and "hash", got {head!r:.60}')
        return self._file.verify(head)

    # Writing

    def charge(self, charge: Charge) -> dict[str, Any]:
        """Write down a release before it is drawn, or raise and write nothing.

        The facts of the charge are written; what is read back from them must have the same policy, functions and all.

        Returns
        -------
        The new head.
        """
        return self._file.append(self._charged(charge))

    def check(self, charge: Charge) -> None:
        """Raise what `charge` would raise now, and write nothing."""
        charge = self._charged(charge).charge
        with self._file.here():  # no other thread may carry new entries into the account meanwhile
            self._file.refreshed().account.check(charge)

    def _charged(self, charge: Charge) -> Charged:
        """Return the entry of a charge, as it will be read back."""
        if not isinstance(charge, Charge):
            raise ParameterTypeError(
                f"charge must be a Charge, for instance Charge.from_facts(facts), got {type(charge).__name__}"
            )
        entry = written(Charged(charge=charge), self._file.functions)
        assert isinstance(entry, Charged)
        if entry.charge.policy != charge.policy:
            raise ParameterError("the ledger knows another function by the name of one in the policy: see functions=")
        return entry

    def ready(self) -> None:
        """Raise a `LedgerError` unless an entry can be written now; write nothing.

        Ask before the records are read: an error that depends on them must not go unrecorded because another program
        keeps the ledger locked, or because the journal cannot be written.
        """
        self._file.ready()

    def attempt(self, asked: Charge | Mapping[str, Any], error: BaseException) -> dict[str, Any]:
        """Write down a release that was refused or failed: it costs nothing, and stays in the history.

        An error can depend on the records, so who asked what, how often, must be seen.

        Parameters
        ----------
        asked
            The charge that was not made; or, where there was none yet, whatever is known of the release's facts.
        error
            Why it was not made. Its type and its message are kept.

        Returns
        -------
        The new head.
        """
        if not isinstance(asked, Charge | Mapping):
            raise ParameterTypeError(f"facts must be a mapping, got {type(asked).__name__}")
        if not isinstance(error, BaseException):
            raise ParameterTypeError(f"error must be an exception, got {type(error).__name__}")
        entry = Attempted(asked=asked, error=type(error).__name__, message=str(error))
        return self._file.append(written(entry, self._file.functions))

    def raise_cap(self, column: str, cap: Policy, reason: str) -> None:
        """Put another cap in place of a column's, for good and visible in the history.

        The new cap may also be lower, at some or all record sizes. What was charged stays, so that a total may then be
        above the cap; nothing more is charged there.

        Parameters
        ----------
        column
            The column, "*" or "count": one that has a cap.
        cap
            The new cap, a PRzCDP policy.
        reason
            Why it is changed, in words.
        """
        check_caps({column: cap} if isinstance(column, str) else None)
        if not isinstance(reason, str) or not reason.strip():
            raise ParameterError("reason must say in words why the cap is raised: it stays in the history")
        caps = self.caps
        found = [name for name in caps if isinstance(column, str) and folded(name) == folded(column)]
        if not found:
            raise ParameterError(
                f"column must be one that has a cap ({', '.join(caps) or 'none has'}), got {column!r}; caps can be "
                "added only when a ledger is made"
            )
        entry = CapRaised(column=column if column in found else found[0], cap=cap, reason=reason)
        self._file.append(written(entry, self._file.functions))


def dataset_name(dataset: Any) -> str | None:
    """Return the name of a data set without the blanks around it, or raise."""
    if dataset is None:
        return None
    if not isinstance(dataset, str):
        raise ParameterTypeError(f'dataset must be text such as "cbp-2024", got {type(dataset).__name__}')
    if not dataset.strip():
        raise ParameterError('dataset must be a name such as "cbp-2024", got blank text; leave it out for none')
    return dataset.strip()


def _by_name(caps: Mapping[str, Policy]) -> dict[str, Policy]:
    return {folded(name): cap for name, cap in caps.items()}
