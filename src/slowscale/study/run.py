"""Carries out a study: experiments, claims, figures, tables and the page, in one folder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from markupsafe import Markup

from slowscale.core.errors import ParameterError
from slowscale.core.files import write_files
from slowscale.core.locks import locked
from slowscale.core.numbers import format_number
from slowscale.publish.charts import tools
from slowscale.publish.report.pages import Row, render
from slowscale.study import figures, tables
from slowscale.study.attributes import (
    PRINTED_SUMMARIES,
    Attribute,
    mechanisms_with_printed_d,
    paper_attributes,
    parameter_table,
)
from slowscale.study.claims import Claim, Finding, Verdict, check_claims, is_given, percent
from slowscale.study.experiments import (
    AS_ACCURATE,
    CLIPPED_BY_SIZE,
    Gains,
    Store,
    Subject,
    carry_out,
    plan_experiments,
    progress,
)
from slowscale.study.printed_tables import SUMMARY, VALUE_SUMMARY

REPETITIONS, QUICK_REPETITIONS = 1000, 100
LOSSES = (1.0, 10.0, 50.0)  # of the largest record, where mechanisms are compared at the same loss
LEAST_LOSS, MOST_LOSS = 0.1, 10_000.0
# The figures of the paper: their numbers, in the order of its source, and their names there.
PAPER_FIGURES = {
    "densities": "Figure 1 (ep_pdfs)",
    "distributions": "Figure 2 (synth-violin)",
    "histogram-cattle": "Figure 3 (cattle-hist)",
    "loss-cdfs": "Figure 4 (ecdf-all)",
    "loss-cdfs-cattle": "Figure 5 (cattle-eCDF-additive)",
    "relative-errors": "Figure 6 (synth-are-additive)",
    "relative-errors-cattle": "Figure 7 (cattle-are-additive)",
    "stds": "Figure 8 (smallPL-plot)",
    "policies": "Figure 9 (pl-all-mechs)",
    "transformation-stds": "Figure 10 (se_rse)",
    "variances": "Figure 11 (variance_comparison_sqrt)",
    "neighbour-policies": "Figure 12 (pl_metricDP)",
}
LARGEST_SHOWN_ERROR = 1e4  # 1 million %: larger ones are not shown
PRINTED = "-printed-d"  # ends the names of figures with the d of the polylog that the paper prints


@dataclass(frozen=True)
class Study:
    """The results of a study, and its page."""

    subjects: list[Subject]
    claims: list[tuple[Claim, Finding]]
    page: Path
    printed: list[Subject]  # the paper's attributes with the printed d of the polylog


def run_study(
    folder: Path,
    attributes: Sequence[Attribute] | None = None,
    repetitions: int = REPETITIONS,
    losses: Sequence[float] = LOSSES,
    given: str | None = None,
    overwrite: bool = False,
) -> Study:
    """Carry out the experiments of the paper, and write the results to a folder.

    A study that was interrupted continues where it stopped, if it is started again with the same folder.

    Parameters
    ----------
    folder
        The folder for study.html and the folders `figures` (SVG, PNG) and `data` (CSV).
    attributes
        The columns to study; by default those of the paper, simulated.
    repetitions
        The number of releases of each table.
    losses
        The losses of the largest record at which mechanisms are compared, each from 0.1 to 10,000.
    given
        The name of the user's data. Only the owner may then read the files, because they are confidential.
    overwrite
        Whether to replace the results of an earlier study.
    """
    tools()
    for loss in losses:
        if not LEAST_LOSS <= loss <= MOST_LOSS:
            raise ParameterError("loss", allowed=f"from {LEAST_LOSS:g} to {MOST_LOSS:g}", given=loss, path=("loss",))
    output = _Output(folder, given is not None)
    output.check(overwrite)
    store = Store(output.unfinished)
    with output.locked():
        studied = list(attributes or paper_attributes())
        plans = [plan_experiments(one, repetitions, list(dict.fromkeys(losses))) for one in studied]
        others = [
            plan_experiments(one, repetitions, (), mechanisms_with_printed_d(one))
            for one in studied
            if one.source != "given"
        ]
        with progress(sum(plan.draws for plan in (*plans, *others))) as advance:
            subjects, printed = ([carry_out(plan, store, advance) for plan in some] for some in (plans, others))
        found = check_claims(subjects)
        changed = changed_findings(found, check_claims(printed)) if printed else []
        output.remove_earlier()
        for name, table in tables.listed(subjects, found).items():
            output.write_csv(name, table)
        drawn = []
        for one in drawings(subjects, printed):
            for suffix, table in one.data.items():
                output.write_csv(f"{one.name}{suffix}", table)
            svg = output.write_chart(one.name, one.chart).read_text(encoding="utf-8")
            drawn.append((one.section, one.name, one.caption, Markup(svg)))
        output.write_page(_page(subjects, found, changed, drawn, repetitions, given))
        store.remove()
    with suppress(OSError):  # it may hold files of others
        output.unfinished.rmdir()
    return Study(subjects, found, output.page, printed)


def changed_findings(
    found: Sequence[tuple[Claim, Finding]], printed: Sequence[tuple[Claim, Finding]]
) -> list[tuple[Claim, Finding, Finding]]:
    """Return the claims about the results of the experiments that the printed d changes, with both findings."""
    return [
        (claim, one, two)
        for (claim, one), (_, two) in zip(found, printed, strict=True)
        if claim.place.startswith("6.4") and one.measured != two.measured
    ]


@dataclass(frozen=True)
class Drawing:
    """A chart with its caption, the section of the page that shows it, and the tables that it is drawn from.

    `name` is that of its files; the keys of `data` are added to the name.
    """

    name: str
    section: str
    caption: str
    data: dict[str, pa.Table]
    chart: Any

    @staticmethod
    def of(
        name: str, section: str, caption: str, table: pa.Table, draw: Callable[..., Any], **options: Any
    ) -> "Drawing":
        """Return the drawing of one table. If it is a figure of the paper, it says which one."""
        note = {"note": paper_figure(name)} if paper_figure(name) else {}
        return Drawing(name, section, named_caption(name, caption), {"": table}, draw(table, **note, **options))


def paper_figure(name: str) -> str:
    """Return which figure of the paper a drawing is."""
    known = PAPER_FIGURES.get(name.removesuffix(PRINTED), "")
    parameters = ", with the printed d" if name.endswith(PRINTED) else ""
    return f"{known} of the paper{parameters}." if known else ""


def named_caption(name: str, caption: str) -> str:
    """Return a caption that starts with the figure of the paper."""
    return " ".join(filter(None, (paper_figure(name), caption)))


def drawings(subjects: Sequence[Subject], printed: Sequence[Subject] = ()) -> Iterator[Drawing]:
    """Yield all figures: those about the data, and, on the paper's data, those that follow from formulas.

    `printed` are the subjects with the d of the polylog that the paper prints.
    """
    units = {subject.name: subject.attribute.unit_words for subject in subjects}
    skewed = [subject for subject in subjects if subject.attribute.source != "cattle"]
    cattle = [subject for subject in subjects if subject.attribute.source == "cattle"]
    for index, loss in enumerate(one.loss for one in subjects[0].gains):
        table = pa.concat_tables(tables.gains(subject, subject.gains[index]) for subject in subjects)
        lines = table.filter(pc.not_equal(table["mechanism"], AS_ACCURATE))  # whose errors are those of another one
        text = f"Median relative error by the sum of the cell, if the largest record loses {format_number(loss)}."
        note = f"The largest record loses {format_number(loss)} under every mechanism."
        shown = lines.filter(pc.less(lines["median_error"], LARGEST_SHOWN_ERROR))
        note += " Errors above 1 million % are not shown." * (len(shown) < len(lines))
        chart = figures.gains(shown, units=units, note=note)
        yield Drawing(f"gains-{loss:g}", "gains", text, {"": table}, chart)
    if skewed:
        shapes, quartiles = tables.distributions(skewed)
        name, text = "distributions", "Records and sums of cells, on a logarithmic scale, with the quartiles."
        chart = figures.distributions(shapes, quartiles, units=units, note=paper_figure(name))
        yield Drawing(name, "data", named_caption(name, text), {"": shapes, "-quartiles": quartiles}, chart)
    for subject in cattle:
        name, text = f"histogram-{subject.name.lower()}", f"{subject.name}: records and sums of cells."
        options = {"unit": subject.attribute.unit_words}
        yield Drawing.of(name, "data", text, tables.histogram(subject), figures.histogram, **options)
    as_printed = [subject for subject in printed if subject.attribute.source != "cattle"]
    for label, some in (("", skewed), ("-cattle", cattle), (PRINTED, as_printed)):
        if some:
            text = (
                "Share of the records that lose at most x. A higher line means stronger protection. The two kinds of "
                "mechanisms have different scales."
            )
            limits = tables.cdf_limits(some)
            table = tables.loss_cdfs(some, limits)
            yield Drawing.of(f"loss-cdfs{label}", "losses", text, table, figures.loss_cdfs, limits=limits)
            text = (
                "Absolute relative error of the released sums by quintile of the cells. Boxes: 25th, 50th and 75th "
                "percentile; whiskers: 5th and 95th."
            )
            table = tables.relative_errors(some)
            yield Drawing.of(f"relative-errors{label}", "errors", text, table, figures.relative_errors)
    text = (
        "Share of the records that lose more than x. The same curves from the other end: here the crossings among few "
        "large records can be seen. Lines end at the largest loss."
    )
    yield Drawing.of("loss-tails", "losses", text, tables.loss_tails(subjects), figures.loss_tails)
    chosen = [s for s in subjects if s.name in ("EMP", "Cattle") or s.attribute.source == "given"]
    text = "Standard deviation by the true sum. All mechanisms agree where the sum is the median record."
    yield Drawing.of("stds", "errors", text, tables.stds(chosen), figures.stds, units=units)
    subject = next((s for s in subjects if s.name == "PAYQTR1"), subjects[0])
    text = f"The policy functions of the mechanisms for {subject.name}, over a large domain."
    unit = subject.attribute.unit_words
    yield Drawing.of("policies", "mechanisms", text, tables.policies(subject), figures.policies, unit=unit)
    subject = next((s for s in subjects if s.name == "PAYANN"), subjects[0])
    if subject.gains:
        found = subject.gains[-1]
        text = (
            f"{subject.name}: losses by the presence of a record, and between two values of it that differ by 10 %, if "
            f"the presence of the largest record loses {format_number(found.loss)}."
        )
        note = f"{subject.name}. The presence of the largest record loses {format_number(found.loss)}."
        table, options = tables.value_policies(subject, found), {"unit": subject.attribute.unit_words, "note": note}
        yield Drawing.of("value-policies", "values", text, table, figures.neighbour_policies, **options)
    if is_given(subjects):
        return
    text = (
        "Densities of two polylog distributions (a = 3, d = 4) and the normal distribution, with variance 1, and with "
        "a loss of 1 for an influence of 1."
    )
    yield Drawing.of("densities", "noise", text, tables.densities(), figures.densities)
    text = (
        "Standard deviation and relative standard deviation of transformation mechanisms, by the true sum. A record of "
        "100 loses 1 under each of them."
    )
    table = tables.transformation_stds()
    yield Drawing.of("transformation-stds", "analysis", text, table, figures.transformation_stds)
    text = (
        "Variances of Laplace noise of scale σ and of the square root with σ₂ = √(σ/2), whose policies agree far out."
    )
    yield Drawing.of("variances", "analysis", text, tables.variances(), figures.variances)
    text = (
        "Policies for the presence of a record, and for a change of its value by 10 %. The mechanisms are tuned so "
        "that the presence of a record of 100 has a loss of 1."
    )
    yield Drawing.of("neighbour-policies", "values", text, tables.neighbour_policies(), figures.neighbour_policies)


def _page(
    subjects: Sequence[Subject],
    found: Sequence[tuple[Claim, Finding]],
    changed: Sequence[tuple[Claim, Finding, Finding]],
    drawn: Sequence[tuple[str, str, str, Markup]],
    repetitions: int,
    given: str | None,
) -> str:
    """Return the page study.html. `given` names the user's data, if they were studied instead of simulated ones."""
    verdicts = [finding.verdict for _, finding in found]
    counts = {verdict: verdicts.count(verdict) for verdict in get_args(Verdict)}
    summaries: list[Row] = []
    parameters: list[Row] = []
    for subject in subjects:
        about = subject.attribute
        summaries.append([subject.name, *map(format_number, about.summary.values())])
        if subject.name in PRINTED_SUMMARIES and about.source != "given":
            summaries.append(["in the paper", *map(format_number, PRINTED_SUMMARIES[subject.name])])
        if about.left_out:
            summaries.append([f"{about.left_out:,} records without a value were left out"])
        table = {one.mechanism: one for one in parameter_table(about, subject.mechanisms)}
        for name, mechanism in subject.mechanisms.items():
            one = table.get(name)
            printed = "" if one is None else f"{one.name} = {one.printed:g}"
            ratio = "" if one is None or one.agrees else f"{one.printed_std / one.target_std:.2f}"
            parameters.append([subject.name, name, str(mechanism), printed, ratio])
    tails: dict[str, list[str]] = {}
    for row in tables.tail_weights().to_pylist():
        tails.setdefault(row["mechanism"], []).append(f"{row['found']:.3f} ({row['printed']:.3f})")
    return render(
        "study.html",
        title="The experiments of Slowly Scaling Per-Record Differential Privacy",
        given=given,
        subjects=subjects,
        repetitions=repetitions,
        figures=drawn,
        verdicts=", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count),
        own=is_given(subjects),
        claims=_by_section([[claim.place, claim.text, finding.measured, finding.verdict] for claim, finding in found]),
        number_of_claims=len(found),
        changed=[[claim.place, claim.text, two.measured, one.verdict, two.verdict] for claim, one, two in changed],
        formulas=[[one.name, one.function, one.variance, one.policy, f"{one.difference:.0e}"] for one in SUMMARY],
        value_formulas=[[one.name, one.function, one.added, one.multiplied, one.compared] for one in VALUE_SUMMARY],
        values=[_value_table(subject, gains) for subject in subjects for gains in subject.gains],
        gains=[_gain_table(subject, gains) for subject in subjects for gains in subject.gains],
        summary_heads=["Attribute", *subjects[0].attribute.summary],
        summaries=summaries,
        parameters=parameters,
        errors=[
            [subject.name, name, *map(percent, subject.percentile(name, 50))]
            for subject in subjects
            for name in subject.mechanisms
        ],
        tails=[[name, *texts] for name, texts in tails.items()],
    )


def _by_section(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return rows by the section of the paper, which starts their first cell."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        start = str(row[0])[0]
        found.setdefault(f"{'Section' if start.isdigit() else 'Appendix'} {start}", []).append(row)
    return list(found.items())


def _gain_table(subject: Subject, found: Gains) -> dict[str, object]:
    def errors(medians: Iterable[float]) -> list[str]:
        return [percent(one) if one < LARGEST_SHOWN_ERROR else "> 1 million %" for one in medians]

    rows: list[Row] = []
    for one in found.contenders:
        bias = "0" if one.total_bias == 0 else percent(one.total_bias) if isfinite(one.total_bias) else "∞"
        name = f"{one.name} ({one.note})" if one.note else one.name
        losses = format_number(one.median_loss), format_number(one.largest_loss)
        rows.append([name, *errors(found.medians[one.name]), bias, *losses])
    rows.append([CLIPPED_BY_SIZE, *errors(found.clipped_by_size), "not one release", "", ""])
    sizes = (f"{one.label} ({one.cells:,} cell{'s' * (one.cells > 1)})" for one in found.classes)
    return {
        "title": f"{subject.name}: median relative error by the sum of the cell.",
        "note": f"The largest record ({format_number(subject.attribute.largest)}) loses {format_number(found.loss)} "
        f"under every mechanism except the last one. {found.verdict}",
        "heads": ["Mechanism", *sizes, "Bias of the total", "Loss of the median record", "… the largest record"],
        "rows": rows,
    }


def _value_table(subject: Subject, found: Gains) -> dict[str, object]:
    losses: dict[str, list[str]] = {}
    sizes: dict[str, float] = {}
    for row in tables.value_losses(subject, found).to_pylist():
        sizes[row["record"]] = row["size"]
        losses.setdefault(row["mechanism"], []).append(
            f"{format_number(row['presence'])} / {format_number(row['band'])}"
        )
    return {
        "title": f"{subject.name}: losses by presence / between two values that differ by 10 %.",
        "note": f"The presence of the largest record loses {format_number(found.loss)} under every mechanism except "
        "the last one.",
        "heads": [
            "Mechanism",
            *(f"{record} ({format_number(size)})" for record, size in sizes.items()),
            "Records with a loss of at most 1",
        ],
        "rows": [[one.name, *losses[one.name], percent(one.share_at_most_one)] for one in found.contenders],
    }


class _Output:
    """The folder of a study. `files.txt` lists the written files, so that another study can replace them."""

    def __init__(self, folder: Path, confidential: bool) -> None:
        self.folder, self.confidential = folder, confidential
        self.page, self.list = folder / "study.html", folder / "files.txt"
        self.figures, self.data, self.unfinished = (folder / name for name in ("figures", "data", "unfinished"))
        self.written: list[str] = []

    def check(self, overwrite: bool) -> None:
        """Make the folders. Raise if that is not possible, or if a file of others might be replaced."""
        another, remedy = "choose another folder", "choose another folder, or pass `overwrite` to replace it"
        if self.page.exists() and not overwrite:
            raise ParameterError(self.page, "exists", code="exists", remedy=remedy)
        known = set(self._earlier())
        for folder in (self.figures, self.data) if not overwrite else ():
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if f"{folder.name}/{path.name}" not in known:
                    raise ParameterError(path, "is not from a study", code="foreign-file", remedy=remedy)
        for folder in (self.folder, self.figures, self.data, self.unfinished):
            if folder.exists() and not folder.is_dir():
                raise ParameterError(folder, "is a file", code="not-a-folder", remedy=another)
            try:
                folder.mkdir(0o700 if self.confidential else 0o777, parents=True, exist_ok=True)
            except OSError as error:
                words = f"cannot be made: {error.strerror}"
                raise ParameterError(folder, words, code="unwritable", remedy=another) from None

    def _earlier(self) -> list[str]:
        """Return the names of the files of an earlier study."""
        return self.list.read_text(encoding="utf-8").splitlines() if self.list.exists() else []

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other studies out of the folder while the block runs."""
        with locked(self.unfinished / "lock", remove=True) as taken:
            if not taken:
                words = "is in use by another study"
                raise ParameterError(self.folder, words, code="busy", remedy="choose another folder")
            yield

    def remove_earlier(self) -> None:
        """Remove the files of an earlier study."""
        for name in self._earlier():
            path = self.folder / name
            if path.resolve().is_relative_to(self.folder.resolve()):
                path.unlink(missing_ok=True)

    def write_page(self, text: str) -> None:
        """Write the page."""
        self._write(self.page.name, lambda place: place.write_text(text, encoding="utf-8"))

    def write_csv(self, name: str, table: pa.Table) -> None:
        """Write a table to the folder `data`."""
        self._write(f"data/{name}.csv", lambda place: pyarrow.csv.write_csv(table, place))

    def _write(self, name: str, content: Callable[[Path], object]) -> None:
        self._note(name)
        write_files({self.folder / name: content}, overwrite=True, confidential=self.confidential)

    def write_chart(self, name: str, chart: object) -> Path:
        """Write a chart to the folder `figures`, and return its SVG file."""
        self._note(f"figures/{name}.svg", f"figures/{name}.png")
        return figures.save(chart, self.figures / name, overwrite=True, confidential=self.confidential)[0]

    def _note(self, *names: str) -> None:
        """Add names to the list of files. It is written first, so that no file is forgotten."""
        self.written += names
        text = "\n".join([*self.written, ""])
        write_files({self.list: lambda place: place.write_text(text, encoding="utf-8")}, overwrite=True)
