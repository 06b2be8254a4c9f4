"""Accounting: what a whole record may lose, over several columns and several releases."""

from slowscale.accounting.account import Account, Charge, Spent
from slowscale.accounting.ledger import Ledger
from slowscale.accounting.record import RecordPolicy
from slowscale.accounting.semantics import delta, epsilon, odds_factor, posterior

__all__ = ["Account", "Charge", "Ledger", "RecordPolicy", "Spent", "delta", "epsilon", "odds_factor", "posterior"]
