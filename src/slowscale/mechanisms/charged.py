"""The policy that is charged for a mechanism: its closed form, or its tight policy."""

from typing import Any

from slowscale.core.errors import ParameterError
from slowscale.mechanisms.base import Mechanism
from slowscale.mechanisms.calibration import CLOSED, POLICIES, TIGHT
from slowscale.policy import Policy


def check_accounting(accounting: Any) -> str:
    """Return the name of an accounting, or raise."""
    if not isinstance(accounting, str) or accounting not in POLICIES:
        raise ParameterError(
            f'accounting must be "{CLOSED}", which charges m.policy of each mechanism m, or "{TIGHT}", which charges '
            f"m.tight_policy; got {accounting!r:.60}"
        )
    return accounting


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
    """Return a privacy notion, with the accounting if it is not the usual one: "PRzCDP, tight accounting"."""
    return notion if accounting == CLOSED else f"{notion}, {accounting} accounting"
