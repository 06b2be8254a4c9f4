"""Which tests reach which line, and how long they take: what `recording` wrote, put together."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import coverage

FOLDER = Path(".mutants")
RECORDED = FOLDER / "recorded.json"


def recorded_tests() -> list[str]:
    """Return the tests whose records are those of the present sources, in which lines have the same numbers."""
    found = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    tests: list[str] = found["tests"] if found.get("sources") == digest() else []
    return tests


def mark_recorded(tests: list[str], sources: str) -> None:
    """Note which tests were recorded, with sources of which digest."""
    RECORDED.write_text(json.dumps({"sources": sources, "tests": tests}))


def digest() -> str:
    """Return a digest of the package's sources."""
    found = hashlib.sha256()
    for file in sorted(Path("src").rglob("*.py")):
        found.update(f"{file}\n".encode() + file.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Records:
    """The tests of each line, quickest first."""

    lines: dict[str, dict[int, list[str]]]
    early: dict[str, set[int]]  # reached while the package and the tests are imported
    durations: dict[str, float]

    @classmethod
    def read(cls) -> "Records":
        """Read all records of the folder."""
        durations: dict[str, float] = {}
        for file in FOLDER.glob("durations.*.json"):
            durations |= json.loads(file.read_text())
        lines: dict[str, dict[int, list[str]]] = {}
        early: dict[str, set[int]] = {}
        for file in FOLDER.glob("lines.*"):
            data = coverage.CoverageData(str(file))
            data.read()
            for path in data.measured_files():
                name = "src/" + path.rpartition("/src/")[2]
                known = lines.setdefault(name, {})
                for line, tests in data.contexts_by_lineno(path).items():
                    if "" in tests:
                        early.setdefault(name, set()).add(line)
                    known.setdefault(line, []).extend(test for test in tests if durations.get(test, -1.0) >= 0)
        if not lines:
            raise SystemExit("Nothing is recorded: run `python -m mutation record` first.")
        return cls(lines, early, durations)

    def tests(self, path: str, lines: range, seconds: float) -> list[str]:
        """The tests that reach any of the lines, quickest first, for a total of at most `seconds`."""
        known = self.lines.get(path, {})
        reached = {test for line in lines for test in known.get(line, ())}
        chosen, total = [], 0.0
        for test in sorted(reached, key=lambda test: (self.durations[test], test)):
            total += self.durations[test]
            if chosen and total > seconds:
                break
            chosen.append(test)
        return chosen
