"""The version of slowscale. It names the commit, so that a release tells which code drew it.

The build writes the version of a wheel into `_build.py`. In a source folder with its git repository the code may be
newer than that, so git is asked.
"""

import subprocess
from functools import cache
from pathlib import Path

UNKNOWN = "0.1.0.dev0"  # neither built nor in a repository


@cache
def running_version() -> str:
    """Return the version of the code that runs, such as 0.1.dev600+g3d86c4c, or …+g3d86c4c.dirty if it was changed."""
    try:
        from slowscale.core._build import __version__ as built
    except ImportError:
        built = UNKNOWN
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return built
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty=.dirty", "--exclude=*"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return built
    return f"{built.partition('+')[0]}+g{commit}"
