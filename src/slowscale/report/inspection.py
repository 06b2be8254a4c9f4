"""The confidential report of an inspection. It is for the curator only.

It is computed from the records themselves, without noise, so nothing in it is protected.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.files import free_target, write_files
from slowscale.report.charts import tools
from slowscale.report.confidential import BANNER, losses_sections, pairs
from slowscale.report.page import Html, Section, cell, head, page, paragraph, row, table, tag
from slowscale.session.inspection import OUTSIDE_THE_GUARANTEE, key_in_words, share_in_words, size_in_words

if TYPE_CHECKING:
    from slowscale.session import Inspection

LISTED_IN_REPORT = 100  # keys and labels that the report lists


def write_inspection(found: "Inspection", path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the report of an inspection; see `Inspection.report`.

    CONFIDENTIAL: for the curator only. Only the owner of the file may read it (mode 0600).
    """
    target = free_target(path, ".html", overwrite)
    tools()  # raises before any work is done if a package is missing
    text = inspection_page(found)
    files = {target: lambda file: file.write_text(text, encoding="utf-8")}
    return write_files(files, overwrite=overwrite, confidential=True)


def inspection_page(found: "Inspection") -> str:
    """Return the report of an inspection as HTML. CONFIDENTIAL."""
    lead = paragraph(
        f"This report shows what {found.records:,} records hold, before anything is released. {OUTSIDE_THE_GUARANTEE} "
        "Keep this report where the records are kept, and delete it after reading.",
        class_="lead",
    )
    parts = [Section("records", "Records", "The records", _records(found))]
    if found.cells is not None:
        parts.append(Section("keys", "Keys", "The public keys", _keys(found)))
    if found.losses is not None:
        noun = "records" if found.losses.protects is None else f"entities ({found.losses.protects})"
        first, *others = losses_sections(found.losses, noun)
        left_out = "outside the keys, without a label or with a value that cannot be counted"
        who = f"Losses of {found.losses.records:,} {noun}. Records {left_out} are left out."
        parts += [replace(first, parts=[paragraph(who), *first.parts]), *others]
    parts.append(Section("errors", "Errors", "Relative errors to expect, by size of the true sum", [_errors(found)]))
    return page("A look at the records", "Confidential report", [lead], parts, BANNER, BANNER)


def _records(found: "Inspection") -> list[Html]:
    counts = [("all", found.records)]
    if found.duplicates is not None:
        counts.append(("exact copies of another record", found.duplicates))
    if found.cells is not None:
        counts += [("outside the keys", found.outside), ("without a label", found.unlabelled)]
    first = pairs("The number of records.", "Records", "Number", [(name, f"{count:,}") for name, count in counts])
    top = ("Column", "Missing", "Negative", "Not countable", "Share of the sum outside the keys", "… without a label")
    rows = []
    for one in found.columns:
        numbers = [f"{count:,}" for count in (one.missing, one.negative, one.uncountable)]
        shares = [share_in_words(share) for share in (one.outside_share, one.unlabelled_share)]
        rows.append(row(head(one.name, "row"), *map(cell, [*numbers, *shares])))
    heads = row(head(top[0]), *(head(name, numeric=True) for name in top[1:]))
    second = table("The values of the summed columns.", [heads], [tag("tbody", *rows)], "Values")
    refusals = [
        paragraph(tag("strong", "The release would be refused:"), f" {refusal}", class_="lead")
        for refusal in found.refusals
    ]
    return [*refusals, first, *([second] if found.columns else [])]


def _keys(found: "Inspection") -> list[Html]:
    parts = [paragraph(f"{found.empty:,} of {found.cells:,} keys have no record.")]
    if found.empty_keys:
        keys = list(map(key_in_words, found.empty_keys[:LISTED_IN_REPORT]))
        more = found.empty - len(keys)
        parts.append(tag("ul", *(tag("li", words) for words in [*keys, *[f"and {more:,} more"] * (more > 0)])))
    if found.near_misses:
        top = row(*map(head, ("Column", "Label of records", "Public key")), head("Records", numeric=True))
        rows = [
            row(
                head(miss.column, "row"),
                *(cell(repr(label), numeric=False) for label in (miss.label, miss.key)),
                cell(f"{miss.records:,}"),
            )
            for miss in found.near_misses[:LISTED_IN_REPORT]
        ]
        caption = "Labels outside the keys that resemble a key."
        parts.append(table(caption, [top], [tag("tbody", *rows)], "Labels"))
        more = len(found.near_misses) - len(rows)
        parts += [paragraph(f"There are {more:,} more such labels.")] * (more > 0)
    return parts


def _errors(found: "Inspection") -> Html:
    top = ("Column", "True sum", "Cells", "Half of the cells: at most", "95 % of the cells: at most")
    rows = []
    for error in found.errors:
        shares = [share_in_words(share) if error.high else "–" for share in (error.median, error.most)]
        numbers = (size_in_words(error), f"{error.cells:,}", *shares)
        rows.append(row(head(error.column, "row"), *map(cell, numbers)))
    heads = row(head(top[0]), *(head(name, numeric=True) for name in top[1:]))
    caption = (
        "Relative errors to expect, from the noise and the true sums. Rounding to the unit is left out. A sum of 0 "
        "has no relative error."
    )
    return table(caption, [heads], [tag("tbody", *rows)], "Errors")
