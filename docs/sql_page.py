"""Write docs/sql.md, the reference of the SQL text that filters and derived columns may use.

Run as `python docs/sql_page.py`. The tables are generated from the rules in slowscale.data.sql.
"""

from pathlib import Path

from slowscale.data import dialects, sql, values

INTRODUCTION = """<!-- Written by `python docs/sql_page.py` from the rules in slowscale.data.sql. -->
# SQL text

Filters (`where=`) and derived columns (`derive=`) can be written as SQL text in DuckDB's dialect. Every expression
looks at one record at a time, and gives the same result on DuckDB, PostgreSQL and Spark. This page lists
everything that is allowed. Anything else is refused with an error. In particular, aggregates, window functions,
subqueries, random numbers and the current time are refused. So are `ln`, `exp` and `pow`, whose last digit differs
between engines.

In the tables below, `s` and `t` are text, `d` is a date or timestamp, and arguments in quotes must be constants."""

READING = rf"""
## Text that can be converted

`try_cast` and `strptime` ignore blanks around the text. They return NULL for text that does not follow these rules.

| type | accepted text |
|---|---|
| integers | an optional sign and up to {values.PARSED_DIGITS} digits: `42`, `-007`. Not `4.0`, `1e3` or `1_000`. |
| double | an integer, then optionally a point with digits and an exponent of up to 2 digits: `-2.5e3`. Not `.5`. |
| decimal(p, s) | a double without an exponent. More than s digits after the point are rounded, halves away from 0. |
| date | `YYYY-MM-DD`, years 0001 to 9999, a day that exists. |
| timestamp | a date, then optionally a blank or `T` and `HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff`. No time zone. |

## Regular expressions

`regexp_replace` and `regexp_matches` take a pattern that is a sequence of the following elements. Groups, lazy
repetition, back references and flags other than 'g' are refused, because engines disagree about them.

| element | meaning |
|---|---|
| `a`, `\.` | the character itself; punctuation with a special meaning is escaped by a backslash |
| `[a-z_]`, `[^0-9]` | one of these characters; any character except these |
| `.` | any character except a line break |
| `\d`, `\w`, `\s` | `[0-9]`, `[A-Za-z0-9_]`, and a blank, tab or line break |
| `\t`, `\n` | a tab, a line break |
| `*`, `+`, `?`, `{{m}}`, `{{m,}}`, `{{m,n}}` | repeats of the preceding character, at most {dialects.MOST_REPEATS} |
| `^`, `$` | the start and the end of the whole text; allowed at the ends of the pattern only |

The pattern of `regexp_replace` must match at least one character. In `regexp_matches`, several patterns can be joined
by `|`.

## Date formats

A format for `strptime` must contain the year, and each part at most once. A month or day that is not given is 1, and a
time that is not given is midnight. If two numbers follow each other directly, as in `%Y%m%d`, each must have all its
digits. `strftime` uses the same directives.

| directive | meaning |
|---|---|"""

ENGINES = """
## NaN

On DuckDB, PostgreSQL and Spark, and in Parquet files, Arrow and polars tables, a float can be NaN ("not a number"):

- NaN is not NULL. `x is null` is false, and `coalesce(x, 0)` is NaN.
- NaN equals itself, and it is larger than every number, infinity included: `x > 5` is true for NaN. To leave it out,
  write `x < 1e308`, which leaves out NULL and infinity, too.
- Arithmetic with NaN gives NaN, and so do `inf * 0` and `inf - inf`. `round`, `floor` and `ceil` give NULL.
- A NaN in a summed column is a data error, whatever `nulls` says.

In the pandas columns of the dtypes `float64` and `Float64`, NaN is a missing value, like NULL. A pandas column of an
Arrow dtype keeps its NaN.

CSV and Excel files have no NaN: the text `NaN` is not a number.

## Differences between engines

- PostgreSQL raises an error if a float overflows or underflows. The other engines continue with infinity or zero.
- A Spark session must have `spark.sql.ansi.enabled` set to true and the time zone UTC.
- `=` compares text by the collation of the database column. If the collation ignores case, so does `=`.
"""


def page() -> str:
    """Return the page as Markdown."""
    lines, last = [INTRODUCTION], None
    for section, usage, meaning in sql.reference():
        if section != last:
            lines.append(f"\n## {section}\n\n| write | meaning |\n|---|---|")
        last = section
        lines.append(f"| `{escaped(usage)}` | {escaped(meaning)} |")
    lines.append(READING)
    lines += [f"| `{directive}` | {meaning} |" for directive, (_, _, meaning) in values.DIRECTIVES.items()]
    lines += ["| `%%` | the character % |", ENGINES]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return text with its vertical bars escaped, for a cell of a Markdown table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(__file__).with_name("sql.md").write_text(page(), encoding="utf-8")
