"""The study: data like the paper's, and its experiments. Uses the public face of the library only."""

from slowscale.study.establishments import simulated_establishments

__all__ = ["simulated_establishments"]
