"""Accounting: what a whole record may lose, over several columns and several releases."""

from slowscale.accounting.account import Account, Charge, Spent
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

__all__ = [
    "Account",
    "Bound",
    "Charge",
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
