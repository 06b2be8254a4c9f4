"""The study: data like the paper's, and its experiments. Uses the public face of the library only."""

from slowscale.study.establishments import simulated_establishments
from slowscale.study.mechanisms import same_error

__all__ = ["same_error", "simulated_establishments"]
