"""The report of a set of tables: a map of the set, the loss of a record by all tables, and each table."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slowscale.accounting import RecordPolicy
from slowscale.accounting.spent import total_losses
from slowscale.columns import ColumnPolicy, meaning, released_columns, shown_sizes
from slowscale.errors import ParameterTypeError
from slowscale.facts import Facts
from slowscale.figures import figure, percent, rounded_figure
from slowscale.files import free_target, write_files
from slowscale.policy.tree import Tabulated, contains
from slowscale.publication import Publication
from slowscale.release import Release, ReleaseSet
from slowscale.report.assumptions import assumptions_section, versions_section
from slowscale.report.charts import tools
from slowscale.report.guarantee import (
    NOTION,
    TABLE_NOTE,
    TIGHT_NOTE,
    learned,
    ledger_section,
    policy_chart,
    policy_rule,
)
from slowscale.report.labels import Labels
from slowscale.report.page import Html, Section, caption, cell, head, page, paragraph, row, table, tag
from slowscale.report.published import about_publication, published_section
from slowscale.report.scope import Scope, read_stated_sizes
from slowscale.report.set_map import set_map
from slowscale.report.words import NOT_PRIVATE, listed
from slowscale.sizes import RecordSize, SizesLike

DERIVED_WORDS = (
    "The numbers of a derived table are sums of published cells of another table. They add up with that table exactly, "
    "and no record loses more by them."
)


def write_set_report(
    found: ReleaseSet,
    path: str | os.PathLike[str],
    *,
    spent: RecordPolicy | None = None,
    overwrite: bool = False,
    sizes: SizesLike | None = None,
    publication: Publication | None = None,
) -> Path:
    """Write the public report of a set of tables; see `write_report` for the arguments."""
    if not isinstance(found, ReleaseSet):
        raise ParameterTypeError(f"found must be a ReleaseSet, got {type(found).__name__}")
    target = free_target(path, ".html", overwrite)
    text = set_report_text(found, spent, sizes, publication)
    return write_files({target: lambda file: file.write_text(text, encoding="utf-8")}, overwrite=overwrite)


def set_report_text(
    found: ReleaseSet,
    spent: RecordPolicy | None = None,
    sizes: SizesLike | None = None,
    publication: Publication | None = None,
) -> str:
    """Return the public report of a set of tables as HTML."""
    labels = Labels(publication)
    tools()  # raises before any work is done if a package is missing
    scope = _scope(found, read_stated_sizes(sizes, found.policy.columns, spent), labels)
    sections = [
        _map_section(found, scope),
        _guarantee(found, scope),
        *(_table_section(found, name, i, labels) for i, name in enumerate(found)),
        _assumptions(found, labels),
    ]
    if spent is not None or found.facts.ledger:
        sections.append(ledger_section(found, spent, scope, f"Table {3 + 3 * len(found)}."))
    return page(
        title=publication.title if publication is not None else f"A set of {len(found)} tables: {', '.join(found)}",
        eyebrow="Privacy report",
        lead=[*_lead(found), *about_publication(publication)],
        sections=[*sections, versions_section(found)],
        footer="This page is self-contained: it loads nothing from the network. It contains public facts only.",
        banner="" if found.facts.private else NOT_PRIVATE,
    )


def _scope(found: ReleaseSet, sizes: Sequence[RecordSize], labels: Labels) -> Scope:
    """Return the columns of all drawn tables, and the record sizes for which losses are stated."""
    columns = tuple(
        column for name in found.drawn for column in released_columns(found[name].policy, found[name].facts)
    )
    return Scope(columns, shown_sizes(columns, sizes), bool(sizes), labels)


def _lead(found: ReleaseSet) -> list[Html]:
    known = found.facts
    noun = known.protect or "record"
    derived = len(found) - len(found.drawn)
    also = f" The other {derived} are derived from them" if derived > 1 else " The other one is derived from them"
    summary = paragraph(
        f"This report is about {len(found)} tables that were published together. {_drawn_words(len(found.drawn))}"
        f"{f'{also}: they are sums of published cells.' if derived else ''} The noise limits what anyone can learn "
        f"from all tables together about a single {noun}, whatever else they know.",
        class_="lead",
    )
    tiles = {
        "Tables": str(len(found)),
        "Drawn": str(len(found.drawn)),
        "Derived": str(derived),
        "Guarantee": known.notion,
        "Protected": f"one {noun}",
    }
    return [summary, tag("dl", *(tag("div", tag("dt", t), tag("dd", d)) for t, d in tiles.items()), class_="tiles")]


def _drawn_words(count: int) -> str:
    if count == 1:
        return "One of them is drawn: each of its numbers contains random noise."
    return f"{count} of them are drawn: each of their numbers contains random noise of its own."


def _map_section(found: ReleaseSet, scope: Scope) -> Section:
    parts = [
        paragraph(f"{_drawn_words(len(found.drawn))} {DERIVED_WORDS}"),
        tag(
            "figure",
            tag("figcaption", "Figure 1. The tables of the set."),
            set_map(found.tables, _notes(found, scope), scope.labels.key),
        ),
        _tables_table(found, scope.labels),
    ]
    return Section("set", "The tables", "The tables of the set", parts)


def _notes(found: ReleaseSet, scope: Scope) -> dict[str, str]:
    """Return the loss of the last example record by each drawn table, and that derived tables add none."""
    size = scope.sizes[-1]
    notes = dict.fromkeys(found, "no further loss")
    for name in found.drawn:
        loss = total_losses(found[name].policy, size)
        notes[name] = "" if loss is None else f"loss {figure(math.fsum(one.rho for one in loss))} at {size.name}"
    return notes


def _tables_table(found: ReleaseSet, labels: Labels) -> Html:
    top = row(
        head("Table"), head("By"), head("Rows", numeric=True), head("Noise"), head("Cells in each number", numeric=True)
    )
    rows = []
    for name, one in found.tables.tables.items():
        how = "drawn" if one.drawn else f"derived from {one.of}"
        rows.append(
            row(
                head(tag("a", name, href=f"#table-{name}"), "row"),
                cell(listed([labels.key(key) for key in one.by]) or "total", False),
                cell(f"{one.rows:,}"),
                cell(how, False),
                cell(_cells_words(found[name])),
            )
        )
    return table(caption("Table 1.", "The tables of the set."), [top], [tag("tbody", *rows)], "The tables of the set")


def _cells_words(release: Release) -> str:
    """Return how many cells each number of a table is the sum of."""
    if not release.facts.rollup:
        return "1"
    counts = release._as_floats(release.facts.rollup.number)
    low, high = int(counts.min()), int(counts.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _guarantee(found: ReleaseSet, scope: Scope) -> Section:
    """Return the section with the guarantee of the whole set: the policies of the drawn tables, which add up."""
    rules: list[Html] = []
    for name in found.drawn:
        columns = released_columns(found[name].policy, found[name].facts)
        own = Scope(columns, scope.sizes, scope.stated, scope.labels)
        rules += [policy_rule(column, own, f"{name}: {scope.labels.with_unit(column.name)}") for column in columns]
    who = found.facts.protect
    cells = (
        "A record is in at most one group of each drawn table, so the groups of one table do not add up."
        if who is None
        else f"So do those in all groups of all drawn tables that a {who} is in; the numbers below are for a {who} "
        "that is in one group of each."
    )
    parts = [
        paragraph(f"The privacy guarantee is {NOTION}" if found.facts.notion == "PRzCDP" else found.facts.notion),
        paragraph(tag("strong", "Protected: "), found.facts.protects, "."),
        paragraph(
            "The policy P of each column of each drawn table follows. The losses of a record by all of them add up: "
            f"this sum is the loss by the whole set. {cells}"
        ),
        *rules,
    ]
    if scope.tight:
        parts.append(paragraph(TIGHT_NOTE))
    if any(contains(column.policy.formula(), Tabulated) for column in scope.columns):
        parts.append(paragraph(TABLE_NOTE))
    merged = Scope(_merged(found, scope.columns), scope.sizes, scope.stated, scope.labels)
    parts += [policy_chart(merged, "Figure 2. Privacy loss of a record by the whole set, by its size."), *scope.notes]
    parts.append(set_losses_table(found.facts, found.policy, found, scope, "Table 2."))
    return Section("guarantee", "The guarantee", "The guarantee of the whole set", parts)


def _merged(found: ReleaseSet, columns: Sequence[ColumnPolicy]) -> tuple[ColumnPolicy, ...]:
    """Return one column for each name, with the loss of a record through it by all drawn tables."""
    merged = {}
    for column in columns:
        policy = found.policy.column(None if column.single else column.name)
        merged[column.name] = ColumnPolicy(
            column.name, policy, None, None, column.unit, column.single, column.on_grid, None
        )
    return tuple(merged.values())


def set_losses_table(facts: Facts, policy: RecordPolicy, found: ReleaseSet | None, scope: Scope, number: str) -> Html:
    """Return the table with the losses of example records by the whole set and by each drawn table."""
    sizes = scope.sizes
    rows = [] if found is None else [_losses_row(f"{name} (drawn)", found[name].policy, sizes) for name in found.drawn]
    body = [tag("tbody", *rows)] if rows else []
    last = [_losses_row("all tables together", policy, sizes)]
    if found is not None:
        known = [meaning(scope.columns, size) for size in sizes]
        last += [row(head(what, "row"), *map(cell, texts)) for what, texts in learned(known).items()]
    top = row(head(scope.heading), *(head(size.name, numeric=True) for size in sizes))
    title = "PRzCDP loss of a record by the whole set"
    note = "" if facts.protect is None else f" For a {facts.protect} that is in one group of each drawn table."
    return table(caption(number, f"{title}.", note), [top], [*body, tag("tbody", *last)], title)


def _losses_row(name: str, policy: RecordPolicy, sizes: Sequence[RecordSize]) -> Html:
    losses = [total_losses(policy, size) for size in sizes]
    texts = ["not stated" if loss is None else figure(math.fsum(one.rho for one in loss)) for loss in losses]
    return row(head(name, "row"), *map(cell, texts))


def _table_section(found: ReleaseSet, name: str, place: int, labels: Labels) -> Section:
    """Return the section on one table: what was published, how accurate it is, and where its numbers come from."""
    release, one = found[name], found.tables.tables[name]
    how = (
        "This table is drawn: each number has noise of its own."
        if one.drawn
        else f"This table is derived from {one.of}. {DERIVED_WORDS}"
    )
    number = 3 + 3 * place
    parts = [paragraph(how)]
    if release.facts.rollup and release.facts.rollup.complete is False:
        parts.append(
            paragraph(
                "Not all combinations of the labels are published as cells. A number is the sum of the published "
                "cells; records in other cells are not in it."
            )
        )
    parts += published_section(release, labels, (f"Table {number}.", f"Table {number + 1}.")).parts
    parts.append(_accuracy(release, f"Table {number + 2}.", labels))
    groups = f", by {listed([labels.key(key) for key in one.by])}" if one.by else ", in total"
    title = labels.table(name)
    return Section(f"table-{name}", name, f"{name}{groups}" if title is None else f"{title} ({name})", parts)


def _accuracy(release: Release, number: str, labels: Labels) -> Html:
    """Return the published standard errors and widths of intervals: the smallest, the median and the largest."""
    top = row(
        head("Column"),
        head("Standard error: smallest", numeric=True),
        head("median", numeric=True),
        head("largest", numeric=True),
        head("Width of the interval: smallest", numeric=True),
        head("median", numeric=True),
        head("largest", numeric=True),
    )
    rows = []
    for name in release.facts.columns:
        errors = release._as_floats(f"{name}_se")
        widths = release._as_floats(f"{name}_high", 1) - release._as_floats(f"{name}_low", -1)
        numbers = [end(some) for some in (errors, widths) for end in (np.min, np.median, np.max)]
        rows.append(row(head(labels.with_unit(name), "row"), *(cell(rounded_figure(float(one))) for one in numbers)))
    levels = listed(sorted({percent(column.level) for column in release.facts.columns.values()}))
    title = f"How accurate the published numbers are, with intervals at the level {levels}."
    return table(caption(number, title), [top], [tag("tbody", *rows)], title)


def _assumptions(found: ReleaseSet, labels: Labels) -> Section:
    parts: list[Html] = []
    for name in found.drawn:
        parts += [tag("h3", name)] if len(found.drawn) > 1 else []
        parts += assumptions_section(found[name], labels).parts
    return Section("assumptions", "Assumptions", "Assumptions", parts)


def member_section(release: Release, scope: Scope) -> Section:
    """Return the section, in the report of one table, on the set that it belongs to and the loss by all tables."""
    described = release.facts.table_set
    assert described
    here = described.tables[described.table or ""]
    role = "is drawn" if here.drawn else f"is derived from {here.of}"
    parts = [
        paragraph(
            f"This table is {described.table}, one of {len(described.tables)} tables of the set ",
            tag("code", described.id),
            f", which were published together. It {role}. {DERIVED_WORDS} The losses by all drawn tables of the set "
            f"({listed(described.drawn)}) add up, and every reader has all tables: what counts is the loss by the "
            "whole set.",
        ),
        set_map(
            described,
            {name: "" if one.drawn else "no further loss" for name, one in described.tables.items()},
            scope.labels.key,
        ),
    ]
    if described.policy is not None:
        policy = RecordPolicy.from_dict(described.policy)
        parts.append(set_losses_table(release.facts, policy, None, scope, "Table 5."))
    parts.append(paragraph(tag("strong", "The loss by the whole set: "), tag("code", described.formula)))
    return Section("set", "The set of tables", "The set of tables", parts)
