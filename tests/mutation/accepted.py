"""Survivors that were read and found to change nothing that a test should notice, each with the reason."""

import tomllib
from pathlib import Path

FOLDER = Path(__file__).with_name("accepted")


def read_accepted() -> dict[str, str]:
    """Return the reasons by `place_free` names of mutants; a file of the folder has a list of names for each reason."""
    texts = [file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.toml"))]
    reasons = (item for text in texts for item in tomllib.loads(text).items())
    return {place_free(name): reason for reason, names in reasons for name in names}


def place_free(name: str) -> str:
    """Return the name of a mutant with its room in place of its module: a function may move within its room.

    >>> place_free("src/slowscale/data/sums.py | counted | AddNot 1 | if total:")
    'data | counted | AddNot 1 | if total:'
    """
    path, mark, rest = name.partition(" | ")
    return Path(path).parts[2] + mark + rest if path.startswith("src/") else name
