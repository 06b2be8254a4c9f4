"""Parts of the advisor by themselves."""

import numpy as np

from slowscale.advice.searching import _selection


def test_the_recommended_the_best_at_each_size_and_the_best_of_each_family_are_shown():
    losses = np.array([[1.0, 1.0], [0.5, 3.0], [2.0, 2.0], [5.0, 5.0]])
    assert _selection(["a", "a", "b", "b"], losses) == [0, 1, 2]
    assert _selection(["a", "a", "b", "b"], losses[::-1]) == [3, 2, 1]
