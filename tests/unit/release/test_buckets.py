"""The noise of a bucket is fixed by the release key and by what decides it, and is fresh if any of that differs."""

import base64
import copy
import gc
import json
import logging
import pickle
import traceback
from dataclasses import replace
from datetime import date
from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.mechanisms import drawing
from slowscale.mechanisms.exact_sums import Exact
from slowscale.release import buckets
from slowscale.release.buckets import BUCKET, ReleaseKey, TableBits, framed

CELLS = 2 * BUCKET + 100
WIDE = ss.Gaussian(sigma=1e15)
KEYS = ss.Keys.from_frame({"cell": list(range(CELLS))})


def records(**columns):
    """One record in each cell."""
    return pa.table({"cell": np.arange(CELLS), **{name: np.asarray(values) for name, values in columns.items()}})


def zeros(changed=()):
    values = np.zeros(CELLS, np.int64)
    values[list(changed)] = 1
    return values


def noise(data, request, seed=1):
    """The noise of each column of each table, as far as all sums are 0 or 1."""
    release = ss.Session(data, bits=Recorded(seed)).release(request)
    return {
        (name, column): release[name].table[column].to_numpy()
        for name in release.facts.tables
        for column in release.facts.tables[name].columns
    }


def sums(mechanism=WIDE, column="x", keys=KEYS, **options):
    return ss.Request({"cells": ss.Sums({column: mechanism}, keys=keys, **options)})


def buckets_of(numbers):
    return [numbers[start : start + BUCKET] for start in range(0, len(numbers), BUCKET)]


def differing(one, other):
    """The buckets in which noise differs: then nearly all of it does."""
    found = []
    for number, (a, b) in enumerate(zip(buckets_of(one), buckets_of(other), strict=True)):
        shared = np.mean(np.abs(a - b) <= 1)
        assert shared < 0.01 or shared == 1
        found += [number] if shared < 0.01 else []
    return found


# What decides the noise


def test_the_same_release_under_the_same_key_is_the_same():
    data, request = records(x=zeros(), y=zeros()), ss.Request({"cells": ss.Sums({"x": WIDE, "y": WIDE}, keys=KEYS)})
    one, other = (ss.Session(data, bits=Recorded(1)).release(request)["cells"].table for _ in range(2))
    assert one.equals(other)
    assert not one.equals(ss.Session(data, bits=Recorded(2)).release(request)["cells"].table)
    session = ss.Session(data, bits=Recorded(1))
    assert one.equals(session.release(request)["cells"].table)
    assert not one.equals(session.release(request)["cells"].table)  # another release has another key


@pytest.mark.parametrize("cell", [0, BUCKET - 1, BUCKET, 2 * BUCKET - 1, 2 * BUCKET, CELLS - 1])
def test_a_changed_sum_changes_the_noise_of_its_bucket_and_of_no_other(cell):
    (one,) = noise(records(x=zeros()), sums()).values()
    (other,) = noise(records(x=zeros([cell])), sums()).values()
    assert differing(one, other) == [cell // BUCKET]


def test_a_changed_sum_of_one_column_does_not_change_the_noise_of_another():
    request = ss.Request({"cells": ss.Sums({"x": WIDE, "y": WIDE}, keys=KEYS)})
    one, other = (noise(records(x=zeros(), y=zeros(changed)), request) for changed in ([], [5]))
    assert differing(one["cells", "x"], other["cells", "x"]) == []
    assert differing(one["cells", "y"], other["cells", "y"]) == [0]


def test_a_changed_label_changes_the_noise_of_its_bucket_and_of_no_other():
    data = pa.table({"cell": [0], "x": [0]})
    (one,) = noise(data, sums()).values()
    labels = list(range(CELLS))
    labels[BUCKET + 7] = -1
    (other,) = noise(data, sums(keys=ss.Keys.from_frame({"cell": labels}))).values()
    assert differing(one, other) == [1]
    labels = list(range(CELLS))
    labels[BUCKET + 7], labels[BUCKET + 8] = labels[BUCKET + 8], labels[BUCKET + 7]
    (other,) = noise(data, sums(keys=ss.Keys.from_frame({"cell": labels}))).values()
    assert differing(one, other) == [1]


def test_cells_in_a_later_bucket_have_other_noise_though_nothing_else_differs():
    """Totals have no labels, so that only their places tell buckets apart."""
    key, exact = ReleaseKey(Recorded(1)), Exact(np.zeros(3 * BUCKET, np.int64), Fraction(1))
    whole = TableBits(key, "t", None, {"x": b""}).column("x", exact)
    assert len(set(whole._keys)) == 3
    part = Exact(exact.counts[: 2 * BUCKET], Fraction(1))
    assert TableBits(key, "t", None, {"x": b""}, first=1).column("x", part)._keys == whole._keys[1:]


def test_buckets_can_be_drawn_apart():
    """With the number of their first bucket, some of the buckets give the same numbers as all of them."""
    key, counts = ReleaseKey(Recorded(1)), np.arange(CELLS)
    table = pa.table({"cell": counts})
    m, whole = ss.Root(k=4, sigma=0.5), TableBits(key, "t", table, {"x": b""})
    every = m._release(Exact(counts, Fraction(1)), 1, 0.95, whole.column("x", Exact(counts, Fraction(1)))).units
    for first in (2, 0, 1):
        at = slice(first * BUCKET, (first + 1) * BUCKET)
        exact = Exact(counts[at], Fraction(1))
        bits = replace(whole, labels=table.slice(at.start, BUCKET), first=first).column("x", exact)
        assert (m._release(exact, 1, 0.95, bits).units == every[at]).all()


@pytest.fixture
def keys_of(monkeypatch):
    """Return the keys of the buckets of each column of each table that a release draws."""
    found, original = {}, TableBits.column

    def column(self, name, exact):
        bits = original(self, name, exact)
        found[self.name, name] = bits._keys
        return bits

    monkeypatch.setattr(TableBits, "column", column)

    def released(data, request):
        found.clear()
        noise(data, request)
        return dict(found)

    return released


def test_whatever_differs_gives_other_keys(keys_of):
    """All sums and labels are the same."""
    data = records(x=zeros(), z=zeros()).append_column("county", pa.array(np.arange(CELLS)))
    cases = {
        "as it was": sums(),
        "sigma": sums(ss.Gaussian(sigma=1e14)),
        "sigma, hardly": sums(ss.Gaussian(sigma=1e15 * (1 + 1e-12))),  # which is printed as the same
        "clipped": sums(nonnegative=True),
        "family": sums(ss.GeneralizedGaussian(sigma=1e15, p=1)),
        "unit": sums(unit=10),
        "column": sums(column="z"),
        "table": ss.Request({"others": ss.Sums({"x": WIDE}, keys=KEYS)}),
        "key column": sums(keys=ss.Keys.from_frame({"county": list(range(CELLS))})),
        "where": sums(where="x = 0"),
        "derive": sums(derive={"y": "x + 0"}),
        "another derive": sums(derive={"y": "x * 1"}),
        "nulls": sums(nulls="zero"),
        "estimator": sums(ss.Root(k=2, sigma=1e7)),
        "another estimator": sums(ss.Root(k=2, sigma=1e7, estimator="median")),
        "negatives": sums(ss.Root(k=2, sigma=1e7), negatives="zero"),
    }
    found = {name: [key for keys in keys_of(data, request).values() for key in keys] for name, request in cases.items()}
    assert {len(keys) for keys in found.values()} == {3}
    assert all(not set(found[one]) & set(found[other]) for one, other in combinations(cases, 2))
    # What is computed from the published numbers does not decide them.
    for request in (cases["as it was"], replace(cases["as it was"], level=0.9)):
        assert list(keys_of(data, request).values()) == [found["as it was"]]


def test_columns_tables_and_buckets_never_share_noise(keys_of):
    data = records(x=zeros(), y=zeros())
    tables = {name: ss.Sums({"x": WIDE, "y": WIDE}, keys=KEYS, count=WIDE) for name in ("a", "b")}
    found = keys_of(data, ss.Request(tables))
    assert len(found) == 6
    every = [key for keys in found.values() for key in keys]
    assert len(set(every)) == len(every) == 18


def test_swapped_names_of_key_columns_give_other_keys(keys_of):
    data = pa.table({"a": ["p"], "b": ["p"], "x": [0]})
    one, other = (
        keys_of(data, sums(keys=ss.Keys.from_frame({first: ["p"], second: ["q"]})))["cells", "x"]
        for first, second in ("ab", "ba")
    )
    assert not set(one) & set(other)


def test_quantiles_depend_on_every_count_and_on_what_they_are(monkeypatch):
    seen, original = [], TableBits.quantiles
    monkeypatch.setattr(TableBits, "quantiles", lambda *given: seen.append(original(*given)) or seen[-1])
    usual = {"at": (0.5,), "grid": [1, 2, 4]}

    def key_of(values, column="x", loss=0.1, **options):
        seen.clear()
        request = ss.Request({"q": ss.Quantiles(column, loss=loss, **{**usual, **options})})
        ss.Session(pa.table({"x": values, "y": values}), bits=Recorded(1)).release(request)
        return seen[0]._keys[0]

    values = [1.0, 2.0, 3.0]
    others = [
        key_of(values),
        key_of([0.5, 2.0, 3.0]),
        key_of([1.0, 2.0, 5.0]),
        key_of([1.0, 2.0, 5.0, 5.0]),
        key_of(values, loss=0.2),
        key_of(values, at=(0.25,)),
        key_of(values, grid=[1, 2, 5]),
        key_of(values, column="y"),
        key_of(values, where="x > 0"),
        key_of(values, nulls="zero"),
    ]
    assert key_of([3.5, 1.0, 2.5]) == others[0]  # the same counts
    assert len(set(others)) == len(others)


# Digests of labels


LABELS = {
    "ab, c": {"a": ["ab"], "b": ["c"]},
    "a, bc": {"a": ["a"], "b": ["bc"]},
    "abc, nothing": {"a": ["abc"], "b": [""]},
    "nothing, abc": {"a": [""], "b": ["abc"]},
    "two rows ab, c": {"a": ["ab", "c"]},
    "two rows a, bc": {"a": ["a", "bc"]},
    "two rows nothing, abc": {"a": ["", "abc"]},
    "two rows abc, nothing": {"a": ["abc", ""]},
    "the other order": {"a": ["c", "ab"]},
    "text 1": {"a": ["1"]},
    "whole number 1": {"a": [1]},
    "boolean": {"a": [True]},
    "another boolean": {"a": [False]},
    "whole number 0": {"a": [0]},
    "day 1": {"a": [date(1970, 1, 2)]},
    "day -1": {"a": [date(1969, 12, 31)]},
    "whole number -1": {"a": [-1]},
    "largest": {"a": [2**63 - 1]},
    "smallest": {"a": [-(2**63)]},
    "a zero byte": {"a": ["\0"]},
    "eight zero bytes": {"a": ["\0" * 8]},
    "composed": {"a": ["é"]},
    "decomposed": {"a": ["e\N{COMBINING ACUTE ACCENT}"]},
    "beyond 16 bits": {"a": ["🜚"]},
    "empty text": {"a": [""]},
    "two columns": {"a": [1], "b": [2]},
    "two rows": {"a": [1, 2]},
}


def digest_of(columns):
    table = ss.Keys.from_frame(columns).table
    (digest,) = buckets._digests(table, table.num_rows)
    return digest


def test_different_labels_have_different_digests():
    digests = {name: digest_of(labels) for name, labels in LABELS.items()}
    assert len(set(digests.values())) == len(LABELS)
    assert digests == {name: digest_of(labels) for name, labels in LABELS.items()}
    assert next(iter(buckets._digests(None, 1))) not in digests.values()


def odd_text(i):
    return "" if not i % 5 else "ab" * (i % 3) + "é" * (i % 2) + str(i)


COLUMNS = {
    "text": pa.array([odd_text(i) if i else "" for i in range(10_000)]),
    "empty text": pa.array([""] * 10_000),
    "whole numbers": pa.array(np.arange(10_000) - 5000),
    "booleans": pa.array([i % 3 == 0 for i in range(10_000)]),
    "dates": pa.array(np.arange(10_000), pa.int32()).cast(pa.date32()),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_digests_do_not_depend_on_chunks_and_slices(kind):
    column = COLUMNS[kind]
    expected = list(buckets._digests(pa.table({"a": column}), 10_000))
    assert len(expected) == 3
    longer = pa.concat_arrays([column[:13], column, column[:9]])
    chunked = pa.chunked_array([column[:1], column[1:1], column[1:4100], column[4100:9000], column[9000:]])
    for same in (longer[13:10_013], chunked, pa.chunked_array([longer[13:5000], longer[5000:10_013]])):
        assert list(buckets._digests(pa.table({"a": same}), 10_000)) == expected
    for start in (0, BUCKET, 2 * BUCKET):
        alone = pa.table({"a": column}).slice(start, BUCKET)
        assert list(buckets._digests(alone, alone.num_rows)) == [expected[start // BUCKET]]


def test_framed_fields_are_never_ambiguous():
    fields = [(), ("",), (b"",), ("", ""), ("1",), (1,), (b"1",), ("ab", "c"), ("a", "bc"), ("abc",), (-1,), ("é",)]
    fields += [(framed("a"),), ("a",), (framed("a", "b"),), ("a", "b")]
    fields += [
        ("asb",),
        ("absc",),
        ("abb",),
        ("a", b"b"),
        ("ai1",),
        ("a", 1),
        ("", "a"),
    ]  # ends are not marked by kinds
    assert len({framed(*some) for some in fields}) == len(fields)


# Digests of sums


def digests(counts, grain=Fraction(1), rest=None, parts=1, dtype=None):
    whole = np.array(counts, dtype)
    return list(buckets._digests_of_sums(Exact(whole, grain, rest if rest is None else np.array(rest), parts)))


def test_equal_sums_have_equal_digests_whatever_holds_them():
    counts = [0, 1, -1, 2**62, -(2**63), 2**63 - 1]
    assert digests(counts, dtype=np.int64) == digests(counts, dtype=object)
    assert digests(np.arange(10), dtype=np.int64) == digests(np.arange(10), dtype=np.int32)
    many = np.arange(CELLS)
    large = many.astype(object)
    large[-1] = 2**70  # which makes all of them Python integers
    one, other = digests(many), digests(large, dtype=object)
    assert one[:2] == other[:2]
    assert one[2] != other[2]


def test_different_sums_have_different_digests():
    cases = [
        digests([0, 1]),
        digests([1, 0]),
        digests([0]),
        digests([0, 0]),
        digests([0, -1]),
        digests([0, 2**32]),
        digests([0, 2**64 - 1], dtype=object),
        digests([0, -(2**64)], dtype=object),
        digests([0, 2**64], dtype=object),
        digests([2**64, 11], dtype=object),
        digests([10 * 2**64 + 1, 1], dtype=object),  # the same digits
        digests([0, 1], Fraction(1, 10)),
        digests([0, 1], Fraction(10)),
        digests([0, 1], rest=[0, 0], parts=2**30),
        digests([0, 1], rest=[0, 1], parts=2**30),
        digests([0, 1], rest=[0, 1], parts=2**31),
        digests([0, 1], rest=[1, 0], parts=2**30),
        digests([0, 1], Fraction(1, 2**30), rest=[0, 1], parts=1),
    ]
    assert len({tuple(some) for some in cases}) == len(cases)


def test_a_rest_changes_the_digest_of_its_bucket_only():
    rest = np.zeros(CELLS, np.int64)
    one = digests(np.zeros(CELLS, np.int64), rest=rest, parts=8)
    rest[BUCKET] = 1
    other = digests(np.zeros(CELLS, np.int64), rest=rest, parts=8)
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, False, True]


# Secrecy


class Remembered(Recorded):
    """Keys that are remembered."""

    def __init__(self, seed):
        super().__init__(seed)
        self.keys = []

    def key(self):
        self.keys.append(super().key())
        return self.keys[-1]


def forms_of(secret):
    return {
        secret,
        secret.hex().encode(),
        secret.hex().upper().encode(),
        base64.b64encode(secret).rstrip(b"="),
        base64.urlsafe_b64encode(secret).rstrip(b"="),
        repr(secret)[2:-1].encode(),
        str(int.from_bytes(secret)).encode(),
        json.dumps(list(secret))[1:-1].encode(),
    }


@pytest.fixture
def secrets(monkeypatch):
    """All digests of sums and keys of buckets that releases compute."""
    found, hashed, bucket = [], buckets._digests_of_sums, ReleaseKey.bucket

    def of_sums(given):
        some = list(hashed(given))
        found.extend(some)
        return some

    def of_bucket(self, *fields):
        found.append(bucket(self, *fields))
        return found[-1]

    monkeypatch.setattr(buckets, "_digests_of_sums", of_sums)
    monkeypatch.setattr(ReleaseKey, "bucket", of_bucket)
    return found


def written(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_key_and_no_digest_is_found_in_anything_that_is_kept(secrets, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    source = Remembered(1)
    data = pa.table({"cell": [0, 1, 2], "x": [5, 6, 7]})
    ledger = ss.Ledger(tmp_path / "l.ledger", {"*": ss.Gaussian(sigma=0.1).policy})
    session = ss.Session(data, ledger, bits=source)
    tables = {
        "cells": ss.Sums({"x": WIDE}, keys=ss.Keys.from_frame({"cell": [0, 1, 2]}), count=ss.Gaussian(sigma=9)),
        "middle": ss.Quantiles("x", loss=0.1, at=(0.5,), grid=[1, 10]),
    }
    release = session.release(ss.Request(tables))
    release.to_csv(tmp_path / "csv")
    release.to_parquet(tmp_path / "parquet")
    release.report(tmp_path / "report.html")
    places = {
        **written(tmp_path),
        "facts": json.dumps(release.facts.to_dict()).encode(),
        "objects": "".join(map(repr, (release, release["cells"], session, session.spent, source))).encode(),
        "pickled": pickle.dumps((release["cells"].table, release.facts.to_dict())),
        "log": caplog.text.encode(),
        "output": "".join(capfd.readouterr()).encode(),
    }
    assert len(source.keys) == 1
    assert len(secrets) == 6  # of two columns and of quantiles: a digest and a key
    assert len(places) > 8
    for secret in (*source.keys, *secrets):
        for form in forms_of(secret):
            for place, content in places.items():
                assert form not in content, place


def test_a_failed_draw_shows_no_key_and_no_digest(secrets, monkeypatch):
    """Not even if the local variables of all functions are logged."""
    real = drawing.draw

    def fail(*given):
        if not secrets:  # zeros are drawn before the charge
            return real(*given)
        raise RuntimeError(f"failed {given!r}")

    monkeypatch.setattr(drawing, "draw", fail)
    source = Remembered(1)
    with pytest.raises(RuntimeError) as failure:
        ss.Session(pa.table({"x": [5]}), bits=source).sum({"x": WIDE})
    trace = traceback.TracebackException.from_exception(failure.value, capture_locals=True)
    trace.stack[:] = [frame for frame in trace.stack if frame.filename != __file__]  # the test knows the keys
    shown = "".join(trace.format()).encode()
    assert shown.count(b"confidential") >= 3
    assert len(secrets) == 2
    assert not any(form in shown for secret in (*source.keys, *secrets) for form in forms_of(secret))


def test_a_key_is_neither_printed_nor_copied_nor_pickled():
    source = Remembered(1)
    key = ReleaseKey(source)
    table = TableBits(key, "t", None, {"x": b"{}"})
    bits = table.column("x", Exact(np.zeros(2, np.int64), Fraction(1)))
    for one in (key, table, bits):
        for text in (repr(one), str(one), f"{[one]}"):
            assert not any(form in text.encode() for secret in (*source.keys, *bits._keys) for form in forms_of(secret))
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="confidential"):
                pickle.dumps(one, protocol)
        with pytest.raises(TypeError, match="confidential"):
            copy.deepcopy(one)
    assert not hasattr(key, "__dict__")


def test_no_key_is_left_after_a_release():
    session = ss.Session(records(x=zeros()), bits=Recorded(1))
    release = session.release(sums())
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, ReleaseKey | TableBits | ss.sampling.Bits)]
    assert session.spent is not None
    assert len(release["cells"].table) == CELLS


def test_a_release_under_secret_keys_is_private_and_others_are_not():
    data = pa.table({"x": [5]})
    assert ss.Session(data).sum({"x": WIDE}).facts.private
    assert not ss.Session(data, bits=Recorded(1)).sum({"x": WIDE}).facts.private
    assert ReleaseKey(ss.sampling.SECRET).private
    assert (
        TableBits(ReleaseKey(Recorded(1)), "t", None, {"x": b""})
        .column("x", Exact(np.zeros(1, np.int64), Fraction(1)))
        .private
        is False
    )
