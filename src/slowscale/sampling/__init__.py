"""Exact sampling: secret bits, balls, samplers, correct rounding. It knows nothing of privacy or tables."""

from slowscale.sampling.bits import SECRET, BitSource, SecretBits
from slowscale.sampling.exact import Task, draw

__all__ = ["SECRET", "BitSource", "SecretBits", "Task", "draw"]
