"""Faults that the grid must find: each is put into the library, and a few combinations are run.

Besides the adapter, only this file knows names of the library: inner ones, where the faults are put in.
"""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from grid import adapter
from grid.cases import Case
from grid.checks import check_pair, check_run
from grid.records import NEIGHBOURS, base
from slowscale.accounting import Account
from slowscale.accounting.sizes import RecordSize
from slowscale.core.data_errors import Name
from slowscale.core.errors import DataError
from slowscale.data import sums as sums_module
from slowscale.data.sums import ExactSums
from slowscale.mechanisms import drawing
from slowscale.policy import RankPolicy
from slowscale.release import bound as bound_module
from slowscale.release import columns as columns_module
from slowscale.release import repeating
from slowscale.release import session as session_module
from slowscale.release.bound import BoundRequest, BoundSums
from slowscale.release.quantiles import Ranks

ONE = Case("one", "none", "records", "closed", "stored", "additive", "parquet", "zero")
ROOT = replace(ONE, statistic="root", odd="error", source="csv")
COUNTED = replace(ONE, statistic="count", protected="entities")
SET = replace(ONE, tables="set", ledger="open", statistic="count")


def search(case, folder, *kinds, depth=adapter.BRIEF):
    """Run a combination and its neighbours of these kinds, and check them as the grid does."""
    before = base(case)
    outcomes = []
    for number, rows in enumerate([before, *(NEIGHBOURS[kind](case, before) for kind in kinds)]):
        place = folder / str(number)
        place.mkdir()
        outcomes.append(adapter.run(case, rows, place, depth if not number else adapter.BRIEF))
        check_run(case, rows, outcomes[-1])
        check_pair(case, before, rows, outcomes[0], outcomes[-1], whole=False)


def change_sums(patch, change):
    """Change the exact sums of every release: `change` takes the numbers of records, or the sums of a column."""
    real = bound_module.exact_sums

    def changed(*given):
        found = real(*given)
        sums = {name: replace(one, counts=change(one.counts)) for name, one in found.sums.items()}
        return replace(found, rows=change(found.rows), sums=sums)

    patch.setattr(bound_module, "exact_sums", changed)


def change_table(patch, change):
    """Change every published table: `change` takes the table and the true numbers of records."""
    draw, released, rows = BoundSums.draw, BoundSums.released, []

    def drawn(self, sums, bits):
        rows.append(sums.rows)  # the last ones are those of the table that is released next
        return draw(self, sums, bits)

    def changed(self, name, numbers, whole):
        found = released(self, name, numbers, whole)
        return found if self.keys is None else replace(found, numbers=change(found.table, rows[-1]))

    patch.setattr(BoundSums, "draw", drawn)
    patch.setattr(BoundSums, "released", changed)


def change_draws(patch, change):
    """Change every draw of noise for cells: `change` takes the function that draws, and its arguments."""
    real = drawing.draw
    patch.setattr(drawing, "draw", lambda *given: change(real, *given) if given[1] > 1 else real(*given))


# Noise


def noise_reused_between_cells(patch):
    def twice(draw, task, count, source):
        return [np.repeat(floors[::2], 2)[:count] for floors in draw(task, count, source)]

    change_draws(patch, twice)


def noise_reused_between_columns(patch):
    calls = []

    def same(draw, task, count, source):
        calls.append(1)
        return draw(task, count, Recorded(100 + (len(calls) - 1) // 2).bits())  # there are two columns

    change_draws(patch, same)


def noise_reused_between_releases(patch):
    calls = []

    def same(draw, task, count, source):
        calls.append(1)
        return draw(task, count, Recorded(100 + len(calls) % 2).bits())

    change_draws(patch, same)


# Losses and charges


def loss_of_half_the_influence(patch):
    real = columns_module.charged_policy
    patch.setattr(
        columns_module, "charged_policy", lambda m, accounting: real(replace(m, sigma=2 * m.sigma), accounting)
    )


def twice_the_influence(patch):
    change_sums(patch, lambda sums: 2 * sums)


def second_charge_skipped(patch):
    real, charged = Account.charge, []

    def once(self, charge):
        if str(charge.policy) not in charged:
            charged.append(str(charge.policy))
            real(self, charge)

    patch.setattr(Account, "charge", once)


def second_table_not_charged(patch):
    patch.setattr(bound_module, "_added", lambda policies: next(iter(policies)))


def quantiles_not_charged(patch):
    patch.setattr(Ranks, "policy", lambda self, filtered: ss.RecordPolicy(((None, RankPolicy(0.0)),)))


def second_charge_not_written(patch):
    real = ss.Ledger.charge

    def once(self, charge):
        written = [entry for entry in self.history() if entry["kind"] == "charge"]
        return self.head if written else real(self, charge)

    patch.setattr(ss.Ledger, "charge", once)


# What is published


def keys_from_the_data(patch):
    change_table(patch, lambda table, rows: table.filter(pa.array(rows > 0)))


def types_from_the_data(patch):
    def typed(table, rows):
        place = table.schema.get_field_index("pay")
        return table.set_column(place, "pay", table["pay"].cast(pa.float64(), safe=False)) if rows.sum() % 2 else table

    change_table(patch, typed)


def order_from_the_data(patch):
    def ordered(table, rows):
        return table.take(pa.array(np.argsort(-rows, kind="stable")))

    change_table(patch, ordered)


def float_sums(patch):
    change_sums(patch, lambda sums: np.array([int(float(one)) for one in sums]))


def one_cell_moves_another(patch):
    change_sums(patch, lambda sums: sums + np.roll(sums, 1) % 2)


def facts_from_the_data(patch):
    draw, released, records = BoundRequest.draw, BoundRequest.released, []

    def drawn(self, read, bits):
        records.append(sum(one.rows.sum() for one in read.values() if isinstance(one, ExactSums)))
        return draw(self, read, bits)

    def told(self, numbers, head):
        facts = self.facts.with_(dataset=f"grid of {records[-1]} records")
        return released(replace(self, facts=facts), numbers, head)

    patch.setattr(BoundRequest, "draw", drawn)
    patch.setattr(BoundRequest, "released", told)


# What is said


def error_that_quotes_a_value(patch):
    real = sums_module.explain_uncountable

    def quoted(table, column, keys, run):
        error = real(table, column, keys, run)
        return DataError(*error.codes, **(error.facts | {"column": Name(table[column.name].min().execute())}))

    patch.setattr(sums_module, "explain_uncountable", quoted)


def warning_from_the_data(patch):
    def told(read):
        for sums in read.values():
            if isinstance(sums, ExactSums):
                warnings.warn(f"the largest cell has {sums.rows.max()} records", UserWarning, stacklevel=2)

    patch.setattr(session_module, "close", told)


# Combinations that failed once


def sets_not_found_in_the_ledger(patch):
    real = repeating._ledger_problem

    def alone(facts, ledger):
        known = [entry for entry in ledger.history() if len(entry.get("facts", {}).get("tables", ())) == 1]
        return real(facts, SimpleNamespace(history=lambda: known))

    patch.setattr(repeating, "_ledger_problem", alone)


def amounts_for_numbers_of_records(patch):
    real = RecordSize.value

    def amount(self, column):
        return self.everywhere if self.everywhere is not None else real(self, column)

    patch.setattr(RecordSize, "value", amount)


# Each fault: a combination, neighbours, how much is run, and with which words the grid finds it.
FAULTS = {
    noise_reused_between_cells: (ONE, [], adapter.BRIEF, "noise is used for several cells"),
    # Columns with one kind of noise: other kinds use the same words in other ways.
    noise_reused_between_columns: (ROOT, [], adapter.BRIEF, "the noise of .* follows that of"),
    noise_reused_between_releases: (ONE, [], adapter.BRIEF, "have the same noise"),
    loss_of_half_the_influence: (ONE, [], adapter.BRIEF, "is stated for"),
    twice_the_influence: (ONE, ["gone"], adapter.BRIEF, "its influence is"),
    second_charge_skipped: (ONE, [], adapter.BRIEF, "spent after two: .* is stated for"),
    second_table_not_charged: (SET, [], adapter.BRIEF, "is stated for"),
    quantiles_not_charged: (ONE, [], adapter.BRIEF, "beside quantiles: .* is stated for"),
    second_charge_not_written: (replace(ONE, ledger="open"), [], adapter.BRIEF, "charges and attempts"),
    keys_from_the_data: (ONE, [], adapter.BRIEF, "the cells of"),
    types_from_the_data: (ONE, ["gone"], adapter.BRIEF, "types of"),
    order_from_the_data: (ONE, [], adapter.BRIEF, "the cells of"),
    float_sums: (ONE, ["gone beside a giant"], adapter.BRIEF, "its influence is"),
    one_cell_moves_another: (ONE, ["other value"], adapter.BRIEF, "of .* moved"),
    facts_from_the_data: (ONE, ["gone"], adapter.BRIEF, "differs"),
    error_that_quotes_a_value: (ROOT, ["negative"], adapter.BRIEF, "has the value of a record"),
    warning_from_the_data: (ONE, ["gone beside a giant"], adapter.BRIEF, "the largest cell"),
    sets_not_found_in_the_ledger: (SET, [], adapter.WHOLE, "charged to another ledger"),
    amounts_for_numbers_of_records: (COUNTED, [], adapter.PUBLIC, "is stated for"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_grid_finds(fault, monkeypatch, tmp_path):
    case, kinds, depth, words = FAULTS[fault]
    fault(monkeypatch)
    with pytest.raises((AssertionError, ss.SlowscaleError), match=words):
        search(case, tmp_path, *kinds, depth=depth)


def test_without_a_fault_nothing_is_found(tmp_path):
    search(ONE, tmp_path, *dict.fromkeys(kind for case, kinds, *_ in FAULTS.values() if case is ONE for kind in kinds))
