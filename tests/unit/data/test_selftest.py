"""The self-test of engines: it passes on an engine that is right, and each of its properties notices a fault.

A fault is an expression that another engine may compute in another way, put into DuckDB in place of the right one.
"""

import math
from dataclasses import replace
from functools import cache

import ibis
import pytest
from helpers import engines
from helpers.errors import refused

import slowscale as ss
from slowscale.data import dialects, selftest, sums, values
from slowscale.data.dialects import call, forced_cast
from slowscale.data.engines import BOOLEAN, DATE, WHOLE, DuckDB
from slowscale.data.sources import open_table


@cache
def rows():
    return open_table(engines.load("duckdb", selftest.arrow_rows(selftest.rows_without(()))))


def test_an_engine_that_is_right_passes():
    found = selftest.findings(rows())
    assert found.wrong == {}
    assert selftest.self_test(rows()) == found.checks > 3000


def test_every_row_is_compared(monkeypatch):
    table = selftest.keep(rows(), f"property <> '{selftest.OVERFLOW}'")
    right = selftest._measured(table, selftest.LABEL_KINDS, selftest.SUMMED)
    monkeypatch.setattr(selftest, "_measured", lambda *given: right)
    for n, row in selftest.rows_without((selftest.OVERFLOW,)).items():
        found = selftest.Findings()
        changed = {**selftest.rows_without((selftest.OVERFLOW,)), n: replace(row, i=12345)}
        selftest._sums(table, changed, found)
        assert list(found.wrong) == [row.property]


FAULTS = {}


def fault(*noticed, by="adding up"):
    """Register a function that puts a fault into the engine, with the properties of a part that must notice it."""

    def register(put):
        FAULTS[put.__name__] = put, noticed, by
        return put

    return register


def change(patch, owner, name, made):
    """Replace a function by one that takes the right one first."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *given, **options: made(right, *given, **options))


def change_numbers(patch, is_kind, changed):
    """Change the numbers of columns of a type as they are read."""

    def read(right, table, column):
        value, missing = right(table, column)
        return (changed(value) if is_kind(value.type()) else value), missing

    change(patch, sums, "raw_number", read)


def change_floats(patch, changed):
    change_numbers(patch, lambda dtype: dtype.is_floating(), changed)


def change_labels(patch, kind, changed):
    def label(right, self, value, of):
        return changed(value, right(self, value, of)) if of == kind else right(self, value, of)

    right = DuckDB.label
    patch.setattr(DuckDB, "label", lambda self, value, of: label(right, self, value, of))


def change_text(patch, changed):
    """Change the labels, apart from the names of properties."""
    right, names = DuckDB.text_bytes, {row.property for row in selftest.SELF_TEST_ROWS}
    patch.setattr(
        DuckDB, "text_bytes", lambda self, value: right(self, ibis.ifelse(value.isin(names), value, changed(value)))
    )


def change_truncation(patch, changed):
    right = DuckDB.truncated
    patch.setattr(DuckDB, "truncated", lambda self, value, null: changed(value, right(self, value, null)))


def change_sums(patch, changed):
    """Change the sums of the whole numbers of records."""
    right = sums.sum_of_limb
    for module in (sums, selftest):
        patch.setattr(module, "sum_of_limb", lambda engine, limb: changed(limb, right(engine, limb)))


def decimal(text, digits=2):
    return forced_cast(ibis.literal(str(text)), f"decimal(38, {digits})")


# Floats.


@fault("truncation towards zero")
def floats_are_rounded(patch):
    change_truncation(patch, lambda value, _: value.round().try_cast("int64"))


@fault("truncation towards zero")
def floats_are_floored(patch):
    change_truncation(patch, lambda value, _: call("floor", "float64", value).try_cast("int64"))


@fault("tiny floats")
def tiny_floats_are_null(patch):
    change_floats(patch, lambda value: ibis.ifelse((value.abs() < 1e-290) & (value != 0), ibis.null("float64"), value))


@fault("sums of floats", "sums beyond 64 bits")
def sums_are_floats(patch):
    def added(limb, right):
        return right if limb.type().is_decimal() else forced_cast(limb.cast("float64").sum(), "decimal(38, 0)")

    change_sums(patch, added)


@fault("sums beyond 64 bits")
def sums_of_64_bits_wrap(patch):
    def added(limb, right):
        wrapped = ibis.ifelse(right > decimal(2**63, 0), right - decimal(2**64, 0), right)
        return right if limb.type().is_decimal() else forced_cast(wrapped, "decimal(38, 0)")

    change_sums(patch, added)


@fault("NaN")
def nan_is_null(patch):
    patch.setattr(sums, "is_null", lambda value: value.isnull() | value.isnan())


@fault("NaN", by="deriving columns")
def nan_is_not_larger(patch):
    def compare(right, dialect, left, other, sign):
        found = right(dialect, left, other, sign)
        return found & ~left.isnan() if left.type().is_floating() else found

    change(patch, values, "compare", compare)


@fault("NaN")
def casts_of_nan_fail(patch):
    """As on a server that evaluates a cast before the condition that guards it."""

    def guarded(right, value, checks):
        return value.cast("decimal(30, 15)").cast("float64") if value.type().is_floating() else right(value, checks)

    change(patch, sums, "_null_unless", guarded)


@fault("infinity")
def infinity_is_zero(patch):
    change_floats(patch, lambda value: ibis.ifelse(value.abs() == math.inf, 0.0, value))


@fault("negative zero")
def minus_zero_is_negative(patch):
    minus_zero = lambda value: (value == 0) & value.cast("string").startswith("-")  # noqa: E731
    change_floats(patch, lambda value: ibis.ifelse(minus_zero(value), -5e-324, value))


@fault("floats that are too large", "large floats")
def large_floats_are_clipped(patch):
    change_floats(patch, lambda value: ibis.ifelse(value > 2.0**54, 2.0**54, value))


@fault("truncation towards zero", by="deriving columns")
def halves_are_rounded_to_even(patch):
    patch.setitem(values.ROUNDINGS, "round", lambda value: call("round_even", "float64", value, 0).try_cast("int64"))


# Integers and decimals.


@fault("integers of 64 bits")
def integers_are_floats(patch):
    through = lambda value: value.cast("float64").cast("decimal(38, 0)")  # noqa: E731
    change_numbers(patch, lambda dtype: dtype.is_integer(), through)


@fault("decimals of 38 digits")
def decimals_are_floats(patch):
    def added(limb, right):
        size = limb.cast("float64").sum() if limb.type().is_decimal() else None
        fits = None if size is None else size.abs() < 9e35
        return right if size is None else ibis.ifelse(fits, forced_cast(size, "decimal(38, 2)"), right)

    change_sums(patch, added)


@fault("overflow")
def integers_wrap(patch):
    def add(right, left, other, minus=False):
        largest = left == 2**63 - 1
        safe = ibis.ifelse(largest, ibis.literal(0, "int64"), left)
        return ibis.ifelse(largest, ibis.literal(-(2**63), "int64"), right(safe, other, minus))

    change(patch, values, "add", add)


@fault("overflow")
def products_wrap(patch):
    change(patch, values, "multiply", lambda right, left, other: right(ibis.ifelse(left > 2**62, 0, left), other))


@fault("overflow")
def differences_wrap(patch):
    change(patch, values, "negative", lambda right, number: right(ibis.ifelse(number > 2**62, 0, number)))


@fault("overflow")
def casts_do_not_fail(patch):
    change(patch, values, "cast", lambda right, value, to: value.try_cast(to).fill_null(7))


@fault("overflow")
def sums_of_decimals_saturate(patch):
    def added(right, engine, limb):
        safe = ibis.ifelse(limb > decimal("9" * 35), decimal(1), limb)
        return right(engine, safe if limb.type().is_decimal() else limb)

    change(patch, sums, "sum_of_limb", added)


@fault("integers of 64 bits", "numbers", by="deriving columns")
def quotients_are_floored(patch):
    change(patch, values, "quotient", lambda right, dialect, left, other: left // other)


# Labels.


@fault("case of labels")
def case_is_ignored(patch):
    change_text(patch, lambda value: value.upper())


@fault("blanks in labels")
def trailing_blanks_are_ignored(patch):
    change_text(patch, lambda value: call("rtrim", "string", value))


@fault("binary labels")
def accents_are_ignored(patch):
    change_text(patch, lambda value: call("strip_accents", "string", value))


@fault("binary labels")
def texts_are_normalized(patch):
    change_text(patch, lambda value: call("nfc_normalize", "string", value))


@fault("binary labels")
def a_backslash_escapes(patch):
    patch.setattr(DuckDB, "text_bytes", lambda self, value: forced_cast(value, "binary"))


@fault("NUL characters")
def texts_end_at_nul(patch):
    nul = call("chr", "string", ibis.literal(0, "int32"))
    change_text(patch, lambda value: call("split_part", "string", value, nul, 1))


@fault("NULL labels")
def null_is_an_empty_text(patch):
    change_text(patch, lambda value: ibis.coalesce(value, ""))


@fault("NULL labels")
def null_is_zero(patch):
    change_labels(patch, WHOLE, lambda value, right: ibis.coalesce(right, 0))


@fault("NULL labels")
def null_is_false(patch):
    change_labels(patch, BOOLEAN, lambda value, right: ibis.coalesce(right, False))


@fault("booleans")
def booleans_are_texts(patch):
    change_labels(patch, BOOLEAN, lambda value, right: ibis.ifelse(right.cast("string").notnull(), True, None))


@fault("whole labels")
def whole_labels_are_floats(patch):
    through = lambda value, right: right.cast("float64").try_cast("int64")  # noqa: E731
    change_labels(patch, WHOLE, through)


@fault("dates")
def old_dates_are_julian(patch):
    old = ibis.literal("1582-10-15").cast("date")
    change_labels(patch, DATE, lambda value, right: ibis.ifelse(right < old, right - ibis.interval(days=10), right))


@fault("dates")
def dates_are_those_of_another_time_zone(patch):
    change_labels(patch, DATE, lambda value, right: right - ibis.interval(days=1))


@fault("dates out of range")
def every_date_is_a_label(patch):
    change_labels(patch, DATE, lambda value, right: value)


# Expressions.


@fault("numbers in texts", by="deriving columns")
def every_text_is_read(patch):
    patch.setattr(values, "read_float", lambda dialect, text: text.try_cast("float64"))


@fault("numbers in texts", by="deriving columns")
def a_text_is_rounded_to_an_integer(patch):
    patch.setattr(values, "read_integer", lambda dialect, text, dtype: text.try_cast(dtype))


@fault("numbers in texts", by="deriving columns")
def decimals_in_texts_are_truncated(patch):
    change(patch, values, "read_decimal", lambda right, dialect, text, dtype: right(dialect, text.substr(0, 4), dtype))


@fault("numbers in texts", by="deriving columns")
def a_pattern_ends_before_a_line_break(patch):
    patch.setitem(dialects.END, "duckdb", r"\n?\z")


@fault("numbers in texts", by="deriving columns")
def texts_are_ordered_without_case(patch):
    change(patch, values, "compare", lambda right, dialect, left, other, sign: right(
        dialect, *(one.lower() if one.type().is_string() else one for one in (left, other)), sign
    ))  # fmt: skip


@fault("NULL", by="filtering")
def a_filter_keeps_null(patch):
    right = selftest.keep
    null_passes = lambda table, text: right(table, f"coalesce({text}, true)" if "%" in text else text)  # noqa: E731
    patch.setattr(selftest, "keep", null_passes)


@fault("NULL", by="deriving columns")
def zero_for_null(patch):
    change(patch, values, "rounded", lambda right, number, how: ibis.coalesce(right(number, how), 0))


# Ranks and entities.


@fault("ranks", by="ranking")
def sizes_are_rounded(patch):
    short = lambda number: forced_cast(ibis.literal(repr(number)), "float32")  # noqa: E731
    patch.setattr(sums, "_float", lambda number: forced_cast(short(number), "float64"))


@fault("ranks", by="ranking")
def a_size_itself_is_smaller(patch):
    change(patch, sums, "_whole_test", lambda right, value: lambda size: right(value)(size + 1))


@fault("ranks", by="ranking")
def decimals_are_compared_with_whole_sizes(patch):
    change(patch, sums, "_decimal_test", lambda right, value, grain: lambda size: right(value, grain)(math.ceil(size)))


@fault("entities", by="adding up entities")
def entities_are_compared_without_case(patch):
    change_text(patch, lambda value: value.lower())


@fault("NaN", by="refusing to rank")
def nan_ranks_as_the_largest_size(patch):
    change(patch, sums, "finite_floats", lambda right, table, column: (right(table, column)[0], ibis.literal(True)))


@fault("numbers", by="adding up by public keys")
def a_group_is_left_out(patch):
    change(patch, sums, "accumulated", lambda right, numbers, at, size: right(numbers * (at > 0), at, size))


@fault("entities", by="adding up entities")
def nothing_is_too_large(patch):
    patch.setattr(sums, "_larger", lambda *given: {})


@fault("entities", by="adding up entities")
def totals_are_compared_as_floats(patch):
    change(patch, sums, "_total_test", lambda right, parts, number: lambda size: right(parts, number)(size * 2))


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_noticed(name, monkeypatch):
    put, noticed, by = FAULTS[name]
    monkeypatch.setattr(selftest, "PARTS", {by: selftest.PARTS[by]})
    put(monkeypatch)
    found = selftest.findings(rows())
    assert set(noticed) <= set(found.wrong), found.wrong


def test_each_property_notices_a_fault():
    every = {row.property for row in selftest.SELF_TEST_ROWS} | {selftest.RANK_CHECKS}
    assert {name for _, noticed, _ in FAULTS.values() for name in noticed} == every
    assert {by for _, _, by in FAULTS.values()} == set(selftest.PARTS)


def test_the_error_names_the_properties_and_both_values(monkeypatch):
    case_is_ignored(monkeypatch)
    texts_end_at_nul(monkeypatch)
    with refused(ss.EngineError, "DuckDB", code="nonconforming") as error:
        selftest.self_test(rows())
    assert "case of labels: the number of rows in the group ('TX', 1, True" in str(error.value)
    assert "is 3, not 1 (also wrong: " in str(error.value)
    assert "NUL characters" in str(error.value)


def test_an_engine_that_fails_is_no_engine_that_does_not_conform(monkeypatch):
    """A lost server must not be remembered as one that is wrong."""
    real, left = selftest.fetch, [3]

    def fetch(query):
        left[0] -= 1
        if left[0] < 0:
            raise OSError("connection lost")
        return real(query)

    for module in (selftest, sums):
        monkeypatch.setattr(module, "fetch", fetch)
    with refused(ss.EngineError, "DuckDB", code="engine"):
        selftest.self_test(rows())


def test_a_failure_of_all_rows_together_is_named(monkeypatch):
    def fails(table, some, found):
        if len(some) > 50:
            raise OSError("too many")

    monkeypatch.setattr(selftest, "PARTS", {"adding up": fails})
    assert selftest.findings(rows()).wrong == {"all rows together": "adding up fails (OSError: too many)"}


def test_a_server_that_does_not_answer_is_asked_once(monkeypatch):
    asked, real = [], selftest.fetch

    def fetch(query):
        asked.append(query)
        if len(asked) > 1:
            raise ss.EngineError("the server", "is lost", code="unreachable")
        return real(query)

    monkeypatch.setattr(selftest, "fetch", fetch)
    with refused(ss.EngineError, "the server", code="unreachable"):
        selftest.self_test(rows())
    assert len(asked) == 2


def test_a_server_that_is_lost_at_the_end_has_not_passed(monkeypatch):
    """A query that fails because the server is lost looks like an overflow."""
    counts = iter([len(selftest.SELF_TEST_ROWS)])
    monkeypatch.setattr(selftest, "PARTS", {})
    monkeypatch.setattr(selftest, "_count", lambda table, title: next(counts))
    with pytest.raises(StopIteration):
        selftest.self_test(rows())
