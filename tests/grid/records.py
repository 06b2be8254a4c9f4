"""The records of the grid, their neighbours, and everything exact that can be said about them, in plain Python."""

from collections import defaultdict
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

COUNTIES = ("01001", "01003", "02001", "02003")
KINDS = ("farm", "mine", "shop", "bank", "port", "toll")
COUNT = "count"
# Summed as a float, a sum with this number is off by one. Transformed sums of this size would need more bits for their
# noise, which shifts the bits of all later cells, so that giants are smaller there.
GIANT, GIANT_OF_A_TRANSFORMATION = 2**53 + 1, 10**9 + 1
HUGE, HUGE_OF_A_TRANSFORMATION = 876_543_210_123_456_789, 876_543_210
# These digits are in records only. No public text may have them.
SECRET_DIGITS = ("87654321", "7654321", "6543219", "5432198")


@dataclass(frozen=True)
class Record:
    """A row of the table."""

    firm: str
    county: str | None
    kind: str | None
    pay: int | None
    wage: Decimal | None


def row(firm, county, kind, pay, wage):
    return Record(firm, county, kind, pay, None if wage is None else Decimal(wage))


def is_transformation(case):
    return case.statistic in ("root", "log")


def base(case):
    """Return the records of a combination."""
    giant = GIANT_OF_A_TRANSFORMATION if is_transformation(case) else GIANT
    return (
        row("f1", "01001", "farm", 120, "3.25"),
        row("f1", "01001", "farm", 35, "10.50"),
        row("f1", "02001", "shop", 4_000, "250.00"),
        row("f2", "01001", "farm", giant, "99.99"),
        row("f3", "01001", "farm", 7, "1.01"),
        row("f4", "01003", "mine", 910, "55.55"),
        row("f5", "02003", "bank", 52_000, "1200.75"),
        row("f5", "02003", "bank", 3, "0.25"),
        row("f6", "02001", "shop", 66, "7.07"),
        row("f7", "01003", "port", 815, "90.00"),
        row("f8", "99999", "farm", 444, "5.50"),
        row("f9", "02003", "toll", 0, "0.00"),
        row("f9", "02001", "bank", 18_000, "640.10"),
    )


def _without(firm):
    """Take out all records of a firm; where single records are protected, only one of them."""

    def change(case, rows):
        mine = [one for one in rows if one.firm == firm]
        gone = mine if case.protected == "entities" else mine[:1]
        return tuple(one for one in rows if not any(one is other for other in gone))

    return change


def _with(county, kind, pay, wage, firm="new"):
    """Put in a record, in the middle of the table."""

    def change(case, rows):
        value = pay(case) if callable(pay) else pay
        return (*rows[:5], row(firm, county, kind, value, wage), *rows[5:])

    return change


def _changed(firm, **values):
    def change(case, rows):
        return tuple(replace(one, **values) if one.firm == firm else one for one in rows)

    return change


def _huge(case):
    return HUGE_OF_A_TRANSFORMATION if is_transformation(case) else HUGE


# The kinds of neighbours: what is done to the records.
NEIGHBOURS = {
    "gone": _without("f6"),
    "gone beside a giant": _without("f3"),
    "gone, alone in its cell": _without("f4"),
    "gone, of several cells": _without("f1"),
    "huge": _with("02001", "shop", _huge, "8765432.19"),
    "negative": _with("01003", "port", -7_654_321, "-65432.19"),
    "missing": _with("02003", "bank", None, None),
    "zero": _with("02001", "toll", 0, "0.00"),
    "outside the keys": _with("77777", "farm", 7_654_321, "54321.98"),
    "similar label": _with("01001", "Farm ", 7_654_321, "54321.98"),
    "no label": _with("01001", None, 7_654_321, "54321.98"),
    "copy": _with("02003", "bank", 52_000, "1200.75", firm="f5"),
    "other value": _changed("f6", pay=67, wage=Decimal("7.00")),
    "other cell": _changed("f7", kind="bank"),
}


@dataclass(frozen=True)
class Layout:
    """The names and the cells of the tables of a combination."""

    values: tuple[str, ...]  # the summed columns
    kind: str  # the second key column
    labels: tuple[str, ...]  # its labels
    drawn: dict[str, tuple[str, ...]]  # the key columns of each drawn table
    derived: dict[str, tuple[str, ...]]

    def cells(self, table):
        known = {"county": COUNTIES, "state": ("01", "02"), self.kind: self.labels}
        found = [()]
        for name in {**self.drawn, **self.derived}[table]:
            found = [(*cell, label) for cell in found for label in known[name]]
        return found


def layout(case):
    stored = case.column == "stored"
    kind = "kind" if stored else "sector"
    values = ("pay", "wage") if stored else ("bonus", "net")
    values = {"count": (), "mean": values[:1]}.get(case.statistic, values)
    drawn, derived = {"cells": ("county", kind)}, {}
    if case.tables == "set":
        drawn["kinds"] = (kind,)
        derived = {"states": ("state",), "nation": ()}
    return Layout(values, kind, tuple(one if stored else one[:2] for one in KINDS), drawn, derived)


# How derived columns are made, in SQL, and the same in Python.
DERIVED_IN_SQL = {"bonus": "pay * 3", "net": "wage * 2", "sector": "substr(kind, 1, 2)"}


def value_of(record, column):
    """Return the value of a column, or None."""
    made = {"bonus": ("pay", 3), "net": ("wage", 2)}
    if column == "sector":
        return None if record.kind is None else record.kind[:2]
    if column in made:
        stored, factor = made[column]
        value = getattr(record, stored)
        return None if value is None else Fraction(value) * factor
    value = record.county[:2] if column == "state" and record.county else getattr(record, column)
    return value


def counted(case, record, column):
    """Return what a record adds to the sum of a column: its influence, with its sign."""
    if column == COUNT:
        return Fraction(1)
    value = value_of(record, column)
    if value is None or (value < 0 and is_transformation(case)):
        return Fraction(0)
    return Fraction(value)


def is_refused(case, rows):
    """Whether the release is refused because of what the records hold: the documented errors."""
    if case.odd == "zero":
        return False
    values = [value_of(record, column) for record in rows for column in layout(case).values]
    return any(value is None or (value < 0 and is_transformation(case)) for value in values)


def cell_of(case, record, table):
    """Return the cell of a record in a table, or None if it is in none."""
    found = layout(case)
    cell = tuple(value_of(record, name) for name in {**found.drawn, **found.derived}[table])
    return cell if cell in found.cells(table) and cell_in_source(case, record, table) else None


def cell_in_source(case, record, table):
    """Whether a record is in the cells that a derived table is made of."""
    return table not in layout(case).derived or cell_of(case, record, "cells") is not None


def sums(case, rows, table):
    """Return the exact sums of a table, by column and cell."""
    found = layout(case)
    totals = {column: dict.fromkeys(found.cells(table), Fraction(0)) for column in (*found.values, COUNT)}
    for record in rows:
        cell = cell_of(case, record, table)
        for column in totals if cell is not None else ():
            totals[column][cell] += counted(case, record, column)
    return totals


def persons(case, rows):
    """Return who is protected: for each record or entity with a cell, its totals in the cells of each drawn table."""
    found, tables = layout(case), {}
    for number, record in enumerate(rows):
        name = record.firm if case.protected == "entities" else number
        for table in found.drawn:
            cell = cell_of(case, record, table)
            if cell is None:
                continue
            mine = tables.setdefault(name, {one: defaultdict(dict) for one in found.drawn})[table][cell]
            for column in (*found.values, COUNT):
                mine[column] = mine.get(column, Fraction(0)) + counted(case, record, column)
    return {name: {table: list(cells.values()) for table, cells in mine.items()} for name, mine in tables.items()}


def disguised(rows):
    """Return the same records, with the new one at another place and with other numbers of the same kind."""
    (new,) = (one for one in rows if one.firm == "new")
    other = replace(new, pay=new.pay and -11, wage=new.wage and Decimal("-1.50"))
    return (*(one for one in rows if one is not new), other)
