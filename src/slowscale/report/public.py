"""The public report: what was published, under which guarantee, how exact it is, and what can be learned from it.

It is made of a release alone (and, if given, the ledger's total and the sizes that the curator states), so it holds
public facts only.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from slowscale.accounting import RecordPolicy
from slowscale.errors import ParameterTypeError
from slowscale.figures import percent
from slowscale.files import free_target, write_files
from slowscale.release import Release
from slowscale.report.assumptions import assumptions_section, versions_section
from slowscale.report.charts import tools
from slowscale.report.guarantee import attacker_section, guarantee_section, ledger_section
from slowscale.report.page import Html, page, paragraph, tag
from slowscale.report.published import error_section, group_columns, published_section
from slowscale.report.scope import Scope
from slowscale.report.words import listed, upper
from slowscale.sizes import RecordSize, SizesLike, read_sizes

NOT_PRIVATE = "NOT PRIVATE: the noise was drawn from test bits that are not secret. Do not publish this table."


def write_report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    spent: RecordPolicy | None = None,
    overwrite: bool = False,
    sizes: SizesLike | None = None,
) -> Path:
    """Write the public report of a release, whole or not at all: one HTML file that opens offline and prints well.

    Parameters
    ----------
    release
        The release; one that `read_release` read back will do.
    path
        Where to; it must end in .html.
    spent
        What records may have lost in all after the release, such as `session.spent`.
    overwrite
        Whether to replace an existing file.
    sizes
        Example records, at which the report tells what a record loses: a mapping of names to a value for each column,
        {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": {"emp": 150_000, "payann": 4e10}}, or to one number
        for all columns. One name must contain "largest". They are published: give what is public knowledge, and
        nothing that was looked up in the records.
    """
    if not isinstance(release, Release):
        raise ParameterTypeError(f"release must be a Release, got {type(release).__name__}")
    if spent is not None and not isinstance(spent, RecordPolicy):
        raise ParameterTypeError(f"spent must be a RecordPolicy such as session.spent, got {type(spent).__name__}")
    # A plan's sizes were read before the release was charged: what passed then must not fail now.
    others = None if isinstance(sizes, tuple) else () if spent is None else spent.columns
    read = read_sizes(sizes, release.policy.columns, others)
    target = free_target(path, ".html", overwrite)
    text = public_page(release, spent, read)
    return write_files({target: lambda file: file.write_text(text, encoding="utf-8")}, overwrite=overwrite)


def public_page(release: Release, spent: RecordPolicy | None = None, sizes: Sequence[RecordSize] = ()) -> str:
    """Return the public report as HTML."""
    tools()  # before any work, if they are missing
    scope = Scope.of(release, sizes)
    sections = [
        published_section(release),
        guarantee_section(release, scope),
        error_section(release, scope),
        attacker_section(release, scope),
        assumptions_section(release),
    ]
    if spent is not None or release.facts.ledger:
        sections.append(ledger_section(release, spent, scope))
    return page(
        title=_title(release),
        eyebrow="Privacy report",
        lead=_lead(release),
        sections=[*sections, versions_section(release)],
        footer="This page is self-contained: it fetches nothing, and it is made of public facts only.",
        banner="" if release.facts.private else NOT_PRIVATE,
    )


def _title(release: Release) -> str:
    by = group_columns(release)
    return f"{upper(_what(release))}, {'by ' + listed(by) if by else 'in total'}"


def _what(release: Release) -> str:
    sums = [name for name, column in release.facts.columns.items() if column.kind == "sum"]
    shown = [*sums[:3], f"{len(sums) - 3} more"] if len(sums) > 4 else sums
    counts = ["number of records"] if len(sums) < len(release.facts.columns) else []
    return listed([*([f"sums of {listed(shown)}"] if sums else []), *counts], "and the")


def _lead(release: Release) -> list[Html]:
    known, by = release.facts, group_columns(release)
    noun = "record" if known.protect is None else known.protect
    limit = (
        "How limited depends on the size: small ones are hidden best, and large ones lose more, by a rule that was "
        "fixed beforehand and is stated below."
        if release.policy.columns
        else "The limit is the same for all, and is stated below."
    )
    summary = paragraph(
        f"This page is about a table with the {_what(release)}"
        f"{f' for {len(release):,} groups by {listed(by)}' if by else ' in total'}. Random noise is in every published "
        f"number, so that what anyone can learn from the table about a single {noun} stays limited, whatever else they "
        f"know. {limit} Each number comes with its standard error and an interval.",
        class_="lead",
    )
    levels = sorted({column.level for column in known.columns.values()})
    tiles = {
        "Groups published": f"{len(release):,}" if by else "none: the total",
        "Columns": str(len(known.columns)),
        "Guarantee": known.notion,
        "Protected": f"one {noun}",
        "Level of the intervals": listed([percent(level) for level in levels]),
    }
    return [summary, tag("dl", *(tag("div", tag("dt", t), tag("dd", d)) for t, d in tiles.items()), class_="tiles")]
