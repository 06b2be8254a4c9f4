"""Processes that charge a ledger at the same time: run as a program by integration/test_ledger.py.

The program imports the library once and forks, so that a race starts within milliseconds. A racer opens the ledger
itself: nothing of a ledger is inherited.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from functools import cache

SECONDS = 600


def race(paths, times):
    """Let one process per path charge the ledger there so many times; return how often each succeeded, or its error."""
    server = _server()
    print(json.dumps({"paths": list(map(str, paths)), "times": times}), file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


@cache
def _server():
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve():
    """Start a race for each line of the input, and print its outcome."""
    from slowscale import Gaussian, RecordPolicy
    from slowscale.accounting import Charge

    asked = Charge(RecordPolicy((("x", Gaussian(sigma=10).policy),)))
    for line in sys.stdin:
        given = json.loads(line)
        racers = [_forked(_charges, path, asked, given["times"]) for path in given["paths"]]
        print(json.dumps([_outcome(*racer) for racer in racers]), flush=True)


def _charges(path, asked, times):
    """Return how many charges succeeded."""
    from slowscale import CapError, Ledger

    ledger, done = Ledger(path), 0
    for _ in range(times):
        try:
            ledger.charge(asked)
            done += 1
        except CapError:
            pass
    return done


def _forked(work, *given):
    """Do the work in a child; return its id, and where its result will be read."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    signal.alarm(SECONDS)  # a racer that hangs is killed
    code = 1
    try:
        result = work(*given)
        code = 0
    except BaseException:
        result = traceback.format_exc()
    try:
        os.write(writing, json.dumps(result).encode())
    finally:
        os._exit(code)


def _outcome(child, reading):
    with open(reading) as pipe:
        words = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    result = json.loads(words) if words else None
    if code == 0 and isinstance(result, int):
        return result
    return f"exit code {code}: {result}"


if __name__ == "__main__":
    serve()
