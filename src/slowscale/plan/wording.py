"""Errors of the library, which name Python arguments, in the words of plan files."""

import re

# Each pattern with what a plan file says instead.
PLAN_WORDS = (
    (r"\bcsv=\{([^}]*)\}", r"csv = { \1 } in [data]"),
    (r"""\bderive=\{"(\w+)": ('[^']*')\}""", r"derive = { \1 = \2 } in [data]"),
    (r'"(delimiter|quote|encoding|dates|decimal|header)": ', r"\1 = "),
    (r'\b(nulls|negatives)="(\w+)"', r'\1 = "\2" in [options]'),
    (r"\b(types|csv|where|derive|protect)=(?!\w)", r"\1 in [data]"),
    (r"ss\.Ledger\(path, caps\)", "in [ledger.caps] of the plan"),
    (r"\bdataset='([^']*)'", r'name = "\1" in [data]'),
    (r"\boverwrite=True", "--overwrite"),
    (r"\b\w+\.calibrate needs (\w+)=…", r"give \1"),
    (r"for one, use \w+\.calibrate\(std=…, at=…\)", "for one, write std = … and at = … in place of it"),
    (r"(`slowscale ledger set-cap`) or Ledger\.set_cap", r"\1"),
    (r"\bcaps must be those", "[ledger.caps] must be those"),
    (r"^loss must be from", "--loss must be from"),
    (r"\bin caps\b", "in [ledger.caps]"),
)


def in_plan_words(message: str) -> str:
    """Return an error of the library in the words of plan files."""
    for pattern, replacement in PLAN_WORDS:
        message = re.sub(pattern, replacement, message)
    return message
