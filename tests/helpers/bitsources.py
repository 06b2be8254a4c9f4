"""Bit sources for tests: reproducible, recorded and crafted. None of them is private."""

import numpy as np

from slowscale.sampling import Bits, KnownBits


class Recorded(KnownBits):
    """Reproducible keys."""

    def bits(self):
        """The bits under the next key."""
        return Bits.of(self)


class Crafted:
    """Given words first, in the order in which they are asked for, then reproducible ones.

    `asked` has the addresses of all words that were asked for: row, attempt, place and part.
    """

    private = False

    def __init__(self, given=(), seed=0):
        self._given = list(given)
        self._rest = Bits.of(KnownBits(seed))
        self.asked = []

    def _word(self, word, *address):
        self.asked.append(address)
        return self._given.pop(0) if self._given else int(word)

    def words(self, rows, attempt, count):
        found = self._rest.words(rows, attempt, count)
        for place in range(count):
            for i, row in enumerate(rows.tolist()):
                found[place, i] = self._word(found[place, i], row, attempt, place, 0)
        return found

    def further(self, row, attempt, place, part):
        return self._word(self._rest.further(row, attempt, place, part), row, attempt, place, part)


class Stuck:
    """No randomness at all."""

    private = False

    def __init__(self, word):
        self._word = word

    def words(self, rows, attempt, count):
        return np.full((count, rows.size), self._word, np.uint64)

    def further(self, row, attempt, place, part):
        return self._word


class Continued:
    """Bits of which all but the first 64 of each uniform are those of other bits; remembers the rows that need them."""

    private = False

    def __init__(self, first, more):
        self._first, self._more = first, more
        self.rows = set()

    def words(self, rows, attempt, count):
        return self._first.words(rows, attempt, count)

    def further(self, row, attempt, place, part):
        self.rows.add(row)
        return self._more.further(row, attempt, place, part)
