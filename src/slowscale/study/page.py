"""The page study.html: what the paper says, what was measured here, and all tables and figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from slowscale.core.numbers import format_number
from slowscale.publish.report.pages import Row, render
from slowscale.study.attributes import PRINTED_SUMMARIES
from slowscale.study.claims import Claim, Finding
from slowscale.study.claims_about_loss import percent
from slowscale.study.gains import CLIPPED_BY_SIZE
from slowscale.study.parameters import parameter_table
from slowscale.study.results import Gains, Subject
from slowscale.study.tables import tail_weights

VERDICTS = ("holds", "holds in part", "does not hold", "not measured")


@dataclass(frozen=True)
class Figure:
    """A chart as SVG, with the section of the page that it belongs to."""

    name: str
    section: str
    caption: str
    svg: str


def study_page(
    subjects: Sequence[Subject],
    found: Sequence[tuple[Claim, Finding]],
    figures: Sequence[Figure],
    repetitions: int,
    given: str | None,
) -> str:
    """Return the page. `given` is the file of the user's own data, if they were studied instead of simulated ones."""
    counts = {verdict: sum(finding.verdict == verdict for _, finding in found) for verdict in VERDICTS}
    return render(
        "study.html",
        title="The experiments of Slowly Scaling Per-Record Differential Privacy",
        given=given,
        subjects=subjects,
        repetitions=repetitions,
        figures=[(one.section, one.name, one.caption, Markup(one.svg)) for one in figures],
        verdicts=", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count),
        own=any(subject.attribute.source == "given" for subject in subjects),
        claims=[[claim.place, claim.text, finding.measured, finding.verdict] for claim, finding in found],
        gains=[_gain_table(subject, gains) for subject in subjects for gains in subject.gains],
        summary_heads=["Attribute", *subjects[0].attribute.summary],
        summaries=_summaries(subjects),
        parameters=_parameters(subjects),
        errors=[
            [subject.name, name, *map(percent, subject.percentile(name, 50))]
            for subject in subjects
            for name in subject.mechanisms
        ],
        tails=_tails(),
    )


def _summaries(subjects: Sequence[Subject]) -> list[Row]:
    rows: list[Row] = []
    for subject in subjects:
        rows.append([subject.name, *map(format_number, subject.attribute.summary.values())])
        if subject.name in PRINTED_SUMMARIES and subject.attribute.source != "given":
            rows.append(["in the paper", *map(format_number, PRINTED_SUMMARIES[subject.name])])
        if subject.attribute.left_out:
            rows.append([f"{subject.attribute.left_out:,} records without a value were left out"])
    return rows


def _parameters(subjects: Sequence[Subject]) -> list[Row]:
    rows: list[Row] = []
    for subject in subjects:
        table = {one.mechanism: one for one in parameter_table(subject.attribute, subject.mechanisms)}
        for name, mechanism in subject.mechanisms.items():
            one = table.get(name)
            printed = "" if one is None else f"{one.name} = {one.printed:g}"
            ratio = "" if one is None or one.agrees else f"{one.printed_std / one.target_std:.2f}"
            rows.append([subject.name, name, str(mechanism), printed, ratio])
    return rows


def _gain_table(subject: Subject, found: Gains) -> dict[str, object]:
    rows: list[Row] = [
        [
            f"{one.name} ({one.note})" if one.note else one.name,
            *map(percent, found.medians[one.name]),
            percent(one.total_bias) if one.total_bias else "0",
            format_number(one.median_loss),
        ]
        for one in found.contenders
    ]
    rows.append([CLIPPED_BY_SIZE, *map(percent, found.clipped_by_size), "not one release", ""])
    sizes = (f"{one.words} ({one.cells:,} cell{'s' * (one.cells > 1)})" for one in found.classes)
    return {
        "title": f"{subject.name}: median relative error by the sum of the cell.",
        "note": f"The largest record ({format_number(subject.attribute.largest)}) loses {format_number(found.loss)} under every "
        "mechanism.",
        "heads": ["Mechanism", *sizes, "Bias of the total", "Loss of the median record"],
        "rows": rows,
    }


def _tails() -> list[Row]:
    rows: dict[str, list[str]] = {}
    for one in tail_weights().to_pylist():
        rows.setdefault(one["mechanism"], []).append(f"{one['found']:.3f} ({one['printed']:.3f})")
    return [[name, *texts] for name, texts in rows.items()]
