"""Secret bits: operating-system entropy, expanded by AES-256 in counter mode. Releases use no other randomness.

Every thread has its own key, which is drawn from the operating system and replaced regularly. A forked child process
discards the inherited keys before it uses any; a spawned one starts without keys. Tests pass a `BitSource` of their
own; results drawn from a source that is not `private` are marked NOT PRIVATE.
"""

import os
import threading
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

# A key is replaced after this many bytes.
REKEY_AFTER = 1 << 26
BLOCK = 1 << 16


class BitSource(Protocol):
    """A source of random bits, in words of 64 bits."""

    private: bool

    def words(self, count: int) -> Words:
        """Return `count` independent, uniformly distributed 64-bit words."""


def are_secret(bits: BitSource | None) -> bool:
    """Whether bits are secret: those of the operating system (None), or of a source whose `private` is True itself."""
    return bits is None or bits.private is True


class SecretBits:
    """The source of random bits for everything that is published."""

    private = True

    def __init__(self) -> None:
        self._local = threading.local()
        self._generation = 0
        if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
            os.register_at_fork(after_in_child=self._discard_keys)

    def _discard_keys(self) -> None:
        self._generation += 1

    def words(self, count: int) -> Words:
        """Return `count` new secret words."""
        out = bytearray(8 * count + 16)  # the cipher needs room for one more block
        view = memoryview(out)
        for start in range(0, 8 * count, BLOCK):
            size = min(BLOCK, 8 * count - start)
            self._cipher(size).update_into(_ZEROS[:size], view[start:])
        return np.frombuffer(out, np.uint64, count)

    def _cipher(self, size: int) -> Any:
        local = self._local
        if getattr(local, "generation", None) != self._generation or local.left < size:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

            local.cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16))).encryptor()
            local.generation = self._generation
            local.left = REKEY_AFTER
        local.left -= size
        return local.cipher


class KnownBits:
    """Bits that are not secret, for simulations and for dry runs on sums of 0."""

    private = False

    def __init__(self, seed: int | None = 0) -> None:
        self._generator = np.random.default_rng(seed)

    def words(self, count: int) -> Words:
        """Return `count` words of 64 bits: others each time, so that a rejected candidate is not drawn again."""
        return self._generator.integers(0, 2**64, count, dtype=np.uint64)

    def uniform(self, count: int) -> npt.NDArray[np.float64]:
        """Return `count` floats from 0 to below 1."""
        return self._generator.random(count)


_ZEROS = memoryview(bytes(BLOCK))
SECRET = SecretBits()


class Stream:
    """A uniform real in [0, 1) as an endless stream of bits, of which the first 64 are already drawn."""

    def __init__(self, first: int, source: BitSource) -> None:
        self.word = first
        self._bits = first
        self._count = 64
        self._source = source

    def known(self, count: int) -> tuple[int, int]:
        """Return the bits drawn so far as an integer, and their number; draws more until there are at least `count`."""
        while self._count < count:
            self._bits = self._bits << 64 | int(self._source.words(1)[0])
            self._count += 64
        return self._bits, self._count
