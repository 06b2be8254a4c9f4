"""Expressions of SQL text with the values that they must have on every engine, and the records for them."""

import math
import re
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache

import duckdb
import pyarrow as pa

from slowscale.data.rowwise import bind

TEXTS = [
    None, "", " ", "  both  ", "\tTab\n", "\u00a0nbsp\u00a0", "0a1b22", "aXbXX", "XaX", "a,b,,c", ",", "a%b_c",
    "a\\b\\\\c", "o'clock", '"quoted"', "$1 \\1 & ^.*+?()[]{}|", "straße İI ǅ", "caf\u00e9", "cafe\u0301",
    "\U0001f600x\U0001f600", "line\nbreak", "end\n", "TX", "tx", "ZZ9", "x" * 20_000, "a" * 300 + "X", "-", "^",
    "abc", "ABC", "01001", "Müller & Söhne GmbH", "a  b   c", "]", "a-b", "été\n\n", "#N/A",
]  # fmt: skip
NUMBERS = [
    None, "", " ", "0", "7", " 42 ", "-7", "+7", "007", "-0", "1.5", "-1.25", " 2.50 ", "1.005", "-0.005", "99.995",
    "99.994", ".5", "5.", "1e3", "1E-2", "1e100", "1_000", "1,000", "0x10", "NaN", "inf", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "2147483648", "32768", "9" * 38, "9" * 39,
    "0" * 30 + "5", "0" * 40 + "5", "0.1" + "0" * 30 + "1", "12345678901234.567", "٣", "1 2", "--1", "\t1", "1\n",
    "123456.785", "0.3", "2.2250738585072014e-30", "1" * 20 + "." + "7" * 20, "true", "1f", "1d", "1L",
]  # fmt: skip
DATES = [
    None, "", "2020-02-29", " 2020-02-29 ", "2021-02-29", "1900-02-29", "2000-02-29", "0001-01-01", "0000-01-01",
    "0000-02-29", "9999-12-31", "10000-01-01", "2020-1-2", "2020-13-01", "2020-00-10", "2020-04-31", "2020-12-00",
    "20200101", "2020/01/02", "now", "today", "epoch", "infinity", "yesterday", "2020-01-02 03:04",
    "2020-01-02 03:04:05", "2020-01-02T03:04:05", "2020-01-02 03:04:05.5", "2020-01-02 03:04:05.123456",
    "2020-01-02 03:04:05.1234567", "2020-01-02 24:00:00", "2020-01-02 23:60:00", "2020-01-02 23:59:60",
    "2020-01-02 03:04:05Z", "2020-01-02 03:04:05+01", "1582-10-10", "2020-01-02 ", "-0044-03-15", "2020-06-31",
    "2023-11-31",
]  # fmt: skip
SLASHED = [
    None, "", "31/01/2020", "1/2/2020", " 1/2/2020 ", "29/02/2020", "29/02/2021", "01/13/2020", "13/01/2020",
    "1/2/20", "1/2/02020", "01-02-2020", "01/02/2020x", "00/01/2020", "1/1/0001", "31/12/9999", "1/1/0000",
    "١/١/2020", "12/11/1582", "01/02/2020 10:00", "101/1/2020", "+1/2/2020", "1 /2/2020",
]  # fmt: skip
NAMED = [
    None, "31-JAN-99", "1-feb-00", "29-Feb-24", "29-Feb-23", "1-Mrz-20", "01-Dec-68", "01-Dec-69", "1-January-20", "",
    "1-MAY-2020", "10:11 1-Jun-20", "20200229", "2020229", "2020111", "20210229", "2020-02-29 1:2:3",
    "2020-02-29 23:59:59", "2020-02-29 24:00:00", "100%",
]  # fmt: skip
INTEGERS = [
    None, 0, 1, -1, 7, -7, 10, 2**31 - 1, -(2**31), 2**53 + 1, -(2**53) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63),
]  # fmt: skip
DIVISORS = [
    None, 0, 1, -1, 2, -2, 3, -3, 2**31 - 1, 1000, 2**53 + 1,
]  # fmt: skip
FLOATS = [
    None, 0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.49999999999999994, -0.49999999999999994, 1e300, -1e300, 9.3e18,
    9.2e18, -9.2e18, 1e-300, 4503599627370497.5, 0.1, 0.3, 1 / 3, 123456789.125, 9007199254740993.0,
]  # fmt: skip
DAYS = [
    None, date(1, 1, 1), date(1582, 10, 10), date(1900, 2, 28), date(1970, 1, 1), date(2000, 2, 29),
    date(2020, 2, 29), date(2020, 12, 31), date(2021, 1, 3), date(2021, 1, 4), date(9999, 12, 31), date(999, 9, 9),
]  # fmt: skip
TIMES = [
    None, datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 2, 29, 12, 30, 5),
    datetime(2020, 2, 29), datetime(2020, 1, 15), datetime(2020, 1, 14, 23, 59, 59),
    datetime(2020, 1, 15, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2021, 5, 6, 7, 8, 9),
]  # fmt: skip
MONEY = [
    None, Decimal("0.00"), Decimal("0.01"), Decimal("-1.25"), Decimal("1.25"), Decimal("1.10"),
    Decimal("12345678901.23"), Decimal("-99999999999.99"),
]  # fmt: skip


def column(values, dtype, rows):
    return pa.array([values[row % len(values)] for row in range(rows)], dtype)


ROWS = 11 * 52
RECORDS = pa.table(
    {
        "id": pa.array(range(ROWS)),
        "s": column(TEXTS, pa.string(), ROWS),
        "n": column(NUMBERS, pa.string(), ROWS),
        "t": column(DATES, pa.string(), ROWS),
        "f": column(SLASHED, pa.string(), ROWS),
        "b": column(NAMED, pa.string(), ROWS),
        "i": column(INTEGERS, pa.int64(), ROWS),
        "j": column(DIVISORS, pa.int64(), ROWS),
        "k": column([None, 0, 5, -5, 2**31 - 1, -(2**31), 30_000], pa.int32(), ROWS),
        "x": column(FLOATS, pa.float64(), ROWS),
        "y": column([None, 0.0, 2.0, -0.5, 1e-3], pa.float64(), ROWS),
        "d": column(DAYS, pa.date32(), ROWS),
        "ts": column(TIMES, pa.timestamp("us"), ROWS),
        "m": column(MONEY, pa.decimal128(18, 2), ROWS),
        "o": column([None, True, False], pa.bool_(), ROWS),
    }
)


def fetched(records, expressions):
    """Return the values of expressions by id; for Spark, Ibis would use pandas."""
    bound = {f"x{i}": bind(records, expression, "derive") for i, expression in enumerate(expressions)}
    table = records.select("id", **bound)
    backend = table.get_backend()
    spark = backend.name == "pyspark"
    found = backend._session.sql(backend.compile(table)).toArrow() if spark else table.to_pyarrow()
    order = sorted(range(len(found["id"])), key=list(map(int, found["id"])).__getitem__)
    return [_ordered(found[name], order) for name in bound]


def _ordered(values, order):
    if pa.types.is_timestamp(values.type):  # timestamps of Spark have the time zone UTC
        values = values.cast(pa.timestamp("us"))
    listed = values.to_pylist()
    return [listed[row] for row in order]


@cache
def duckdb_values(sql):
    """Return the result of the same text in DuckDB."""
    with duckdb.connect() as connection:
        connection.register("records", RECORDS)
        return [value for (value,) in connection.sql(f"SELECT {sql} FROM records ORDER BY id").fetchall()]


SAME_AS_DUCKDB = r"""
trim(s, ' ')
ltrim(s, ' ')
rtrim(s, ' ')
trim(s, 'Xa\')
ltrim(s, 'aX]^-')
rtrim(s, 'X😀')
rtrim(s, 'b')
replace(s, 'X', '')
replace(s, 'a', '\')
replace(s, '\', '/')
replace(s, '''', '"')
replace(s, 'é', 'e')
replace(s, '😀', '$1')
regexp_replace(s, 'X', '-')
regexp_replace(s, 'X', '-', 'g')
regexp_replace(s, 'X+', '$1 &', 'g')
regexp_replace(s, '[^0-9]', '', 'g')
regexp_replace(s, '^X', '')
regexp_replace(s, 'X$', '')
regexp_replace(s, '^[a-z]+', 'ä😀', 'g')
regexp_replace(s, '\s+', ' ', 'g')
regexp_replace(s, '[é😀]', 'e', 'g')
regexp_replace(s, '\$1 \\1', '')
regexp_replace(s, '\d{2,}', '#', 'g')
regexp_replace(s, '.', '.')
regexp_replace(s, 'a?X', '<')
regexp_replace(s, '[\-\]\[\^]', '~', 'g')
regexp_replace(s, '\w+$', '!')
regexp_replace(s, 'x{3,255}', 'y', 'g')
regexp_replace(s, '\.\*\+\?\(\)\[\]\{\}\|', 'meta')
regexp_replace(s, '[a-c\&]', '0', 'g')
regexp_matches(s, '^[A-Z]{2}$')
regexp_matches(s, 'a.b')
regexp_matches(s, 'line.break')
regexp_matches(s, 'X|Z|^$')
regexp_matches(s, '^$')
regexp_matches(s, 'end$')
regexp_matches(s, '^.$')
regexp_matches(s, '\\')
regexp_matches(s, '''')
regexp_matches(s, '^[^\d\s]+$')
split_part(s, ',', 1)
split_part(s, ',', 3)
split_part(s, 'XX', 2)
split_part(s, '.', 2)
split_part(s, '\', 2)
split_part(s, '😀', 2)
lpad(s, 3, '0')
rpad(s, 5, 'ab')
lpad(s, 0, 'x')
lpad(s, 6, '😀é')
rpad(s, 4, '''')
rpad(s, 30, '\')
left(s, 3)
right(s, 3)
left(s, 0)
right(s, 0)
substr(s, 2, 2)
substr(s, 3)
substr(s, 1, 0)
length(s)
s || 'é'
concat(s, n)
s like 'a\b%'
s like '%\\%'
s like '%_c'
s like '😀_😀'
s like 'line%break'
s not like '%X%'
s like ''
starts_with(s, 'a%')
starts_with(s, '')
starts_with(s, '😀')
s = 'tx'
s <> 'TX'
s < 'a'
s >= 'tx'
s between 'A' and 'a'
s > 'é'
s in ('TX', '', 'café')
nullif(s, '')
coalesce(s, n, 'none')
case s when 'TX' then 1 when '' then 2 else 3 end
nullif(trim(s, ' '), '')
i // 2
i // -2
i // nullif(j, -1)
i % nullif(j, -1)
i % 10
mod(j, 4)
j // i
k // 7
-k::bigint
abs(k::bigint)
k::bigint * 1000000
j + j
j - 5
j * 2
greatest(i, j)
least(i, j, 5)
greatest(x, y)
least(x, y, 0.25)
greatest(d, date '2000-02-29')
least(ts, timestamp '2020-01-15')
nullif(i, 0)
nullif(i // nullif(j, -1), 0)
i = 9007199254740993
i > 2.5
i in (1, -7)
x > 0.3
x = 0.1
m > 1.1
m = 1.25
m > 0.005
m in (1.10, 0.01)
m between -1.25 and 1.25
x / nullif(y, 0)
i / 3
m / 4
x * y
x + y
m + 1
m - 0.05
m + 0.005
j + m
abs(m)
-m
coalesce(m, 0)
case when o then i else 0 end
case when o then 1.5 else j end
x > i
cast(i as double)
cast(i as varchar)
cast(o as int)
cast(i as boolean)
cast(m as double)
if(o, x, y)
o = true
o is not false
not o or i > 0
year(d)
quarter(d)
month(d)
day(d)
year(ts)
quarter(ts)
month(ts)
day(ts)
extract(month from ts)
cast(ts as date)
cast(d as timestamp)
date_trunc('year', d)::date
date_trunc('quarter', d)::date
date_trunc('month', ts)::date
date_trunc('week', d)::date
date_trunc('week', ts)::date
date_trunc('day', ts)::date
strftime(d, '%Y-%m-%d')
strftime(ts, '%d/%m/%y %H:%M:%S')
strftime(d, '%b %Y %% %H')
strftime(d, 'Q''\😀%m')
ts < '2020-01-15'
ts <= '2020-01-15 00:00:00'
ts = '2020-02-29 12:30:05'
d < '2020-02-29'
d >= date '1900-02-28'
d in ('2020-02-29', '0001-01-01')
d between '1582-10-10' and '2020-02-29'
d < ts
coalesce(d, '2000-01-01')
nullif(d, '2020-02-29')
case d when '2020-02-29' then 1 else 0 end
greatest(d, '1970-01-01')
coalesce(ts, d)
j + j - 1
m + m
m + 0.05
s || n
greatest(i, j, 5)
least(x, y)
cast(o as bigint)
if(o, i, 0)
s in ('TX', '')
""".strip().split("\n")


def integer(bits):
    def read(text):
        text = None if text is None else text.strip(" ")
        if text is None or not re.fullmatch(r"[+-]?[0-9]{1,38}", text) or not -(2**bits) <= int(text) < 2**bits:
            return None
        return int(text)

    return read


def floating(text):
    text = None if text is None else text.strip(" ")
    fits = text is not None and re.fullmatch(r"[+-]?[0-9]{1,38}(\.[0-9]{1,38})?([eE][+-]?[0-9]{1,2})?", text)
    return float(text) if fits else None


def decimal(precision, scale):
    def read(text):
        text = None if text is None else text.strip(" ")
        if text is None or not re.fullmatch(r"[+-]?[0-9]{1,38}(\.[0-9]{1,38})?", text):
            return None
        rounded = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=100))
        return rounded if abs(rounded) < 10 ** (precision - scale) else None

    return read


def iso_date(text):
    try:
        return date(*map(int, re.fullmatch(r" *([0-9]{4})-([0-9]{2})-([0-9]{2}) *", text).groups()))
    except (AttributeError, TypeError, ValueError):
        return None


def iso_time(text):
    if iso_date(text):
        return datetime.combine(iso_date(text), datetime.min.time())
    pattern = r" *([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?)? *"
    try:
        *parts, second, fraction = re.fullmatch(pattern, text).groups()
        return datetime(*map(int, parts), int(second or 0), int((fraction or "").ljust(6, "0")))
    except (AttributeError, TypeError, ValueError):
        return None


def formatted(layout, shape):
    """Read text that has the right form with Python's strptime."""

    def read(text):
        if text is None or not re.fullmatch(shape, text.strip(" "), re.ASCII):
            return None
        try:
            return datetime.strptime(text.strip(" "), layout)
        except ValueError:
            return None

    return read


def ascii_upper(text):
    return None if text is None else "".join(c.upper() if c.isascii() else c for c in text)


def ascii_lower(text):
    return None if text is None else "".join(c.lower() if c.isascii() else c for c in text)


def safely(function):
    """Return NULL for NULL arguments, and if the function raises."""

    def read(*values):
        if any(value is None for value in values):
            return None
        try:
            return function(*values)
        except (ArithmeticError, ValueError):
            return None

    return read


def half_away(value):
    return int(Decimal(value).quantize(Decimal(1), ROUND_HALF_UP)) if abs(value) < 2**63 else None


ANY_TIME = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2} [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}"
BY_RULE = [
    ("trim(s)", "s", safely(lambda s: s.strip(" "))),
    ("ltrim(s)", "s", safely(lambda s: s.lstrip(" "))),
    ("rtrim(s)", "s", safely(lambda s: s.rstrip(" "))),
    ("upper(s)", "s", ascii_upper),
    ("lower(s)", "s", ascii_lower),
    ("s ilike 'STRASSE%' or s ilike 'tX' or s ilike 'CAFé'", "s", safely(lambda s: s in ("tx", "TX", "caf\u00e9"))),
    ("try_cast(n as bigint)", "n", integer(63)),
    ("try_cast(n as integer)", "n", integer(31)),
    ("try_cast(n as smallint)", "n", integer(15)),
    ("try_cast(n as double)", "n", floating),
    ("try_cast(n as decimal(10, 2))", "n", decimal(10, 2)),
    ("try_cast(n as decimal(4, 2))", "n", decimal(4, 2)),
    ("try_cast(n as decimal(37, 10))", "n", decimal(37, 10)),
    ("try_cast(n as decimal(3, 3))", "n", decimal(3, 3)),
    ("try_cast(t as date)", "t", iso_date),
    ("try_cast(t as timestamp)", "t", iso_time),
    ("strptime(f, '%d/%m/%Y')", "f", formatted("%d/%m/%Y", r"\d{1,2}/\d{1,2}/\d{4}")),
    ("try_strptime(f, '%m/%d/%Y')", "f", formatted("%m/%d/%Y", r"\d{1,2}/\d{1,2}/\d{4}")),
    ("strptime(b, '%d-%b-%y')", "b", formatted("%d-%b-%y", r"\d{1,2}-[A-Za-z]{3}-\d{2}")),
    ("strptime(b, '%Y%m%d')", "b", formatted("%Y%m%d", r"\d{8}")),
    ("strptime(b, '%Y-%m-%d %H:%M:%S')", "b", formatted("%Y-%m-%d %H:%M:%S", ANY_TIME)),
    ("strptime(b, '100%%%Y')", "b", lambda b: None),
    ("date_trunc('month', d)", "d", safely(lambda d: d.replace(day=1))),
    ("date_trunc('day', ts)", "ts", safely(lambda ts: ts.date())),
    ("x / y", "xy", safely(lambda x, y: x / y)),
    ("(i // 2) // j", "ij", safely(lambda i, j: abs(i) // 2 // abs(j) * (1 if (i < 0) == (j < 0) else -1))),
    ("i % j", "ij", safely(lambda i, j: abs(i) % abs(j) * (-1 if i < 0 else 1))),
    ("round(x)", "x", safely(half_away)),
    ("round(i)", "i", lambda i: i),
    ("floor(i)", "i", lambda i: i),
    ("floor(x)", "x", safely(lambda x: math.floor(x) if abs(x) < 2**63 else None)),
    ("ceil(x)", "x", safely(lambda x: math.ceil(x) if abs(x) < 2**63 else None)),
    ("sqrt(x)", "x", safely(math.sqrt)),
    ("round(m)", "m", safely(lambda m: int(m.quantize(Decimal(1), ROUND_HALF_UP)))),
    ("greatest(i, null, j)", "ij", lambda i, j: max((v for v in (i, j) if v is not None), default=None)),
]  # fmt: skip


OVERFLOWS = [
    "i + 1",
    "i - 1",
    "i * 2",
    "-i",
    "abs(i)",
    "0 - i",
    "i // -1",
    "cast(i as integer)",
    "cast(k as smallint)",
    "i + i",
]
