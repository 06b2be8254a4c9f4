"""Filters and derived columns, which must be computed row by row, and the table of records that they are on.

A policy bounds the loss by the contribution of one record to a sum. A filter or a derived column that uses other rows
(an aggregate, a window, a subquery, a join) would let one record change the contribution of another, and with a
random one the contribution would not be a function of the record: the policy would no longer hold. Expressions are
therefore SQL text in a syntax that uses one row. Anything else is refused; a table that is a query over several rows
is reported.

The losses of several releases add up column by column, if a column is the same in all of them. Therefore the account
keeps a normal form of each charged column that is not stored. Two columns with equal normal forms have equal values.
Two spellings of one expression may have different normal forms: the account then refuses the second one. SQL text
loses its comments, its line breaks and its case outside of quotes, and names of other computed columns are replaced
by their definitions. For a column that an Ibis table computes, the normal form is the tree of its operations, whose
capital letters no SQL text in normal form has outside of quotes.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot
from ibis.common.exceptions import IbisError
from sqlglot import TokenType

from slowscale.accounting.record import ANY, folded
from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.parameters import lazy
from slowscale.data import sql
from slowscale.data.conversion import Source
from slowscale.data.dialects import RefusedError, nondeterministic
from slowscale.data.values import iso_literal

LONGEST = 2000  # characters of a normal form; a longer one is replaced by its hash
WORD = re.compile(r"\w+")
CACHED = "ibis_cached_"  # the prefix of the tables in which Ibis caches the result of a query
Meanings = Mapping[str, str]  # normal forms by folded name; a column that is not named is stored


def sql_form(text: str, known: Meanings) -> str:
    """Return the normal form of SQL text."""
    words = []
    for token in _tokens(text):
        word = text[token.start : token.end + 1]
        quoted = token.token_type is TokenType.IDENTIFIER
        if quoted or WORD.fullmatch(word):
            name = folded(token.text if quoted else word)
            word = f"( {known[name]} )" if name in known else _named(name) if quoted else name
        words.append(word)
    return _shortened(" ".join(words))


def computed_columns(table: ir.Table) -> dict[str, str]:
    """Return the columns of a table that are not columns of a stored table with the same name."""
    tree = _Tree()
    forms = {folded(name): tree.of(table[name].op()) for name in table.columns}
    return {name: form for name, form in forms.items() if form != _named(name)}


def _named(name: str) -> str:
    """Return the name of a column with quotes, unless it means the same without."""
    return name if [token.token_type for token in _tokens(name)] == [TokenType.VAR] else f'"{name}"'


def _tokens(text: str) -> list[Any]:
    """Return the tokens of SQL text; none if there is a quote that is not closed, which no expression has."""
    try:
        return sqlglot.tokenize(text, read="duckdb")
    except sqlglot.errors.SqlglotError:
        return []


def _shortened(form: str) -> str:
    return form if len(form) <= LONGEST else f"sha256:{hashlib.sha256(form.encode()).hexdigest()}"


class _Tree:
    """The operations of an expression as text, down to the columns of stored tables."""

    def __init__(self) -> None:
        self.seen: dict[Any, str] = {}

    def of(self, node: Any) -> str:
        """Return an operation, or one of its arguments, as text."""
        if isinstance(node, ops.Node):
            if node not in self.seen:
                self.seen[node] = _shortened(self._operation(node))
            return self.seen[node]
        if isinstance(node, Mapping):
            return f"{{{', '.join(f'{name}: {self.of(one)}' for name, one in node.items())}}}"
        if isinstance(node, tuple | list):
            return f"[{', '.join(map(self.of, node))}]"
        return repr(node)

    def _operation(self, node: Any) -> str:
        if isinstance(node, ops.Alias):
            return self.of(node.arg)
        if isinstance(node, ops.Field):
            return self._column(node)
        if isinstance(node, ops.InMemoryTable):
            return "records"  # never their content
        if isinstance(node, ops.DatabaseTable):
            return f"table {node.name!r}"
        return f"{type(node).__name__}({', '.join(map(self.of, node.__args__))})"

    def _column(self, node: Any) -> str:
        """Return a column of a table as text: as it is computed there, or its name if it is stored."""
        table = node.rel
        if isinstance(table, ops.DatabaseTable | ops.InMemoryTable):
            name = _named(folded(node.name))
            return f"{name} of a cached query" if CACHED in table.name else name
        if isinstance(table, ops.Project):
            return self.of(table.values[node.name])
        if isinstance(
            table, ops.Filter | ops.Sort | ops.DropColumns | ops.DropNull | ops.SelfReference | ops.AliasedRelation
        ):
            return self.of(ops.Field(table.parent, node.name))
        return f"{_named(folded(node.name))} of {self.of(table)}"


NONDETERMINISTIC_OPERATIONS = (
    ops.Impure, ops.RowID, ops.Sample, ops.Arbitrary, ops.ElementWiseVectorizedUDF, ops.ReductionVectorizedUDF,
    ops.AnalyticVectorizedUDF,
)  # fmt: skip
# Tables of records: stored tables, and operations that return one row for each record that they keep.
STORED = (ops.DatabaseTable, ops.InMemoryTable)
KEEPS_ROWS = (
    *STORED, ops.Project, ops.Filter, ops.Sort, ops.DropColumns, ops.DropNull, ops.FillNull, ops.SelfReference,
    ops.AliasedRelation,
)  # fmt: skip
# Other tables: a row depends on several records, or one record gives several rows.
COMBINES_ROWS = (
    ops.Aggregate, ops.Distinct, ops.JoinChain, ops.JoinLink, ops.JoinReference, ops.Limit, ops.Set,
    ops.TableUnnest, ops.Unnest, ops.Reduction, ops.Analytic, ops.WindowFunction, ops.WindowBoundary, ops.Subquery,
)  # fmt: skip
# Operations on one row that are deterministic, although their result depends on the engine.
ONE_ROW = (
    ops.Field, ops.Literal, ops.Alias, ops.And, ops.Or, ops.Not, ops.Xor, ops.IsNull, ops.NotNull, ops.StringLength,
    ops.StringConcat, ops.Equals, ops.NotEquals, ops.Less, ops.LessEqual, ops.Greater, ops.GreaterEqual, ops.Between,
    ops.InValues, ops.IfElse, ops.SearchedCase, ops.SimpleCase, ops.Coalesce, ops.NullIf, ops.Greatest, ops.Least,
    ops.Add, ops.Subtract, ops.Multiply, ops.Divide, ops.Modulus, ops.Negate, ops.Abs, ops.Floor, ops.Ceil, ops.Round,
    ops.Sqrt, ops.Cast, ops.Substring, ops.StrRight, ops.StringReplace, ops.Uppercase, ops.Lowercase, ops.StartsWith,
    ops.StringSQLLike, ops.StringSQLILike, ops.ExtractYear, ops.ExtractMonth, ops.ExtractDay, ops.ExtractQuarter,
    ops.Date, ops.SortKey, ops.TryCast, ops.FloorDivide, ops.Power, ops.Exp, ops.Ln, ops.Log, ops.Log2, ops.Log10,
    ops.Sign, ops.Clip, ops.IsNan, ops.IsInf, ops.IdenticalTo, ops.BitwiseAnd, ops.BitwiseOr, ops.BitwiseXor,
    ops.BitwiseNot, ops.BitwiseLeftShift, ops.BitwiseRightShift, ops.Bucket, ops.Strip, ops.LStrip, ops.RStrip,
    ops.Capitalize, ops.Reverse, ops.Repeat, ops.LPad, ops.RPad, ops.StringSlice, ops.StringFind, ops.StringContains,
    ops.EndsWith, ops.StringJoin, ops.StringSplit, ops.StringAscii, ops.Translate, ops.FindInSet, ops.RegexSearch,
    ops.RegexReplace, ops.RegexExtract, ops.ArrayIndex, ops.ArrayLength, ops.StructField, ops.Strftime,
    ops.StringToDate, ops.StringToTimestamp, ops.DateTruncate, ops.TimestampTruncate, ops.DateFromYMD,
    ops.TimestampFromYMDHMS, ops.TimestampFromUNIX, ops.DateAdd, ops.DateSub, ops.DateDiff, ops.TimestampAdd,
    ops.TimestampSub, ops.TimestampDiff, ops.DateDelta, ops.TimestampDelta, ops.IntervalFromInteger, ops.Time,
    ops.DayOfWeekIndex, ops.DayOfWeekName, ops.ExtractDayOfYear, ops.ExtractWeekOfYear, ops.ExtractIsoYear,
    ops.ExtractHour, ops.ExtractMinute, ops.ExtractSecond, ops.ExtractMicrosecond, ops.ExtractMillisecond,
    ops.ExtractEpochSeconds,
)  # fmt: skip


def derive(table: ir.Table, columns: Mapping[str, Any] | None, argument: str = "derive") -> ir.Table:
    """Add columns that are computed row by row; each may use the ones before it."""
    if columns is None:
        return table
    if not isinstance(columns, Mapping):
        raise ParameterTypeError(argument, allowed="a mapping of new columns to expressions", given=columns)
    for name, expression in columns.items():
        if not isinstance(name, str) or not name:
            raise ParameterTypeError(
                argument, "must have non-empty texts as names of the new columns", code="column-names", given=name
            )
        # Some engines and the ledger take such names for one.
        taken = next((column for column in table.columns if folded(column) == folded(name)), None)
        if taken is not None:
            raise ParameterError(
                f"{argument}[{name!r}]",
                f"would replace the column {taken!r}",
                code="exists",
                remedy="choose another name",
            )
        if name != name.strip():
            raise ParameterError(
                f"{argument}[{name!r}]", "has surrounding whitespace", code="blanks", remedy="remove it"
            )
        table = table.mutate(**{name: bind(table, expression, f"{argument}[{name!r}]")})
    return table


def keep(table: ir.Table, condition: str | None, argument: str = "where") -> ir.Table:
    """Keep the rows that meet a condition."""
    if condition is None:
        return table
    bound = bind(table, condition, argument)
    if not isinstance(bound, ir.BooleanValue):
        raise ParameterTypeError(
            argument, allowed="a boolean for each record", given=Shown(bound.type()), remedy="write a comparison"
        )
    return table.filter(bound)


class Described(NamedTuple):
    """A filter and derived columns as text for the facts of a release.

    `meanings` has the normal forms of all columns that are not stored: what a ledger recognizes them by.
    """

    where: str | None
    derived: dict[str, str]
    meanings: Meanings


def described(where: str | None, derive: Mapping[str, str] | None, computed: Meanings) -> Described:
    """Return the filter and the derived columns as text; `computed` has the other columns that are not stored."""
    derived = dict(derive or {})
    return Described(where, derived, meanings(derived, computed))


def meanings(derive: Mapping[str, str], computed: Meanings) -> Meanings:
    """Return the normal forms of derived columns and of other computed ones."""
    found = dict(computed)
    for name, expression in derive.items():
        found[folded(name)] = sql_form(expression, found)
    return found


def used_columns(table: ir.Table, expression: str) -> set[str]:
    """Return the table's columns that an expression reads."""
    nodes = _nodes(bind(table, expression, "expression").op(), table.op())
    return {node.name for node in nodes if isinstance(node, ops.Field) and node.rel == table.op()}


def named_columns(expression: str) -> set[str]:
    """Return the names in SQL text that may be those of columns, in folded spelling."""
    tokens = _tokens(expression)
    names = {folded(token.text) for token in tokens if token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)}
    return names | {folded(token.text) for token in tokens if WORD.fullmatch(token.text) and not token.text.isdigit()}


def check_text(expression: Any, argument: str) -> None:
    """Raise unless a filter or a derived column is text."""
    if not isinstance(expression, str):
        raise ParameterTypeError(
            argument,
            allowed='SQL text such as "emp > 0"',
            given=type(expression),
            remedy=(
                "to use Ibis expressions, prepare the table first, with table.mutate(...) and table.filter(...), and "
                "open the session on the result"
            ),
        )


def bind(table: ir.Table, expression: str, argument: str) -> ir.Value:
    """Return SQL text as a checked expression on the table."""
    check_text(expression, argument)
    try:
        return sql.parse(table, expression, argument)
    except RefusedError as refusal:
        raise refusal.about(argument) from None
    except IbisError as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ParameterError(
            argument, f"is not an expression on the table's columns: {why}", code="expression"
        ) from error
    except RecursionError:
        raise ParameterError(
            argument,
            "is nested too deeply",
            code="nesting",
            remedy="derive a part of it as a column, and use that column in it",
        ) from None


def check_source(table: ir.Table) -> bool:
    """Return whether a table is a query that combines rows; raise if that is unknown, or if it is nondeterministic."""
    nodes = _nodes(table.op(), None)
    for node in nodes:
        if isinstance(node, ops.SQLQueryResult | ops.SQLStringView):
            raise ParameterError(
                "data",
                allowed="a table whose rows are known to be records",
                given=Shown("the result of a SQL query, which cannot be checked"),
                remedy="use Ibis expressions, or store the result as a table first",
            )
        if _is_nondeterministic(node) and not _is_ours(node):
            raise nondeterministic().about("data")
        if not isinstance(node, (*KEEPS_ROWS, *COMBINES_ROWS, *ONE_ROW)) and not _is_ours(node):
            raise ParameterError(
                "data",
                f"uses {type(node).__name__}, which is not known to use one record at a time",
                code="unsupported",
                remedy="leave it out, or store the result as a table first",
            )
    return any(isinstance(node, COMBINES_ROWS) for node in nodes)


def _is_nondeterministic(node: Any) -> bool:
    """Return whether an operation may have a different result when it is computed again."""
    if isinstance(node, ops.Limit):
        return not isinstance(node.parent, ops.Sort)
    if isinstance(node, ops.First | ops.Last):
        return not node.order_by
    return isinstance(node, NONDETERMINISTIC_OPERATIONS) or _reads_the_clock(node)


def _is_ours(node: Any) -> bool:
    """Return whether a function call was generated by this package, which calls functions of the engine by name."""
    return isinstance(node, ops.ScalarUDF) and str(node.__func__.__module__).startswith("slowscale.")


def _reads_the_clock(node: Any) -> bool:
    """Return whether text other than a strict ISO literal becomes a time: for PostgreSQL 'now' is the clock."""
    if isinstance(node, ops.Cast | ops.TryCast):
        return bool(node.to.is_temporal()) and node.arg.dtype.is_string() and not _is_iso(node.arg)
    if not isinstance(node, ops.Value):
        return False
    parts = [part for part in node.__children__ if isinstance(part, ops.Value)]
    if not any(part.dtype.is_date() or part.dtype.is_timestamp() for part in parts):
        return False
    compares = isinstance(node, ops.Comparison | ops.Between | ops.InValues | ops.SimpleCase)
    return compares and any(part.dtype.is_string() and not _is_iso(part) for part in parts)


def _is_iso(node: Any) -> bool:
    return isinstance(node, ops.Literal) and iso_literal(str(node.value)) is not None


def filters(table: ir.Table) -> bool:
    """Return whether a table filters a stored one, so that a change of value may move a record in or out."""
    return bool(table.op().find((ops.Filter, ops.DropNull)))


def plain_columns(table: ir.Table) -> dict[str, str]:
    """Return the columns that are unchanged columns of one stored table, with their names there.

    Computed columns are not included, nor are the columns of a query that combines rows or that Ibis has cached.
    """
    return _plain(table.op())


def _plain(node: Any) -> dict[str, str]:
    if isinstance(node, STORED):
        return {} if CACHED in node.name else {name: name for name in node.schema.names}
    if not isinstance(node, KEEPS_ROWS):
        return {}
    below = _plain(node.parent)
    if isinstance(node, ops.Project):
        fields = {name: value.arg if isinstance(value, ops.Alias) else value for name, value in node.values.items()}
        return {
            name: below[value.name]
            for name, value in fields.items()
            if isinstance(value, ops.Field) and value.name in below
        }
    if isinstance(node, ops.DropColumns):
        return {name: stored for name, stored in below.items() if name not in node.columns_to_drop}
    if isinstance(node, ops.FillNull):
        filled = node.replacements.keys() if isinstance(node.replacements, Mapping) else below.keys()
        return {name: stored for name, stored in below.items() if name not in filled}
    return below


def dependence(table: ir.Table, name: str, records: "Records") -> dict[str, Any]:
    """Return the stored columns that a column is computed from, and whether it is a multiple of the only one."""
    op = table[name].op()
    reads = _reads(op, records)
    return {"reads": tuple(sorted(reads)), "proportional": len(reads) == 1 and ANY not in reads and _multiple(op)}


def deciding(table: ir.Table, records: "Records", labels: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the stored columns that the filters of a table and some of its columns depend on, by folded name."""
    found: set[str] = set()
    for name in labels:
        found |= _reads(table[name].op(), records)
    node: Any = table.op()
    while not isinstance(node, STORED):
        if isinstance(node, ops.Filter):
            for predicate in node.predicates:
                found |= _reads(predicate, records)
        elif not isinstance(node, KEEPS_ROWS) or isinstance(node, ops.DropNull):
            return (ANY,)
        node = node.parent
    return (ANY,) if records.hidden_filter else tuple(sorted(found))


def _reads(node: Any, records: "Records") -> set[str]:
    """Return the stored columns that an expression depends on, by folded name."""
    if isinstance(node, ops.Field):
        table = node.rel
        if isinstance(table, STORED):
            known = records.source.stored is None or node.name in records.source.stored
            return {folded(node.name)} if known and CACHED not in table.name else {ANY}
        inner = _below(node)
        return {ANY} if inner is None else _reads(inner, records)
    if not isinstance(node, ops.Value):
        return {ANY} if isinstance(node, ops.Relation) else set()
    return {name for child in node.__children__ for name in _reads(child, records)}


def _below(node: Any) -> Any:
    """Return the expression that a column of a query stands for, or None if it is not known."""
    table = node.rel
    if isinstance(table, ops.Project):
        return table.values[node.name]
    if isinstance(table, ops.Filter | ops.Sort | ops.DropColumns | ops.SelfReference | ops.AliasedRelation):
        return ops.Field(table.parent, node.name)
    return None


def _multiple(node: Any) -> bool:
    """Return whether an expression of one column is that column times a constant."""
    if isinstance(node, ops.Alias | ops.Negate):
        return _multiple(node.arg)
    if isinstance(node, ops.Field):
        inner = _below(node)
        return isinstance(node.rel, STORED) if inner is None else _multiple(inner)
    if isinstance(node, ops.Cast):  # to a number with at least the same digits
        widened = node.to.is_float64() or (node.to.is_integer() and node.arg.dtype.is_integer())
        return widened and node.arg.dtype.is_numeric() and _multiple(node.arg)
    if isinstance(node, ops.Multiply):
        return any(
            _literal(one) and _multiple(other) for one, other in ((node.left, node.right), (node.right, node.left))
        )
    return isinstance(node, ops.Divide) and _literal(node.right) and _multiple(node.left)


def _literal(node: Any) -> bool:
    return not isinstance(node, ops.Field) and not node.find(ops.Field)


def _nodes(root: Any, source: Any) -> list[Any]:
    """Return the operations of an expression, down to its source table."""
    found: list[Any] = []
    todo, seen = [root], set()
    while todo:
        node = todo.pop()
        if node in seen or node == source:
            continue
        seen.add(node)
        found.append(node)
        todo.extend(node.__children__)
    return found


RECORD_PROTECTED = "one record (one row of the table): whether it is there, and what it holds"
ENTITY_PROTECTED = (
    "one {0}: whether its records are there, and what they hold. In the policy a column stands for the total of one "
    "{0} in a cell, and the losses add over cells"
)
EngineTable = ir.Table  # a table of an engine, or a query on it
ROWS_COMBINED = "; the table is itself a query that combines rows, and a record is a row of its result"


@dataclass(frozen=True)
class Records:
    """An opened table of records.

    Attributes
    ----------
    source
        The table, with what is known about how it was read.
    protect
        The column that tells which records belong to one entity, or None if single records are protected.
    combines_rows
        Whether the table is a query or a view that may combine rows of stored tables.
    filtered
        Whether the table may leave out stored rows, so that a change of value may move a record in or out.
    """

    source: Source
    protect: str | None
    combines_rows: bool
    filtered: bool

    @staticmethod
    def of(source: Source, protect: str | None) -> "Records":
        """Return the records of a source; raise if it is not known that its rows are records."""
        combines_rows = check_source(source.table) or source.view
        # A view may filter: what it does is not known.
        filtered = source.filtered or combines_rows or filters(source.table)
        return Records(source, protect, combines_rows, filtered)

    @property
    def table(self) -> ir.Table:
        """The table."""
        return self.source.table

    @property
    def protected(self) -> str:
        """What a release protects, in words."""
        protected = RECORD_PROTECTED if self.protect is None else ENTITY_PROTECTED.format(self.protect)
        return protected + ROWS_COMBINED * self.combines_rows

    @property
    def hidden_filter(self) -> bool:
        """Whether rows may be left out by a condition that is not known here."""
        return self.source.filtered or self.combines_rows

    @property
    def stored_names(self) -> set[str]:
        """The names of all columns of the stored tables, folded to one spelling."""
        return {folded(name) for table in self.table.op().find(ops.PhysicalTable) for name in table.schema.names}

    def is_stored(self, name: str) -> bool:
        """Whether a column is, unchanged and under the same name, a column of a stored table."""
        if self.combines_rows:
            return False
        if self.source.stored is not None:
            return name in self.source.stored
        return folded(plain_columns(self.table).get(name, "")) == folded(name)

    @lazy
    def computed(self) -> Meanings:
        """The normal forms of the table's columns that are not stored, by folded name."""
        stored = self.source.stored
        hidden = [] if stored is None else [name for name in self.table.columns if name not in stored]
        return {**computed_columns(self.table), **{folded(name): "computed by Spark" for name in hidden}}

    def used_columns(self, derived: Mapping[str, str], where: str | None) -> set[str]:
        """Return the columns of the table, and of those derived from it, that the expressions read."""
        used: set[str] = set()
        table = self.table
        for name, expression in derived.items():
            used |= used_columns(table, expression)
            table = derive(table, {name: expression})
        return used if where is None else used | used_columns(table, where)
