"""Accounting: what a whole record may lose, over several columns and several releases."""

from slowscale.accounting.account import Account
from slowscale.accounting.charge import Charge
from slowscale.accounting.deferred import Accountant, DeferredLedger
from slowscale.accounting.ledger import Ledger
from slowscale.accounting.record import RecordPolicy
from slowscale.accounting.semantics import (
    Bound,
    Loss,
    best_epsilon,
    best_odds_factor,
    certainty,
    delta,
    epsilon,
    odds_factor,
    posterior,
)
from slowscale.accounting.spent import Spent

__all__ = [
    "Account",
    "Accountant",
    "Bound",
    "Charge",
    "DeferredLedger",
    "Ledger",
    "Loss",
    "RecordPolicy",
    "Spent",
    "best_epsilon",
    "best_odds_factor",
    "certainty",
    "delta",
    "epsilon",
    "odds_factor",
    "posterior",
]
