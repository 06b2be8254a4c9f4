"""A Griffe extension for the site: it turns examples (`>>>`) in docstrings into code blocks.

Griffe recognises examples only under a heading "Examples". Elsewhere Markdown would treat them as quotations and links.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^.+\n?)*)+", re.MULTILINE)


class Doctests(griffe.Extension):
    """Put code fences around the examples in docstrings."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None and "\nExamples\n---" not in obj.docstring.value:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
