"""A process that releases in a loop and is killed, again and again: run as a program by integration/test_ledger.py.

The parent imports everything once and forks: so a child starts in milliseconds, and many can be killed. It prints how
many releases were charged and how many were found on disk.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pyarrow as pa

import slowscale as ss
from slowscale.release.session import Session

KILLS_OF_A_LEDGER = 30
KEYS = ss.Keys.from_frame({"k": ["a", "b"]})
RECORDS = pa.table({"k": ["a", "b", "b"], "x": [1, 20, 300]})


def warm_up():
    """Import all that a release imports on its way, and leave no thread of the engine behind."""
    session = Session(RECORDS)
    session.sum({"x": ss.Gaussian(sigma=5)}, keys=KEYS)
    session.table.get_backend().disconnect()


def release_for_ever(folder):
    session = Session(RECORDS, folder / "ledger")
    while True:
        release = session.sum({"x": ss.Gaussian(sigma=5)}, keys=KEYS)
        release.to_csv(folder / f"{release.facts.id}.csv")


def main(folder, kills, seed):
    """Kill children in rounds, each with a ledger of its own: verifying a short ledger after every kill is fast."""
    generator = random.Random(seed)
    warm_up()
    charged, found, window = 0, 0, 0.15
    for number in range(kills // KILLS_OF_A_LEDGER):
        part = folder / str(number)
        part.mkdir()
        more_charged, more_found, window = kill_children(part, generator, window)
        charged, found = charged + more_charged, found + more_found
    print(json.dumps({"charged": charged, "found": found}))


def kill_children(folder, generator, window):
    """Return how many releases were charged, how many were found on disk, and the next window in seconds."""
    ss.Ledger(folder / "ledger").close()
    charged, found = 0, set()
    for _ in range(KILLS_OF_A_LEDGER):
        child = os.fork()
        if not child:
            try:
                release_for_ever(folder)
            finally:
                os._exit(1)
        time.sleep(generator.uniform(0, window))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        ledger = ss.Ledger(folder / "ledger")
        problems = ledger.verify()
        assert not problems, problems
        known = {entry["facts"]["id"] for entry in ledger.history() if entry["kind"] == "charge"}
        ledger.close()
        assert len(known) >= charged, "the total decreased"
        charged = len(known)
        earlier = found
        found = {path.name.removesuffix(".csv.json") for path in folder.glob("[!.]*.csv.json")}
        # Every second child finishes a release: so kills hit every moment of one, however fast the machine is.
        window *= 0.85 if found - earlier else 1.18
        assert found <= known, f"released without a charge: {found - known}"
        for path in folder.glob("[!.]*.csv"):  # a table is there only when its facts are, and whole
            if path.stem in earlier:
                continue
            assert json.loads(Path(f"{path}.json").read_text())["id"] == path.stem
            assert len(path.read_text().splitlines()) == 3
    return charged, len(found), window


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
