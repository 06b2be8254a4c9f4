"""Every error of the library says what kind of mistake it is, and no code reads the sentence to find out.

The offenders are listed by room.
"""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "slowscale"
ROOMS = sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__")
# CapError and IncompleteError are about one thing each, so that their class tells it.
KINDS = {
    "SlowscaleError", "ParameterError", "ParameterTypeError", "CalibrationError", "DataError", "EngineError",
    "LedgerError", "PlanError", "SignatureError",
}  # fmt: skip
CAUGHT = KINDS | {"CapError", "IncompleteError", "Exception", "ValueError", "TypeError", "RuntimeError"}


def name_of(node):
    """Return the name that is called or caught: `ParameterError`, also of `ss.ParameterError`."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)


def without_code(tree):
    """Yield the calls that make an error of the library without `code=` and without `allowed=`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in KINDS:
            given = {keyword.arg for keyword in node.keywords}
            if name_of(node.func) == "DataError" and node.args:  # its first argument is the code
                continue
            if not given & {"code", "allowed", None}:  # None: **fields
                yield node


def taken_apart(tree):
    """Yield the places where the text of a caught error is searched, split or cut."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None:
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if not CAUGHT & set(map(name_of, kinds)):
            continue
        text = f"str({handler.name})"
        for node in ast.walk(handler):
            method = isinstance(node, ast.Attribute) and ast.unparse(node.value) == text
            searched = isinstance(node, ast.Compare) and text in map(ast.unparse, (node.left, *node.comparators))
            matched = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")
            if method or searched or (matched and text in map(ast.unparse, node.args)):
                yield node


def offenders(room, find):
    """Return the lines of a room that a search finds."""
    files = sorted((SOURCE / room).rglob("*.py"))
    found = [(path, node) for path in files for node in find(ast.parse(path.read_text(encoding="utf-8")))]
    return [f"{path.relative_to(SOURCE)}:{node.lineno} {ast.unparse(node):.120}" for path, node in found]


@pytest.mark.parametrize("room", ROOMS)
def test_every_error_has_a_code_or_says_what_is_allowed(room):
    assert offenders(room, without_code) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_text_of_an_error_is_taken_apart(room):
    assert offenders(room, taken_apart) == []


def test_the_searches_find_what_they_are_for():
    bad = [
        'raise ParameterError("x", "is missing")',
        'raise ss.LedgerError("x")',
        'error = EngineError(path, "failed", remedy="try again")',
    ]
    good = [
        'raise ParameterError("x", "is missing", code="missing")',
        'raise ParameterError("x", allowed="> 0")',
        "raise ParameterError(subject, **fields)",
        'raise KeyError("x")',
        'raise ss.DataError("nulls", column=Name("x"))',
        "raise CapError(column, 1, 2, 3)",
    ]
    assert [len(list(without_code(ast.parse(code)))) for code in [*bad, *good]] == [1] * len(bad) + [0] * len(good)
    uses = {
        'if "cap" in str(error): pass': 1,
        'str(error).removeprefix("path: ")': 1,
        're.sub("a", "b", str(error))': 1,
        'if str(error) == "x": pass': 1,
        "print(str(error))": 0,
        "error.render(subject=name)": 0,
        'if error.code == "missing": pass': 0,
    }
    for use, count in uses.items():
        for kind in ("ParameterError", "(KeyError, ss.DataError)"):
            code = f"try:\n    pass\nexcept {kind} as error:\n    {use}"
            assert len(list(taken_apart(ast.parse(code)))) == count, code
        foreign = f"try:\n    pass\nexcept duckdb.Error as error:\n    {use}"
        assert not list(taken_apart(ast.parse(foreign)))
