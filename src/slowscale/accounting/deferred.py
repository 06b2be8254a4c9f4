"""A ledger that is created at its first charge, and the type of everything that can be charged: the accountant.

An account in memory, a ledger and a deferred ledger have the same methods, so that a session need not know which of
them it uses.
"""

import os
from collections.abc import Mapping
from typing import Any

from slowscale.accounting.account import Account, check_caps
from slowscale.accounting.charge import Charge
from slowscale.accounting.ledger import Ledger, dataset_name
from slowscale.accounting.spent import Spent
from slowscale.policy import Policy


class DeferredLedger:
    """A ledger that is opened if its file exists, and is otherwise created at the first charge.

    The caps of a ledger are fixed when it is created, so a release that fails before it is charged must not create one.
    Until the first charge, an account in memory with the same caps decides what may be charged.

    Parameters
    ----------
    path, caps, dataset
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
        caps: Mapping[str, Policy] | None = None,
        *,
        dataset: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.ledger: Ledger | None = None
        self._path = path
        self._caps = caps
        self._dataset = dataset_name(dataset)
        self._account = Account(check_caps(caps), remedy)
        if _exists(path):
            self.make()

    def __repr__(self) -> str:
        return f"DeferredLedger({str(self._path)!r})"

    def make(self) -> Ledger:
        """Return the ledger; create it if there is none."""
        if self.ledger is None:
            ledger = Ledger(self._path, self._caps, dataset=self._dataset)
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
    def spent(self) -> Spent:
        """What a record may have lost through everything charged so far."""
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
