"""Survivors that were read and found to change nothing that a test should notice, each with the reason."""

import tomllib
from pathlib import Path

FOLDER = Path(__file__).with_name("accepted")


def read_accepted() -> dict[str, str]:
    """Return the reasons by the names of the mutants; a file of the folder has a list of names for each reason."""
    texts = [file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.toml"))]
    return {name: reason for text in texts for reason, names in tomllib.loads(text).items() for name in names}
