"""A lower room never imports a higher one, lazily neither (CONTRIBUTING has the table); a constant has one meaning."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "slowscale"


def rooms():
    """Return, for each room in CONTRIBUTING's table, the rooms that it may import."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = text.partition("| room | what lives there | may import |")[2].splitlines()[2:]
    allowed, above, first = {}, set(), set()
    for line in lines:
        if not line.startswith("|"):
            break
        here, _, may = line.strip("|").split(" | ")
        names = {plain(name) for name in re.findall(r"`([^`]+)`", here)}
        first = first or names
        wanted = {plain(name) for name in re.findall(r"`(\w+(?:\.py|/))`", may)}
        wanted |= above if "all above" in may else set()
        wanted |= first if "the first row" in may else set()
        wanted |= names if "each other" in may else set()
        allowed |= {name: wanted | {name} for name in names}
        above |= names
    return allowed


def plain(name):
    return name.removesuffix("/").removesuffix(".py")


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


def breaches(path, text, allowed):
    """Return the imports of a file that its room may not have."""
    room = plain(path.relative_to(SOURCE).parts[0])
    wanted = {name.split(".")[1] for name in imported(ast.parse(text)) if name.startswith("slowscale.")}
    known = {name for name in wanted if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()}
    return known - allowed[room]


TOP = ("__init__.py", "__main__.py")
FILES = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.name not in TOP]


def test_every_room_is_in_the_table():
    found = {plain(path.relative_to(SOURCE).parts[0]) for path in FILES}
    assert found == set(rooms())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports(path):
    assert not breaches(path, path.read_text(encoding="utf-8"), rooms())


def test_a_forbidden_import_is_seen():
    for text in ("from slowscale.session import Session", "def f():\n    import slowscale.tables.sums"):
        assert breaches(SOURCE / "noise" / "gaussian.py", text, rooms())
    assert not breaches(SOURCE / "noise" / "gaussian.py", "from slowscale.errors import DataError", rooms())


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
