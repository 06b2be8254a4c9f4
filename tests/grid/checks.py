"""What must hold for a run of a combination, and for two runs on neighbouring records."""

import re
from fractions import Fraction
from itertools import combinations

import numpy as np
from scipy import stats

from grid.noises import loss_bounds, noises
from grid.records import COUNT, SECRET_DIGITS, cell_of, is_refused, layout, persons, sums

# Two draws of the narrowest noise, Laplace noise of scale 60, are the same whole number in 1 of 240 cases. So 24 cells
# have at most 12 different values with probability 4e-9, and 6 cells a single one with probability 1.3e-12. The ranks
# of 24 cells are correlated by 0.9 with probability 2.2e-9; all signs agree, or all differ, with probability 1.2e-7.
# The bits are fixed: a check that passes once passes always, as long as noise is drawn in the same way.
SMALL, MOST_CORRELATED = 12, 0.9
# Published transformed values are rounded to about this share of the scale of their noise.
STEP = 2.0**-15
CLASS = 1.002  # losses are counted in classes of 0.1 %


def check_run(case, rows, outcome):
    """Check everything that one run shows."""
    if is_refused(case, rows):
        check_refusal(case, outcome)
    else:
        assert outcome.refused is None, outcome.refused
        check_ledger(case, outcome)
        check_noise(case, rows, outcome)
        check_derived(case, outcome)
    check_statements(case, outcome)
    check_secrets(outcome)
    if outcome.confidential:
        check_confidential(case, rows, outcome)


def check_refusal(case, outcome):
    assert (outcome.refused or "").startswith("DataError: "), outcome.refused
    assert not outcome.tables
    if case.ledger != "none":
        assert (outcome.charges, outcome.attempts) == (0, 1), (outcome.charges, outcome.attempts)


def check_ledger(case, outcome):
    """Two releases are two charges; the third one, which a cap refuses, is an attempt."""
    wanted = {"none": (None, None), "open": (2, 0), "capped": (2, 1)}[case.ledger]
    assert (outcome.charges, outcome.attempts) == wanted, f"charges and attempts: {outcome.charges}, {outcome.attempts}"
    assert ("third release" in outcome.refusals) == (case.ledger == "capped")


def check_statements(case, outcome):
    """Every stated loss is the one that follows from the noise."""
    for one in outcome.statements:
        low, high = (one.releases * end for end in loss_bounds(case, one.person, one.columns))
        # Losses that are said to hold "at most" are rounded up, by up to one unit of the last digit.
        less, more = (6 * 10.0**-one.digits, 10.0 ** (1 - one.digits)) if one.digits else (1e-9, 1e-9)
        assert low * (1 - less) <= one.loss <= high * (1 + more), (
            f"{one.place}: {one.loss} is stated for {one.person}, {low} to {high} is right"
        )


def check_secrets(outcome):
    """No public text has the digits of a record."""
    for step, text in [*outcome.texts.items(), *outcome.refusals.items(), ("refused", outcome.refused or "")]:
        digits = re.sub(r"(?<=\d)[,_. ’](?=\d)", "", text)
        assert not any(secret in digits for secret in SECRET_DIGITS), f"{step} has the value of a record: {text:.400}"
    assert not any(secret in text for text in outcome.warned for secret in SECRET_DIGITS)


# Published numbers


def key_columns(case, table):
    found = layout(case)
    return {**found.drawn, **found.derived}[table]


def check_order(case, name, table):
    """All public cells are there, in their order, whatever records there are."""
    keys = key_columns(case, name)
    found = list(zip(*(table.columns[key] for key in keys), strict=True)) if keys else [()]
    assert found == layout(case).cells(name), f"the cells of {name}: {found}"


def noise_of(case, rows, name, table, column):
    """Return what was added to the exact sums of a column, or to the transformed sums."""
    noise, truth = noises(case)[column], sums(case, rows, name)[column]
    if noise.is_transformation:
        published = table.columns[f"{column}_transformed"]
        return [value - noise.transform(total) for value, total in zip(published, truth.values(), strict=True)]
    published = table.columns[column]
    return [float(Fraction(value) - total) for value, total in zip(published, truth.values(), strict=True)]


def check_noise(case, rows, outcome):
    """Each cell of each column of each drawn table of each release has noise of its own."""
    vectors = {}
    for (release, name), table in outcome.tables.items():
        check_order(case, name, table)
        for column in noises(case) if name in layout(case).drawn else ():
            vectors[release, name, column] = noise_of(case, rows, name, table, column)
    for place, noise in vectors.items():
        different = len({round(value, 6) for value in noise})
        least = len(noise) / 2 if len(noise) > SMALL else 1
        assert different > least, f"noise is used for several cells of {place}"
    for one, other in combinations(vectors, 2):
        a, b = vectors[one], vectors[other]
        least = min(len(a), len(b))
        assert not np.allclose(a[:least], b[:least], rtol=1e-6), f"{one} and {other} have the same noise"
        if len(a) == len(b) > SMALL:
            follows = f"the noise of {one} follows that of {other}"
            assert abs(stats.spearmanr(a, b).statistic) < MOST_CORRELATED, follows
            assert abs(np.sign(a) @ np.sign(b)) < len(a), follows


def check_derived(case, outcome):
    """Derived tables are sums of published cells."""
    for (release, name), table in outcome.tables.items():
        if name not in layout(case).derived:
            continue
        check_order(case, name, table)
        cells = outcome.tables[release, "cells"]
        for column in noises(case):
            totals = dict.fromkeys(layout(case).cells(name), Fraction(0))
            for cell, value in zip(layout(case).cells("cells"), cells.columns[column], strict=True):
                totals[above(name, cell)] += Fraction(value)
            for value, total in zip(table.columns[column], totals.values(), strict=True):
                assert abs(Fraction(value) - total) <= abs(total) * Fraction(1, 10**12), f"{name} is not a sum of cells"


# What the curator sees


def check_confidential(case, rows, outcome):
    found = outcome.confidential
    for name, one in found["inspected"].items():
        outside = sum(cell_of(case, record, name) is None for record in rows)
        assert one["records"] == len(rows)
        assert one["outside"] == outside, (name, one)
    if "losses" not in found:
        return
    bounds = [loss_bounds(case, person) for person in persons(case, rows).values()]
    low, high = (np.array(ends) for ends in zip(*bounds, strict=True))
    losses = found["losses"]
    assert losses["persons"] == len(bounds), f"losses of {losses['persons']}, there are {len(bounds)}"
    assert low.max() / CLASS <= losses["largest"] <= high.max() * CLASS, (losses["largest"], low.max())
    for share, loss in losses["quantiles"].items():
        assert np.quantile(low, share) / CLASS - 1e-12 <= loss <= np.quantile(high, share) * CLASS + 1e-12, (
            share,
            loss,
        )
    for name, classes in found["errors"].items():
        check_errors(case, rows, name, outcome.tables["first", name], classes)


def check_errors(case, rows, name, table, classes):
    """The errors by size are those of the published numbers."""
    for column in noises(case):
        truth = sums(case, rows, name)[column].values()
        error = [abs(Fraction(value) - total) for value, total in zip(table.columns[column], truth, strict=True)]
        mine = [one for one in classes if one[0] == column]
        assert sum(one[3] for one in mine) == len(error)
        for _, low, high, cells, median in mine:
            here = [
                e for e, total in zip(error, truth, strict=True) if (low <= abs(total) < high if high else not total)
            ]
            assert len(here) == cells
            spare = 1e-6 * max(1.0, median) + 1e-15 * high  # it is computed in floats
            assert abs(float(np.median([float(e) for e in here])) - median) <= spare, (name, column)


# Two runs on neighbouring records


def check_pair(case, before, after, first, second, whole):
    """Check that two runs with the same bits differ by the record that their records differ by, and by nothing else.

    Parameters
    ----------
    case
        The combination.
    before, after
        The records of the two runs.
    first, second
        The outcomes.
    whole
        Whether the second run does all that is public.
    """
    for step in second.texts if second.refused is None else ("preview",):
        assert second.texts[step] == first.texts[step], _difference(step, first.texts[step], second.texts[step])
    if second.refused is not None:
        return
    assert second.warned == first.warned, (first.warned, second.warned)
    assert (second.charges, second.attempts) == (first.charges, first.attempts)
    assert set(second.files) == set(first.files) if whole else set(second.files) <= set(first.files), second.files
    for name in ("codes", "refusals"):
        found, wanted = getattr(second, name), getattr(first, name)
        assert found == {step: wanted.get(step) for step in found}, (name, found, wanted)
    assert second.tables.keys() == first.tables.keys()
    moved = False
    for place, table in first.tables.items():
        moved |= check_tables(case, before, after, place, table, second.tables[place])
    for step, text in second.showing.items():
        form = skeleton if moved else str
        assert form(text) == form(first.showing[step]), _difference(step, form(first.showing[step]), form(text))


def check_tables(case, before, after, place, table, other):
    """Check that only the record's cells moved, and by its influence; return whether any did."""
    name = place[1]
    assert table.types == other.types, f"types of {place}: {table.types}, {other.types}"
    assert list(table.columns) == list(other.columns)
    moved = False
    for column in table.columns:
        changed = own_cells(case, before, after, name, _summed(case, column))
        for i, cell in enumerate(layout(case).cells(name)):
            own = cell in changed
            moved |= own
            if not own:
                assert _same(table.columns[column][i], other.columns[column][i]), f"{place}: {column} of {cell} moved"
    if name in layout(case).drawn:
        old, new = sums(case, before, name), sums(case, after, name)
        for column in noises(case):
            check_movement(case, place, column, table, other, (old[column], new[column]))
    return moved


def own_cells(case, before, after, name, columns):
    """Return the cells of a table that may move: those with another sum, or made of a cell with another sum."""
    source = "cells" if name in layout(case).derived else name
    old, new = sums(case, before, source), sums(case, after, source)
    found = {cell for column in columns for cell in old[column] if old[column][cell] != new[column][cell]}
    return {above(name, cell) for cell in found} if name != source else found


def above(name, cell):
    """Return the cell of a derived table that a cell belongs to."""
    return (cell[0][:2],) if name == "states" else ()


def check_movement(case, place, column, table, other, truth):
    """Check that the own cells moved by the influence, and that the loss by this is charged."""
    noise = noises(case)[column]
    for i, (old, new) in enumerate(zip(*(some.values() for some in truth), strict=True)):
        if noise.is_transformation:
            shift = other.columns[f"{column}_transformed"][i] - table.columns[f"{column}_transformed"][i]
            wanted = noise.transform(new) - noise.transform(old)
            spare = STEP * noise.sigma + 1e-9 * abs(wanted)
            lost = (max(abs(shift) - spare, 0) / noise.sigma) ** 2 / 2
            assert lost <= noise.closed(new - old) * (1 + 1e-9), f"{place}: {column} moved by more than is charged for"
        else:
            numbers = [some.columns[column][i] for some in (table, other)]
            shift, wanted = Fraction(numbers[1]) - Fraction(numbers[0]), new - old
            spare = Fraction(max(map(abs, numbers)) * 4e-16) if isinstance(numbers[0], float) else Fraction(0)
            spare += 0 if (wanted / Fraction(noise.unit)).denominator == 1 else Fraction(noise.unit)
        assert abs(shift - wanted) <= spare, (
            f"{place}: {column} moved by {float(shift)}, its influence is {float(wanted)}"
        )


def _summed(case, column):
    """Return the summed columns that a published column depends on."""
    known = noises(case)
    if column.endswith("_mean") or "_mean_" in column:
        return [column.partition("_mean")[0], COUNT]
    return [name for name in known if column == name or column.startswith(f"{name}_")]


def _same(one, other):
    return one == other or (one != one and other != other)


def skeleton(text):
    """Return a text without its numbers, and without what is drawn around them."""
    # In CSV, several numbers are one "#", whatever their signs.
    text = re.sub(r"(?:[−+-]?\d[\d,.]*(?:e[+-]?\d+)?(?: × 10[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)?)+", "#", text)
    text = re.sub(r"[\s─━┃│┏┓┗┛┡┩┳┴╇└┘┼├┤]+", " ", text)
    # Errors are stated for large sums if any published number is large.
    text = re.sub(r"# % of cells of # are within [^.]*?off by more than # %?\. ?", "", text)
    return re.sub(r"\w+ cells of (?:# )+± # % # % ", "", text)


def _difference(step, one, other):
    place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return f"{step} differs: …{one[max(0, place - 100) : place + 100]}… …{other[max(0, place - 100) : place + 100]}…"
