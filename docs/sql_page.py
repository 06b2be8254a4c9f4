"""Write docs/sql.md, the list of what SQL text may use, from the rules in slowscale.tables.sql."""

from pathlib import Path

from slowscale.tables import functions, portable, regex, sql

INTRODUCTION = """<!-- Written by `python docs/sql_page.py` from the rules in slowscale.tables.sql. -->
# SQL text

Filters (`where=`) and derived columns (`derive=`) may be given as SQL text in DuckDB's dialect. Every expression looks
at one record at a time, and gives the same result on DuckDB, PostgreSQL, Spark and SQLite. This page lists everything
that is allowed; anything else is refused with an error. In particular, aggregates, window functions, subqueries, random
numbers and the clock are refused, and so are `ln`, `exp` and `pow`, whose last digit differs by engine.

In the tables below, `s` and `t` are text, `d` is a date or timestamp, and what stands in quotes must be a constant."""

READING = rf"""
## How text is read

`try_cast` and `strptime` ignore blanks around the text, and give NULL for text that does not follow these rules.

| type | spelling |
|---|---|
| integers | an optional sign and up to {functions.PARSED_DIGITS} digits: `42`, `-007`. Not `4.0`, `1e3` or `1_000`. |
| double | the same, optionally a point with digits and an exponent of up to 2 digits: `-2.5e3`. Not `.5`. |
| decimal(p, s) | the same without an exponent; more than s digits after the point are rounded, halves away from zero. |
| date | `YYYY-MM-DD`, years 0001 to 9999, a day that exists. |
| timestamp | a date; or a date, a blank or `T`, and `HH:MM`, `HH:MM:SS` or `HH:MM:SS.ffffff`. No time zone. |

## Patterns

`regexp_replace` and `regexp_matches` take a pattern that is a sequence of the following. Groups, lazy repeats, back
references and flags other than 'g' are refused, since engines disagree about them.

| write | meaning |
|---|---|
| `a`, `\.` | the character itself; punctuation that has a meaning here is written with a backslash |
| `[a-z_]`, `[^0-9]` | one of these characters, or one of all others |
| `.` | any character except a line break |
| `\d`, `\w`, `\s` | `[0-9]`, `[A-Za-z0-9_]`, and a blank, tab or line break |
| `\t`, `\n` | a tab, a line break |
| `*`, `+`, `?`, `{{m}}`, `{{m,}}`, `{{m,n}}` | repeats of the character before; at most {regex.MOST_REPEATS} |
| `^`, `$` | at the ends of the pattern: the start and end of the whole text |

The pattern of `regexp_replace` must match at least one character. In `regexp_matches`, several patterns may be joined
by `|`.

## Formats

`strptime` needs the year, and each part only once; a month or day that is not given is 1, a time that is not given is
midnight. Where two numbers follow each other directly, as in `%Y%m%d`, each must have all its digits. `strftime` writes
the same directives.

| directive | meaning |
|---|---|"""

ENGINES = """
## What differs by engine

- SQLite keeps decimals as floats: `try_cast` to a decimal and sums of decimals are refused there.
- PostgreSQL stops with an error where a float overflows or underflows; the other engines go on with infinity or zero.
- A Spark session must have `spark.sql.ansi.enabled` set to true and the time zone UTC.
- Two texts are equal as the collation of a column in the database says; where it ignores case, so does `=`.

## Ibis expressions

Filters and derived columns may also be Ibis expressions of the following operations, which mean the same as in SQL
text. Others are refused.
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
    lines += [f"| `{directive}` | {meaning} |" for directive, (_, _, meaning) in functions.DIRECTIVES.items()]
    lines += ["| `%%` | the character % |", ENGINES]
    lines.append(", ".join(sorted(f"`{operation.__name__}`" for operation in portable.RULES)) + ".")
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    Path(__file__).with_name("sql.md").write_text(page(), encoding="utf-8")
