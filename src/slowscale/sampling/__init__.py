"""Exact sampling: secret bits, balls, samplers and correct rounding. It does not depend on privacy or on tables."""

from slowscale.sampling.bits import SECRET, Bits, BitSource, KnownBits, SecretBits, are_secret
from slowscale.sampling.exact import Task, draw

__all__ = ["SECRET", "BitSource", "Bits", "KnownBits", "SecretBits", "Task", "are_secret", "draw"]
