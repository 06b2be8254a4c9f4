"""The guarantee: the policy of each column, what an attacker can learn, and the total loss by all releases."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from slowscale.accounting import RecordPolicy, Spent
from slowscale.accounting.semantics import DELTA_WRITTEN, Exceptions, explain
from slowscale.accounting.spent import total_losses
from slowscale.attackers import EVEN, EXAMPLE_ALARMS, alarms, worst_case
from slowscale.columns import ColumnPolicy, Meaning, meaning, size_span
from slowscale.figures import figure, percent, share
from slowscale.policy.transforming import TransformingPolicy
from slowscale.policy.tree import Tabulated, contains
from slowscale.release import Release, ReleaseSet
from slowscale.report.charts import Axis, LineChart, Mark, points
from slowscale.report.page import Html, Section, caption, cell, facts, head, joined, paragraph, row, table, tag
from slowscale.report.scope import Scope
from slowscale.report.words import growth, listed, mathml
from slowscale.sizes import RecordSize

T = TypeVar("T")
MOST_NAMED_MARKS = 8  # with more marks in a chart, none is named
LEAST_DRAWN = 1e-4  # smaller losses are not drawn, except those of stated sizes
DETECTED = f"Detected, with {alarms(EXAMPLE_ALARMS)}"
GUESSED = f"Best guess right, starting from {percent(EVEN)}"
WORST_CASE = "Highest certainty in the worst case"
NOTION = (
    "PRzCDP: per-record zero-concentrated differential privacy. For every record, it limits how much the probability "
    "distribution of the published table can differ between data with the record and data without it. The limit is the "
    "privacy loss of the record: with a loss of 0, nothing can be learned about the record; the larger the loss, the "
    "more can be learned. The loss depends on the size of the record, by a policy that was fixed before any noise was "
    "drawn."
)

TIGHT_NOTE = (
    "Accounting is tight: each policy is the smallest one that is known for its noise. The closed forms hold as well, "
    "but they are larger. The noise is the same for both."
)
TABLE_NOTE = (
    "In the formulas, tight(…) stands for a table of the smallest possible losses. They were computed numerically, as "
    "upper bounds that take every error of the computation into account."
)
EMPTY_GROUP = (
    " For columns with a root or a logarithm they are upper bounds, which are reached only if there is no other record "
    "in the group."
)
# Lines of a table by their headings, each with one text per example record.
Lines = dict[str, list[str]]
VALUE, CLOSED_LOSS = "Value in this column", "PRzCDP loss by the closed form"


def guarantee_section(release: Release, scope: Scope) -> Section:
    """Return the section that states the guarantee, as formulas, in words and as a chart."""
    rules = [policy_rule(column, scope, scope.labels.with_unit(column.name)) for column in scope.columns]
    notes = [
        "The losses of a record in all columns add up. A record is in one group only, so the groups do not add up."
        if release.facts.protect is None
        else f"The losses in all columns add up, and so do those in all groups that a {release.facts.protect} is in."
    ]
    pure = [scope.labels.title(column.name) for column in scope.columns if column.pure is not None]
    if pure:
        notes.append(
            f"{f'The column {pure[0]} has' if len(pure) == 1 else f'The columns {listed(pure)} have'} a "
            "pure guarantee (PRDP) as well. There ε is a guarantee by itself: for an attacker, the odds that the "
            "record is in the data change by a factor of at most exp(ε), without exception."
        )
    if scope.tight:
        notes.append(TIGHT_NOTE)
    if any(contains(column.policy.formula(), Tabulated) for column in scope.columns):
        notes.append(TABLE_NOTE)
    parts = [
        paragraph(f"The privacy guarantee is {NOTION}" if release.facts.notion == "PRzCDP" else release.facts.notion),
        paragraph(tag("strong", "Protected: "), release.facts.protects, "."),
        paragraph(
            "The policy P of each column follows, as a formula and in words. The size of a record is ",
            _size(release),
            ":",
        ),
        *rules,
        *(paragraph(note) for note in notes),
        policy_chart(scope),
        *scope.notes,
    ]
    return Section("guarantee", "The guarantee", "The guarantee", parts)


def policy_rule(column: ColumnPolicy, scope: Scope, title: str) -> Html:
    """Return the policy of a column, as a formula and in words."""
    name = None if column.single else column.name
    text = str(RecordPolicy(((name, column.policy),)))
    formula = paragraph(mathml(column.policy, name), class_="formula", role="group", aria_label=f"The policy: {text}")
    return tag("div", tag("h3", title), formula, paragraph(_in_words(column, scope)), class_="rule")


def _in_words(column: ColumnPolicy, scope: Scope) -> str:
    """Return a description of how a column's loss grows, with its values at the smallest and largest size shown."""
    if column.single:
        return f"Every record counts as 1, and has a loss of {figure(column.policy(0))}. {_gain(column, scope)}".strip()
    stated = sorted((value, size.words(column.name)) for size in scope.sizes if (value := size.value(column.name)))
    text = growth(column.policy, *size_span(scope.columns, scope.sizes))  # the sizes of the chart
    if not stated:
        return f"{text} {_gain(column, scope)}".strip()
    ends = dict.fromkeys([stated[0], stated[-1]])
    examples = listed([f"{figure(column.policy(value))} at size {words}" for value, words in ends])
    return f"{text} The loss is {examples}. {_gain(column, scope)}".strip()


def _gain(column: ColumnPolicy, scope: Scope) -> str:
    """Return a sentence on how much smaller a column's loss is than its closed form; "" if that is what is charged."""
    if column.closed is None:
        return ""
    if column.single:
        return f"By the closed form of the policy it would be {_times(column.gain(0))}."
    sizes = [(value, size.words(column.name)) for size in scope.sizes if (value := size.value(column.name))]
    gains = listed([f"{_times(column.gain(value))} at size {words}" for value, words in dict.fromkeys(sizes)])
    return f"By the closed form of the policy the loss would be {gains}." if gains else ""


def _times(gain: float) -> str:
    written = f"{gain:.3g}"
    return "the same" if written == "1" else f"{written} times as large"


def _size(release: Release) -> str:
    if release.facts.protect is None:
        return "the absolute value of what it adds to the sum"
    return f"the absolute value of what one {release.facts.protect} adds to the sum of a group"


def policy_chart(scope: Scope, title: str = "Figure 1. Privacy loss of a record, by its size.") -> Html:
    """Return a chart of the losses of records through each column, by size."""
    sized = [column for column in scope.columns if not column.single]
    values = {value for size in scope.sizes for column in sized if (value := size.value(column.name))}
    low, high = size_span(scope.columns, scope.sizes)
    sizes = np.union1d(np.geomspace(low, high, 141), sorted(values))
    with np.errstate(all="ignore"):
        lines, like = {}, {}
        for column in scope.columns:
            name = scope.labels.with_unit(column.name)
            lines[name] = points(sizes, column.policy(sizes))
            if column.closed is not None:
                lines[closed := f"{name}, closed form"] = points(sizes, column.closed(sizes))
                like[closed] = name
        marks = [
            Mark(scope.labels.with_unit(column.name), value, float(column.policy(value)), size.name)
            for size in scope.sizes
            for column in sized
            if size.named and (value := size.value(column.name))
        ]
    most = max(loss for line in lines.values() for _, loss in line)
    named = len(marks) <= MOST_NAMED_MARKS
    chart = LineChart(
        "figure-policy",
        title,
        "Both axes are logarithmic."
        + " The points are the stated sizes." * bool(marks)
        + " The closed forms are larger bounds on the same losses, for comparison." * scope.tight,
        Axis("Size of the record"),
        Axis("PRzCDP loss"),
        lines,
        tuple(mark if named else Mark(mark.line, mark.x, mark.y) for mark in marks),
        min([LEAST_DRAWN, *(mark.y for mark in marks if mark.y > 0)]) if most > LEAST_DRAWN else 0.0,
        like,
    )
    return chart.figure(sorted(values or sizes[:: len(sizes) // 3]))


def attacker_section(release: Release, scope: Scope) -> Section:
    """Return the section on what can be learned about records of several sizes, by each column and by all together."""
    who, columns, sizes = release.facts.protect, scope.columns, scope.sizes
    thing = "record" if who is None else who
    groups: list[tuple[str, Lines, list[Meaning | None], Lines]] = []
    for column in columns:
        title = scope.labels.with_unit(column.name)
        if column.single:
            found = [meaning([column], sizes[0])]
            groups.append((f"{title} (every record counts as 1)", {}, found, _closed(column, sizes[:1])))
        else:
            values = {VALUE: [column_value(size.value(column.name)) for size in sizes]} if scope.named else {}
            found = [meaning([column], size) for size in sizes]
            groups.append((title, values, found, _closed(column, sizes)))
    if len(columns) > 1:
        groups.append(("All columns together", {}, [meaning(columns, size) for size in sizes], {}))
    bodies = [_group(name, above, found, closed, len(sizes)) for name, above, found, closed in groups]
    sizes_head = scope.heading if any(not column.single for column in columns) else ""
    top = row(head(sizes_head), *(head(size.name, numeric=True) for size in sizes))
    cells = "" if who is None else f" The losses in all groups that a {who} is in add up; the table is for one group."
    together = (
        " For all columns together, the attacker uses all of them at once, and the figures are certified upper bounds."
        if len(columns) > 1
        else ""
    )
    empty = EMPTY_GROUP if any(isinstance(column.policy, TransformingPolicy) for column in columns) else ""
    rate, even = percent(EXAMPLE_ALARMS), percent(EVEN)
    terms = {
        DETECTED: f"How often the attacker notices that the {thing} is in the data, if it is. The attacker accepts "
        f"{alarms(EXAMPLE_ALARMS)}: if the {thing} is not in the data, the attacker believes in {rate} of cases that "
        f"it is. {rate} here means that nothing was learned.",
        GUESSED: f"How often the attacker is right who considered it as likely as not ({even}) that the {thing} is in "
        f"the data, and decides after reading the table. {even} means that nothing was learned.",
        WORST_CASE: f"The certainty that the same attacker reaches if the noise happens to be as unfavourable for the "
        f"{thing} as it can be. This can be very rare; the two rows above say what happens on average. Where it says "
        "“no limit”, there are rare results that make the attacker as good as certain.",
    }
    parts = [
        paragraph(
            f"Consider an attacker who knows everything except whether one {thing} is in the data: all other records, "
            "the method and its parameters. The attacker uses the best test that exists. No attacker, with any "
            "computer, can do better than the table says:"
        ),
        facts(terms),
        table(
            caption("Table 3.", "What can be learned about a record, by its size."),
            [top],
            bodies,
            "What can be learned about a record, by its size",
        ),
        paragraph(
            f"The figures are exact for the noise as it was drawn.{empty} The published numbers are rounded, which can "
            "only help the records. The row with ε and δ expresses the same in the terms of ordinary "
            f"(ε, δ)-differential privacy. The size of a record is {_size(release)}.{cells}{together}",
            class_="soft",
        ),
        *scope.notes,
    ]
    return Section(
        "attacker", "What an attacker can learn", "What can an attacker learn about a record of size …?", parts
    )


def _closed(column: ColumnPolicy, sizes: Sequence[RecordSize]) -> Lines:
    """Return the line with the closed forms of a column's losses, if other losses are charged."""
    if column.closed is None:
        return {}
    values = [0.0 if column.single else size.value(column.name) for size in sizes]
    return {CLOSED_LOSS: ["not stated" if value is None else figure(column.closed(value)) for value in values]}


def column_value(value: float | None) -> str:
    """Return the value of an example record in a column."""
    return "not stated" if value is None else figure(value)


def _group(name: str, above: Lines, found: Sequence[Meaning | None], closed: Lines, width: int) -> Html:
    """Return the part of the table for one column; a number that is the same for all sizes spans them.

    `above` has the values in the column, and `closed` the closed forms of the losses, if these are shown.
    """
    lines: Lines = {**above, "PRzCDP loss": [_stated(one, lambda one: figure(one.loss)) for one in found], **closed}
    lines[f"ε, with δ = {DELTA_WRITTEN}"] = [_stated(one, lambda one: figure(one.epsilon)) for one in found]
    lines |= learned(found)
    lines[WORST_CASE] = [_stated(one, lambda one: worst_case(one.most)) for one in found]
    span = width if len(found) == 1 else 1
    rows = [row(head(what, "row"), *(cell(text, colspan=str(span)) for text in texts)) for what, texts in lines.items()]
    return tag("tbody", row(head(name, "rowgroup", colspan=str(width + 1))), *rows, class_="group")


def learned(found: Sequence[Meaning | None]) -> dict[str, list[str]]:
    """Return the rows on how often records are detected, and how often the best guess is right."""
    return {
        DETECTED: [_stated(one, lambda one: _share(one.detected)) for one in found],
        GUESSED: [_stated(one, lambda one: _share(one.guessed)) for one in found],
    }


def _stated(known: T | None, write: Callable[[T], str]) -> str:
    return "not stated" if known is None else write(known)


def _share(probability: float | None) -> str:
    return "not known" if probability is None else share(probability)


def ledger_section(
    release: Release | ReleaseSet, spent: RecordPolicy | None, scope: Scope, number: str = "Table 4."
) -> Section:
    """Return the section on the total loss by all releases so far, and on the ledger entry of this one."""
    parts = []
    if spent is not None:
        many = f" ({spent.releases:,} so far)" if isinstance(spent, Spent) else ""
        who = release.facts.protect
        cells = "" if who is None else f" So do those in all groups that a {who} is in; the table is for one group."
        parts.append(
            paragraph(
                f"The table shows the privacy losses by all releases{many} together, including this one. The losses of "
                f"a record in all columns add up.{cells}"
            )
        )
        parts.append(_spent_table(release, spent, scope, number))
    entry = release.facts.ledger
    if entry:
        parts.append(
            paragraph(
                f"The release was charged to a ledger before any noise was drawn, as entry {entry.entry}. "
                "The hash of that entry covers all earlier entries. Whoever keeps this page can therefore check later "
                "whether the ledger was changed: ",
                tag("code", entry.hash),
            )
        )
    return Section("ledger", "The ledger", "The ledger after this release", parts)


def _spent_table(release: Release | ReleaseSet, spent: RecordPolicy, scope: Scope, number: str) -> Html:
    sizes = scope.sizes
    rows = _spent_rows(spent, scope)
    title = "PRzCDP loss by everything released so far"
    if spent.terms == release.policy.terms and not spent.parallel:  # this release alone, of which more is known
        found = [meaning(scope.columns, size) for size in sizes]
        told = [_stated(one, lambda one: figure(one.loss)) for one in found]
        known, note = learned(found), ""
    else:
        totals = [None if (lost := total_losses(spent, size)) is None else explain(lost) for size in sizes]
        bounds = [None if total is None else total.certainty for total in totals]
        used = Exceptions([bound for bound in bounds if bound is not None])
        told = [_stated(total, lambda total: figure(total.loss)) for total in totals]
        sure = [_stated(bound, lambda bound: share(bound.value) + used.mark(bound)) for bound in bounds]
        known = {"Highest certainty of an attacker": sure}
        note = (
            f" Certainties start from {percent(EVEN)}. They follow from the losses alone, and hold {used}."
            if any(bounds)
            else " No example record has a value in every column, so totals are not stated."
        )
    last = [
        row(head(what, "row"), *map(cell, texts)) for what, texts in {"All columns together": told, **known}.items()
    ]
    top = row(head(scope.heading), *(head(size.name, numeric=True) for size in sizes))
    body = [tag("tbody", *rows), tag("tbody", *last)]
    return table(caption(number, f"{title}.", note), [top], body, title)


def _spent_rows(spent: RecordPolicy, scope: Scope) -> list[Html]:
    """Return one row per column with the losses of the example records, and one for being counted."""
    rows = []
    for name in spent.columns:
        policy = spent.column(name)
        cells = []
        for value in (size.value(name) for size in scope.sizes):
            text = "not stated" if value is None else figure(float(policy(value)))
            small = tag("small", f"at {column_value(value)}") if scope.named and value is not None else ""
            cells.append(cell(joined([text, small])))
        rows.append(row(head(scope.labels.with_unit(name), "row"), *cells))
    counts = float(spent.column(None)(0))
    if counts:
        how = "being counted or ranked" if spent.column(None).by_rank else "being counted"
        rows.append(row(head(how, "row"), cell(figure(counts), colspan=str(len(scope.sizes)))))
    return rows
