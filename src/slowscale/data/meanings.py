"""How a column is computed, in a normal form by which a ledger recognizes it.

The losses of several releases add up column by column. That is true only if a column is the same in all of them, so the
account keeps the normal form of each charged column that is not stored. Two columns with equal normal forms have equal
values. Two spellings of one expression may have different normal forms: the account then refuses the second one.

SQL text loses its comments, its line breaks and its case outside of quotes, and names of other computed columns are
replaced by what they stand for. For a column that an Ibis table computes, the normal form is the tree of its
operations, whose capital letters no SQL text in normal form has outside of quotes.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import ibis.expr.operations as ops
import ibis.expr.types as ir
import sqlglot
from sqlglot import TokenType

from slowscale.accounting.record import folded

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
