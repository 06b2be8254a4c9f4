"""Release keys and buckets: the bits of every cell are fixed by a secret key and by what is released.

A release draws one key of 256 bits when it is charged. The cells of a table are split, in the order of their public
keys, into buckets of 4,096. The noise of a column in a bucket is drawn under HMAC-SHA-256 of the release key and of
everything that decides the bucket: its columns and mechanisms, its place, and its labels and exact sums. So a draw that
is repeated, in any order and on any machine or engine with the same types of columns, gives the same numbers; and where
any sum of a bucket differs, its noise is fresh.

Under one key only one version of a bucket may ever be seen: whether two are equal would reveal whether a sum changed.
The key, the keys of buckets and the digests of sums are as CONFIDENTIAL as the records. They stay in memory, and
cannot be printed or pickled.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from slowscale.core.arrays import to_numpy
from slowscale.mechanisms.exact_sums import Exact
from slowscale.release.facts import TableFacts
from slowscale.sampling import Bits, BitSource

BUCKET = 4096  # cells
FORMAT = 1  # of what the bits of a bucket depend on


class ReleaseKey:
    """The secret key of one release. CONFIDENTIAL: it stays in memory."""

    __slots__ = ("_key", "private")

    def __init__(self, source: BitSource) -> None:
        self._key, self.private = source.key(), source.private

    def bucket(self, *fields: bytes | str | int) -> bytes:
        """Return the key under which a bucket is drawn, from the fields that decide it."""
        return hmac.digest(self._key, framed("slowscale bucket", FORMAT, *fields), "sha256")

    def __repr__(self) -> str:
        return "<release key: confidential>"

    def __reduce__(self) -> Any:
        raise TypeError("a release key is confidential, and cannot be pickled")


@dataclass(frozen=True, repr=False, eq=False)
class TableBits:
    """The bits of the cells of one table under a release key, for cells that begin at a bucket. CONFIDENTIAL.

    Attributes
    ----------
    key, name
        The release key, and the name of the table.
    labels
        The public labels of the cells, or None for totals.
    decided
        What decides the noise of each column, besides the labels and sums; quantiles have the name "".
    first
        The number of the first bucket.
    """

    key: ReleaseKey
    name: str
    labels: pa.Table | None
    decided: Mapping[str, bytes]
    first: int = 0

    @staticmethod
    def of(key: ReleaseKey, name: str, facts: TableFacts, labels: pa.Table | None) -> "TableBits":
        """Return the bits of the first cells of a table, which have these labels."""
        shared = {
            "keys": None if facts.keys is None else list(facts.keys.columns.items()),  # in order, as the labels are
            "where": facts.where,
            "derived": facts.derived,
        }
        drawn: dict[str, Any] = {
            column: {
                "mechanism": one.described,
                "parameters": one.mechanism,
                "estimator": one.estimator,
                "unit": one.unit,
                "nulls": one.nulls,
                "negatives": one.negatives,
            }
            for column, one in facts.columns.items()
        }
        if facts.quantiles is not None:
            drawn[""] = facts.quantiles.to_dict()
        decided = {
            column: json.dumps({**shared, **one}, sort_keys=True, default=str).encode() for column, one in drawn.items()
        }
        return TableBits(key, name, labels, decided)

    def column(self, name: str, sums: Exact) -> Bits:
        """Return the bits of a column with these exact sums."""
        starts = range(0, len(sums.counts), BUCKET)
        digests = zip(_digests(self.labels, len(sums.counts)), _digests_of_sums(sums), strict=True)
        keys = [
            self.key.bucket(self.name, name, self.decided[name], self.first + number, *digest)
            for number, digest in enumerate(digests)
        ]
        return Bits(keys, starts, private=self.key.private)

    def quantiles(self, counts: Exact) -> Bits:
        """Return the bits of quantiles, each of which depends on all of these counts."""
        key = self.key.bucket(self.name, "", self.decided[""], *_digests_of_sums(counts))
        return Bits([key], private=self.key.private)


def framed(*fields: bytes | str | int) -> bytes:
    """Return fields as bytes, each with its type and length, so that different fields never give the same bytes."""
    parts = []
    for field in fields:
        kind = b"b" if isinstance(field, bytes) else b"s" if isinstance(field, str) else b"i"
        content = field if isinstance(field, bytes) else str(field).encode()
        parts.append(kind + len(content).to_bytes(8, "little") + content)
    return b"".join(parts)


def _digests(labels: pa.Table | None, cells: int) -> Iterator[bytes]:
    """Yield a digest of the labels of each bucket."""
    for start in range(0, cells, BUCKET):
        digest = hashlib.sha256()
        for column in () if labels is None else labels.slice(start, BUCKET).columns:
            digest.update(framed(str(column.type), *_label_bytes(column)))
        yield digest.digest()


def _label_bytes(column: pa.ChunkedArray) -> Sequence[bytes]:
    """Return labels as bytes that differ for different labels: the lengths and the bytes of texts, or integers."""
    if not pa.types.is_string(column.type):
        column = column.cast(pa.int32()) if pa.types.is_date(column.type) else column
        return (to_numpy(column).astype("<i8").tobytes(),)
    array = pa.concat_arrays(column.chunks)
    _, offsets, text = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    content = b"" if text is None else text[int(ends[0]) : int(ends[-1])].to_pybytes()
    return np.diff(ends).astype("<i8").tobytes(), content


def _digests_of_sums(sums: Exact) -> Iterator[bytes]:
    """Yield a digest of the exact sums of each bucket. CONFIDENTIAL: sums can be found by trying."""
    for start in range(0, len(sums.counts), BUCKET):
        at = slice(start, start + BUCKET)
        rest = b"" if sums.rest is None else _integer_bytes(sums.rest[at])
        grain = f"{sums.grain}/{sums.parts}"
        yield hashlib.sha256(framed(grain, _integer_bytes(sums.counts[at]), rest)).digest()


def _integer_bytes(numbers: Any) -> bytes:
    """Return integers as bytes: the same for the same integers, whatever type holds them."""
    if numbers.dtype == object and all(-(2**63) <= number < 2**63 for number in numbers):
        numbers = numbers.astype(np.int64)
    if numbers.dtype == object:
        return b"large " + ",".join(map(str, numbers)).encode()
    return b"small " + bytes(numbers.astype("<i8").tobytes())
