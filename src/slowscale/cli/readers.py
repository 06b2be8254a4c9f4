"""Commands for readers of published files, who have no records: `growth`, `difference` and `share`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slowscale.cli.shared import AsJson, Overwrite, echo, options_of, print_json, writable_path

if TYPE_CHECKING:
    from slowscale.release.derived import DerivedTable
    from slowscale.release.table import ReleasedSums

RELEASE_HELP = "A released .csv file with its .csv.json file, a .parquet file, or the folder of a release."
Later = Annotated[Path, typer.Argument(metavar="LATER", help=f"The later release. {RELEASE_HELP}")]
Earlier = Annotated[
    Path | None, typer.Argument(metavar="[EARLIER]", help="The earlier release. Without it, pass --from.")
]
From = Annotated[
    list[str],
    typer.Option(
        "--from",
        metavar="KEY=LABEL",
        help="In place of EARLIER: compare the rows of one table with those that have this label, such as year=2023. "
        "Repeat the option for several keys.",
    ),
]
Columns = Annotated[
    list[str], typer.Option("--column", metavar="COLUMN", help="A column. Repeat the option; by default all columns.")
]
Table = Annotated[str | None, typer.Option("--table", metavar="NAME", help="The table, if a release has several.")]
ConfidenceLevel = Annotated[
    float, typer.Option("--level", help="The probability with which an interval holds the true number.")
]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Write this .csv file instead of printing the rows.")
]


def growth(
    later: Later,
    earlier: Earlier = None,
    since: From = [],  # noqa: B006
    columns: Columns = [],  # noqa: B006
    table: Table = None,
    level: ConfidenceLevel = 0.95,
    output: Output = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Print the growth of published sums with intervals, as CSV: 0.05 is 5 % more than in the earlier release."""
    path = _output_path(output, overwrite)
    first, second = _pair(later, earlier, since, table)
    with options_of(growth, columns="--column", earlier="--from" if since else "EARLIER"):
        found = first.growth(second, columns=columns or None, level=level)
    _show(found, path, as_json)


def difference(
    later: Later,
    earlier: Earlier = None,
    since: From = [],  # noqa: B006
    columns: Columns = [],  # noqa: B006
    table: Table = None,
    level: ConfidenceLevel = 0.95,
    output: Output = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Print the differences of published sums with intervals, as CSV: later minus earlier."""
    path = _output_path(output, overwrite)
    first, second = _pair(later, earlier, since, table)
    with options_of(difference, columns="--column", earlier="--from" if since else "EARLIER"):
        found = first.difference(second, columns=columns or None, level=level)
    _show(found, path, as_json)


def share(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help=RELEASE_HELP)],
    of: Annotated[
        list[str],
        typer.Option(
            metavar="KEY",
            help="The key columns within which the cells are added to totals. Repeat the option; without it, there is "
            "one total of all cells.",
        ),
    ] = [],  # noqa: B006
    of_table: Annotated[
        str | None, typer.Option(metavar="NAME", help="In place of --of: the table of the release with the totals.")
    ] = None,
    columns: Columns = [],  # noqa: B006
    table: Table = None,
    level: ConfidenceLevel = 0.95,
    output: Output = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Print the shares of published cells in totals with intervals, as CSV."""
    from slowscale.core.errors import ParameterError
    from slowscale.release.release import read_release

    if of and of_table is not None:
        raise ParameterError("--of", "cannot be given with --of-table", code="conflict", remedy="give one of them")
    path = _output_path(output, overwrite)
    cells = _table(release, table)
    totals = list(of) if of_table is None else _named(read_release(release), of_table, "--of-table")
    totals_option = "--of" if of_table is None and not cells.facts.rollup else "--of-table"
    with options_of(share, columns="--column", by="--of", of=totals_option):
        found = cells.share(totals, columns=columns or None, level=level)
    _show(found, path, as_json)


def _output_path(output: Path | None, overwrite: bool) -> Path | None:
    return None if output is None else writable_path(output, ".csv", overwrite)


def _pair(later: Path, earlier: Path | None, since: list[str], table: str | None) -> tuple["ReleasedSums", Any]:
    """Return a table, and the table or the labels that it is compared with."""
    from slowscale.core.errors import ParameterError

    if (earlier is None) == (not since):
        problem = "cannot be given with --from" if since else "is missing"
        raise ParameterError("EARLIER", problem, code="conflict", remedy="give a release, or --from KEY=LABEL")
    first = _table(later, table)
    return first, _labels(first, since) if earlier is None else _table(earlier, table)


def _labels(table: "ReleasedSums", since: list[str]) -> Mapping[str, Any]:
    """Return the labels of --from, with the types of the key columns."""
    import pyarrow as pa

    from slowscale.core.errors import ParameterError

    labels = {}
    for text in since:
        key, equals, label = text.partition("=")
        if not equals or key not in table.facts.by:
            example = f"a key column and its label, such as {next(iter(table.facts.by), 'year')}=2023"
            raise ParameterError("--from", allowed=example, given=text)
        try:
            labels[key] = pa.scalar(label).cast(table.table[key].type).as_py()
        except pa.ArrowInvalid:
            raise ParameterError("--from", f"must have a label of {key!r}", code="value", given=label) from None
    return labels


def _table(path: Path, name: str | None) -> "ReleasedSums":
    """Return a table of sums of a release: the named one, or the only one."""
    from slowscale.core.errors import ParameterError
    from slowscale.release.release import read_release

    found = read_release(path)
    if name is not None:
        return _named(found, name, "--table")
    if len(found.sums) != 1:
        problem = f"has {len(found.sums)} tables of sums" + (f" ({', '.join(found.sums)})" if found.sums else "")
        raise ParameterError(path, problem, code="too-many", remedy="name one with --table" if found.sums else None)
    return next(iter(found.sums.values()))


def _named(release: Any, name: str, option: str) -> "ReleasedSums":
    from slowscale.core.errors import ParameterError

    if name not in release.sums:
        raise ParameterError(option, allowed=tuple(release.sums), given=name, code="unknown-name")
    found: ReleasedSums = release.sums[name]
    return found


def _show(found: "DerivedTable", path: Path | None, as_json: bool) -> None:
    """Print a table or write it to a file, and its notes to stderr."""
    from slowscale.release.table import NOT_PRIVATE

    if path is not None:
        found.to_csv(path, overwrite=True)
    if as_json:
        print_json(
            {
                **found.facts,
                "rows": [{name: _plain(value) for name, value in row.items()} for row in found.table.to_pylist()],
            }
        )
        return
    notes = [*([] if found.private else [NOT_PRIVATE.strip()]), *found.notes]
    for note in notes:
        echo(f"note: {note}", err=True)
    if path is not None:
        echo(f"wrote {path}")
        return
    echo(found.csv_text().removesuffix("\n"))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: null in place of an end that an interval does not have, dates as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
