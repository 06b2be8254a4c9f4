"""What an attacker can find out about a record: the exact hypothesis-testing semantics of every mechanism."""

from slowscale.accounting.attackers.best_attacker import EVEN, EXAMPLE_ALARMS, Attacker, Posterior, attacker
from slowscale.accounting.attackers.words import alarms, detection, guesses

__all__ = [
    "EVEN",
    "EXAMPLE_ALARMS",
    "Attacker",
    "Posterior",
    "alarms",
    "attacker",
    "detection",
    "guesses",
]
