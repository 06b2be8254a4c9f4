"""Public keys: the group labels of a released table, fixed before the records are read.

Every key appears in the release, even if no record has it; a record whose labels are not among the keys is left out.
The keys must therefore be public. Taking them from the data must be requested explicitly (`Keys.from_data`), and the
release states that it was done.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ibis.expr.datatypes as dt
import ibis.expr.types as ir
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slowscale.core.arrays import first_rows, from_list, to_arrow
from slowscale.core.errors import DataError, ParameterError, ParameterTypeError, Shown
from slowscale.core.markup import html_table
from slowscale.core.parameters import called_as, lazy
from slowscale.core.typing import DataLike, HasTable, Label, PathLike, TableLike
from slowscale.data import rowwise
from slowscale.data.connections import engine_errors
from slowscale.data.conversion import listed_columns
from slowscale.data.engines import BOOLEAN, DATE, PRIVATE, TEXT, WHOLE, engine_of, fetch, grouped
from slowscale.data.foreign import as_arrow
from slowscale.data.sources import open_source, open_table
from slowscale.data.stored_keys import MANY, StoredKeys

GIVEN = "The keys were given as public."
MADE_BY = "made by Keys.from_frame, .cross, .from_file or .from_data, not directly"
KEYS_SHOWN = 10  # the number of keys that a notebook shows
TAKEN = "The keys were taken from the data, on the curator's word that they are public."

ARROW_TYPES = {TEXT: pa.string(), WHOLE: pa.int64(), BOOLEAN: pa.bool_(), DATE: pa.date32()}


def label_kind(dtype: Any) -> str | None:
    """Return the kind of labels that an Arrow or Ibis type, or a declared one, holds; None if it cannot hold labels."""
    if isinstance(dtype, str):
        dtype = dt.dtype(dtype)
    if isinstance(dtype, dt.DataType):
        tests = {TEXT: dtype.is_string(), WHOLE: dtype.is_integer(), BOOLEAN: dtype.is_boolean(), DATE: dtype.is_date()}
    else:
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype)
        whole, truth = pa.types.is_integer(dtype), pa.types.is_boolean(dtype)
        tests = {TEXT: text, WHOLE: whole, BOOLEAN: truth, DATE: pa.types.is_date(dtype)}
    return next((kind for kind, is_it in tests.items() if is_it), None)


@dataclass(frozen=True, eq=False, repr=False)
class Keys:
    """The public labels of a release: distinct rows, in the order of publication.

    Crossed keys are kept as their factors, so that a product of any size takes no memory until its table is asked for.

    >>> counties = Keys.cross({"county": ["01001", "01003"]})
    >>> keys = counties * Keys.cross({"naics3": [111, 112, 113]})
    >>> len(keys), keys.columns
    (6, ('county', 'naics3'))
    >>> print(keys.filter(lambda county, naics3: naics3 > 111).project("county"))
    Keys: 2 of county (text). The keys were given as public.
    """

    factors: tuple[pa.Table | StoredKeys, ...]
    assumption: str = GIVEN

    @property
    def taken(self) -> bool:
        """Whether the labels were taken from the data."""
        return self.assumption == TAKEN

    def __post_init__(self) -> None:
        if not isinstance(self.factors, tuple) or not all(
            isinstance(factor, pa.Table | StoredKeys) for factor in self.factors
        ):
            raise ParameterTypeError("Keys", allowed=MADE_BY, given=type(self.factors))
        if self.assumption not in (GIVEN, TAKEN):
            raise ParameterError("Keys", allowed=MADE_BY, given=self.assumption)
        if not self.columns:
            raise ParameterError("keys", "must have at least one column", code="empty", remedy="name the key columns")
        if len(set(self.columns)) < len(self.columns):
            raise ParameterError(
                "keys",
                "must have columns of different names",
                code="duplicate",
                given=Shown(", ".join(self.columns)),
                remedy="rename them",
            )

    @staticmethod
    def _of(table: pa.Table, assumption: str = GIVEN) -> "Keys":
        """Return the rows of a table as keys, once they are checked."""
        keys = Keys((table,), assumption)
        object.__setattr__(keys, "factors", (_normalized(table),))
        return keys

    @lazy
    def table(self) -> pa.Table:
        """All keys, as an Arrow table."""
        return self.slice(0, len(self))

    def slice(self, start: int, size: int) -> pa.Table:
        """Return some of the keys in their order, as an Arrow table: no others are made."""
        if len(self.factors) == 1:
            return self.factors[0].slice(start, size)
        rest, columns = np.arange(start, min(start + size, len(self))), dict[str, pa.Array]()
        for factor in reversed(self.factors):  # the last one varies fastest
            rest, places = np.divmod(rest, len(factor))
            first = int(places.min(initial=0))
            used = factor.slice(first, int(places.max(initial=0)) - first + 1)
            columns |= {name: used[name].combine_chunks().take(to_arrow(places - first)) for name in used.column_names}
        return pa.table({name: columns[name] for name in self.columns})

    @staticmethod
    def from_frame(frame: TableLike | Mapping[str, Iterable[Label]]) -> "Keys":
        """Return the rows of a pandas, polars or pyarrow frame, or of a mapping of columns, as keys."""
        if isinstance(frame, Mapping):
            columns = {_check_name(name): _label_array(name, values) for name, values in frame.items()}
            if len({len(column) for column in columns.values()}) > 1:
                lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
                raise ParameterError(
                    "keys", "must have columns of the same length", code="mismatch", given=Shown(lengths)
                )
            return Keys._of(pa.table(columns))
        read = as_arrow(frame, "keys")
        if read is None:
            raise ParameterTypeError(
                "keys", allowed="a pandas, polars or pyarrow table or a mapping", given=type(frame)
            )
        wrong = [*read.unusable, *sorted(read.not_text)]
        if wrong:
            names = ", ".join(wrong)
            raise ParameterTypeError(
                f"keys {names}",
                "must hold text, whole numbers, booleans or dates, and one type per column",
                code="label-type",
                remedy="convert them",
            )
        return Keys._of(read.table)

    @staticmethod
    @called_as('Keys.cross({"state": ["IA", "TX"]})')
    def cross(*factors: "Mapping[str, Iterable[Label]] | Keys") -> "Keys":
        """Return all combinations of the values of several columns or of several keys; the last one varies fastest."""
        parts = [
            part
            for factor in factors
            for part in (
                [factor]
                if isinstance(factor, Keys)
                else [
                    Keys._of(pa.table({_check_name(name): _label_array(name, values)}))
                    for name, values in _check_mapping(factor).items()
                ]
            )
        ]
        if not parts:
            raise ParameterError("Keys.cross", allowed="given at least one column with its values")
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

        More than two million rows are kept outside of Python: a release to a folder reads them range by range.

        Parameters
        ----------
        path
            The file, of any kind that a session reads, or the address of a database table.
        columns
            The columns to read; all by default.
        types
            The types of columns, such as {"naics3": "int64"}. A CSV column without a type is text.
        csv
            The settings of a CSV file, such as {"delimiter": ";"}.
        """
        if not isinstance(path, str | os.PathLike):
            raise ParameterTypeError("path", allowed="the path of a file", given=type(path))
        source = open_source(path, types, csv, "keys")
        chosen = _check_columns(source.table.columns, columns, "columns")
        for name in chosen:
            if name in source.unreadable:
                raise ParameterError(
                    f"keys {name}",
                    f"is declared as {source.unreadable[name]}, but {path} has other labels",
                    code="declared-type",
                    remedy="correct the file, or the declared type",
                )
        wanted = source.table.select(*chosen)
        with engine_errors("keys", f"could not be read ({os.fspath(path)})"):
            large = engine_of(wanted) is PRIVATE and int(wanted.count().to_pyarrow().as_py()) > MANY
            found = None if large else fetch(wanted)
        if found is None:
            kinds = {name: _check_kind(name, wanted[name].type()) for name in chosen}
            return Keys((StoredKeys.of(wanted, kinds, ARROW_TYPES, os.fspath(path)),))
        if engine_of(wanted) is not PRIVATE:  # the rows of a database have no order
            found = found.sort_by([(name, "ascending") for name in chosen])
        try:
            return Keys._of(found)
        except ParameterError as error:
            # The file could be a copy of the data, so no label is shown.
            if error.code == "duplicate":
                error = ParameterError("keys", error.problem, code=error.code, remedy=f"remove it from {path}")
            elif error.code == "cast":
                error = ParameterError(
                    error.subject, "must be whole numbers of at most 64 bits, signed", code=error.code
                )
            raise error from None

    @staticmethod
    def from_data(
        data: DataLike | HasTable,
        by: str | Sequence[str],
        types: Mapping[str, str] | None = None,
        csv: Mapping[str, Any] | None = None,
        derive: Mapping[str, str] | None = None,
        *,
        declared_public: bool,
    ) -> "Keys":
        """Return the labels that occur in the data, which you declare to be public.

        A label that occurs reveals that a record exists. Use this only if that is public already, for instance if the
        list of non-empty cells is published. The release states the choice.

        Parameters
        ----------
        data
            A session, or data in any form that `ss.Session` takes.
        by
            The key columns.
        types, csv
            As in `ss.Session`.
        derive
            Derived columns, which may be key columns, as in `session.sum`.
        declared_public
            Must be True: your declaration that it is public which labels occur.
        """
        if declared_public is not True:
            raise ParameterError(
                "declared_public",
                allowed="True to take the labels from the data",
                given=declared_public,
                remedy=(
                    "which labels occur may reveal records: declare that this is public, or give a public list of "
                    "labels"
                ),
            )
        if not isinstance(data, ir.Table) and isinstance(getattr(data, "table", None), ir.Table):  # a session
            data = data.table  # type: ignore[union-attr]
        if by is None:
            raise ParameterTypeError("by", allowed="the names of the key columns", given=None)
        table = rowwise.derive(open_table(data, types, csv), derive)
        names = _check_columns(table.columns, by, "by")
        kinds = {name: _check_kind(name, table[name].type()) for name in names}
        labelled = table.filter([table[name].notnull() for name in names])
        with engine_errors("the keys", "could not be taken from the data", quote=False):
            found = fetch(grouped(labelled, kinds, {"records": labelled.count()}))
        engine = engine_of(table)
        labels = {
            name: engine.key_label(found[f"by{i}"], kind).cast(ARROW_TYPES[kind])
            for i, (name, kind) in enumerate(kinds.items())
        }
        taken = pa.table(labels).drop_null().sort_by([(name, "ascending") for name in names])
        if not taken.num_rows:
            raise DataError("no-labels")
        return Keys._of(taken, TAKEN)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return tuple(name for factor in self.factors for name in factor.column_names)

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of the labels of each column: text, whole numbers, booleans or dates."""
        return {field.name: label_kind(field.type) or "" for factor in self.factors for field in factor.schema}

    def __len__(self) -> int:
        return math.prod(len(factor) for factor in self.factors)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(column.to_pylist() for column in self.table.columns), strict=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keys) and self.assumption == other.assumption and self.table.equals(other.table)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = " × ".join(f"{name} ({kind})" for name, kind in self.kinds.items())
        return f"Keys: {len(self)} of {names}. {self.assumption}"

    def _repr_html_(self) -> str:
        rows = list(zip(*(column.to_pylist() for column in self.slice(0, KEYS_SHOWN).columns), strict=True))
        more = f"The first {KEYS_SHOWN} of {len(self):,} keys" if len(self) > KEYS_SHOWN else f"{len(self):,} keys"
        return html_table(more, self.columns, rows, self.assumption)

    def __mul__(self, other: "Keys") -> "Keys":
        """Return every combination of a key of the first with a key of the second."""
        if not isinstance(other, Keys):
            return NotImplemented
        shared = set(self.columns) & set(other.columns)
        if shared:
            raise ParameterError(
                "keys",
                f"that are crossed must have different columns, but both have {', '.join(sorted(shared))}",
                code="duplicate",
                remedy="use project to remove them from one side",
            )
        return Keys((*self.factors, *other.factors), _combined_assumption(self, other))

    def __or__(self, other: "Keys") -> "Keys":
        """Return the keys that are in either of the two, those of the first one first."""
        if not isinstance(other, Keys):
            return NotImplemented
        return Keys._of(
            _distinct(pa.concat_tables([self.table, self._aligned(other)])), _combined_assumption(self, other)
        )

    def __sub__(self, other: "Keys") -> "Keys":
        """Return the keys that are not among the other keys."""
        if not isinstance(other, Keys):
            return NotImplemented
        gone = set(zip(*(column.to_pylist() for column in self._aligned(other).columns), strict=True))
        return Keys._of(self.table.filter(pa.array(key not in gone for key in self)), _combined_assumption(self, other))

    def filter(self, condition: Callable[..., Any] | None = None, /, **equal: Label | Iterable[Label]) -> "Keys":
        """Return the keys that meet a condition.

        Parameters
        ----------
        condition
            A function of the key's columns by name, such as `lambda county, naics3: county.startswith("01")`.
        equal
            The value, or the list of values, that a column must have, such as `county="01001"`.
        """
        kept = pa.array([True] * len(self))
        for name, wanted in equal.items():
            _check_columns(self.columns, [name], "filter")
            values = list(wanted) if hasattr(wanted, "__iter__") and not isinstance(wanted, str | bytes) else [wanted]
            kept = pc.and_(kept, pc.is_in(self.table[name], _labels_of_kind(name, values, self.kinds[name])))
        if condition is not None:
            if not callable(condition):
                raise ParameterTypeError("condition", allowed="a function of the key's columns", given=condition)
            rows = (dict(zip(self.columns, key, strict=True)) for key in self)
            try:
                kept = pc.and_(kept, pa.array(bool(condition(**row)) for row in rows))
            except Exception as error:
                names = ", ".join(self.columns)
                raise ParameterTypeError(
                    "condition", f"must be a function of {names}, but raised an error: {error}", code="callback"
                ) from error
        return Keys._of(self.table.filter(kept), self.assumption)

    def project(self, *columns: str) -> "Keys":
        """Return the distinct values of some of the columns, in the order of their first occurrence."""
        names = columns[0] if len(columns) == 1 and not isinstance(columns[0], str) else columns
        chosen = _check_columns(self.columns, names, "columns")
        parts = [factor.select([name for name in chosen if name in factor.column_names]) for factor in self.factors]
        found = Keys(tuple(_distinct(part) for part in parts if part.num_columns), self.assumption)
        return found if found.columns == tuple(chosen) else Keys._of(found.table.select(chosen), self.assumption)

    def _aligned(self, other: "Keys") -> pa.Table:
        """Return the table of the other keys, with its columns in the order of these keys."""
        if set(self.columns) != set(other.columns):
            raise ParameterError(
                "keys",
                "must have the same columns",
                code="mismatch",
                given=Shown(f"{', '.join(self.columns)} and {', '.join(other.columns)}"),
            )
        for name in self.columns:
            if self.kinds[name] != other.kinds[name]:
                raise ParameterTypeError(
                    f"keys {name}",
                    allowed="of one type",
                    given=Shown(f"{self.kinds[name]} and {other.kinds[name]}"),
                )
        return other.table.select(self.columns)


def _combined_assumption(one: Keys, other: Keys) -> str:
    return TAKEN if TAKEN in (one.assumption, other.assumption) else GIVEN


def _check_mapping(factor: Any) -> Mapping[str, Any]:
    if not isinstance(factor, Mapping):
        raise ParameterTypeError("Keys.cross", allowed="given mappings of columns to values, or keys", given=factor)
    return factor


def _check_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise ParameterTypeError(
            "a key column", "must have a non-empty text as its name", code="column-names", given=name
        )
    return name


def _label_array(name: str, values: Any) -> pa.Array:
    allowed = "text, whole numbers of at most 64 bits, booleans or dates"
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise ParameterTypeError(f"keys {name}", allowed="a list of labels", given=values)
    try:
        items = values if getattr(values, "dtype", None) is not None or isinstance(values, pa.Array) else list(values)
        kinds = {type(item) for item in items} if isinstance(items, list) else set()
        if any(issubclass(kind, float | np.floating) for kind in kinds):
            raise ParameterTypeError(
                f"keys {name}",
                allowed=allowed,
                given=Shown("floats, which cannot be labels"),
                remedy=(
                    "write whole numbers without a decimal point, and use text for other labels (a missing label "
                    "turns whole numbers of pandas into floats: remove it, or use Int64)"
                ),
            )
        if len(kinds) > 1:
            got = " and ".join(sorted(kind.__name__ for kind in kinds))
            raise ParameterTypeError(f"keys {name}", allowed="labels of one type", given=Shown(got))
        return from_list(items) if isinstance(items, list) else pa.array(items)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        if isinstance(error, ParameterTypeError):
            raise
        raise ParameterTypeError(f"keys {name}", allowed=allowed, remedy=f"Arrow says: {error}") from None


def _labels_of_kind(name: str, values: list[Any], kind: str) -> pa.Array:
    array = _label_array(name, values)
    if values and label_kind(array.type) != kind:
        raise ParameterTypeError(f"keys {name}", allowed=f"compared with {kind}", given=values[0])
    return array.cast(ARROW_TYPES[kind])


def _check_columns(have: Sequence[str], wanted: str | Sequence[str] | None, argument: str) -> list[str]:
    if wanted is None:
        return list(have)
    try:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
    except TypeError:
        names = [wanted]  # type: ignore[list-item]
    if not all(isinstance(name, str) for name in names):
        raise ParameterTypeError(argument, allowed="the names of columns, as text", given=wanted)
    if not names:
        raise ParameterError(argument, "must name at least one column", code="empty")
    for name in names:
        if name not in have:
            raise ParameterError(
                argument,
                f"names {name!r}, which is not a column",
                code="unknown-column",
                remedy=listed_columns(have, name),
            )
        if names.count(name) > 1:
            raise ParameterError(argument, f"must name each column once, but names {name!r} twice", code="duplicate")
    return names


def _check_kind(name: str, dtype: Any) -> str:
    kind = label_kind(dtype)
    if kind is None:
        why = (
            "convert the labels to whole numbers or text (in pandas, a missing label turns whole numbers into "
            "floats: fill it in, or use Int64)"
            if str(dtype) in ("double", "float64")
            else "every label is missing: give the labels"
            if str(dtype) == "null"
            else "convert the labels to text"
        )
        raise ParameterTypeError(
            f"keys {name}", allowed="text, whole numbers, booleans or dates", given=Shown(dtype), remedy=why
        )
    return kind


def _normalized(table: pa.Table) -> pa.Table:
    """Return keys in the Arrow type of their kind; raise for missing labels, duplicates and an empty table."""
    if not table.num_rows:
        raise ParameterError("keys", "must not be empty", code="empty", remedy="give at least one row")
    columns = {}
    for field in table.schema:
        kind = _check_kind(field.name, field.type)
        try:
            columns[field.name] = table[field.name].cast(ARROW_TYPES[kind]).combine_chunks()
        except pa.ArrowInvalid as error:
            raise ParameterError(f"keys {field.name}", f"cannot be converted: {error}", code="cast") from None
        if columns[field.name].null_count:
            raise ParameterError(
                f"keys {field.name}",
                "must not have missing labels",
                code="nulls",
                remedy="remove those rows, or give them a label",
            )
    checked = pa.table(columns)
    first = first_rows(checked.columns)
    if len(first) < len(checked):
        again = np.setdiff1d(np.arange(len(checked)), first)[:1]
        raise ParameterError(
            "keys",
            "must be distinct, but one occurs more than once",
            code="duplicate",
            given=checked.take(again).to_pylist()[0],
            remedy="remove it",
        )
    return checked


def _distinct(table: pa.Table) -> pa.Table:
    return table.take(to_arrow(first_rows(table.columns)))
