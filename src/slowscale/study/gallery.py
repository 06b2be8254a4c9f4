"""The figures of the study: which there are, what each of them shows, and the numbers that it is drawn from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slowscale.core.numbers import format_number
from slowscale.study import figures, tables
from slowscale.study.results import Subject

LIMITS = {"additive": 20.0, "transformation": 100.0}  # the largest losses that the CDFs show


@dataclass(frozen=True)
class Drawing:
    """A chart with its numbers.

    Attributes
    ----------
    name
        The name of its files.
    section
        The section of the page that it belongs to.
    words
        The caption.
    data
        The tables that it is drawn from; the keys are added to the name.
    chart
        The Altair chart.
    """

    name: str
    section: str
    words: str
    data: dict[str, pa.Table]
    chart: Any


def drawings(subjects: Sequence[Subject]) -> Iterator[Drawing]:
    """Yield all figures: those about the data, and, on the paper's data, those that follow from formulas."""
    yield from _about_data(subjects)
    if all(subject.attribute.source != "given" for subject in subjects):
        yield from _from_formulas()


def _about_data(subjects: Sequence[Subject]) -> Iterator[Drawing]:
    units = {subject.name: subject.attribute.unit_words for subject in subjects}
    skewed = [subject for subject in subjects if subject.attribute.source != "cattle"]
    cattle = [subject for subject in subjects if subject.attribute.source == "cattle"]
    for index, loss in enumerate(one.loss for one in subjects[0].gains):
        table = pa.concat_tables(tables.gains(subject, subject.gains[index]) for subject in subjects)
        yield Drawing(
            f"gains-{loss:g}",
            "gains",
            f"Median relative error by the sum of the cell, if the largest record loses {format_number(loss)}.",
            {"": table},
            figures.gains(
                table, units=units, note=f"The largest record loses {format_number(loss)} under every mechanism."
            ),
        )
    if skewed:
        shapes, quartiles = tables.distributions(skewed)
        yield Drawing(
            "distributions",
            "data",
            "Distributions of the records and of the sums of cells, on a logarithmic scale, with the quartiles.",
            {"": shapes, "-quartiles": quartiles},
            figures.distributions(shapes, quartiles, units=units),
        )
    for subject in cattle:
        table = tables.histogram(subject)
        yield Drawing(
            f"histogram-{subject.name.lower()}",
            "data",
            f"{subject.name}: records and sums of cells.",
            {"": table},
            figures.histogram(table, unit=subject.attribute.unit_words),
        )
    for label, some in (("", skewed), ("-cattle", cattle)):
        if some:
            table = tables.loss_cdfs(some, LIMITS)
            yield Drawing(
                f"loss-cdfs{label}",
                "losses",
                "Share of the records that lose at most x. A higher line means stronger protection. The two kinds of "
                "mechanisms have different scales.",
                {"": table},
                figures.loss_cdfs(table, limits=LIMITS),
            )
            table = tables.relative_errors(some)
            yield Drawing(
                f"relative-errors{label}",
                "errors",
                "Absolute relative error of the released sums by quintile of the cells. Boxes: 25th, 50th and 75th "
                "percentile; whiskers: 5th and 95th.",
                {"": table},
                figures.relative_errors(table),
            )
    chosen = [s for s in subjects if s.name in ("EMP", "Cattle") or s.attribute.source == "given"]
    table = tables.stds(chosen)
    yield Drawing(
        "stds",
        "errors",
        "Standard deviation by the true sum. All mechanisms agree where the sum is the median record.",
        {"": table},
        figures.stds(table, units=units),
    )
    subject = next((s for s in subjects if s.name == "PAYQTR1"), subjects[0])
    table = tables.policies(subject)
    yield Drawing(
        "policies",
        "mechanisms",
        f"The policy functions of the mechanisms for {subject.name}, over a large domain.",
        {"": table},
        figures.policies(table, unit=subject.attribute.unit_words),
    )


def _from_formulas() -> Iterator[Drawing]:
    densities, stds, variances, neighbours = (
        tables.densities(),
        tables.transformation_stds(),
        tables.variances(),
        tables.neighbour_policies(),
    )
    yield Drawing(
        "densities",
        "analysis",
        "Densities of two polylog distributions (a = 3, d = 4) and the normal distribution, with variance 1, and with "
        "a loss of 1 for an influence of 1.",
        {"": densities},
        figures.densities(densities),
    )
    yield Drawing(
        "transformation-stds",
        "analysis",
        "Standard deviation and relative standard deviation of transformation mechanisms, by the true sum. A record of "
        "100 loses 1 under each of them.",
        {"": stds},
        figures.transformation_stds(stds),
    )
    yield Drawing(
        "variances",
        "analysis",
        "Variances of Laplace noise of scale σ and of the square root with σ₂ = √(σ/2), whose policies agree far out.",
        {"": variances},
        figures.variances(variances),
    )
    yield Drawing(
        "neighbour-policies",
        "analysis",
        "Policies for the presence of a record, and for a change of its value by 10 %. The mechanisms are tuned so "
        "that the presence of a record of 100 has a loss of 1.",
        {"": neighbours},
        figures.neighbour_policies(neighbours),
    )
