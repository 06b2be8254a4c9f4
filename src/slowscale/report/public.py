"""The public report: what was published, with which guarantee and which errors, and what an attacker can learn.

It is generated from a release alone (and, if given, the total of the ledger and the sizes that the curator states), so
it contains public facts only.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from slowscale.accounting import RecordPolicy
from slowscale.errors import ParameterTypeError
from slowscale.figures import percent
from slowscale.files import free_target, write_files
from slowscale.publication import Publication
from slowscale.release import Release
from slowscale.report.assumptions import assumptions_section, versions_section
from slowscale.report.charts import tools
from slowscale.report.guarantee import attacker_section, guarantee_section, ledger_section
from slowscale.report.labels import Labels
from slowscale.report.page import Html, page, paragraph, tag
from slowscale.report.published import about_publication, error_section, group_columns, published_section
from slowscale.report.scope import Scope, read_stated_sizes
from slowscale.report.sets import member_section
from slowscale.report.words import NOT_PRIVATE, listed, upper
from slowscale.sizes import RecordSize, SizesLike


def write_report(
    release: Release,
    path: str | os.PathLike[str],
    *,
    spent: RecordPolicy | None = None,
    overwrite: bool = False,
    sizes: SizesLike | None = None,
    publication: Publication | None = None,
) -> Path:
    """Write the public report of a release: one HTML file that opens offline and prints well.

    The file is written completely or not at all.

    Parameters
    ----------
    release
        The release, which may have been read with `read_release`.
    path
        The file to write; its name must end in .html.
    spent
        The total loss of records by all releases up to this one, such as `session.spent`.
    overwrite
        Whether to replace an existing file.
    sizes
        Example records for which the report states the losses: a mapping from names to one value per column, such as
        {"median firm": {"emp": 12, "payann": 4e5}, "largest firm": {"emp": 150_000, "payann": 4e10}}, or to one number
        for all columns. One name must contain "largest". The sizes are published: state only what is public knowledge,
        and nothing that was looked up in the records.
    publication
        Titles, units of measure and names of groups that the report shows in place of the names of columns.
    """
    if publication is not None and not isinstance(publication, Publication):
        raise ParameterTypeError(f"publication must be a Publication, got {type(publication).__name__}")
    if not isinstance(release, Release):
        raise ParameterTypeError(f"release must be a Release, got {type(release).__name__}")
    if publication is not None:
        publication.check_titles([*release.facts.columns, *release.facts.ratios])
    read = read_stated_sizes(sizes, release.policy.columns, spent)
    target = free_target(path, ".html", overwrite)
    text = public_page(release, spent, read, publication)
    return write_files({target: lambda file: file.write_text(text, encoding="utf-8")}, overwrite=overwrite)


def public_page(
    release: Release,
    spent: RecordPolicy | None = None,
    sizes: Sequence[RecordSize] = (),
    publication: Publication | None = None,
) -> str:
    """Return the public report as HTML."""
    tools()  # raises before any work is done if a package is missing
    labels = Labels(publication)
    scope = Scope.of(release, sizes, labels)
    sections = [
        published_section(release, labels),
        guarantee_section(release, scope),
        error_section(release, scope),
        attacker_section(release, scope),
        assumptions_section(release, labels),
    ]
    if release.facts.table_set:
        sections.insert(2, member_section(release, scope))
    if spent is not None or release.facts.ledger:
        sections.append(ledger_section(release, spent, scope))
    return page(
        title=_title(release) if publication is None else publication.title,
        eyebrow="Privacy report",
        lead=[*about_publication(publication), *_lead(release, labels)],
        sections=[*sections, versions_section(release)],
        footer="This page is self-contained: it loads nothing from the network. It contains public facts only.",
        banner="" if release.facts.private else NOT_PRIVATE,
    )


def _title(release: Release) -> str:
    by = group_columns(release)
    return f"{upper(_what(release, Labels()))}, {'by ' + listed(by) if by else 'in total'}"


def _what(release: Release, labels: Labels) -> str:
    sums = [labels.title(name) for name, column in release.facts.columns.items() if column.kind == "sum"]
    shown = [*sums[:3], f"{len(sums) - 3} more"] if len(sums) > 4 else sums
    counts = ["number of records"] if len(sums) < len(release.facts.columns) else []
    return listed([*([f"sums of {listed(shown)}"] if sums else []), *counts], "and the")


def _lead(release: Release, labels: Labels) -> list[Html]:
    known, by = release.facts, [labels.key(name) for name in group_columns(release)]
    noun = "record" if known.protect is None else known.protect
    limit = (
        f"The limit depends on the size of the {noun}: small ones are protected best, and large ones have a larger "
        "privacy loss, by a rule that was fixed before the release and is stated below."
        if release.policy.columns
        else "The limit is the same for all, and is stated below."
    )
    summary = paragraph(
        f"This report is about a table with the {_what(release, labels)}"
        f"{f' for {len(release):,} groups by {listed(by)}' if by else ' in total'}. Every published number contains "
        f"random noise. The noise limits what anyone can learn from the table about a single {noun}, whatever else "
        f"they know. {limit} Each number is published with its standard error and a confidence interval.",
        class_="lead",
    )
    levels = sorted({column.level for column in known.columns.values()})
    tiles = {
        "Groups published": f"{len(release):,}" if by else "none (one total)",
        "Columns": str(len(known.columns)),
        "Guarantee": known.notion,
        "Protected": f"one {noun}",
        "Confidence level": listed([percent(level) for level in levels]),
    }
    return [summary, tag("dl", *(tag("div", tag("dt", t), tag("dd", d)) for t, d in tiles.items()), class_="tiles")]
