"""Public keys: the group labels of a released table, fixed before the records are looked at.

Every key appears in the release, also one that no record has; a record whose labels are not among the keys is left
out. So the keys must be public. Taking them from the data is a choice that must be typed out (`Keys.public_in`), and
the release states it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.arrays import first_rows, from_list, to_arrow
from slowscale.errors import ParameterError, ParameterTypeError
from slowscale.markup import html_table
from slowscale.tables import rowwise
from slowscale.tables.engines import DATE, TEXT, TRUTH, WHOLE, engine_errors, engine_of, fetch, grouped
from slowscale.tables.rowwise import Expression
from slowscale.tables.sources import as_arrow, open_source, open_table
from slowscale.typing import DataLike, HasTable, Label, PathLike, TableLike

GIVEN = "The keys were given as public."
SHOWN = 10  # keys in a notebook
TAKEN = "The keys were taken from the data, on the curator's word that they are public."

TYPES = {TEXT: pa.string(), WHOLE: pa.int64(), TRUTH: pa.bool_(), DATE: pa.date32()}


def label_kind(dtype: Any) -> str | None:
    """Return what labels of an Arrow or Ibis type are, or None where they cannot be labels."""
    if isinstance(dtype, dt.DataType):
        tests = {TEXT: dtype.is_string(), WHOLE: dtype.is_integer(), TRUTH: dtype.is_boolean(), DATE: dtype.is_date()}
    else:
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
        whole, truth = pa.types.is_integer(dtype), pa.types.is_boolean(dtype)
        tests = {TEXT: text, WHOLE: whole, TRUTH: truth, DATE: pa.types.is_date(dtype)}
    return next((kind for kind, is_it in tests.items() if is_it), None)


@dataclass(frozen=True, eq=False, repr=False)
class Keys:
    """The public labels of a release: a small table of distinct rows, in the order they will be published.

    >>> counties = Keys.cross({"county": ["01001", "01003"]})
    >>> keys = counties * Keys.cross({"naics3": [111, 112, 113]})
    >>> len(keys), keys.columns
    (6, ('county', 'naics3'))
    >>> print(keys.filter(lambda county, naics3: naics3 > 111).project("county"))
    Keys: 2 of county (text). The keys were given as public.
    """

    table: pa.Table
    assumption: str = GIVEN

    @property
    def from_data(self) -> bool:
        """Whether the labels were taken from the data."""
        return self.assumption == TAKEN

    def __post_init__(self) -> None:
        if not isinstance(self.table, pa.Table):
            raise ParameterTypeError("Keys are made by Keys.from_frame, .cross, .from_file or .public_in")
        if self.assumption not in (GIVEN, TAKEN):
            raise ParameterError("Keys are made by Keys.from_frame, .cross, .from_file or .public_in")
        if not self.table.num_columns:
            raise ParameterError("keys must have a column")
        if len(set(self.table.column_names)) < self.table.num_columns:
            raise ParameterError("keys must have columns of different names")
        object.__setattr__(self, "table", _checked(self.table))

    @staticmethod
    def from_frame(frame: TableLike | Mapping[str, Iterable[Label]]) -> "Keys":
        """Return the rows of a pandas, polars or pyarrow frame, or of a mapping of columns, as keys."""
        if isinstance(frame, Mapping):
            columns = {_name(name): _column(name, values) for name, values in frame.items()}
            if len({len(column) for column in columns.values()}) > 1:
                lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
                raise ParameterError(f"keys must have columns of one length, got {lengths}")
            return Keys(pa.table(columns))
        read = as_arrow(frame, "keys")
        if read is None:
            raise ParameterTypeError(
                f"keys must be a pandas, polars or pyarrow table or a mapping, got {type(frame).__name__}"
            )
        table, unusable = read
        if unusable:
            names = ", ".join(unusable)
            raise ParameterTypeError(f"keys {names} must be text, whole numbers, booleans or dates, each of one type")
        return Keys(table)

    @staticmethod
    def cross(*factors: "Mapping[str, Iterable[Label]] | Keys") -> "Keys":
        """Return all combinations of the values of several columns, or of several keys; the last varies fastest."""
        parts = [
            part
            for factor in factors
            for part in (
                [factor]
                if isinstance(factor, Keys)
                else [Keys(pa.table({_name(name): _column(name, values)})) for name, values in _mapping(factor).items()]
            )
        ]
        if not parts:
            raise ParameterError("Keys.cross needs at least one column with its values")
        product = parts[0]
        for part in parts[1:]:
            product = product * part
        return product

    @staticmethod
    def from_file(
        path: PathLike,
        columns: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
    ) -> "Keys":
        """Return the rows of a file as keys.

        Parameters
        ----------
        path
            The file: any kind that a session reads.
        columns
            The columns to take; all, when not given.
        types
            The types of columns, such as {"naics3": "int64"}. A CSV column without a type is text, as it is written.
        csv
            How a CSV file is written, such as {"delimiter": ";"}.
        """
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError(f"path must be the path of a file, got {type(path).__name__}")
        source = open_source(path, types, csv, "keys")
        chosen = _present(source.table.columns, columns, "columns")
        for name in chosen:
            if name in source.unreadable:
                raise ParameterError(f"keys {name} has labels that are not {source.unreadable[name]}, in {path}")
        with engine_errors(f"keys could not be read ({os.fspath(path)})"):
            return Keys(fetch(source.table.select(*chosen)))

    @staticmethod
    def public_in(
        data: DataLike | HasTable,
        by: str | Sequence[str],
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
        derive: Mapping[str, Expression] | None = None,
    ) -> "Keys":
        """Return the labels that occur in the data, on your word that they are public.

        Which labels occur may itself tell that a record exists. Use this only where that is known anyway (for
        instance where the publisher's list of non-empty cells is public). The release records the choice.

        Parameters
        ----------
        data
            A session, or what `ss.Session` takes.
        by
            The key columns.
        types, csv
            As in `ss.Session`.
        derive
            New columns that may be keys, as in `session.sum`.
        """
        if not isinstance(data, ir.Table) and isinstance(getattr(data, "table", None), ir.Table):  # a session
            data = data.table  # type: ignore[union-attr]
        if by is None:
            raise ParameterTypeError("by must name the key columns")
        table = rowwise.derive(open_table(data, types, csv), derive)
        names = _present(table.columns, by, "by")
        kinds = {name: _check_kind(name, table[name].type()) for name in names}
        labelled = table.filter([table[name].notnull() for name in names])
        with engine_errors("the keys could not be taken from the data", quote=False):
            found = fetch(grouped(labelled, kinds, {"records": labelled.count()}))
        engine = engine_of(table)
        labels = {
            name: engine.key_label(found[f"by{i}"], kind).cast(TYPES[kind])
            for i, (name, kind) in enumerate(kinds.items())
        }
        taken = pa.table(labels).drop_null().sort_by([(name, "ascending") for name in names])
        if not taken.num_rows:
            raise ParameterError("keys must not be empty: the data has no record with labels")
        return Keys(taken, TAKEN)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(self.table.column_names)

    @property
    def kinds(self) -> dict[str, str]:
        """What the labels of each column are: text, whole numbers, booleans or dates."""
        return {field.name: label_kind(field.type) or "" for field in self.table.schema}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.to_pylist() for column in self.table.columns), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self.assumption == other.assumption and self.table.equals(other.table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = " × ".join(f"{name} ({kind})" for name, kind in self.kinds.items())
        return f"Keys: {len(self)} of {names}. {self.assumption}"

    def _repr_html_(self) -> str:
        rows = list(zip(*(column.to_pylist() for column in self.table.slice(0, SHOWN).columns), strict=True))
        more = f"The first {SHOWN} of {len(self):,} keys" if len(self) > SHOWN else f"{len(self):,} keys"
        return html_table(more, self.columns, rows, self.assumption)

    def __mul__(self, other: "Keys") -> "Keys":
        """Return every key of the one with every key of the other."""
        if not isinstance(other, Keys):
            return NotImplemented
        shared = set(self.columns) & set(other.columns)
        if shared:
            raise ParameterError(f"keys that are crossed must have different columns, both have {', '.join(shared)}")
        left = to_arrow(np.repeat(np.arange(len(self)), len(other)))
        right = to_arrow(np.tile(np.arange(len(other)), len(self)))
        columns = {name: self.table[name].take(left) for name in self.columns}
        columns |= {name: other.table[name].take(right) for name in other.columns}
        return Keys(pa.table(columns), _weaker(self, other))

    def __or__(self, other: "Keys") -> "Keys":
        """Return the keys that are in either, those of the first one first."""
        if not isinstance(other, Keys):
            return NotImplemented
        return Keys(_distinct(pa.concat_tables([self.table, self._like(other)])), _weaker(self, other))

    def __sub__(self, other: "Keys") -> "Keys":
        """Return the keys that are not in the other."""
        if not isinstance(other, Keys):
            return NotImplemented
        gone = set(zip(*(column.to_pylist() for column in self._like(other).columns), strict=True))
        return Keys(self.table.filter(pa.array(key not in gone for key in self)), _weaker(self, other))

    def filter(self, condition: Callable[..., Any] | None = None, /, **equal: Label | Iterable[Label]) -> "Keys":
        """Return the keys that meet a condition.

        Parameters
        ----------
        condition
            A function of the key's columns by name, such as `lambda county, naics3: county.startswith("01")`.
        equal
            Or: the value, or the values, that a column must have, such as `county="01001"`.
        """
        kept = pa.array([True] * len(self))
        for name, wanted in equal.items():
            _present(self.columns, [name], "filter")
            values = list(wanted) if hasattr(wanted, "__iter__") and not isinstance(wanted, str | bytes) else [wanted]
            kept = pc.and_(kept, pc.is_in(self.table[name], _cast(name, values, self.kinds[name])))
        if condition is not None:
            if not callable(condition):
                raise ParameterTypeError(f"condition must be a function of the key's columns, got {condition!r}")
            rows = (dict(zip(self.columns, key, strict=True)) for key in self)
            try:
                kept = pc.and_(kept, pa.array(bool(condition(**row)) for row in rows))
            except Exception as error:
                names = ", ".join(self.columns)
                raise ParameterTypeError(f"condition must be a function of {names}, got an error: {error}") from error
        return Keys(self.table.filter(kept), self.assumption)

    def project(self, *columns: str) -> "Keys":
        """Return the distinct values of some of the columns, in the order of their first occurrence."""
        names = columns[0] if len(columns) == 1 and not isinstance(columns[0], str) else columns
        chosen = self.table.select(_present(self.columns, names, "columns"))
        return Keys(_distinct(chosen), self.assumption)

    def _like(self, other: "Keys") -> pa.Table:
        """Return the other keys with the columns of these in their order."""
        if set(self.columns) != set(other.columns):
            raise ParameterError(
                f"keys must have the same columns, got {', '.join(self.columns)} and {', '.join(other.columns)}"
            )
        for name in self.columns:
            if self.kinds[name] != other.kinds[name]:
                raise ParameterTypeError(
                    f"keys {name}: {self.kinds[name]} on one side, {other.kinds[name]} on the other"
                )
        return other.table.select(self.columns)


def _weaker(one: Keys, other: Keys) -> str:
    return TAKEN if TAKEN in (one.assumption, other.assumption) else GIVEN


def _mapping(factor: Any) -> Mapping[str, Any]:
    if not isinstance(factor, Mapping):
        raise ParameterTypeError(f"Keys.cross takes a mapping of columns to values, or keys, got {factor!r:.60}")
    return factor


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise ParameterTypeError(f"a key column must be named by text, got {name!r}")
    return name


def _column(name: str, values: Any) -> pa.Array:
    allowed = "text, whole numbers of at most 64 bits, booleans or dates"
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise ParameterTypeError(f"keys {name} must be a list of labels, got {values!r}")
    try:
        items = values if getattr(values, "dtype", None) is not None or isinstance(values, pa.Array) else list(values)
        kinds = {type(item) for item in items} if isinstance(items, list) else set()
        if len(kinds) > 1:
            got = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise ParameterTypeError(f"keys {name} must be labels of one type, got {got}")
        return from_list(items) if isinstance(items, list) else pa.array(items)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        if isinstance(error, ParameterTypeError):
            raise
        raise ParameterTypeError(f"keys {name} must be {allowed}: {error}") from None


def _cast(name: str, values: list[Any], kind: str) -> pa.Array:
    array = _column(name, values)
    if values and label_kind(array.type) != kind:
        raise ParameterTypeError(f"keys {name} are {kind}, got {values[0]!r}")
    return array.cast(TYPES[kind])


def _present(have: Sequence[str], wanted: str | Sequence[str] | None, argument: str) -> list[str]:
    if wanted is None:
        return list(have)
    try:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
    except TypeError:
        names = [wanted]  # type: ignore[list-item]
    if not all(isinstance(name, str) for name in names):
        raise ParameterTypeError(f"{argument} must name columns by text, got {wanted!r:.60}")
    if not names:
        raise ParameterError(f"{argument} must name at least one column")
    for name in names:
        if name not in have:
            raise ParameterError(f"{argument}: there is no column {name!r}; there are {', '.join(have)}")
        if names.count(name) > 1:
            raise ParameterError(f"{argument} names {name!r} twice")
    return names


def _check_kind(name: str, dtype: Any) -> str:
    kind = label_kind(dtype)
    if kind is None:
        why = (
            " (a missing label turns whole numbers into floats in pandas)"
            if str(dtype) in ("double", "float64")
            else ""
        )
        raise ParameterTypeError(f"keys {name} must be text, whole numbers, booleans or dates, got {dtype}{why}")
    return kind


def _checked(table: pa.Table) -> pa.Table:
    """Return the keys in the one Arrow type of each kind; missing labels, duplicates and emptiness are refused."""
    if not table.num_rows:
        raise ParameterError("keys must not be empty")
    columns = {}
    for field in table.schema:
        kind = _check_kind(field.name, field.type)
        try:
            columns[field.name] = table[field.name].cast(TYPES[kind]).combine_chunks()
        except pa.ArrowInvalid as error:
            raise ParameterError(f"keys {field.name}: {error}") from None
        if columns[field.name].null_count:
            raise ParameterError(f"keys {field.name} must not have missing labels")
    checked = pa.table(columns)
    first = first_rows(checked.columns)
    if len(first) < len(checked):
        again = np.setdiff1d(np.arange(len(checked)), first)[:1]
        raise ParameterError(f"keys must be distinct: {checked.take(again).to_pylist()[0]} is there more than once")
    return checked


def _distinct(table: pa.Table) -> pa.Table:
    return table.take(to_arrow(first_rows(table.columns)))
