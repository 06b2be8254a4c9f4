"""The command `slowscale`, each time in a process of its own.

A server imports the library once and forks, so that a command starts in milliseconds: this file is that server if it is
run as a program.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path

SECONDS = 120
IMPORTS = (
    "altair", "duckdb", "ibis", "ibis.backends.duckdb", "ibis.backends.sql.compilers", "pandas", "pyarrow.csv",
    "pyarrow.parquet", "rich.console", "rich.table", "scipy.optimize", "slowscale.cli.printing", "slowscale.plan",
    "slowscale.publish.report", "slowscale.release.session", "slowscale.study",
)  # fmt: skip


def run_command(arguments, folder, env=None):
    """Run the command in a folder, with an empty input; return its exit code, and what it printed."""
    with tempfile.TemporaryDirectory() as outputs:
        files = [Path(outputs) / name for name in ("stdout", "stderr")]
        asked = {
            "arguments": list(map(str, arguments)),
            "folder": str(folder),
            "env": dict(os.environ if env is None else env),
            "files": list(map(str, files)),
        }
        server = _server()
        print(json.dumps(asked), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, *(file.read_text() for file in files))


@cache
def _server():
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve():
    """Fork for each line of the input, which describes a command, and print the exit code of the child."""
    for name in IMPORTS:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become_command(**json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def become_command(arguments, folder, env, files):
    from slowscale.cli import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["slowscale", *arguments]
    signal.alarm(SECONDS)  # a command that hangs is killed
    code = 1
    try:
        main()
    except SystemExit as done:
        code = _exit_code(done)
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # the end of the interpreter would wait for threads of the server, which a fork does not copy


def _exit_code(done):
    """Return the exit code that the interpreter would end with: a text is printed, and the code is 1."""
    if done.code is None or isinstance(done.code, int):
        return done.code or 0
    print(done.code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    serve()
