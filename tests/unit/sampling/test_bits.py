"""Secret bits never repeat: not in children, however started, nor in threads; and they are replaced in time."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from helpers.bitsources import Crafted

import slowscale as ss
from slowscale.sampling import bits


def sixteen(_=None):
    return bits.SECRET.words(2).tobytes()


def release(_=None):
    return ss.Gaussian(sigma=1e12).release(np.zeros(20, np.int64)).units.tobytes()


@pytest.mark.parametrize("draw", [sixteen, release])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_do_not_repeat_each_other(method, draw):
    before = [draw() for _ in range(3)]
    with multiprocessing.get_context(method).Pool(3) as pool:
        children = pool.map(draw, range(12), chunksize=1)
    drawn = [*before, *children, *(draw() for _ in range(3))]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_discards_what_it_inherited():
    sixteen()  # so that there is something to inherit
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, sixteen())
        os._exit(0)
    mine = sixteen()
    os.waitpid(child, 0)
    theirs = os.read(read, 16)
    os.close(read)
    os.close(write)
    assert theirs != mine


def test_the_twin_a_source_that_forgets_nothing_repeats_itself(monkeypatch):
    """Without the hook after a fork, parent and child draw the same: the test above would see it."""
    careless = bits.SecretBits()
    monkeypatch.setattr(careless, "_discard_keys", lambda: None)
    careless.words(2)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        careless._generation = 0
        os.write(write, careless.words(2).tobytes())
        os._exit(0)
    mine = careless.words(2).tobytes()
    os.waitpid(child, 0)
    theirs = os.read(read, 16)
    os.close(read)
    os.close(write)
    assert theirs == mine


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_a_thread_draws_is_not_locked_out():
    stop = threading.Event()
    mechanism = ss.Gaussian(sigma=5)
    mechanism.release(5)  # a fork in the middle of a first import is beyond help

    def keep_drawing():
        while not stop.is_set():
            mechanism.release(5)

    thread = threading.Thread(target=keep_drawing)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a child that hangs dies of it, and is seen
                mechanism.release(5)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


def test_threads_do_not_repeat_each_other():
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(sixteen, range(400))) + list(pool.map(release, range(100)))
    assert len(set(drawn)) == len(drawn)


def test_keys_are_replaced(monkeypatch):
    monkeypatch.setattr(bits, "REKEY_AFTER", 1000)
    source = bits.SecretBits()
    ciphers = set()
    for _ in range(10):
        source.words(60)
        ciphers.add(id(source._local.cipher))
    assert len(ciphers) > 1
    monkeypatch.undo()
    large = bits.SecretBits().words(300_000)
    assert large.size == np.unique(large).size


class Entropy:
    """Stands in for the operating system: gives known bytes, and remembers them."""

    def __init__(self, monkeypatch):
        self.given = []
        monkeypatch.setattr(bits.os, "urandom", self.urandom)

    def urandom(self, count):
        self.given.append(bytes((37 * len(self.given) + k) % 256 for k in range(count)))
        return self.given[-1]

    @property
    def keys(self):
        return [given for given in self.given if len(given) == 32]


def test_words_are_the_key_stream_of_aes_256_in_counter_mode(monkeypatch):
    """Byte by byte, without gaps between calls or within large ones."""
    entropy, source = Entropy(monkeypatch), bits.SecretBits()
    drawn = b"".join(source.words(count).tobytes() for count in (1, 3, 8192, 20_001, 1))
    (key,), (nonce,) = entropy.keys, [given for given in entropy.given if len(given) == 16]
    cipher = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
    same = drawn == cipher.update(bytes(len(drawn)))
    assert same  # without a comparison of so many bytes in the message


def test_a_key_gives_as_many_bytes_as_stated_and_no_more(monkeypatch):
    entropy, source = Entropy(monkeypatch), bits.SecretBits()
    monkeypatch.setattr(bits, "REKEY_AFTER", 1600)
    used = []
    for _ in range(5):
        source.words(100)  # 800 bytes
        used.append(len(entropy.keys))
    assert used == [1, 1, 2, 2, 3]


def test_a_key_is_used_for_at_most_64_mebibytes():
    """Of so few blocks, the chance to tell them from random ones is at most n²/2^129 = 2^-85."""
    source = bits.SecretBits()
    source.words(2)
    assert source._local.left == 64 * 2**20 - 16


def test_discarded_keys_are_not_used_again(monkeypatch):
    entropy, source = Entropy(monkeypatch), bits.SecretBits()
    for count in (1, 2, 3):
        source.words(5)
        source.words(5)
        assert len(set(entropy.keys)) == len(entropy.keys) == count
        source._discard_keys()


@pytest.mark.parametrize("count", [0, 1, 7, 8192, 8193, 100_001])
def test_any_number_of_words(count):
    words = bits.SECRET.words(count)
    assert words.shape == (count,)
    assert words.dtype == np.uint64
    assert np.unique(words).size == count


def test_bits_are_balanced():
    """Each of the 64 bits is set half of the time, within 7 standard deviations (one in 10¹⁰ for all of them)."""
    words = bits.SECRET.words(1_000_000)
    for k in range(64):
        assert abs(np.mean((words >> np.uint64(k)) & np.uint64(1)) - 0.5) < 7 * 0.5 / 1000


def test_streams_remember_their_bits():
    stream = bits.Stream(5, bits.SECRET)
    assert stream.known(64) == (5, 64)
    value, count = stream.known(65)
    assert (value >> 64, count) == (5, 128)
    assert stream.known(100) == (value, 128)


def test_a_stream_draws_no_more_words_than_it_needs():
    source = Crafted([11, 22, 33, 44])
    stream = bits.Stream(5, source)
    assert stream.known(129) == ((5 << 64 | 11) << 64 | 22, 192)
    assert stream.known(193) == (((5 << 64 | 11) << 64 | 22) << 64 | 33, 256)
    assert source.words(1).tolist() == [44]


def test_no_hook_after_a_fork_is_needed_where_there_is_no_fork():
    """Windows has neither function."""
    program = """
import os
del os.fork, os.register_at_fork
import slowscale as ss
from slowscale.sampling.bits import SecretBits
assert SecretBits().words(3).size == 3
ss.GeneralizedGaussian(sigma=2, p=0.5).release(3.0)
assert ss.GeneralizedGaussian(sigma=2, p=0.5).tight_policy(3.0) > 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)
