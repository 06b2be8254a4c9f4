"""The confidential reports: the losses of the records by a release, and what an inspection found. For the curator only.

They are computed from the records themselves, without noise, so nothing in them is protected.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slowscale.core.errors import ParameterTypeError
from slowscale.core.numbers import format_number
from slowscale.publish.charts import Axis, LineChart
from slowscale.publish.report.pages import Cell, Row, render, write_page
from slowscale.release.dominance import USUAL_RULES, OpenCells
from slowscale.release.inspection import OUTSIDE_THE_GUARANTEE, key_in_words, share_in_words, size_in_words
from slowscale.release.release import Release

if TYPE_CHECKING:
    from slowscale.data.losses import Losses
    from slowscale.release.inspection import Inspection, SizeClass
    from slowscale.release.session import Session

LISTED_IN_REPORT = 100  # keys and labels that the report lists


def write_confidential_report(
    release: Release, path: str | os.PathLike[str], session: "Session", *, overwrite: bool = False
) -> Path:
    """Write the confidential report of a release; see `Release.confidential_report`.

    CONFIDENTIAL: for the curator only. Only the owner of the file may read it (mode 0600).
    """
    from slowscale.release.session import Session

    if not isinstance(release, Release):
        raise ParameterTypeError("release", allowed="a Release", given=type(release))
    if not isinstance(session, Session):
        raise ParameterTypeError("session", allowed="the ss.Session that made the release", given=type(session))

    def make() -> str:
        by_table = session.errors(release)
        errors = {name if len(by_table) > 1 else "": _error_rows(found) for name, found in by_table.items()}
        open_cells = {
            name if len(by_table) > 1 else "": _open_rows(found)
            for name, found in session.dominance(release, USUAL_RULES).items()
        }
        losses = LossSummary(session.losses(release))
        return render(
            "confidential.html",
            title="Losses of the records",
            facts=release.facts,
            losses=losses,
            errors=errors,
            rules=USUAL_RULES.describe(),
            open_cells=open_cells,
        )

    return write_page(path, make, overwrite=overwrite, confidential=True)


def _error_rows(errors: "Sequence[SizeClass]") -> list[Row]:
    rows: list[Row] = []
    for size in errors:
        span = f"{format_number(size.low)} to {format_number(size.high)}" if size.high else "0"
        share = "" if math.isnan(size.median_relative_error) else f"{100 * size.median_relative_error:.3g} %"
        rows.append([size.column, span, f"{size.cells:,}", format_number(size.median_error), share])
    return rows


def _open_rows(found: "Sequence[OpenCells]") -> dict[str, list[Row]]:
    """Return the open cells by column: one row per rule, the share of the total below each number."""
    rows: dict[str, list[Row]] = {one.column: [] for one in found}
    for one in found:
        parts = [
            Cell(f"{cells:,}", small=f"{share_in_words(share)} of the total")
            for cells, share in (one.before, one.after, one.informed)
        ]
        rows[one.column].append([one.rule, f"{one.cells:,}", *parts])
    return rows


@dataclass(frozen=True)
class LossSummary:
    """The distribution of losses, as texts and as a chart. CONFIDENTIAL."""

    losses: "Losses"

    @property
    def count(self) -> str:
        """The number of records or entities."""
        return f"{self.losses.records:,} {self.noun}"

    @property
    def noun(self) -> str:
        """The protected units: records, or entities."""
        return "records" if self.losses.protects is None else f"entities ({self.losses.protects})"

    @property
    def shares(self) -> list[Row]:
        """The quantiles."""
        return [[f"{100 * place:g} %", format_number(loss)] for place, loss in self.losses.quantiles.items()]

    @property
    def ranks(self) -> list[Row]:
        """The largest losses."""
        largest = self.losses.largest.items()
        return [["largest" if rank == 1 else f"{rank:,}th largest", format_number(loss)] for rank, loss in largest]

    @property
    def chart(self) -> LineChart:
        """The distribution function, from the last 0 to the first 1."""
        points = list(self.losses.cdf.items())
        start = max((i for i, (_, share) in enumerate(points) if share == 0), default=0)
        end = min((i for i, (_, share) in enumerate(points) if share == 1), default=len(points) - 1)
        rising = points[min(start, end) : end + 1]
        return LineChart(
            "figure-cdf",
            f"Cumulative share of the {self.noun}, by loss.",
            "This is the empirical distribution function; the axis of losses is logarithmic.",
            Axis("PRzCDP loss"),
            Axis(f"Share of the {self.noun}", log=False),
            {"all columns": rising},
            [at for at, _ in rising],
        )


def write_inspection(found: "Inspection", path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the report of an inspection; see `Inspection.report`.

    CONFIDENTIAL: for the curator only. Only the owner of the file may read it (mode 0600).
    """
    return write_page(path, lambda: inspection_page(found), overwrite=overwrite, confidential=True)


def inspection_page(found: "Inspection") -> str:
    """Return the report of an inspection as HTML. CONFIDENTIAL."""
    records: list[Row] = [["all", f"{found.records:,}"]]
    if found.duplicates is not None:
        records.append(["exact copies of another record", f"{found.duplicates:,}"])
    if found.cells is not None:
        records += [["outside the keys", f"{found.outside:,}"], ["without a label", f"{found.unlabelled:,}"]]
    columns: list[Row] = []
    for one in found.columns:
        shares = map(share_in_words, (one.outside_share, one.unlabelled_share))
        columns.append([one.name, f"{one.missing:,}", f"{one.negative:,}", f"{one.uncountable:,}", *shares])
    near: list[Row] = [
        [miss.column, repr(miss.label), repr(miss.key), f"{miss.records:,}"]
        for miss in found.near_misses[:LISTED_IN_REPORT]
    ]
    errors: list[Row] = []
    for error in found.errors:
        shares_of = [share_in_words(share) if error.high else "–" for share in (error.median, error.most)]
        errors.append([error.column, size_in_words(error), f"{error.cells:,}", *shares_of])
    return render(
        "inspection.html",
        title="Data check",
        found=found,
        guarantee=OUTSIDE_THE_GUARANTEE,
        records=records,
        columns=columns,
        empty_keys=list(map(key_in_words, found.empty_keys[:LISTED_IN_REPORT])),
        near=near,
        losses=None if found.losses is None else LossSummary(found.losses),
        errors=errors,
        rules=None if found.dominance is None else found.dominance.describe(),
        open_cells={"": _open_rows(found.open_cells)},
    )
