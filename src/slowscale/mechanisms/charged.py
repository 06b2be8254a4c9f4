"""The policy that is charged for a mechanism: its closed form, or its tight policy."""

from slowscale.mechanisms.base import Mechanism
from slowscale.mechanisms.calibration import ACCOUNTING, CLOSED, TIGHT
from slowscale.policy import Policy


def charged_policy(mechanism: Mechanism, accounting: str) -> Policy:
    """Return what a record loses through a mechanism by an accounting: every charge and every preview uses this.

    >>> from slowscale import Gaussian
    >>> charged_policy(Gaussian(sigma=10), "tight") == Gaussian(sigma=10).policy  # it is tight already
    True
    """
    return mechanism.tight_policy if accounting == TIGHT else mechanism.policy


def closed_form(mechanism: Mechanism | None, accounting: str) -> Policy | None:
    """Return the closed form of a mechanism, for comparison, if an accounting charges another policy; else None."""
    if mechanism is None or accounting != TIGHT or mechanism.tight_policy == mechanism.policy:
        return None
    return mechanism.policy


def notion_in_words(notion: str, accounting: str) -> str:
    """Return a privacy notion, with the accounting if it is not the default: "PRzCDP, closed-form accounting"."""
    return notion if accounting == ACCOUNTING else f"{notion}, {accounting_in_words(accounting)}"


def accounting_in_words(accounting: str) -> str:
    """Return the name of an accounting in a sentence: "tight accounting" or "closed-form accounting"."""
    return f"{'closed-form' if accounting == CLOSED else accounting} accounting"
