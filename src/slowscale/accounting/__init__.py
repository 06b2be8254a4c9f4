"""Accounting: what a whole record may lose, over several columns and several releases."""

from slowscale.accounting.account import Account
from slowscale.accounting.charge import Charge, Spent
from slowscale.accounting.explanation import Explanation, Loss, delta, epsilon, explain, posterior
from slowscale.accounting.ledger import Accountant, DeferredLedger, Ledger
from slowscale.accounting.record import RecordPolicy

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
