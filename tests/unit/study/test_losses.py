"""The distribution of the losses of all records."""

import numpy as np

import slowscale as ss
from slowscale.study.claims_about_loss import last_ahead
from slowscale.study.experiments import LossDistribution

VALUES = np.array([0.0, 1, 1, 2, 4, 10])


def test_shares_count_the_records_that_lose_at_most_so_much():
    losses = LossDistribution.of(ss.Gaussian(sigma=1), VALUES)
    assert losses.largest == 50
    assert losses.share(np.array([-1, 0, 0.49, 0.5, 2, 49.9, 50, 1e9])).tolist() == [
        *(0, 1 / 6, 1 / 6, 3 / 6, 4 / 6, 5 / 6, 1, 1),
    ]


def test_quantiles_are_losses_of_records():
    losses = LossDistribution.of(ss.Gaussian(sigma=1), VALUES)
    assert [losses.quantile(share) for share in (0, 1 / 6, 0.5, 0.51, 1)] == [0, 0, 0.5, 2, 50]


def test_one_distribution_is_ahead_up_to_the_crossover_of_the_policies():
    values = np.arange(1.0, 2001)
    gaussian, root = ss.Gaussian(sigma=10), ss.Root(k=2, sigma=1)
    [crossover] = ss.compare({"gaussian": gaussian, "root": root}, within=(1, 2000)).crossovers
    losses = [LossDistribution.of(m, values) for m in (gaussian, root)]
    assert 0.9 * crossover.loss < last_ahead(*losses) <= crossover.loss
    assert last_ahead(losses[0], losses[0]) == 0
