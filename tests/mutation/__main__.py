"""Run the mutants: `python -m mutation run [PART ...]`; with `--random N --seed S` a sample. `show` prints survivors,
`stale` what is accepted although it is no mutant any more.

A part is a path, a room such as "advice", or a word in the names of modules, such as "roll-ups". `run` first records
which tests reach each line: all unit tests, or with `--random` those of the rooms of the parts. Records are used again
while the sources stay the same. `record --tests FILE` adds new tests; `run --again` then tries survivors once more.

A mutant of a function runs in a fork of a process that has collected all tests; the function's code is exchanged there.
A mutant outside of functions, or in a line that takes effect on import, runs in a process that imports the package
anew. Results are kept in `.mutants/results.jsonl`, by the text of the mutated line; later runs continue from them.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from .accepted import place_free, read_accepted
from .faults import Mutant, mutants
from .records import FOLDER, Records, digest, mark_recorded, recorded_tests
from .trials import run_trials

PACKAGE = Path("src/slowscale")
TESTS = "tests/unit"
ROOMS = ("noise", "policy", "accounting", "sampling", "data", "mechanisms", "release")  # they decide privacy
# Coverage stops in a child that is forked while another thread runs.
UNTRACEABLE = "test_a_child_forked_while_a_thread_draws_is_not_locked_out"
RESULTS = FOLDER / "results.jsonl"


def main() -> int:
    """Read the command line and run one step."""
    parser = argparse.ArgumentParser(
        prog="python -m mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=["record", "run", "show", "stale"])
    parser.add_argument(
        "parts", nargs="*", help="paths, rooms or words in names; the rooms that decide privacy if left out"
    )
    parser.add_argument("--random", type=int, metavar="N", help="only N mutants, chosen at random from all parts")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the choice of --random; the same S, the same N"
    )
    parser.add_argument("--again", action="store_true", help="try survivors of earlier runs again")
    parser.add_argument("--seconds", type=float, help="of tests per mutant; by default 5, or 30 with --random")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--tests", nargs="+", help="the tests that are recorded")
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_intermixed_args()
    if given.step == "record":
        return record(given.tests or [TESTS], given.processes)
    if given.step == "stale":
        return show_stale()
    files = find_modules(given.parts or list(ROOMS))
    chosen = choose(files, given.random, given.seed)
    if given.step == "show":
        return show(chosen)
    wanted = given.tests or ([TESTS] if given.random is None else tests_of(files))
    missing = sorted({*wanted} - {*recorded_tests()}) if TESTS not in recorded_tests() else []
    if missing and record(missing, given.processes) > 1:  # 1: tests that fail are left out
        return 1
    seconds = given.seconds or (5.0 if given.random is None else 30.0)
    run(chosen, given.processes, given.again, given.cold, seconds)
    if given.cold:
        return 0
    subprocess.run([sys.executable, "-m", "mutation", *sys.argv[1:], "--cold"], check=True)
    return show(chosen)


def find_modules(parts: list[str]) -> list[Path]:
    """Return the modules of some parts of the package: paths, rooms, or words in the names of files and folders."""
    found: set[Path] = set()
    for part in parts:
        place = next((place for place in (Path(part), PACKAGE / part) if place.exists()), None)
        if place is not None:
            modules = {place} if place.suffix == ".py" else set(place.rglob("*.py"))
        else:
            word = _letters(part)
            modules = {file for file in PACKAGE.rglob("*.py") if word in _letters(str(file.relative_to(PACKAGE)))}
        if not modules:
            raise SystemExit(f"{part} is not a path, a room or a word in the name of a module of {PACKAGE}.")
        found |= modules
    return sorted(found)


def _letters(name: str) -> str:
    """Return a name without case, marks and a final s: "Roll-ups" and "rollup.py" have the same letters."""
    return re.sub(r"[\W_]+", "", re.sub(r"\.py$", "", name).lower()).removesuffix("s")


def choose(files: list[Path], number: int | None, seed: int) -> list[Mutant]:
    """Return all mutants of some modules, or a random sample of those that are not accepted."""
    found = [mutant for file in files for mutant in mutants(file)]
    if number is None:
        return found
    accepted = read_accepted()
    open_ones = [mutant for mutant in found if place_free(mutant.name) not in accepted]
    sample = random.Random(seed).sample(open_ones, min(number, len(open_ones)))
    return sorted(sample, key=lambda mutant: (mutant.path, mutant.line))


def tests_of(files: list[Path]) -> list[str]:
    """Return the folders of the unit tests of the rooms of some modules; all unit tests if a room has none."""
    folders = {f"{TESTS}/{file.parts[2]}" for file in files}
    return sorted(folders) if all(map(os.path.isdir, folders)) else [TESTS]


def record(tests: list[str], processes: int) -> int:
    """Run some tests once, and add which lines each of them reaches; records of older sources are dropped."""
    FOLDER.mkdir(exist_ok=True)
    before, sources = [] if TESTS in tests else recorded_tests(), digest()
    if not before:
        for old in [*FOLDER.glob("lines.*"), *FOLDER.glob("durations.*")]:
            old.unlink()
    plugins = ["-p", "mutation.recording", "-n", str(processes)]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-k", f"not {UNTRACEABLE}", *tests]
    status = subprocess.run(command, check=False).returncode
    mark_recorded([*before, *tests], sources)
    return status


def read_results() -> dict[str, str]:
    """What earlier runs found."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return dict(json.loads(line) for line in lines)


def run(chosen: list[Mutant], processes: int, again: bool, cold: bool, seconds: float) -> None:
    """Try every chosen mutant that has no result yet; `cold` tries those that need a fresh import."""
    records, results = Records.read(), read_results()
    wanted = {"doubtful"} if cold else {"not tried", "doubtful", *(("survived", "unreached") if again else ())}
    waiting = [mutant for mutant in chosen if results.get(mutant.name, "not tried") in wanted]
    with RESULTS.open("a") as file:
        for mutant, result in run_trials(waiting, records, processes, cold, seconds):
            print(json.dumps([mutant.name, result], ensure_ascii=False), file=file, flush=True)


def show(chosen: list[Mutant]) -> int:
    """Print the survivors and the share that is killed; fail below 90 %."""
    results, accepted = read_results(), read_accepted()
    counts: dict[str, Counter[str]] = {}
    for mutant in chosen:
        result = results.get(mutant.name, "not tried")
        killed = result in ("killed", "timeout")
        kind = "killed" if killed else "accepted" if place_free(mutant.name) in accepted else result
        counts.setdefault(Path(mutant.path).parts[2], Counter())[kind] += 1
        if kind in ("survived", "unreached", "error"):
            before, after = mutant.change()
            print(f"{mutant.path}:{mutant.line}: {result}\n  {mutant.name}\n  - {before}\n  + {after}")
    counts["all"] = sum(counts.values(), Counter())
    for room, count in counts.items():
        wanted = count.total() - count["accepted"] - count["not tried"]
        share = count["killed"] / wanted if wanted else 1.0
        print(f"{room:16} {count['killed']:5} of {wanted:5} killed, {share:.1%}; {dict(count)}")
    return int(counts["all"]["not tried"] > 0 or share < 0.9)


def show_stale() -> int:
    """Print the accepted survivors that are no mutants of their room any more; fail if there are any."""
    accepted = read_accepted()
    rooms = sorted({name.partition(" | ")[0] for name in accepted})
    found = {place_free(mutant.name) for mutant in choose(find_modules(rooms), None, 0)}
    stale = [name for name in accepted if name not in found]
    print(*stale, f"{len(stale)} of {len(accepted)} accepted survivors are stale", sep="\n")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
