"""Conversions between Arrow and numpy arrays, and look-ups of rows by their labels, without importing pandas.

If pandas is installed, pyarrow imports it in `pa.array`, `Array.to_numpy`, joins and groupings. That takes a quarter of
a second, which small jobs need not wait for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_TYPES: dict[Any, pa.DataType] = {
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.float64): pa.float64(),
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.uint64): pa.uint64(),
}


def to_arrow(values: Any) -> pa.Array:
    """Return a numpy array as an Arrow array."""
    array = np.ascontiguousarray(values)
    if array.dtype not in _TYPES:
        return pa.array(array)
    return pa.Array.from_buffers(_TYPES[array.dtype], array.size, [None, pa.py_buffer(array)])


def to_numpy(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return a column of numbers as a numpy array."""
    parts = []
    for array in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        dtype = next((dtype for dtype, known in _TYPES.items() if known == array.type), None)
        if dtype is None or array.null_count:
            return np.asarray(column.to_numpy(zero_copy_only=False))
        if len(array):
            parts.append(np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)])
    if not parts:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def from_list(values: Sequence[Any]) -> pa.Array:
    """Return a list as an Arrow array."""
    if values and all(type(value) is str for value in values):
        builder = pa.lib.StringBuilder()
        builder.append_values(values)
        return builder.finish()
    if values and all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return to_arrow(np.array(values, np.int64))
    return pa.array(values)


def key_positions(rows: Sequence[Any], keys: Sequence[Any]) -> Any:
    """Return the position of each row among the keys, or −1 if it is not a key.

    Both are given as lists of columns. The keys are distinct.
    """
    size = len(keys[0])
    row_codes, key_codes = np.zeros(len(rows[0]), np.int64), np.zeros(size, np.int64)
    for column, labels in zip(rows, keys, strict=True):
        values = labels.unique()
        of_row, of_key = (_indices(some, values) for some in (column, labels))
        row_codes = np.where((of_row < 0) | (row_codes < 0), -1, row_codes * len(values) + of_row)
        key_codes = key_codes * len(values) + of_key
        # Codes are renumbered after each column, so that they never overflow.
        known, key_codes = np.unique(key_codes, return_inverse=True)
        at = np.minimum(np.searchsorted(known, row_codes), len(known) - 1)
        row_codes = np.where(known[at] == row_codes, at, -1)
    row_of_code = np.empty(size, np.int64)
    row_of_code[key_codes] = np.arange(size)
    return np.where(row_codes < 0, -1, row_of_code[row_codes])


def first_rows(columns: Sequence[Any]) -> Any:
    """Return the positions of the first occurrences of all distinct rows, in ascending order."""
    return group_rows(columns)[1]


def group_rows(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Return the group of each row, and the first row of each group; groups are numbered by their first rows."""
    codes = np.zeros(len(columns[0]), np.int64)
    for i, column in enumerate(columns):
        values = column.unique()
        codes = codes * len(values) + _indices(column, values)
        if i:  # codes are renumbered, so that they never overflow
            codes = np.unique(codes, return_inverse=True)[1]
    if len(columns) == 1:  # values are numbered by their first occurrence
        first = np.full(int(codes.max(initial=-1)) + 1, codes.size, np.int64)
        np.minimum.at(first, codes, np.arange(codes.size))
        return codes, first
    first, codes = np.unique(codes, return_index=True, return_inverse=True)[1:]
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return rank[codes], first[order]


def _indices(column: Any, values: pa.Array) -> Any:
    """Return the position of each element among distinct values, or −1 if it is not one of them."""
    found = pc.index_in(column, value_set=values)
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    if not len(array):
        return np.zeros(0, np.int64)
    numbers = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array)].astype(np.int64)
    if not array.null_count:
        return numbers
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return np.where(bits[array.offset : array.offset + len(array)], numbers, -1)
