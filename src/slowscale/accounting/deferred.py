"""A ledger that is made at its first charge, and what charges releases in general: the accountant.

An account in memory, a ledger, and a ledger that is still to be made take the same calls, so that a session need not
know which of them it has.
"""

import os
from collections.abc import Mapping
from typing import Any

from slowscale.accounting.account import Account, check_caps
from slowscale.accounting.charge import Charge, Functions
from slowscale.accounting.ledger import Ledger, dataset_name
from slowscale.accounting.spent import Spent
from slowscale.policy import Policy


class DeferredLedger:
    """A ledger that is opened if its file exists, and otherwise made when something is first charged to it.

    Caps are fixed for good when a ledger is made, so a release that fails before it is charged must not make one. Until
    then an account in memory, with the same caps, says what may be charged.

    Parameters
    ----------
    path, caps, functions, dataset
        As for `Ledger`.
    remedy
        How a cap can be changed as long as there is no ledger, in words.

    >>> import tempfile, os, slowscale as ss
    >>> path = os.path.join(tempfile.mkdtemp(), "census.ledger")
    >>> deferred = DeferredLedger(path, {"emp": ss.Gaussian(5).policy})
    >>> deferred.check(Charge(ss.RecordPolicy((("emp", ss.Gaussian(10).policy),))))
    >>> os.path.exists(path)
    False
    >>> deferred.charge(Charge(ss.RecordPolicy((("emp", ss.Gaussian(10).policy),))))["entry"]
    2
    >>> deferred.ledger.spent.releases
    1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        caps: Mapping[str, Policy] | None = None,
        functions: Functions | None = None,
        *,
        dataset: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.ledger: Ledger | None = None
        self._path = path
        self._caps = caps
        self._functions = functions
        self._dataset = dataset_name(dataset)
        self._account = Account(check_caps(caps), remedy)
        if _exists(path):
            self.make()

    def __repr__(self) -> str:
        return f"DeferredLedger({str(self._path)!r})"

    def make(self) -> Ledger:
        """Return the ledger; make it if there is none."""
        if self.ledger is None:
            ledger = Ledger(self._path, self._caps, self._functions, dataset=self._dataset)
            ledger.check_dataset(self._dataset)  # another process may have made it meanwhile
            self.ledger = ledger
        return self.ledger

    @property
    def _now(self) -> Account | Ledger:
        return self._account if self.ledger is None else self.ledger

    @property
    def remedy(self) -> str | None:
        """How a cap can be changed, or None where that is by the ledger."""
        return self._now.remedy

    @property
    def caps(self) -> dict[str, Policy]:
        """The caps in force."""
        return self._now.caps

    @property
    def spent(self) -> Spent:
        """What a record may have lost by everything charged so far."""
        return self._now.spent

    @property
    def account(self) -> Account:
        """A copy of the account as it stands, to ask what may be charged."""
        return self._now.account

    def check_dataset(self, dataset: str | None) -> None:
        """Raise a `LedgerError` unless records of a data set of this name may be charged here."""
        self._now.check_dataset(dataset)

    def check(self, charge: Charge) -> None:
        """Raise what `charge` would raise now, and write nothing."""
        self._now.check(charge)

    def ready(self) -> None:
        """Raise a `LedgerError` unless an entry can be written now, where there is a ledger."""
        self._now.ready()

    def charge(self, charge: Charge) -> dict[str, Any]:
        """Write down a release before it is drawn, in a ledger that is made if there is none; return the new head."""
        return self.make().charge(charge)

    def attempt(self, asked: Charge | Mapping[str, Any], error: BaseException) -> dict[str, Any] | None:
        """Write down a release that was refused or failed, if there is a ledger."""
        if self.ledger is not None:
            return self.ledger.attempt(asked, error)
        # Another process may have made it meanwhile, with other caps: it records the attempt all the same.
        return Ledger(self._path, functions=self._functions).attempt(asked, error) if _exists(self._path) else None


Accountant = Account | Ledger | DeferredLedger


def _exists(path: Any) -> bool:
    # A symbolic link that leads nowhere counts as existing: opening it raises, as it would when the ledger is made.
    return isinstance(path, str | os.PathLike) and os.path.lexists(path)
