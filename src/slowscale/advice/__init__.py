"""Advice on which mechanism to choose, with all its parameters."""

from slowscale.advice.advising import advise, advise_columns
from slowscale.advice.answers import Advice, Candidate, ColumnAdvice

__all__ = ["Advice", "Candidate", "ColumnAdvice", "advise", "advise_columns"]
