"""Advice on which mechanism to choose, with all its parameters."""

from slowscale.advice.advising import advise
from slowscale.advice.results import Advice, Candidate

__all__ = ["Advice", "Candidate", "advise"]
