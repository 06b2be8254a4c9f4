"""Run the mutants: `python -m mutation record`, then `python -m mutation run [PATH ...]`, then `python -m mutation show`.

A mutant of a function runs in a fork of a process that has collected all tests: the function's code is exchanged there.
A mutant that survives this, or that lies outside of functions, gets a second trial in a process that imports the package
anew, with the fault in it. Results are kept in `.mutants/results.jsonl`, by the text of the mutated line, so that a later run
takes up where an earlier one stopped.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from .accepted import read_accepted
from .faults import Mutant, mutants
from .records import FOLDER, Records
from .trials import run_trials

ROOMS = ("policy", "accounting", "sampling", "tables", "mechanisms", "session.py", "publishing.py", "query.py")
RESULTS = FOLDER / "results.jsonl"


def main() -> int:
    """Read the command line and run one step."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("step", choices=["record", "run", "show"])
    parser.add_argument(
        "paths", nargs="*", type=Path, help="modules or folders; the rooms that decide privacy if left out"
    )
    parser.add_argument("--again", action="store_true", help="try survivors of earlier runs again")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--tests", nargs="*", default=["tests/unit"], help="the tests that are recorded")
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    files = _modules(given.paths or [Path("src/slowscale") / room for room in ROOMS])
    match given.step:
        case "record":
            return record(given.tests, given.processes)
        case "run":
            return run(files, given.processes, given.again, given.cold)
        case _:
            return show(files)


def _modules(paths: list[Path]) -> list[Path]:
    return sorted(file for path in paths for file in ([path] if path.suffix == ".py" else path.rglob("*.py")))


def record(tests: list[str], processes: int) -> int:
    """Run the tests once, and keep which lines each of them reaches."""
    FOLDER.mkdir(exist_ok=True)
    for old in [*FOLDER.glob("lines.*"), *FOLDER.glob("durations.*")]:
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutation.recording", "-n", str(processes), *tests]
    return subprocess.run(command, check=False).returncode


def read_results() -> dict[str, str]:
    """What earlier runs found."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return dict(json.loads(line) for line in lines)


def run(files: list[Path], processes: int, again: bool, cold: bool) -> int:
    """Try every mutant that has no result yet; survivors of forked trials once more in a fresh import."""
    records, results = Records.read(), read_results()
    wanted = {"doubtful"} if cold else {"not tried", "doubtful", *(("survived", "unreached") if again else ())}
    waiting = [mutant for file in files for mutant in mutants(file) if results.get(mutant.name, "not tried") in wanted]
    with RESULTS.open("a") as file:
        for mutant, result in run_trials(waiting, records, processes, cold):
            print(json.dumps([mutant.name, result], ensure_ascii=False), file=file, flush=True)
    if not cold:
        command = [sys.executable, "-m", "mutation", "run", "--cold", "--processes", str(processes), *map(str, files)]
        subprocess.run(command, check=True)
        return show(files)
    return 0


def show(files: list[Path]) -> int:
    """Print the survivors and the share that is killed; fail below 90 %."""
    results, accepted = read_results(), read_accepted()
    counts: dict[str, list[int]] = {}
    for file in files:
        for mutant in mutants(file):
            if mutant.name in accepted:
                continue
            result = results.get(mutant.name, "not tried")
            room = "/".join(Path(mutant.path).parts[2:3])
            counts.setdefault(room, [0, 0])[0] += result in ("killed", "timeout")
            counts[room][1] += 1
            if result not in ("killed", "timeout"):
                before, after = mutant.change()
                print(f"{mutant.path}:{mutant.line} {mutant.function} {result}\n  - {before}\n  + {after}")
    for room, (killed, total) in sorted(counts.items()):
        print(f"{room:20} {killed:5} of {total:5} killed, {killed / total:.1%}")
    killed, total = (sum(count[k] for count in counts.values()) for k in (0, 1))
    print(f"{'all':20} {killed:5} of {total:5} killed, {killed / total:.1%}; {len(accepted)} accepted as equivalent")
    return int(killed < 0.9 * total)


if __name__ == "__main__":
    sys.exit(main())
