"""Run the mutants: `python -m mutation record`, then `python -m mutation run [PATH ...]`; `show` prints the survivors.

A mutant of a function runs in a fork of a process that has collected all tests; the function's code is exchanged there.
A mutant outside of functions, or in a line that has its effect on import, runs in a process that imports the package
anew. Results are kept in `.mutants/results.jsonl`, by the text of the mutated line; later runs continue from them.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from zlib import crc32

from .accepted import read_accepted
from .faults import mutants
from .records import FOLDER, Records
from .trials import run_trials

ROOMS = (
    "policy",
    "accounting",
    "sampling",
    "data",
    "mechanisms",
    "release",
)
# Coverage stops in a child that is forked while another thread runs.
UNTRACEABLE = ["tests/unit/sampling/test_bits.py::test_a_child_forked_while_a_thread_draws_is_not_locked_out"]
RESULTS = FOLDER / "results.jsonl"


def main() -> int:
    """Read the command line and run one step."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("step", choices=["record", "run", "show"])
    parser.add_argument(
        "paths", nargs="*", type=Path, help="modules or folders; the rooms that decide privacy if left out"
    )
    parser.add_argument("--again", action="store_true", help="try survivors of earlier runs again")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try a sample: one mutant in N")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--tests", nargs="*", default=["tests/unit"], help="the tests that are recorded")
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    files = _modules(given.paths or [Path("src/slowscale") / room for room in ROOMS])
    match given.step:
        case "record":
            return record(given.tests, given.processes)
        case "run":
            return run(files, given.processes, given.again, given.cold, given.every)
        case _:
            return show(files)


def _modules(paths: list[Path]) -> list[Path]:
    return sorted(file for path in paths for file in ([path] if path.suffix == ".py" else path.rglob("*.py")))


def record(tests: list[str], processes: int) -> int:
    """Run the tests once, and keep which lines each of them reaches."""
    FOLDER.mkdir(exist_ok=True)
    for old in [*FOLDER.glob("lines.*"), *FOLDER.glob("durations.*")]:
        old.unlink()
    deselected = [f"--deselect={test}" for test in UNTRACEABLE]
    plugins = ["-p", "mutation.recording", "-n", str(processes)]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *deselected, *tests]
    return subprocess.run(command, check=False).returncode


def read_results() -> dict[str, str]:
    """What earlier runs found."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return dict(json.loads(line) for line in lines)


def run(files: list[Path], processes: int, again: bool, cold: bool, every: int = 1) -> int:
    """Try every mutant that has no result yet; survivors of forked trials once more in a fresh import."""
    records, results = Records.read(), read_results()
    wanted = {"doubtful"} if cold else {"not tried", "doubtful", *(("survived", "unreached") if again else ())}
    waiting = [
        mutant
        for file in files
        for mutant in mutants(file)
        if results.get(mutant.name, "not tried") in wanted and (cold or crc32(mutant.name.encode()) % every == 0)
    ]
    with RESULTS.open("a") as file:
        for mutant, result in run_trials(waiting, records, processes, cold):
            print(json.dumps([mutant.name, result], ensure_ascii=False), file=file, flush=True)
    if not cold:
        command = [sys.executable, "-m", "mutation", "run", *map(str, files), "--cold", "--processes", str(processes)]
        subprocess.run(command, check=True)
        return show(files)
    return 0


def show(files: list[Path]) -> int:
    """Print the survivors and the share that is killed; fail below 90 %."""
    results, accepted = read_results(), read_accepted()
    counts: dict[str, Counter[str]] = {}
    for mutant in (mutant for file in files for mutant in mutants(file)):
        result = results.get(mutant.name, "not tried")
        killed = result in ("killed", "timeout")
        room = Path(mutant.path).parts[2]
        kind = "killed" if killed else "accepted" if mutant.name in accepted else result
        counts.setdefault(room, Counter())[kind] += 1
        if kind in ("survived", "unreached", "error"):
            before, after = mutant.change()
            print(f"{mutant.name}\n  line {mutant.line}, {result}\n  - {before}\n  + {after}")
    counts["all"] = sum(counts.values(), Counter())
    for room, count in counts.items():
        wanted = count.total() - count["accepted"] - count["not tried"]
        share = count["killed"] / wanted if wanted else 1.0
        print(f"{room:16} {count['killed']:5} of {wanted:5} killed, {share:.1%}; {dict(count)}")
    return int(counts["all"]["not tried"] > 0 or share < 0.9)


if __name__ == "__main__":
    sys.exit(main())
