"""What the records lose: the distribution of the losses of all records under one mechanism."""

from dataclasses import dataclass

import numpy as np

from slowscale import Mechanism
from slowscale.core.parameters import Array


@dataclass(frozen=True, eq=False)
class LossDistribution:
    """The losses of all records: distinct losses, ascending, and the shares of records that lose at most that."""

    losses: Array
    at_most: Array

    @staticmethod
    def of(mechanism: Mechanism, values: Array) -> "LossDistribution":
        """Return the losses of records with these values."""
        sizes, counts = np.unique(values, return_counts=True)
        return LossDistribution(np.asarray(mechanism.policy(sizes)), np.cumsum(counts) / len(values))

    @property
    def largest(self) -> float:
        """The loss of the record that loses most."""
        return float(self.losses[-1])

    def share(self, loss: Array) -> Array:
        """Return the share of the records that lose at most this, for each loss."""
        place = np.searchsorted(self.losses, loss, side="right")
        return np.concatenate([[0.0], self.at_most])[place]

    def share_at(self, loss: float) -> float:
        """Return the share of the records that lose at most this."""
        return float(self.share(np.array([loss]))[0])

    def quantile(self, share: float) -> float:
        """Return the smallest loss that this share of the records does not exceed."""
        return float(self.losses[min(int(np.searchsorted(self.at_most, share)), len(self.losses) - 1)])
