"""Secret bits: AES-256 in counter mode under keys from the operating system. Releases use no other randomness.

Every word of 64 bits has an address: a cell, an attempt to draw it, a place among the words of the attempt, and how far
its bits continue. The counter of the block cipher is this address, so that no two cells share bits, and the bits of a
cell do not depend on which others are drawn with it, in which order, or again. Cells may be split into buckets, each
with a key (`release/buckets.py`).

A `BitSource` gives keys. Tests pass one of their own; results drawn under keys that are not `private` are marked NOT
PRIVATE. Nothing is kept between draws, so that a forked child has nothing to repeat.
"""

import hashlib
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from slowscale.core.errors import SlowscaleError

Words = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.intp]

KEY_BYTES = 32
MOST_ADDRESSES = 2**32  # of a bucket: an address has 32 bits for the cell and 32 bits for the attempt


class BitSource(Protocol):
    """A source of keys, each of which expands to unending bits."""

    private: bool

    def key(self) -> bytes:
        """Return a new key of 32 bytes."""


def are_secret(bits: "BitSource | Bits | None") -> bool:
    """Whether bits are secret: those of the operating system (None), or of a source whose `private` is True itself."""
    return bits is None or bits.private is True


class SecretBits:
    """The source of keys for everything that is published: the operating system."""

    private = True

    def key(self) -> bytes:
        """Return a new secret key."""
        return os.urandom(KEY_BYTES)


class KnownBits:
    """Keys that are not secret, for simulations and for dry runs on sums of 0."""

    private = False

    def __init__(self, seed: int | str = 0) -> None:
        self._seed, self._keys = seed, 0

    def key(self) -> bytes:
        """Return the next key: another one each time."""
        self._keys += 1
        return hashlib.sha256(f"known bits {self._seed} {self._keys}".encode()).digest()


SECRET = SecretBits()


class Bits:
    """The random words of rows: those of one bucket, or of several buckets that follow one another.

    Parameters
    ----------
    keys
        The key of each bucket.
    starts
        The first row of each bucket. A row's number within its bucket is its cell.
    private
        Whether the keys are secret.
    """

    def __init__(self, keys: Sequence[bytes], starts: Sequence[int] = (0,), *, private: bool) -> None:
        self.private = private
        self._keys, self._starts = list(keys), np.asarray(starts, np.intp)
        self._ciphers: dict[int, Any] = {}

    @staticmethod
    def of(source: "BitSource | Bits | None") -> "Bits":
        """Return bits under a new key of a source, by default the operating system; or bits as they are."""
        if source is None:
            source = SECRET
        return Bits([source.key()], private=source.private) if hasattr(source, "key") else source

    def words(self, rows: Rows, attempt: int, count: int) -> Words:
        """Return the first words of an attempt at rows in ascending order: `count` arrays, with a word for each row."""
        blocks = -(-count // 2)  # a block of the cipher has two words
        found = np.empty((blocks, rows.size, 2), "<u8")
        first, last = self._bucket(rows[0]), self._bucket(rows[-1])
        ends = [0, *np.searchsorted(rows, self._starts[first + 1 : last + 1]).tolist(), rows.size]
        for bucket, start, end in zip(range(first, last + 1), ends, ends[1:], strict=False):
            if start == end:  # the rows may skip a bucket
                continue
            cells = rows[start:end] - self._starts[bucket]
            if cells[-1] >= MOST_ADDRESSES:
                raise SlowscaleError("a draw", "has more than 2³² cells under one key", code="too-large")
            counters = np.empty((end - start, 2), "<u8")
            counters[:, 0] = cells << 32 | attempt
            for block in range(blocks):
                counters[:, 1] = block
                found[block, start:end] = self._encrypted(bucket, counters)
        return found.transpose(0, 2, 1).reshape(2 * blocks, rows.size)[:count].astype(np.uint64, copy=False)

    def further(self, row: int, attempt: int, place: int, part: int) -> int:
        """Return 64 more bits, part 1, 2…, of one of the words of an attempt."""
        bucket = self._bucket(row)
        cell = row - int(self._starts[bucket])
        return int(self._encrypted(bucket, np.array([[cell << 32 | attempt, part << 16 | place]], "<u8"))[0, 0])

    def _bucket(self, row: Any) -> int:
        """Return the number of the bucket of a row."""
        return 0 if len(self._keys) == 1 else int(np.searchsorted(self._starts, row, side="right")) - 1

    def _encrypted(self, bucket: int, counters: Any) -> Any:
        """Return blocks encrypted under the key of a bucket: counter mode, with the addresses as counters."""
        if bucket not in self._ciphers:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

            # Each counter occurs once, so that encrypting them one by one is counter mode.
            self._ciphers[bucket] = Cipher(algorithms.AES(self._keys[bucket]), modes.ECB()).encryptor()
        return np.frombuffer(self._ciphers[bucket].update(counters.data.cast("B")), "<u8").reshape(counters.shape)

    def __repr__(self) -> str:
        return f"<bits of {len(self._keys)} buckets: confidential>"

    def __reduce__(self) -> Any:
        raise TypeError("bits are confidential, and cannot be pickled")


class Stream:
    """A uniform real in [0, 1) as an endless stream of bits, of which the first 64 are already drawn.

    Its bits continue at the address of a word: of a place among the words of an attempt at a row.
    """

    def __init__(self, first: int, bits: Bits, row: int, attempt: int, place: int) -> None:
        self.word = first
        self._known, self._parts = first, 0
        self._bits, self._address = bits, (row, attempt, place)

    def known(self, count: int) -> tuple[int, int]:
        """Return the bits drawn so far as an integer, and their number; draws more until there are at least `count`."""
        while 64 * (1 + self._parts) < count:
            self._parts += 1
            self._known = self._known << 64 | self._bits.further(*self._address, self._parts)
        return self._known, 64 * (1 + self._parts)
