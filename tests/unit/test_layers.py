"""A lower room never imports a higher one, not even lazily; a constant has one meaning."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "slowscale"


# The rooms of the package, lowest first: a room imports itself and those before it.
ROOMS = (
    "core", "sampling", "noise", "policy", "mechanisms", "accounting", "data", "release", "publish", "advice", "plan",
    "datasets", "study", "workbench", "cli",
)  # fmt: skip
# Methods of a release write reports and publications, and advice writes a plan.
UPWARDS = {("release", "publish"), ("advice", "plan")}


def imported(tree):
    """Yield the modules of the package that a file imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "slowscale":
            yield from (f"slowscale.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module


def breaches(path, text):
    """Return the rooms that a file imports and may not."""
    here = path.relative_to(SOURCE).parts[0]
    wanted = {name.split(".")[1] for name in imported(ast.parse(text)) if name.startswith("slowscale.")}
    lower = ROOMS[: ROOMS.index(here) + 1]
    return {room for room in wanted & set(ROOMS) if room not in lower and (here, room) not in UPWARDS}


FILES = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE]


def test_the_root_holds_only_rooms():
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}
    assert {path.relative_to(SOURCE).parts[0] for path in FILES} == set(ROOMS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports(path):
    assert not breaches(path, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_data_room_imports_ibis(path):
    named = {name.split(".")[0] for name in imported(ast.parse(path.read_text(encoding="utf-8")))}
    assert "ibis" not in named or path.relative_to(SOURCE).parts[0] == "data"


def test_a_forbidden_import_is_seen():
    for text in ("from slowscale.release.session import Session", "def f():\n    import slowscale.data.sums"):
        assert breaches(SOURCE / "noise" / "gaussian.py", text)
    assert not breaches(SOURCE / "noise" / "gaussian.py", "from slowscale.core.errors import DataError")


def constants(text):
    """Yield the names and the values of a module's upper-case constants."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            tuples = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = (
                zip(target.elts, node.value.elts, strict=True) if tuples else [(target, getattr(node, "value", None))]
            )
            for name, given in pairs:
                if isinstance(name, ast.Name) and name.id.isupper() and given is not None:
                    yield name.id, ast.unparse(given)


def ambiguous(texts):
    """Return the constants that have different values in different modules, with these values."""
    values = defaultdict(set)
    for text in texts:
        for name, value in constants(text):
            values[name].add(value)
    return {name: found for name, found in values.items() if len(found) > 1}


def test_a_constant_has_one_meaning():
    assert not ambiguous(path.read_text(encoding="utf-8") for path in FILES)


def test_an_ambiguous_constant_is_seen():
    assert ambiguous(["FEW = 3", "FEW: int = 4"]) == {"FEW": {"3", "4"}}
    assert ambiguous(["LOW, HIGH = 0, 1", "HIGH = 2"]) == {"HIGH": {"1", "2"}}
    assert not ambiguous(["FEW = 3", "FEW = 3", "def f():\n    FEW = 4"])
