"""The guarantee: the policy of each column, what an attacker can learn, and the total loss by all releases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from markupsafe import Markup

from slowscale.accounting import Explanation, RecordPolicy, Spent
from slowscale.accounting.explanation import BOUND, NO_SECRET, NOT_STATED, NOT_WITHIN, at_most, titles
from slowscale.accounting.sizes import COUNT, RecordSize, counted, sizes_in
from slowscale.core.numbers import format_number
from slowscale.policy import Policy
from slowscale.publish.charts import Axis, LineChart, Mark, points
from slowscale.publish.report.mathml import policy_equation
from slowscale.publish.report.pages import Cell, Row, Scope, listed, upper
from slowscale.release.columns import ColumnPolicy, explain_columns, on_one_axis, size_span

T = TypeVar("T")
MOST_NAMED_MARKS = 8  # with more marks in a chart, none is named
NEAR_EVEN = 0.6  # the best guess of an attacker is called close to a coin toss up to here
NO_LONGER_SECRET = "its presence is no secret"
LEAST_DRAWN = 1e-4  # smaller losses are not drawn, except those of stated sizes

# The rows of a part of a table, with its heading; "" if it has none.
Group = tuple[str, list[Row]]


@dataclass(frozen=True)
class Rule:
    """The policy of a column: as a formula, as the text of that formula, and in words."""

    title: str
    formula: Markup
    text: str
    words: str


def rules(tables: Mapping[str, tuple[ColumnPolicy, ...]], scope: Scope) -> list[Rule]:
    """Return the policy of each column of each drawn table; "" is the name of the only one."""
    found = []
    for table, columns in tables.items():
        own = replace(scope, columns=columns)
        for column in columns:
            title = scope.labels.with_unit(column.name)
            name = None if column.single else column.name
            text = str(RecordPolicy(((name, column.policy),)))
            formula = policy_equation(column.policy, name)
            found.append(Rule(f"{table}: {title}" if table else title, formula, text, _in_words(column, own)))
    return found


def _in_words(column: ColumnPolicy, scope: Scope) -> str:
    """Return how a column's loss grows, its values at the smallest and largest size, and the gain of tight accounting.

    The gain is how much smaller the loss is than by the closed form, if that is not what is charged.
    """
    if column.single:
        text = f"Every record counts as 1, and has a loss of {at_most(column.policy(0))}."
        gains = _times(column.gain(0)) if column.closed is not None else ""
        return f"{text} By the closed form of the policy it would be {gains}." if gains else text
    sizes = sizes_in(column.name, scope.sizes)
    stated = sorted({(value, size.describe(column.name)) for size in sizes if (value := size.value(column.name))})
    # The sizes are those of the chart, except for numbers of records.
    text = growth(column.policy, *size_span([column] if column.counts_records else scope.columns, sizes))
    text = f"Here the size is a number of records. {text}" if column.counts_records else text
    at = "at" if column.counts_records else "at size"
    if stated:
        ends = dict.fromkeys([stated[0], stated[-1]])
        text += f" The loss is {listed([f'{at_most(column.policy(value))} {at} {words}' for value, words in ends])}."
    if stated and column.closed is not None:
        gains = listed([f"{_times(column.gain(value))} {at} {words}" for value, words in stated])
        text += f" By the closed form of the policy the loss would be {gains}."
    return text.strip()


def _times(gain: float) -> str:
    factor = f"{gain:.3g}"
    return "the same" if factor == "1" else f"{factor} times as large"


def growth(policy: Policy, low: float, high: float) -> str:
    """Return a sentence on how the loss grows between two sizes, with numbers computed from the policy itself."""
    last = max(high / 10, low)
    starts = np.geomspace(low, last, 25)
    with np.errstate(all="ignore"):
        before, after = np.asarray(policy(starts)), np.asarray(policy(10 * starts))
        factors = after / before
    if np.isinf(before).any():
        text = "The loss is too large for a number."
    elif (before == before[0]).all() and (after == before[0]).all():
        text = f"The loss is the same from size {format_number(low)} to {format_number(10 * last)}."
    elif np.isfinite(factors).all() and factors.max() <= 1.004 * factors.min():
        text = f"Ten times the size means {format_number(factors[0])} times the loss, at every size shown."
    else:
        known = [(starts[i], format_number(factors[i])) for i in (0, -1) if np.isfinite(factors[i])]
        parts = [
            f"from size {format_number(start)} to {format_number(10 * start)} the loss "
            + ("stays the same" if factor == "1" else f"grows {factor}-fold")
            for start, factor in known
        ]
        text = f"{upper('; '.join(dict.fromkeys(parts)))}." if parts else ""
    if policy.step is not None:
        text = f"The loss is the same up to size {format_number(policy.step)}, and then grows in steps. {text}"
    return text.strip()


def whole_columns(columns: Sequence[ColumnPolicy], policy: RecordPolicy) -> tuple[ColumnPolicy, ...]:
    """Return one column for each name, with the loss of a record through it by all drawn tables."""
    return tuple(
        ColumnPolicy(
            one.name,
            policy.column(None if one.single else one.name),
            None,
            None,
            one.unit,
            one.single,
            one.on_grid,
            largest=one.largest,
        )
        for one in {column.name: column for column in columns}.values()
    )


def policy_chart(scope: Scope, title: str) -> LineChart:
    """Return a chart of the losses through each column, by size."""
    drawn = on_one_axis(scope.columns)
    sized = [column for column in drawn if not column.single]
    left_out = [scope.labels.title(column.name) for column in scope.columns if column not in drawn]
    values = {value for size in scope.sizes for column in sized if (value := size.value(column.name))}
    low, high = size_span(scope.columns, scope.sizes)
    sizes = np.union1d(np.geomspace(low, high, 141), sorted(values))
    with np.errstate(all="ignore"):
        lines, like = {}, {}
        for column in drawn:
            name = scope.labels.with_unit(column.name)
            own = sizes if column.largest is None else sizes[sizes <= column.largest]
            lines[name] = points(own, column.policy(own))
            if column.closed is not None:
                lines[closed := f"{name}, closed form"] = points(own, column.closed(own))
                like[closed] = name
        marks = [
            Mark(scope.labels.with_unit(column.name), value, float(column.policy(value)), size.name)
            for size in scope.sizes
            for column in sized
            if size.named and (value := size.value(column.name))
        ]
    most = max(loss for line in lines.values() for _, loss in line)
    if len(marks) > MOST_NAMED_MARKS:
        marks = [replace(mark, name="") for mark in marks]
    return LineChart(
        "figure-policy",
        title,
        "Both axes are logarithmic."
        + (f" The loss by {listed(left_out)} depends on the number of records and is stated above." if left_out else "")
        + " The points are the stated sizes." * bool(marks)
        + " The closed forms are larger bounds on the same losses, for comparison." * scope.tight,
        Axis("Number of records" if drawn[0].counts_records else f"Size of the {scope.noun}"),
        Axis("PRzCDP loss"),
        lines,
        sorted(values or sizes[:: len(sizes) // 3]),
        tuple(marks),
        min([LEAST_DRAWN, *(mark.y for mark in marks if mark.y > 0)]) if most > LEAST_DRAWN else 0.0,
        like,
    )


def learned_by_column(scope: Scope) -> list[Group]:
    """Return what can be learned about records of several sizes, by each column and by all together."""
    groups = []
    for column in scope.columns:
        title = scope.labels.with_unit(column.name)
        sizes = scope.sizes[:1] if column.single else scope.sizes
        values = [0.0 if column.single else size.value(column.name) for size in sizes]
        rows: list[Row] = []
        if column.single:
            title += " (every record counts as 1)"
        elif scope.named or column.counts_records:
            head = "Number of records" if column.counts_records else "Value in this column"
            rows.append([head, *_stated(values, format_number)])
        closed = [] if column.closed is None else [["PRzCDP loss by the closed form", *_stated(values, column.closed)]]
        found = [explain_columns([column], size, scope.band) for size in sizes]
        groups.append((title, [*rows, *_explained_rows(found, scope, closed)]))
    if len(scope.columns) > 1:
        groups.append(("All columns together", _explained_rows(explained(scope), scope)))
    return groups


def explained(scope: Scope) -> list[Explanation | None]:
    """Return what the losses of example records by all columns mean; None for one without all values."""
    return [explain_columns(scope.columns, size, scope.band) for size in scope.sizes]


def answers(scope: Scope) -> dict[str, object]:
    """Return what can be learned about each example: its presence, its value in a band, and how closely."""
    found = [(size, one) for size, one in zip(scope.sizes, explained(scope), strict=True) if one is not None]
    told = [one for size, one in found if size.named and one.loss >= NO_SECRET]
    return {
        "answers": [_answer(size, one, scope) for size, one in found],
        "hidden": [size.name for size, one in found if size.named and one.guessed <= NEAR_EVEN],
        "between": [
            f"{one.texts['guessed']} of the time for the {size.name}"
            for size, one in found
            if size.named and one.guessed > NEAR_EVEN and one.loss < NO_SECRET
        ],
        "told": [size.name for size, one in found if size.named and one.loss >= NO_SECRET],
        "known": [one.texts["within"] for one in told] if all(map(_is_known, told)) else [],
        "not_stated": any(one.value is None for _, one in found),
    }


def _is_known(found: Explanation) -> bool:
    """Whether it can be said how closely a value is known."""
    return found.texts["within"] not in (NOT_STATED, NOT_WITHIN)


def _answer(size: RecordSize, found: Explanation, scope: Scope) -> Row:
    """Return what can be learned about an example record, with its values."""
    sized = {column.name: size.value(column.name) for column in scope.columns if not column.single}
    values = [f"{scope.labels.title(name)} {format_number(one)}" for name, one in sized.items() if one is not None]
    presence = NO_LONGER_SECRET if found.loss >= NO_SECRET else ""
    return [
        Cell(size.name, small=" · ".join(values) if size.named else ""),
        Cell(found.texts["guessed"], small=presence),
        found.texts["recognised"],
        found.texts["within"],
    ]


def _explained_rows(found: Sequence[Explanation | None], scope: Scope, closed: Sequence[Row] = ()) -> list[Row]:
    """Return the quantities of example records, with a row for the PRDP loss if an example has one."""
    pure = any(one is not None and one.pure is not None for one in found)
    rows: list[Row] = []
    for name, title in titles(scope.band).items():
        if name != "pure" or pure:
            bound = BOUND if name in ("guessed", "detected", "epsilon") else ""
            cells = [
                Cell(NOT_STATED) if one is None else Cell(one.texts[name], small=bound * one.bound) for one in found
            ]
            rows.append([title, *cells])
    return [rows[0], *closed, *rows[1:]]


def bounded(groups: Sequence[Group]) -> bool:
    """Whether a table states a bound from the loss."""
    return any(isinstance(cell, Cell) and cell.small == BOUND for _, rows in groups for row in rows for cell in row)


def _stated(found: Sequence[T | None], write: Callable[[T], str | float]) -> list[str]:
    """Return what is known for each size, as text."""
    texts = [NOT_STATED if one is None else write(one) for one in found]
    return [text if isinstance(text, str) else at_most(text) for text in texts]


def losses_by_table(policies: Mapping[str, RecordPolicy], whole: RecordPolicy, scope: Scope) -> list[Group]:
    """Return the losses of example records by each drawn table, if given, and by all, with what that means."""

    def row(name: str, policy: RecordPolicy) -> Row:
        return [name, *_stated([size.loss(policy) for size in scope.sizes], at_most)]

    if not policies:
        return [("", [row("all tables together", whole)])]
    rows = [row(f"{name} (drawn)", policy) for name, policy in policies.items()]
    return [("", rows), ("All tables together", _explained_rows(explained(scope), scope))]


def losses_by_all(spent: RecordPolicy, released: RecordPolicy, scope: Scope) -> list[Group]:
    """Return the losses of example records by everything released so far, with what that means."""
    alone = spent.terms == released.terms and not spent.parallel  # this release alone
    total = spent if isinstance(spent, Spent) else Spent(spent.terms, spent.parallel, spent.filtered)
    found = explained(scope) if alone else [total.explain(size, scope.band) for size in scope.sizes]
    rows: list[Row] = []  # one per column, and one for being counted
    for name in spent.columns:
        policy = spent.column(name)
        cells = []
        for value in (size.value(name) for size in scope.sizes):
            words = NOT_STATED if value is None else counted(value) if name == COUNT else format_number(value)
            small = f"at {words}" if (scope.named or name == COUNT) and value is not None else ""
            cells.append(Cell(NOT_STATED if value is None else at_most(float(policy(value))), small=small))
        rows.append([scope.labels.with_unit(name), *cells])
    counts = float(spent.column(None)(0))
    if counts:
        how = "being counted or ranked" if spent.column(None).by_rank else "being counted"
        rows.append([how, at_most(counts)])
    return [("", rows), ("All columns together", _explained_rows(found, scope))]
