"""Losses between two values of a record whose presence is known (Appendix E): for a pair of values, and in a band."""

from typing import Any

import numpy as np

import slowscale as ss
from slowscale.core.parameters import Array
from slowscale.mechanisms.additive import AdditiveMechanism

BAND = 1.1  # values that differ by 10 %


def pair_loss(mechanism: ss.Mechanism, value: float, other: float, *, pure: bool = False) -> float:
    """Return the loss between two values of a record."""
    return float(mechanism.bounded_policy(pure=pure)(value, other))


def band_loss(mechanism: ss.Mechanism, sizes: Any, times: float = BAND) -> Array:
    """Return the largest loss between each size and a value that differs from it by at most the factor `times`.

    Additive noise has the paper's closed form, like its other losses in the study.
    """
    sizes = np.asarray(sizes, float)
    if isinstance(mechanism, AdditiveMechanism):
        return np.asarray(mechanism.policy((times - 1) * sizes))
    return np.asarray(mechanism.band_policy(times=times)(sizes))
