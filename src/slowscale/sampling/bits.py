"""Secret bits: operating-system entropy expanded by AES-256 in counter mode (invariant: secret randomness only).

Every thread has a key of its own, drawn from the operating system and replaced regularly. A forked child discards
what it inherited before it uses any of it; a spawned one starts with nothing. Tests pass a `BitSource` of their own
in; what is drawn from one that is not `private` is marked so.
"""

import os
import threading
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

# A key is used for this many bytes, then replaced.
REKEY_AFTER = 1 << 26
BLOCK = 1 << 16


class BitSource(Protocol):
    """Where random bits come from, 64 at a time."""

    private: bool

    def words(self, count: int) -> Words:
        """Return `count` independent, uniformly distributed 64-bit words."""


class SecretBits:
    """The one source of bits for anything that is published."""

    private = True

    def __init__(self) -> None:
        self._local = threading.local()
        self._generation = 0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._generation += 1

    def words(self, count: int) -> Words:
        """Return `count` secret words, never the same twice."""
        out = bytearray(8 * count + 16)  # the cipher wants room for one block more
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


_ZEROS = memoryview(bytes(BLOCK))
SECRET = SecretBits()


class Stream:
    """One uniform real in [0, 1): an unending stream of bits, of which the first word is drawn already."""

    def __init__(self, first: int, source: BitSource) -> None:
        self.word = first
        self._bits = first
        self._count = 64
        self._source = source

    def known(self, count: int) -> tuple[int, int]:
        """Return the first bits as a whole number, and how many there are: at least `count`, drawn if need be."""
        while self._count < count:
            self._bits = self._bits << 64 | int(self._source.words(1)[0])
            self._count += 64
        return self._bits, self._count
