"""A Griffe extension for the site: examples (`>>>`) at the end of a docstring become blocks of code.

Griffe knows them under a heading "Examples" only; elsewhere Markdown would take them for quotations and links.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^.+\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put examples in docstrings between fences."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None and "\nExamples\n---" not in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
