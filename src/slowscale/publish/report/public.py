"""The public report: what was published, with which guarantee and which errors, and what an attacker can learn.

It is generated from a release alone (and, if given, the total of the ledger and the sizes that the curator states), so
it contains public facts only. A release has one table, or several that were published together.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from slowscale import __version__
from slowscale.accounting import RecordPolicy, Spent
from slowscale.accounting.attackers import EVEN, EXAMPLE_ALARMS, alarms
from slowscale.accounting.explanation import TITLES, at_most
from slowscale.accounting.sizes import COUNT, SizesLike, read_sizes
from slowscale.core.errors import ParameterError, ParameterTypeError
from slowscale.mechanisms.calibration import ACCOUNTING
from slowscale.publish import Publication
from slowscale.publish.report import guarantee
from slowscale.publish.report.pages import Cell, Row, render, upper, write_page
from slowscale.publish.report.published import ReportedTable, standard_errors
from slowscale.publish.report.scope import Labels, Scope
from slowscale.release import Release
from slowscale.release.columns import table_columns, table_policies
from slowscale.release.facts import Facts, TableFacts
from slowscale.release.quantiles import ReleasedQuantiles

# In the map of tables: the size of a box, the space between boxes, and the letters that fit into a box.
BOX_WIDTH, BOX_HEIGHT, ACROSS, DOWN, LETTERS = 236, 74, 44, 18, 32


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
        raise ParameterTypeError("publication", allowed="a Publication", given=type(publication))
    if not isinstance(release, Release):
        raise ParameterTypeError("release", allowed="a Release", given=type(release))
    if not release.sums:
        raise ParameterError("release", "must have a table of sums", remedy="quantiles are described by their `note`")
    if spent is not None and not isinstance(spent, RecordPolicy):
        raise ParameterTypeError("spent", allowed="a RecordPolicy such as session.spent", given=type(spent))
    return write_page(path, lambda: public_page(release, spent, sizes, publication), overwrite=overwrite)


def public_page(
    release: Release,
    spent: RecordPolicy | None = None,
    sizes: SizesLike | None = None,
    publication: Publication | None = None,
) -> str:
    """Return the public report as HTML."""
    labels = Labels(publication)
    if publication is not None:
        for one in release.sums.values():
            publication.check_titles([*one.facts.columns, *one.facts.ratios])
    tables = {name: ReportedTable(one, labels) for name, one in release.sums.items()}
    columns = table_columns(release)
    # The sizes of a plan were checked before the release was charged, so they must not be refused now.
    others = None if isinstance(sizes, tuple) else () if spent is None else spent.columns
    scope = Scope.of(release, read_sizes(sizes, release.policy.columns, others), labels)
    several = len(release.tables) > 1
    first = next(iter(tables.values()))
    title = f"{len(release.tables)} tables: {', '.join(release.tables)}" if several else _title(first)
    return render(
        "report.html",
        title=title if publication is None else publication.title,
        publication=publication,
        facts=release.facts,
        closed=release.facts.accounting != ACCOUNTING,
        tables=list(tables.values()),
        drawn=[tables[name] for name in release.drawn if name in tables],
        quantiles=[one for one in release.tables.values() if isinstance(one, ReleasedQuantiles)],
        number=len(release.tables),
        number_drawn=len(release.drawn),
        several=several,
        table=first,
        labels=labels,
        scope=scope,
        depends_on_size=bool(release.policy.columns),
        counts=COUNT in release.policy.columns,
        rules=guarantee.rules(columns if len(columns) > 1 else {"": scope.columns}, scope),
        alarms=alarms(EXAMPLE_ALARMS),
        rate=EXAMPLE_ALARMS,
        even=EVEN,
        terms=TITLES,
        bounded=guarantee.bounded,
        versions=f"slowscale {__version__}, Altair {version('altair')}, vl-convert {version('vl-convert-python')}",
        **(_of_several(release, scope) if several else _of_one(release, scope)),
        **_of_the_ledger(release, spent, scope),
    )


def _title(table: ReportedTable) -> str:
    plain = replace(table, labels=Labels())
    return f"{upper(plain.contents)}, {'by ' + plain.groups if plain.by else 'in total'}"


def _of_one(release: Release, scope: Scope) -> dict[str, object]:
    """Return what the report of one table has: its errors, what can be learned, and the tables published with it."""
    facts = release.facts
    values: dict[str, object] = {
        "chart": guarantee.policy_chart(scope, f"Privacy loss of a {scope.noun}, by its size."),
        "errors": standard_errors(scope),
        "learned": guarantee.learned_by_column(scope),
        "member": None,
    }
    if len(facts.tables) > 1:
        values |= {
            "member": next(iter(release.tables)),
            "map": TableMap.of(facts, {}, scope.labels, next(iter(release.tables))),
            "losses": guarantee.losses_by_table({}, release.policy, scope),
            "assumed": scope.assumed(release.policy.columns),
        }
    return values


def _of_several(release: Release, scope: Scope) -> dict[str, object]:
    """Return what the report of several tables has: a map and a list of them, and the losses by each and by all."""
    size, policies = scope.sizes[-1], table_policies(release)
    losses = {name: size.loss(policy) for name, policy in policies.items()}
    notes = {name: f"loss {at_most(loss)} at {size.name}" for name, loss in losses.items() if loss is not None}
    whole = replace(scope, columns=guarantee.whole_columns(scope.columns, release.policy))
    rows: list[Row] = []
    for name, one in release.tables.items():
        facts = one.facts
        how = "drawn" if facts.drawn else f"derived from {facts.of}"
        by, cells = "quantiles", "–"
        if name in release.sums:
            table = ReportedTable(release.sums[name], scope.labels)
            by, cells = table.groups or "total", table.cells_added
        rows.append([Cell(name, anchor=f"table-{name}"), by, f"{facts.rows:,}", how, cells])
    return {
        "table_rows": rows,
        "map": TableMap.of(release.facts, notes, scope.labels),
        "chart": guarantee.policy_chart(whole, f"Privacy loss of a {scope.noun} by the whole release, by its size."),
        "losses": guarantee.losses_by_table(policies, release.policy, scope),
    }


def _of_the_ledger(release: Release, spent: RecordPolicy | None, scope: Scope) -> dict[str, object]:
    """Return the losses by all releases so far, if they are given."""
    if spent is None:
        return {"spent": None}
    groups = guarantee.losses_by_all(spent, release.policy, scope)
    releases = spent.releases if isinstance(spent, Spent) else None
    return {"spent": groups, "releases": releases, "spent_assumed": scope.assumed(spent.columns)}


@dataclass(frozen=True)
class Box:
    """A table in the map of tables: its place, whether it is drawn, and its lines of text with their classes."""

    x: int
    y: int
    kind: str
    here: bool
    lines: list[tuple[str, str]]


@dataclass(frozen=True)
class TableMap:
    """A drawing of the tables as boxes, from drawn ones on the left to derived ones on the right, with arrows."""

    width: int
    height: int
    boxes: list[Box]
    arrows: list[str]
    words: str
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT

    @staticmethod
    def of(described: Facts, notes: Mapping[str, str], labels: Labels, here: str = "") -> "TableMap":
        """Return the map; `notes` has a short text for drawn tables, such as the loss, and `here` is marked."""
        corners = {
            name: (i * (BOX_WIDTH + ACROSS), j * (BOX_HEIGHT + DOWN))
            for name, (i, j) in _places(described.tables).items()
        }
        boxes, arrows, words = [], [], []
        for name, facts in described.tables.items():
            x, y = corners[name]
            kind = "drawn" if facts.drawn else "derived"
            by = (
                f"by {', '.join(map(labels.key, facts.by))}"
                if facts.by
                else "quantiles"
                if facts.quantiles
                else "total"
            )
            size = f"{facts.rows:,} {'row' if facts.rows == 1 else 'rows'}, {kind}"
            note = notes.get(name, "") if facts.drawn else "no further loss"
            lines = [("name", name), ("", by), ("", size), ("note", note)]
            short = [(role, text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…") for role, text in lines]
            boxes.append(Box(x, y, kind, name == here, short))
            words.append(f"{name} is drawn" if facts.of is None else f"{name} is derived from {facts.of}")
            if facts.of is not None:  # an arrow from the right side of one box to the left side of the other
                start, start_y = corners[facts.of][0] + BOX_WIDTH, corners[facts.of][1] + BOX_HEIGHT // 2
                end_y = y + BOX_HEIGHT // 2
                arrows.append(f"M{start} {start_y}H{start + ACROSS // 2}V{end_y}H{x}")
                arrows.append(f"M{x - 7} {end_y - 4}L{x} {end_y}L{x - 7} {end_y + 4}")
        width, height = (max(corner[i] for corner in corners.values()) for i in (0, 1))
        return TableMap(width + BOX_WIDTH + 2, height + BOX_HEIGHT + 2, boxes, arrows, "; ".join(words))


def _places(tables: Mapping[str, TableFacts]) -> dict[str, tuple[int, int]]:
    """Return the column and the row of each table: each table is right of its source, and no two share a row."""
    found: dict[str, tuple[int, int]] = {}

    def place(name: str, column: int, line: int) -> int:
        """Place a table and all that is derived from it; return the row after the last one used."""
        found[name] = (column, line)
        below = line
        for other, facts in tables.items():
            if facts.of == name:
                below = place(other, column + 1, below)
        return max(below, line + 1)

    free = 0
    for name, facts in tables.items():
        if facts.drawn:
            free = place(name, 0, free)
    return found
