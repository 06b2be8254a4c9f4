"""Values written as TOML. The standard library reads TOML, but does not write it."""

import json
import re
from collections.abc import Mapping
from typing import Any


def toml_value(value: Any) -> str:
    """Return text, a number, a boolean, a list or a mapping as TOML on one line.

    >>> toml_value({"delimiter": ";", "first name": [1, True]})
    '{ delimiter = ";", "first name" = [1, true] }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(name)} = {toml_value(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    # TOML writes these as JSON does, apart from DEL, which it allows only as an escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Return a name as a TOML key, in quotes where it needs them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)
