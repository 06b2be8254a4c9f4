"""The guarantee: the policy of each column, what an attacker can learn, and the total loss by all releases."""

from collections.abc import Sequence

import numpy as np

from slowscale.accounting import Loss, RecordPolicy, Spent
from slowscale.accounting.semantics import DELTA_WRITTEN, MARK, RARELY, Exceptions, Explanation, except_in, explain
from slowscale.accounting.spent import total_losses
from slowscale.columns import ColumnPolicy, losses, size_span
from slowscale.figures import figure, share
from slowscale.release import Release
from slowscale.report.charts import Axis, LineChart, Mark, points
from slowscale.report.page import Html, Section, caption, cell, head, joined, paragraph, row, table, tag
from slowscale.report.scope import Scope
from slowscale.report.words import growth, listed, mathml
from slowscale.sizes import RecordSize

MOST_NAMED_MARKS = 8  # with more marks in a chart, none is named
LEAST_DRAWN = 1e-4  # smaller losses are not drawn, except those of stated sizes
NOTION = (
    "PRzCDP: per-record zero-concentrated differential privacy. For every record, it limits how much the probability "
    "distribution of the published table can differ between data with the record and data without it. The limit is the "
    "privacy loss of the record: with a loss of 0, nothing can be learned about the record; the larger the loss, the "
    "more can be learned. The loss depends on the size of the record, by a policy that was fixed before any noise was "
    "drawn."
)

TIGHT_NOTE = (
    "Accounting is tight: each policy is the smallest one that is known for its noise, a bound that was computed "
    "numerically and proved by interval arithmetic. In the formulas, tight(…) stands for the table of these bounds. "
    "The closed forms of the policies hold as well, but they are larger. The noise is the same for both."
)
# Lines of a table by their headings, each with one text per example record.
Lines = dict[str, list[str]]
VALUE, CLOSED_LOSS = "Value in this column", "PRzCDP loss by the closed form"


def guarantee_section(release: Release, scope: Scope) -> Section:
    """Return the section that states the guarantee, as formulas, in words and as a chart."""
    rules = []
    for column in scope.columns:
        name = None if column.single else column.name
        text = str(RecordPolicy(((name, column.policy),)))
        formula = paragraph(
            mathml(column.policy, name), class_="formula", role="group", aria_label=f"The policy: {text}"
        )
        rules.append(tag("div", tag("h3", column.name), formula, paragraph(_in_words(column, scope)), class_="rule"))
    notes = [
        "The losses of a record in all columns add up. A record is in one group only, so the groups do not add up."
        if release.facts.protect is None
        else f"The losses in all columns add up, and so do those in all groups that a {release.facts.protect} is in."
    ]
    pure = [column.name for column in scope.columns if column.pure is not None]
    if pure:
        notes.append(
            f"{f'The column {pure[0]} has' if len(pure) == 1 else f'The columns {listed(pure)} have'} a "
            "pure guarantee (PRDP) as well. There ε is a guarantee by itself: for an attacker, the odds that the "
            "record is in the data change by a factor of at most exp(ε), without exception."
        )
    if scope.tight:
        notes.append(TIGHT_NOTE)
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
        _policy_chart(scope),
        *scope.notes,
    ]
    return Section("guarantee", "The guarantee", "The guarantee", parts)


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


def _policy_chart(scope: Scope) -> Html:
    sized = [column for column in scope.columns if not column.single]
    values = {value for size in scope.sizes for column in sized if (value := size.value(column.name))}
    low, high = size_span(scope.columns, scope.sizes)
    sizes = np.union1d(np.geomspace(low, high, 141), sorted(values))
    with np.errstate(all="ignore"):
        lines, like = {}, {}
        for column in scope.columns:
            lines[column.name] = points(sizes, column.policy(sizes))
            if column.closed is not None:
                lines[closed := f"{column.name}, closed form"] = points(sizes, column.closed(sizes))
                like[closed] = column.name
        marks = [
            Mark(column.name, value, float(column.policy(value)), size.name)
            for size in scope.sizes
            for column in sized
            if size.named and (value := size.value(column.name))
        ]
    most = max(loss for line in lines.values() for _, loss in line)
    named = len(marks) <= MOST_NAMED_MARKS
    chart = LineChart(
        "figure-policy",
        "Figure 1. Privacy loss of a record, by its size.",
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
    groups: list[tuple[str, Lines, list[Explanation | None], Lines]] = []
    for column in columns:
        found = [None if (loss := column.at(size)) is None else explain([loss]) for size in sizes]
        if column.single:
            groups.append((f"{column.name} (every record counts as 1)", {}, found[:1], _closed(column, sizes[:1])))
        else:
            values = {VALUE: [column_value(size.value(column.name)) for size in sizes]} if scope.named else {}
            groups.append((column.name, values, found, _closed(column, sizes)))
    if len(columns) > 1:
        groups.append(("All columns together", {}, [_explained(losses(columns, size)) for size in sizes], {}))
    known = [one for _, _, found, _ in groups for one in found if one is not None]
    used = Exceptions([bound for one in known for bound in (one.epsilon, one.certainty)])
    shift = "ε" + used.choose(
        f", with δ = {DELTA_WRITTEN}",
        ", with δ = 0",
        f", with δ = {DELTA_WRITTEN} ({MARK.strip()}:\u00a0δ\u00a0=\u00a00)",
    )
    bodies = [_group(name, above, found, below, len(sizes), shift, used) for name, above, found, below in groups]
    sizes_head = scope.heading if any(not column.single for column in columns) else ""
    top = row(head(sizes_head), *(head(size.name, numeric=True) for size in sizes))
    exceptions = used.choose(
        f"This holds {except_in(RARELY)}.",
        "This holds without exception: all columns have a pure guarantee (PRDP).",
        f"This holds {except_in(RARELY)}. Where it is marked {MARK.strip()}, the pure guarantee (PRDP) gives the "
        "better bound, which holds without exception.",
    )
    together = (
        "For all columns together, the losses are added before they are converted. For each column the guarantee is "
        "used that gives the better bound in total."
        if len(columns) > 1
        else ""
    )
    converted = used.choose(
        "The row with ε and δ expresses the same loss as ordinary (ε, δ)-differential privacy.",
        "The row with ε expresses the same loss as ordinary ε-differential privacy.",
        "The row with ε and δ expresses the same loss as ordinary (ε, δ)-differential privacy.",
    )
    cells = "" if who is None else f" The losses in all groups that a {who} is in add up; the table is for one group."
    parts = [
        paragraph(
            "Consider an attacker who knows all records except one, and who considers it as likely as not (50 %) that "
            "this record is in the data. The last row of each part of the table gives the highest certainty about it "
            f"that the attacker can reach. 50 % means that nothing was learned. {exceptions}"
        ),
        table(
            caption("Table 3.", "What can be learned about a record, by its size."),
            [top],
            bodies,
            "What can be learned about a record, by its size",
        ),
        paragraph(f"{converted} The size of a record is {_size(release)}.{cells} {together}".strip(), class_="soft"),
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


def _explained(losses: Sequence[Loss] | None) -> Explanation | None:
    return None if losses is None else explain(losses)


def column_value(value: float | None) -> str:
    """Return the value of an example record in a column."""
    return "not stated" if value is None else figure(value)


def _group(
    name: str,
    above: Lines,
    found: list[Explanation | None],
    closed: Lines,
    width: int,
    shift: str,
    used: Exceptions,
) -> Html:
    """Return the part of the table for one column; a number that is the same for all sizes spans them.

    `above` has the values in the column, and `closed` the closed forms of the losses, if these are shown.
    """
    explained = ("PRzCDP loss", shift, "Highest certainty of an attacker")
    lines: Lines = {**above, explained[0]: [], **closed, explained[1]: [], explained[2]: []}
    for one in found:
        if one is None:
            for what in explained:
                lines[what].append("not stated")
            continue
        lines["PRzCDP loss"].append(figure(one.loss))
        lines[shift].append(figure(one.epsilon.value) + used.mark(one.epsilon))
        lines["Highest certainty of an attacker"].append(share(one.certainty.value) + used.mark(one.certainty))
    span = width if len(found) == 1 else 1
    rows = [row(head(what, "row"), *(cell(text, colspan=str(span)) for text in texts)) for what, texts in lines.items()]
    return tag("tbody", row(head(name, "rowgroup", colspan=str(width + 1))), *rows, class_="group")


def ledger_section(release: Release, spent: RecordPolicy | None, scope: Scope) -> Section:
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
        parts.append(_spent_table(release, spent, scope))
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


def _spent_table(release: Release, spent: RecordPolicy, scope: Scope) -> Html:
    sizes = scope.sizes
    rows = _spent_rows(spent, scope)
    if spent.terms == release.policy.terms and not spent.parallel:  # this release alone, of which more is known
        totals = [_explained(losses(scope.columns, size)) for size in sizes]
    else:
        totals = [_explained(total_losses(spent, size)) for size in sizes]
    bounds = [None if total is None else total.certainty for total in totals]
    used = Exceptions([bound for bound in bounds if bound is not None])
    told = ["not stated" if total is None else figure(total.loss) for total in totals]
    sure = ["not stated" if bound is None else share(bound.value) + used.mark(bound) for bound in bounds]
    last = [
        row(head("All columns together", "row"), *map(cell, told)),
        row(head("Highest certainty of an attacker", "row"), *map(cell, sure)),
    ]
    top = row(head(scope.heading), *(head(size.name, numeric=True) for size in sizes))
    note = f" Certainties hold {used}."
    if not any(bounds):
        note = " No example record has a value in every column, so totals are not stated."
    title = caption("Table 4.", "PRzCDP loss by everything released so far.", note)
    body = [tag("tbody", *rows), tag("tbody", *last)]
    return table(title, [top], body, "PRzCDP loss by everything released so far")


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
        rows.append(row(head(name, "row"), *cells))
    counts = float(spent.column(None)(0))
    if counts:
        rows.append(row(head("being counted", "row"), cell(figure(counts), colspan=str(len(scope.sizes)))))
    return rows
