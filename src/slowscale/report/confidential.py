"""The confidential report: the distribution of the losses of the records. It is for the curator only.

It is computed from the records themselves, without noise, so nothing in it is protected.
"""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.errors import ParameterTypeError
from slowscale.figures import figure
from slowscale.files import free_target, write_files
from slowscale.release import Release, ReleaseSet
from slowscale.report.charts import Axis, LineChart, tools
from slowscale.report.page import Html, Section, cell, facts, head, page, paragraph, row, table, tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from slowscale.publishing import SizeClass
    from slowscale.session import Session
    from slowscale.tables.losses import Losses

BANNER = "CONFIDENTIAL: never publish this report. It is computed from the records, without noise."


def write_confidential_report(
    release: Release | ReleaseSet, path: str | os.PathLike[str], session: "Session", *, overwrite: bool = False
) -> Path:
    """Write the confidential report of a release or of a set; see `Release.confidential_report`.

    CONFIDENTIAL: for the curator only. Only the owner of the file may read it (mode 0600).
    """
    from slowscale.session import Session

    if not isinstance(release, Release | ReleaseSet):
        raise ParameterTypeError(f"release must be a Release, got {type(release).__name__}")
    if not isinstance(session, Session):
        raise ParameterTypeError(f"session must be the ss.Session that made the release, got {type(session).__name__}")
    target = free_target(path, ".html", overwrite)
    tools()  # raises before any work is done if a package is missing
    drawn = {name: release[name] for name in release.drawn} if isinstance(release, ReleaseSet) else {"": release}
    errors = {name: session.errors(one) for name, one in drawn.items()}
    text = _page(release, session.losses(release), errors)
    files = {target: lambda file: file.write_text(text, encoding="utf-8")}
    return write_files(files, overwrite=overwrite, confidential=True)


def _page(release: Release | ReleaseSet, losses: "Losses", errors: "Mapping[str, Sequence[SizeClass]]") -> str:
    noun = "records" if release.facts.protect is None else f"entities ({release.facts.protect})"
    lead = paragraph(
        f"This report shows how the losses of {losses.records:,} {noun} by release {release.facts.id} are distributed. "
        "Its numbers depend on single records: keep it where the records are kept, and delete it after reading.",
        class_="lead",
    )
    tables = [part for name, one in errors.items() for part in ([tag("h3", name)] * bool(name) + [_errors(one)])]
    parts = [
        *losses_sections(losses, noun),
        Section("errors", "Errors", "Errors of the results, by size of the true sum", tables),
        Section(
            "release",
            "The release",
            "The release",
            [facts({"Release": tag("code", release.facts.id), "Policy": tag("code", release.facts.formula)})],
        ),
    ]
    return page("Losses of the records", "Confidential report", [lead], parts, BANNER, BANNER)


def losses_sections(losses: "Losses", noun: str) -> list[Section]:
    """Return the sections on the distribution of losses; `noun` says what has them, such as records."""
    chart = LineChart(
        "figure-cdf",
        f"Figure 1. Cumulative share of the {noun}, by loss.",
        "This is the empirical distribution function; the axis of losses is logarithmic.",
        Axis("PRzCDP loss"),
        Axis(f"Share of the {noun}", log=False),
        {"all columns": _rising_part(losses)},
    )
    shown = [at for at, _ in _rising_part(losses)]
    shares = [(f"{100 * place:g} %", figure(loss)) for place, loss in losses.quantiles.items()]
    ranks = [("largest" if rank == 1 else f"{rank:,}th largest", figure(loss)) for rank, loss in losses.largest.items()]
    return [
        Section("cdf", "Distribution", "Distribution of the losses", [chart.figure(shown)]),
        Section(
            "quantiles",
            "Quantiles",
            "Quantiles and largest losses",
            [
                pairs("Quantiles of the losses.", f"Share of the {noun}", "Loss at most", shares),
                pairs("The largest losses.", "Rank", "Loss", ranks),
            ],
        ),
    ]


def _rising_part(losses: "Losses") -> list[tuple[float, float]]:
    """Return the distribution function from the last 0 to the first 1."""
    points = list(losses.cdf.items())
    start = max((i for i, (_, share) in enumerate(points) if share == 0), default=0)
    end = min((i for i, (_, share) in enumerate(points) if share == 1), default=len(points) - 1)
    return points[min(start, end) : end + 1]


def _errors(errors: "Sequence[SizeClass]") -> Html:
    """Return the table of errors by size class."""
    top = ("Column", "True sum", "Cells", "Median error", "Relative to the sum")
    rows = []
    for size in errors:
        span = f"{figure(size.low)} to {figure(size.high)}" if size.high else "0"
        share = "" if math.isnan(size.median_relative_error) else f"{100 * size.median_relative_error:.3g} %"
        numbers = (span, f"{size.cells:,}", figure(size.median_error), share)
        rows.append(row(head(size.column, "row"), *(cell(number) for number in numbers)))
    heads = row(head(top[0]), *(head(name, numeric=True) for name in top[1:]))
    return table("Errors of this release, by powers of ten of the true sum.", [heads], [tag("tbody", *rows)], "Errors")


def pairs(caption: str, first: str, second: str, rows: list[tuple[str, str]]) -> Html:
    """Return a table of two columns."""
    body = tag("tbody", *(row(head(one, "row"), cell(other)) for one, other in rows))
    return table(caption, [row(head(first), head(second, numeric=True))], [body], caption)
