"""The page study.html: what the paper says, what was measured here, and all tables and figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slowscale.figures import figure
from slowscale.report.page import Html, Section, caption, cell, head, joined, page, paragraph, row, table, tag
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

    def drawn(section: str) -> list[Html]:
        return [
            tag("figure", Html(one.svg), tag("figcaption", one.caption), id=one.name)
            for one in figures
            if one.section == section
        ]

    sections = [
        Section("claims", "Claims", "What the paper says, and what was measured", _claims(found, subjects)),
        Section("gains", "What it buys", "The same loss for the largest record", [*_gains(subjects), *drawn("gains")]),
        Section("data", "Data", "The data", [_summaries(subjects), *drawn("data")]),
        Section("mechanisms", "Mechanisms", "The mechanisms", [*_parameters(subjects), *drawn("mechanisms")]),
        Section("losses", "Losses", "What records lose", drawn("losses")),
        Section("errors", "Errors", "How wrong the sums are", [_errors(subjects), *drawn("errors")]),
        Section("analysis", "Formulas", "Figures of the appendices", [_tails(), *drawn("analysis")]),
    ]
    if given is not None:
        sections = [one for one in sections if one.anchor != "analysis"]
    return page(
        "The experiments of Slowly Scaling Per-Record Differential Privacy",
        "slowscale study",
        _lead(subjects, repetitions, given),
        sections,
        "Every figure is also in the folder figures (SVG and PNG). The numbers of all figures and tables are in the "
        "folder data (CSV).",
        "CONFIDENTIAL: this page shows exact facts about the records of " + given if given else "",
    )


def _lead(subjects: Sequence[Subject], repetitions: int, given: str | None) -> list[Html]:
    names = ", ".join(subject.name for subject in subjects)
    data = (
        f"The experiments of the paper, carried out on the columns {names} of {given}."
        if given
        else "The experiments of the paper, carried out on simulated data. The paper's own data are not public: the "
        "simulated ones have the same number of records and cells and the same quartiles, mean and largest value, but "
        "not the same joint distributions, geography or cell sizes. Verdicts about errors by cell depend on those."
    )
    return [
        paragraph(data),
        paragraph(
            f"Errors come from {repetitions:,} releases of every table. The random numbers of this study are "
            "reproducible, so that everybody gets the same page; a real release never uses such numbers."
        ),
    ]


def _claims(found: Sequence[tuple[Claim, Finding]], subjects: Sequence[Subject]) -> list[Html]:
    counts = {verdict: sum(finding.verdict == verdict for _, finding in found) for verdict in VERDICTS}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    rows = [
        row(
            head(claim.place, "row"),
            cell(claim.text, numeric=False),
            cell(finding.measured, numeric=False),
            cell(tag("strong", finding.verdict), numeric=False),
        )
        for claim, finding in found
    ]
    heads = row(*map(head, ("Place in the paper", "Claim, in our words", "Measured here", "Verdict")))
    given = any(subject.attribute.source == "given" for subject in subjects)
    own = "The paper says this of its own data, CBP or cattle; the measurements are of yours. " if given else ""
    intro = paragraph(
        f"{len(found)} claims: {words}. {own}Numbers such as E02 refer to the list of errors in the paper, in "
        "docs/paper.md. Verdicts about errors depend on the cells; those of the paper's data are not public."
    )
    return [intro, table(caption("Table 1", "Claims of the paper"), [heads], [tag("tbody", *rows)], "Claims")]


def _summaries(subjects: Sequence[Subject]) -> Html:
    rows = []
    for subject in subjects:
        summary = subject.attribute.summary
        rows.append(row(head(subject.name, "row"), *(cell(figure(x)) for x in summary.values())))
        if subject.name in PRINTED_SUMMARIES and subject.attribute.source != "given":
            rows.append(row(head("in the paper", "row"), *(cell(figure(x)) for x in PRINTED_SUMMARIES[subject.name])))
        if subject.attribute.left_out:
            rows.append(row(head(f"{subject.attribute.left_out:,} records without a value were left out", "row")))
    names = next(iter(subjects)).attribute.summary
    heads = row(head("Attribute"), *(head(name, numeric=True) for name in names))
    return table(caption("Table 2", "Records"), [heads], [tag("tbody", *rows)], "Records")


def _parameters(subjects: Sequence[Subject]) -> list[Html]:
    rows = []
    for subject in subjects:
        printed = {one.mechanism: one for one in parameter_table(subject.attribute, subject.mechanisms)}
        for name, mechanism in subject.mechanisms.items():
            one = printed.get(name)
            rows.append(
                row(
                    head(subject.name, "row"),
                    cell(name, numeric=False),
                    cell(str(mechanism), numeric=False),
                    cell("" if one is None else f"{one.name} = {one.printed:g}", numeric=False),
                    cell("" if one is None or one.agrees else f"{one.printed_std / one.target_std:.2f}"),
                )
            )
    heads = row(
        head("Attribute"),
        head("Mechanism"),
        head("Calibrated here"),
        head("Printed"),
        head("Std with the printed one, relative", numeric=True),
    )
    intro = paragraph(
        "All mechanisms have a standard deviation of √½ times the median record; the transformation mechanisms have it "
        "when the sum equals the median record. The last column is filled where the printed parameter does not follow "
        "from this rule."
    )
    return [intro, table(caption("Table 3", "Parameters"), [heads], [tag("tbody", *rows)], "Parameters")]


def _errors(subjects: Sequence[Subject]) -> Html:
    rows = [
        row(
            head(subject.name, "row"), cell(name, numeric=False), *map(cell, map(percent, subject.percentile(name, 50)))
        )
        for subject in subjects
        for name in subject.mechanisms
    ]
    heads = row(head("Attribute"), head("Mechanism"), *(head(f"Quintile {i}", numeric=True) for i in range(1, 6)))
    left = ", ".join(f"{s.name} {s.without_error}" for s in subjects if s.without_error)
    note = f"Cells with the sum 0 have no relative error and are left out: {left}." if left else ""
    title = caption("Table 4", "Median absolute relative error by quintile of the cells", note)
    return table(title, [heads], [tag("tbody", *rows)], "Errors")


def _gains(subjects: Sequence[Subject]) -> Iterable[Html]:
    yield paragraph(
        "The paper compares mechanisms of equal error. Here the question is turned around: the largest record has the "
        "same loss under every mechanism; how wrong are the cells then? The last column shows what the median record "
        "loses: a mechanism can be precise because it protects small records less. Clipping reduces every larger "
        "record to a threshold and adds Gaussian noise. Its threshold was chosen with hindsight, so that its median "
        "error over all cells is as small as possible; no curator could do that without a look at the records. In the "
        "last row every size class even has a threshold of its own, which suits it best; no single release can do "
        "that. Clipping is biased: the sum of all cells is too small by the percentage given. All other mechanisms "
        "have no bias."
    )
    number = 0
    for subject in subjects:
        for found in subject.gains:
            number += 1
            yield _gain_table(subject, found, number)


def _gain_table(subject: Subject, found: Gains, number: int) -> Html:
    rows = [
        row(
            head(f"{one.name}" + (f" ({one.note})" if one.note else ""), "row"),
            *(cell(percent(x)) for x in found.medians[one.name]),
            cell(percent(one.total_bias) if one.total_bias else "0"),
            cell(figure(one.median_loss)),
        )
        for one in found.contenders
    ]
    best = map(cell, map(percent, found.clipped_by_size))
    rows.append(row(head(CLIPPED_BY_SIZE, "row"), *best, cell("not one release"), cell("")))
    sizes = (
        head(joined([one.words, tag("br"), f"({one.cells:,} cell{'s' * (one.cells > 1)})"]), numeric=True)
        for one in found.classes
    )
    ends = (head(text, numeric=True) for text in ("Bias of the total", "Loss of the median record"))
    heads = row(head("Mechanism"), *sizes, *ends)
    title = caption(
        f"Table 5.{number}",
        f"{subject.name}: median relative error by the sum of the cell",
        f"The largest record ({figure(subject.attribute.largest)}) loses {figure(found.loss)} under every mechanism.",
    )
    return table(title, [heads], [tag("tbody", *rows)], f"Errors of {subject.name}")


def _tails() -> Html:
    weights = tail_weights().to_pylist()
    by_name: dict[str, list[dict[str, float]]] = {}
    for one in weights:
        by_name.setdefault(one["mechanism"], []).append(one)
    rows = [
        row(head(name, "row"), *(cell(f"{one['found']:.3f} ({one['printed']:.3f})") for one in ones))
        for name, ones in by_name.items()
    ]
    heads = row(head("Mechanism"), *(head(f"P[|Z| > {i}]", numeric=True) for i in range(1, 5)))
    title = caption(
        "Table 6", "Tail weights of noise with a loss of 1 for an influence of 1", "In brackets: as printed."
    )
    return table(title, [heads], [tag("tbody", *rows)], "Tail weights")
