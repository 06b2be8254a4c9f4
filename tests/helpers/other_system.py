"""Python as slowscale finds it on Windows, simulated on another system; see `environment`.

Only what modules of slowscale do is restricted, because other packages know on which system they run.
"""

import builtins
import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

MISSING_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
MISSING = {
    os: {
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fchown", "fork", "getegid",
        "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "kill", "killpg", "mkfifo", "register_at_fork",
        "sched_getaffinity", "setsid", "statvfs", "sync", "sysconf", "uname", "wait", "waitpid",
    },
    signal: {"SIGALRM", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "alarm", "pthread_kill", "setitimer", "sigwait"},
    time: {"tzset"},
    subprocess: set(),
}  # fmt: skip
# The parts of Python that pass a call on.
PASSING = {"contextlib", "os", "pathlib", "shutil", "tempfile", __name__}


def is_ours():
    """Return whether a module of slowscale made the present call."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in PASSING:
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("slowscale.")


def check_not_open(path):
    """Raise as Windows does if this process has a file open."""
    real = os.path.realpath(path)
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") == real:
                raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
        except FileNotFoundError:
            pass


def without(module):
    """Return a module without the names that Windows does not have."""
    limited = types.ModuleType(module.__name__)
    for key, value in vars(module).items():
        if key not in MISSING[module]:
            setattr(limited, key, value)
    return limited


def restricted_os():
    """Return the module os of Windows."""
    found = without(os)
    found.name = "nt"

    def opened(path, flags, *more, **named):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return os.open(path, flags, *more, **named)

    def flushed(handle):
        os.write(handle, b"")  # raises if the file is only read
        os.fsync(handle)

    found.open, found.fsync = opened, flushed
    return found


def restricted_subprocess():
    """Return the module subprocess of Windows."""
    found = without(subprocess)

    class Popen(subprocess.Popen):
        def __init__(self, *given, pass_fds=(), preexec_fn=None, creationflags=0, **more):
            if pass_fds or preexec_fn:
                raise ValueError("not supported on Windows platforms")
            super().__init__(*given, **more)

    found.Popen = Popen
    found.CREATE_NEW_PROCESS_GROUP, found.CREATE_NO_WINDOW = 0x200, 0x8000000
    return found


def install():
    """Restrict what modules of slowscale can do from now on."""
    limited = {
        "os": restricted_os(), "signal": without(signal), "time": without(time), "subprocess": restricted_subprocess(),
    }  # fmt: skip
    whole_import, whole_open = builtins.__import__, io.open
    moves = {name: getattr(os, name) for name in ("unlink", "remove", "rename", "replace")}

    def import_module(name, globals=None, *more, **named):
        if str((globals or {}).get("__name__")).startswith("slowscale."):
            if name in MISSING_MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in limited:
                return limited[name]
        return whole_import(name, globals, *more, **named)

    def open_file(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *more, **named):
        if is_ours():
            if isinstance(file, str | os.PathLike) and os.fspath(file).startswith("/proc"):
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(file))
            if "b" not in mode and encoding is None:
                raise AssertionError(f"{file} is opened in the encoding of the system")
            if newline is None and set(mode) & set("wxa") and "b" not in mode:
                newline = "\r\n"
        return whole_open(file, mode, buffering, encoding, errors, newline, *more, **named)

    def move(name):
        def moved(*paths, **more):
            if is_ours():
                for path in paths:
                    check_not_open(path)
                if name == "rename" and os.path.lexists(paths[1]):
                    raise FileExistsError(errno.EEXIST, "File exists", str(paths[1]))
            return moves[name](*paths, **more)

        return moved

    builtins.__import__ = import_module
    builtins.open = io.open = open_file
    for name in moves:
        setattr(os, name, move(name))
        setattr(limited["os"], name, getattr(os, name))


def environment(folder):
    """Return the environment in which every Python is restricted; the folder is for a file that Python reads first."""
    start = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import other_system
        sys.path.pop(0)
        other_system.install()
    """
    (folder / "sitecustomize.py").write_text(textwrap.dedent(start))
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "cp1252"}
