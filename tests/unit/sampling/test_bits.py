"""Secret bits never repeat: not in children, however started, nor in threads; and each cell has its own."""

import itertools
import multiprocessing
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from helpers.bitsources import Crafted, Recorded
from helpers.errors import refused
from hypothesis import given
from hypothesis import strategies as st

import slowscale as ss
from slowscale.sampling import bits, exact

# Processes and threads


def sixteen(_=None):
    return bits.Bits.of(None).words(np.arange(1), 0, 2).tobytes()


def release(_=None):
    return ss.Gaussian(sigma=1e12).release(np.zeros(20, np.int64)).units.tobytes()


def whole_release(_=None):
    session = ss.Session({"x": [0]})
    return session.sum({"x": ss.Gaussian(sigma=1e18)}).table["x"].to_pylist()[0]


@pytest.mark.parametrize("draw", [sixteen, release, whole_release])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_do_not_repeat_each_other(method, draw):
    before = [draw() for _ in range(3)]
    with multiprocessing.get_context(method).Pool(3) as pool:
        children = pool.map(draw, range(12), chunksize=1)
    drawn = [*before, *children, *(draw() for _ in range(3))]
    assert len(set(drawn)) == len(drawn)


def drawn_after_a_fork(source):
    """What a parent and its forked child draw from a source of keys that the parent has used before."""
    source.key()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.key())
        os._exit(0)
    mine = source.key()
    os.waitpid(child, 0)
    theirs = os.read(read, 32)
    os.close(read)
    os.close(write)
    return mine, theirs


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_inherits_nothing():
    mine, theirs = drawn_after_a_fork(bits.SECRET)
    assert mine != theirs


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_twin_a_source_with_a_state_repeats_itself():
    """The test above would see it."""
    mine, theirs = drawn_after_a_fork(bits.KnownBits(1))
    assert mine == theirs


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


def test_no_hook_after_a_fork_is_needed_where_there_is_no_fork():
    """Windows has neither function."""
    program = """
import os
del os.fork, os.register_at_fork
import slowscale as ss
from slowscale.sampling.bits import SecretBits
assert len(SecretBits().key()) == 32
ss.GeneralizedGaussian(sigma=2, p=0.5).release(3.0)
assert ss.GeneralizedGaussian(sigma=2, p=0.5).tight_policy(3.0) > 0
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# Keys


def test_a_secret_key_is_32_bytes_from_the_operating_system(monkeypatch):
    given = []

    def urandom(count):
        given.append(bytes((37 * len(given) + k) % 256 for k in range(count)))
        return given[-1]

    monkeypatch.setattr(bits.os, "urandom", urandom)
    drawn = [bits.SECRET.key() for _ in range(3)]
    assert drawn == given
    assert {len(key) for key in drawn} == {32}


def test_each_draw_has_a_new_key():
    source = Recorded(1)
    keys = [source.key() for _ in range(3)]
    assert len(set(keys)) == 3
    assert [bits.Bits.of(source)._keys for source in [Recorded(1)] for _ in range(3)] == [[key] for key in keys]
    assert Recorded(2).key() not in keys
    assert bits.Bits.of(None)._keys != bits.Bits.of(None)._keys


def test_bits_are_as_secret_as_their_keys():
    assert bits.are_secret(None)
    assert bits.are_secret(bits.SECRET)
    assert bits.are_secret(bits.Bits.of(None))
    assert not bits.are_secret(bits.KnownBits())
    assert not bits.are_secret(Recorded().bits())


def test_keys_are_neither_printed_nor_pickled():
    drawn = Recorded(1).bits()
    drawn.words(np.arange(5), 0, 1)
    key = drawn._keys[0]
    for text in (repr(drawn), str(drawn), f"{drawn}", repr([drawn])):
        assert "confidential" in text
        assert key.hex() not in text
        assert repr(key) not in text
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="confidential"):
            pickle.dumps(drawn, protocol)


# Words and their addresses


def block_of(key, low, high):
    """One block of AES-256 in counter mode, by another way than that of the package."""
    start = struct.pack("<QQ", low, high)
    return struct.unpack("<QQ", Cipher(algorithms.AES(key), modes.CTR(start)).encryptor().update(bytes(16)))


CELLS = (0, 1, 4095, 2**31 - 1, 2**31, 2**32 - 1)


@pytest.mark.parametrize("attempt", [0, 1, 77, 2**32 - 1])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_words_are_aes_256_of_their_addresses(count, attempt):
    drawn = Recorded(3).bits()
    key = drawn._keys[0]
    found = drawn.words(np.array(CELLS), attempt, count)
    assert found.shape == (count, len(CELLS))
    assert found.dtype == np.uint64
    for i, cell in enumerate(CELLS):
        expected = [block_of(key, cell << 32 | attempt, place // 2)[place % 2] for place in range(count)]
        assert found[:, i].tolist() == expected


@pytest.mark.parametrize(("place", "part"), [(0, 1), (1, 1), (0, 2), (5, 1023), (65_535, 1)])
def test_further_words_are_aes_256_of_their_addresses(place, part):
    drawn = Recorded(3).bits()
    for cell, attempt in itertools.product(CELLS, (0, 1, 2**32 - 1)):
        expected, _ = block_of(drawn._keys[0], cell << 32 | attempt, part << 16 | place)
        assert drawn.further(cell, attempt, place, part) == expected


def test_a_cell_beyond_the_addresses_is_refused():
    drawn = Recorded(3).bits()
    for rows in (np.array([2**32]), np.array([5, 2**32 + 5])):
        with refused(ss.SlowscaleError, "a draw", code="too-large"):
            drawn.words(rows, 0, 1)
    with pytest.raises(OverflowError):
        drawn.further(2**32, 0, 0, 1)
    split = bits.Bits([bytes(32), bytes([1] * 32)], [0, 2**31], private=False)
    assert split.words(np.array([2**32]), 0, 1).shape == (1, 1)  # within a bucket, it is cell 2³¹


class Plain:
    """A cipher that encrypts nothing, and remembers the blocks."""

    def __init__(self):
        self.blocks = []

    def update(self, data):
        self.blocks += [bytes(data[start : start + 16]) for start in range(0, len(data), 16)]
        return bytes(data)


def test_no_two_addresses_share_a_word():
    """Exhaustively, of small addresses and of the largest ones that occur."""
    drawn, plain = Recorded(1).bits(), Plain()
    drawn._ciphers[0] = plain
    cells, attempts, most_places, parts = (*range(5), 2**32 - 1), (0, 1, 2, 2**32 - 1), 65_536, (1, 2, 3, 1023)
    halves = {}  # the address of each half of a block

    def note(block, half, address):
        assert halves.setdefault((block, half), address) == address

    for attempt in attempts:
        plain.blocks.clear()
        drawn.words(np.array(cells), attempt, 9)
        for i, block in enumerate(plain.blocks):  # 5 blocks for each cell
            number, at = divmod(i, len(cells))
            for half in (0, 1):
                note(block, half, (cells[at], attempt, 2 * number + half, 0))
        for cell, place, part in itertools.product(cells, (*range(9), most_places - 1), parts):
            plain.blocks.clear()
            drawn.further(cell, attempt, place, part)
            (block,) = plain.blocks
            note(block, 0, (cell, attempt, place, part))
    assert len(set(halves.values())) == len(halves) == len(cells) * len(attempts) * (10 + 10 * len(parts))


def test_addresses_of_draws_stay_within_their_bounds():
    """Places have 16 bits; parts have 48, beyond part 0 of the first words; an attempt is hardly ever the hundredth."""
    assert exact.MOST_RANDOM_BITS // 64 < 2**48
    source = Crafted()
    for m in (ss.GeneralizedGaussian(sigma=1, p=0.02), ss.Root(k=4, sigma=1), ss.ExponentialPolylog(d=0.1, p=3)):
        m._release(np.zeros(300, np.int64), 1, 0.95, source)
        m._release(np.zeros(2, np.int64), 1, 0.95, source)
    rows, attempts, places, parts = map(set, zip(*source.asked, strict=True))
    assert max(places) < 2**16
    assert max(attempts) < 100
    assert min(parts) == min(rows) == 0
    assert max(parts) >= 1
    assert len({address for address in source.asked if not address[3]}) > 300


# Any subset, order and split


@given(
    rows=st.sets(st.integers(0, 59), min_size=1),
    starts=st.sets(st.integers(1, 59), max_size=12),
    attempt=st.integers(0, 3),
    count=st.integers(1, 5),
)
def test_words_do_not_depend_on_which_rows_are_asked_for(rows, starts, attempt, count):
    """Whether or not a bucket has any of the rows."""
    starts, source = [0, *sorted(starts)], Recorded(1)
    keys = [source.key() for _ in starts]
    together, rows = bits.Bits(keys, starts, private=False), np.array(sorted(rows))
    every = together.words(np.arange(60), attempt, count)
    assert (bits.Bits(keys, starts, private=False).words(rows, attempt, count) == every[:, rows]).all()
    for row in rows.tolist():
        bucket = sum(start <= row for start in starts) - 1
        alone = bits.Bits([keys[bucket]], private=False)
        cell = row - starts[bucket]
        assert alone.words(np.array([cell]), attempt, count)[:, 0].tolist() == every[:, row].tolist()
        assert alone.further(cell, attempt, 1, 2) == together.further(row, attempt, 1, 2)


@pytest.mark.parametrize("count", [1, 7, 8192, 8193, 100_001])
def test_any_number_of_words(count):
    words = bits.Bits.of(None).words(np.arange(count), 0, 3)
    assert words.shape == (3, count)
    assert words.dtype == np.uint64
    assert np.unique(words).size == 3 * count


@pytest.mark.parametrize("rows", [1_000_000, 1000])
def test_bits_are_balanced(rows):
    """Each of the 64 bits is set half of the time, within 7 standard deviations (one in 10¹⁰ for all of them)."""
    drawn = bits.Bits.of(None)
    words = np.concatenate([drawn.words(np.arange(rows), attempt, 4)[0] for attempt in range(1_000_000 // rows)])
    for k in range(64):
        assert abs(np.mean((words >> np.uint64(k)) & np.uint64(1)) - 0.5) < 7 * 0.5 / 1000


# Streams


def test_streams_remember_their_bits():
    stream = bits.Stream(5, bits.Bits.of(None), 0, 0, 0)
    assert stream.known(64) == (5, 64)
    value, count = stream.known(65)
    assert (value >> 64, count) == (5, 128)
    assert stream.known(100) == (value, 128)


def test_a_stream_continues_at_its_address_and_draws_no_more_words_than_it_needs():
    source = Crafted([11, 22, 33, 44])
    stream = bits.Stream(5, source, 7, 2, 3)
    assert stream.known(129) == ((5 << 64 | 11) << 64 | 22, 192)
    assert source.asked == [(7, 2, 3, 1), (7, 2, 3, 2)]
    assert stream.known(193) == (((5 << 64 | 11) << 64 | 22) << 64 | 33, 256)
    assert source.asked[2:] == [(7, 2, 3, 3)]
