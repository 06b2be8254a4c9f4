"""The mutants of a module: Cosmic Ray's operators, one of our own, and where a change would mean nothing."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import Keyword
from parso.tree import NodeOrLeaf

# Cosmic Ray can replace every operator by every other. These are the replacements that look like a slip of the pen.
OPERATORS = [
    *(
        f"ReplaceBinaryOperator_{pair}"
        for pair in (
            "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "FloorDiv_Div", "Mod_FloorDiv", "RShift_LShift",
            "LShift_RShift", "BitOr_BitAnd", "BitAnd_BitOr", "BitXor_BitOr",
        )
    ),
    *(
        f"ReplaceComparisonOperator_{pair}"
        for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is")
    ),
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ZeroIterationForLoop",
    "DeleteCall",
]  # fmt: skip


class DeleteCall(Operator):
    """Deletes a statement that is only a call, such as a check: `pass` stands in its place."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the place of a statement that is only a call."""
        if node.type in ("atom_expr", "power") and node.parent is not None and node.parent.type == "simple_stmt":
            last = node.children[-1]
            if last.type == "trailer" and last.children[0] == "(":
                yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        """Return `pass`, with empty lines after it so that no other line moves."""
        (first, _), (last, _) = node.start_pos, node.end_pos
        return Keyword("pass" + "\n" * (last - first), node.start_pos, node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return a change as an example."""
        return (Example("check(x)", "pass"),)


OWN_OPERATORS = {"DeleteCall": DeleteCall}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the `occurrence`-th place of a module at which an operator applies."""

    path: str
    operator: str
    occurrence: int
    line: int
    function: str  # the qualified name of the function around it, or "" outside of functions
    first_line: int  # of that function, decorators included
    text: str  # of the line
    rank: int  # among the mutants of this operator in lines of this function that read the same

    @property
    def name(self) -> str:
        """What stays the same from run to run while the line stays as it is, wherever it moves."""
        return f"{self.path} | {self.function} | {self.operator} {self.rank} | {self.text}"

    def source(self) -> str:
        """The module's text with the fault in it."""
        return str(mutate_code(Path(self.path).read_text(), _operator(self.operator), self.occurrence))

    def change(self) -> tuple[str, str]:
        """The lines before and after, without their indentation."""
        before, after = Path(self.path).read_text().splitlines(), self.source().splitlines()
        changed = [k for k, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        return " ".join(before[k].strip() for k in changed), " ".join(after[k].strip() for k in changed)


@cache
def _operator(name: str) -> object:
    return OWN_OPERATORS[name]() if name in OWN_OPERATORS else get_operator(f"core/{name}")()


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a module, except in annotations and where only a type checker looks."""
    source = path.read_text()
    tree = ast.parse(source)
    idle, stubs, functions = _idle(tree), _stubs(tree), _functions(tree)
    nodes, lines, ranks = list(ast_nodes(get_ast(source))), source.splitlines(), Counter[tuple[str, ...]]()
    for name in OPERATORS:
        places = (place for node in nodes for place in _operator(name).mutation_positions(node))
        for occurrence, (start, _) in enumerate(places):
            if not any(low <= start < high for low, high in idle):
                function, first = _around(functions, start)
                text = lines[start[0] - 1].strip()
                ranks[function, name, text] += 1
                rank = ranks[function, name, text]
                if start[0] not in stubs:
                    yield Mutant(str(path), name, occurrence, start[0], function, first, text, rank)


def _span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def _idle(tree: ast.Module) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Spans that decide nothing at run time: annotations, the parameters' `*` and `/`, imports for the type checker."""
    spans = []
    for node in ast.walk(tree):
        match node:
            case ast.arg(annotation=ast.AST() as annotation) | ast.AnnAssign(annotation=annotation):
                spans.append(_span(annotation))
            case ast.FunctionDef(returns=ast.AST() as returns):
                spans.append(_span(returns))
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                spans.append(_span(node))
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.BinOp()) if _is_alias(name, node.value):
                spans.append(_span(node))
            case ast.Call(func=ast.Name(id="isinstance" | "cast"), args=[_, kind]):
                spans.append(_span(kind))
    return spans


def _stubs(tree: ast.Module) -> set[int]:
    """The lines of overloads, which only a type checker reads."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(decorator, ast.Name) and decorator.id == "overload" for decorator in node.decorator_list)
        for line in range(node.lineno, node.end_lineno + 1)
    }


def _is_alias(name: str, value: ast.BinOp) -> bool:
    """Whether an assignment names a union of types, such as `Term = Size | Sum`."""
    return name[0].isupper() and not name.isupper() and isinstance(value.op, ast.BitOr)


def _functions(tree: ast.Module) -> list[tuple[str, int, ast.FunctionDef]]:
    """The functions and methods that are not inside other functions: their qualified names and first lines."""
    found = []

    def walk(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef():
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    found.append((prefix + node.name, first, node))
                case ast.ClassDef():
                    walk(node.body, f"{prefix}{node.name}.")
                case ast.If() | ast.Try() | ast.With():
                    walk(node.body, prefix)

    walk(tree.body, "")
    return found


def _around(functions: list[tuple[str, int, ast.FunctionDef]], place: tuple[int, int]) -> tuple[str, int]:
    for name, first, node in functions:
        body = node.body[0]
        if (body.lineno, body.col_offset) <= place < _span(node)[1]:
            return name, first
    return "", 0
