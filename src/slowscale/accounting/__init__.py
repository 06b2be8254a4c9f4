"""Accounting: what a whole record may lose, over several columns and several releases."""

from slowscale.accounting.account import Account
from slowscale.accounting.charge import Charge
from slowscale.accounting.deferred import Accountant, DeferredLedger
from slowscale.accounting.explanation import Explanation, Loss, explain
from slowscale.accounting.ledger import Ledger
from slowscale.accounting.record import RecordPolicy
from slowscale.accounting.semantics import delta, epsilon, posterior
from slowscale.accounting.spent import Spent

__all__ = [
    "Account",
    "Accountant",
    "Charge",
    "DeferredLedger",
    "Explanation",
    "Ledger",
    "Loss",
    "RecordPolicy",
    "Spent",
    "delta",
    "epsilon",
    "explain",
    "posterior",
]
