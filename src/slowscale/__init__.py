"""Publish sums of skewed data under per-record differential privacy.

>>> import slowscale as ss
>>> m = ss.ExponentialPolylog.calibrate(std=75)
>>> print(m.policy)
tanh(ε/2)·ε with ε = 0.237836·(ln(Δ + 2.71828)^2 − 1)
"""

from slowscale.bounded import BoundedPolicy
from slowscale.errors import CalibrationError, ParameterError, ParameterTypeError, SlowscaleError
from slowscale.mechanisms import (
    Comparison,
    Crossover,
    ExponentialPolylog,
    Gaussian,
    GeneralizedGaussian,
    Log,
    Mechanism,
    Root,
    Transformation,
    UnitSplitting,
    compare,
)
from slowscale.policy import Policy

__version__ = "0.1.0.dev0"

__all__ = [
    "BoundedPolicy",
    "CalibrationError",
    "Comparison",
    "Crossover",
    "ExponentialPolylog",
    "Gaussian",
    "GeneralizedGaussian",
    "Log",
    "Mechanism",
    "ParameterError",
    "ParameterTypeError",
    "Policy",
    "Root",
    "SlowscaleError",
    "Transformation",
    "UnitSplitting",
    "compare",
]
