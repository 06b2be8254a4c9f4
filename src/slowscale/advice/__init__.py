"""Advice on which mechanism to choose, with all its parameters."""

from slowscale.advice.advising import Advice, Candidate, advise

__all__ = ["Advice", "Candidate", "advise"]
