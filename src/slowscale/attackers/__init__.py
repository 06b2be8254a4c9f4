"""What an attacker can find out about a record: the exact hypothesis-testing semantics of every mechanism."""

from slowscale.attackers.attacker import Attacker, Posterior, attacker
from slowscale.attackers.words import detection

__all__ = ["Attacker", "Posterior", "attacker", "detection"]
