"""The map of a set of tables: which are drawn, which are derived from which, and what they cost."""

from collections.abc import Callable, Mapping
from html import escape

from slowscale.facts import SetFacts, SetTableFacts
from slowscale.report.page import Html, tag

# The size of a box, the space between boxes, and the letters that fit into a box, in units of the drawing.
BOX_WIDTH, BOX_HEIGHT, ACROSS, DOWN, LETTERS = 236, 74, 44, 18, 32


def set_map(described: SetFacts, notes: Mapping[str, str], key_title: Callable[[str], str]) -> Html:
    """Return a drawing of the tables as boxes, from drawn ones on the left to derived ones on the right.

    Parameters
    ----------
    described
        The facts of the set.
    notes
        A short text for each table, such as its loss.
    key_title
        A function that returns the title of a key column.
    """
    places = _places(described.tables)
    columns, rows = (max(place[i] for place in places.values()) + 1 for i in (0, 1))
    width, height = columns * (BOX_WIDTH + ACROSS) - ACROSS + 2, rows * (BOX_HEIGHT + DOWN) - DOWN + 2
    parts = [_edge(places[table.of], places[name]) for name, table in described.tables.items() if table.of is not None]
    parts += [
        _box(name, table, [key_title(key) for key in table.by], notes.get(name, ""), places[name], described.table)
        for name, table in described.tables.items()
    ]
    drawing = Html(
        f'<svg class="set-map" viewBox="-1 -1 {width} {height}" style="max-width:{width}px" role="img" '
        f'aria-label="{escape(in_words(described))}">{"".join(parts)}</svg>'
    )
    return tag("div", drawing, class_="scroll")


def in_words(described: SetFacts) -> str:
    """Return which tables are drawn, and which are derived from which."""
    return "; ".join(
        f"{name} is {'drawn' if table.of is None else f'derived from {table.of}'}"
        for name, table in described.tables.items()
    )


def _places(tables: Mapping[str, SetTableFacts]) -> dict[str, tuple[int, int]]:
    """Return the column and the row of each table: each table is right of its source, and no two share a row."""
    found: dict[str, tuple[int, int]] = {}
    used: dict[int, int] = {}  # the next free row of each column

    def place(name: str, column: int, row: int) -> int:
        """Place a table and all that is derived from it; return the row after the last one used."""
        found[name] = (column, row)
        below = row
        for other, table in tables.items():
            if table.of == name:
                below = place(other, column + 1, below)
        return max(below, row + 1)

    row = used.get(0, 0)
    for name, table in tables.items():
        if table.drawn:
            row = place(name, 0, row)
    return found


def _edge(start: tuple[int, int], end: tuple[int, int]) -> Html:
    """Return a line from the right side of a box to the left side of another."""
    x, y = start[0] * (BOX_WIDTH + ACROSS) + BOX_WIDTH, start[1] * (BOX_HEIGHT + DOWN) + BOX_HEIGHT / 2
    to_x, to_y = end[0] * (BOX_WIDTH + ACROSS), end[1] * (BOX_HEIGHT + DOWN) + BOX_HEIGHT / 2
    middle = x + ACROSS / 2
    arrow = f"M{to_x - 7} {to_y - 4}L{to_x} {to_y}L{to_x - 7} {to_y + 4}"
    return Html(f'<path class="edge" d="M{x} {y}H{middle}V{to_y}H{to_x}"/><path class="edge" d="{arrow}"/>')


def _box(name: str, table: SetTableFacts, keys: list[str], note: str, place: tuple[int, int], here: str | None) -> Html:
    """Return the box of a table, with its name, its key columns, its rows and a note."""
    x, y = place[0] * (BOX_WIDTH + ACROSS), place[1] * (BOX_HEIGHT + DOWN)
    by = f"by {', '.join(keys)}" if keys else "total"
    rows = f"{table.rows:,} {'row' if table.rows == 1 else 'rows'}, {'drawn' if table.drawn else 'derived'}"
    lines = [("name", name), ("", by), ("", rows), ("note", note)]
    texts = "".join(
        f'<text class="{kind}" x="{x + 12}" y="{y + 18 + 16 * i}">{escape(_short(text))}</text>'
        for i, (kind, text) in enumerate(lines)
    )
    kind = f"{'drawn' if table.drawn else 'derived'}{' here' if name == here else ''}"
    box = f'<rect class="{kind}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5"/>'
    return Html(f"<g>{box}{texts}</g>")


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
