"""Bit sources for tests: recorded, replayed and crafted. None of them is private."""

import numpy as np


class Recorded:
    """Reproducible words, all remembered."""

    private = False

    def __init__(self, seed=0):
        self._generator = np.random.default_rng(seed)
        self.calls = []

    def words(self, count):
        words = self._generator.integers(0, 2**64, count, dtype=np.uint64)
        self.calls.append(words)
        return words


class Crafted:
    """Given words first, then reproducible ones; counts what is asked for beyond the given ones."""

    private = False

    def __init__(self, given, seed=0):
        self._given = list(given)
        self._rest = Recorded(seed)
        self.more = 0

    def words(self, count):
        taken = [self._given.pop(0) if self._given else None for _ in range(count)]
        fresh = self._rest.words(count)
        self.more += sum(word is None for word in taken)
        return np.array([f if w is None else w for w, f in zip(taken, fresh, strict=True)], np.uint64)


class Stuck:
    """No randomness at all."""

    private = False

    def __init__(self, word):
        self._word = word

    def words(self, count):
        return np.full(count, self._word, np.uint64)
