"""Survivors that were read and change nothing a test could see, each with its reason."""

import tomllib
from pathlib import Path

FILE = Path(__file__).with_name("accepted.toml")


def read_accepted() -> dict[str, str]:
    """From the name of a mutant to the reason why it may survive."""
    entries = tomllib.loads(FILE.read_text()) if FILE.exists() else {}
    return {name: reason for reason, names in entries.items() for name in names}
