"""Numbers in the prose of a page: each comes from a run that a test checks, or is declared as given.

A number is *measured* if it has two significant digits or more and is a decimal, a percentage or has three digits or
more. Round numbers, years and the usual levels are settings, not results. Each measured number must be

- in words that a test computes, or
- in code of the page that `test_docs.py` runs, or in what that code prints, or
- in words that a test declares as given: an example's input, a definition, a fact with its source.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?:<!-- (?P<mark>\w+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(?<![\w.,/^])\d[\d,]*(?:\.\d+)?(?: %)?(?![\w/]|\.\d)")
YEAR = re.compile(r"(?:19|20)\d\d")
LEVELS = {"95 %", "0.95", "99 %", "99.9 %"}


def path_of(page):
    return ROOT / page if page == "README.md" else ROOT / "docs" / page


def measured(number):
    digits = re.sub(r"[^\d]", "", number).strip("0")
    plain = number.isdigit() and (len(number) < 3 or YEAR.fullmatch(number))
    return len(digits) > 1 and not plain and number not in LEVELS


def numbers(text):
    """Return the measured numbers in a text, with their places."""
    found = [(match[0].rstrip(","), match.start()) for match in NUMBER.finditer(text)]
    return [(number, start) for number, start in found if measured(number)]


def value(number):
    return float(number.rstrip(",").removesuffix(" %").replace(",", ""))


def one_line(text):
    return " ".join(text.split())


def unaccounted(page, computed, given):
    """Return the measured numbers of a page that nobody accounts for; raise if it does not say what was computed."""
    text = path_of(page).read_text(encoding="utf-8")
    run = " ".join(block["text"].replace("_", "") for block in BLOCK.finditer(text) if block["mark"])
    known = {value(number) for number in NUMBER.findall(run)}
    prose = BLOCK.sub(lambda block: block["text"] if not block["mark"] and block["kind"] == "text" else "", text)
    prose = re.sub(r"^slowscale (?:.*\\\n)*.*$", "", prose, flags=re.MULTILINE)  # commands
    prose = one_line(re.sub(r"\]\([^)]*\)", "]", prose))
    seen = [code.span() for code in re.finditer(r"`[^`]*`", prose)]
    missing = [words for words in (*computed, *given) if one_line(words) not in prose]
    assert not missing, f"{page} does not say what is computed or declared as given:\n" + "\n".join(missing)
    for words in (*computed, *given):
        seen += [match.span() for match in re.finditer(re.escape(one_line(words)), prose)]
    return [
        number
        for number, start in numbers(prose)
        if value(number) not in known and not any(low <= start < high for low, high in seen)
    ]
