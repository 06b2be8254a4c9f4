"""Accounting: what a whole record may lose, over several columns and several releases."""

from slowscale.accounting.record import RecordPolicy

__all__ = ["RecordPolicy"]
