"""The guarantee: the policy of each column, what it means for an attacker, and what all releases cost together."""

import math

import numpy as np

from slowscale.accounting import RecordPolicy, Spent, epsilon, odds_factor, posterior
from slowscale.figures import figure, share
from slowscale.policy import Policy
from slowscale.release import Release
from slowscale.report.charts import Axis, LineChart, points
from slowscale.report.page import Section, caption, cell, head, paragraph, row, table, tag
from slowscale.report.words import growth, mathml

SIZES = (1, 10, 100, 1_000, 10_000, 1_000_000)
DELTA = 1e-6
PRIOR = 0.5
RARELY = 0.01
NOTION = (
    "PRzCDP: per-record zero-concentrated differential privacy. For every record, the table would come out much the "
    "same with it as without it. How much the same is told by the record's loss: at 0 nothing can be learned about it, "
    "and the larger the loss, the more. The loss is told by a policy, fixed before any noise was drawn, from the size "
    "of the record."
)


def guarantee_section(release: Release) -> Section:
    """State the guarantee, as formulas, in words and as a chart."""
    rules = []
    for name, policy in _policies(release).items():
        column = name if name in release.policy.columns else None
        text = str(RecordPolicy(((column, policy),)))
        if column is None:
            told = f"{growth(policy)} It is {figure(policy(0))}."
        else:
            told = f"{growth(policy)} It is {figure(policy(100))} at size 100, and {figure(policy(10_000))} at 10,000."
        formula = paragraph(mathml(policy, column), class_="formula", role="group", aria_label=f"The policy: {text}")
        rules.append(tag("div", tag("h3", name), formula, paragraph(told), class_="rule"))
    notes = [
        "The losses of a record's columns add up. A record is in one group only, so groups do not add."
        if release.facts["protect"] is None
        else f"The losses of the columns add up, and so do those of the groups that a {release.facts['protect']} is in."
    ]
    if release.pure_policy is not None and release.policy.columns:
        notes.append(
            "Here ε is a guarantee by itself, that of pure per-record differential privacy (PRDP): to an attacker the "
            "odds that the record is there shift by a factor of at most exp(ε)."
        )
    parts = [
        paragraph(f"The notion is {NOTION}" if release.facts["notion"] == "PRzCDP" else release.facts["notion"]),
        paragraph(tag("strong", "Protected is "), release.facts["protects"], "."),
        paragraph("The policy P of each column, as a formula and in words. The size is ", _size(release), ":"),
        *rules,
        *(paragraph(note) for note in notes),
        _policy_chart(release).figure(SIZES),
    ]
    return Section("guarantee", "The guarantee", "The guarantee", parts)


def _size(release: Release) -> str:
    if release.facts["protect"] is None:
        return "what the record adds to the sum, without its sign"
    return f"what one {release.facts['protect']} adds to the sum of a group, without its sign"


def _policies(release: Release) -> dict[str, Policy]:
    """Return the policy of each column; being counted costs every record the same."""
    named = release.policy.columns
    return {name: release.policy.column(name if name in named else None) for name in release.facts["columns"]}


def _policy_chart(release: Release) -> LineChart:
    sizes = np.union1d(np.logspace(0, 6, 121), SIZES)
    with np.errstate(over="ignore"):
        lines = {name: points(sizes, policy(sizes)) for name, policy in _policies(release).items()}
    return LineChart(
        "figure-policy",
        "Figure 1. What a record may lose, by its size.",
        "Both axes in powers of ten.",
        Axis("Size of the record"),
        Axis("PRzCDP loss"),
        lines,
    )


def attacker_section(release: Release) -> Section:
    """Say what can be learned about records of several sizes."""
    who = release.facts["protect"]
    top = row(head("Size of the record"), *(head(f"{size:,}", numeric=True) for size in SIZES))
    bodies = []
    for name, policy in _policies(release).items():
        counted = " (every record counts as 1)" if name not in release.policy.columns else ""
        losses = [float(policy(size)) for size in SIZES]
        measures = {
            "PRzCDP loss": [figure(loss) for loss in losses],
            "ε, with δ = 10⁻⁶": [_epsilon(loss) for loss in losses],
            "An attacker is at most so sure": [_sure(loss) for loss in losses],
        }
        heading = row(head(f"{name}{counted}", "rowgroup", colspan=str(len(SIZES) + 1)))
        rows = [row(head(what, "row"), *map(cell, texts)) for what, texts in measures.items()]
        bodies.append(tag("tbody", heading, *rows, class_="group"))
    parts = [
        paragraph(
            "Think of an attacker who knows everything but one record, and thinks it as likely as not (50 %) that this "
            "record is in the data. The last line of each column says how sure the attacker can become by this "
            "column, except one time in a hundred. 50 % means that nothing was learned."
        ),
        table(
            caption("Table 3.", "What can be learned about a record, by its size in a column."),
            [top],
            bodies,
            "What can be learned about a record, by its size in a column",
        ),
        paragraph(
            "The line with ε and δ puts the same loss in the terms of ordinary (ε, δ)-differential privacy. "
            f"The size is {_size(release)}. The losses of several columns add up before they are converted"
            + ("." if release.facts["protect"] is None else f", and so do those of all groups that a {who} is in."),
            class_="soft",
        ),
    ]
    return Section(
        "attacker", "What an attacker can learn", "What can an attacker learn about a record of size …?", parts
    )


def _epsilon(loss: float) -> str:
    return figure(epsilon(loss, DELTA) if math.isfinite(loss) else math.inf)


def _sure(loss: float) -> str:
    shift = odds_factor(loss, RARELY) if math.isfinite(loss) else math.inf
    return share(posterior(PRIOR, shift) if math.isfinite(shift) else 1.0)


def ledger_section(release: Release, spent: RecordPolicy | None) -> Section:
    """Say what all releases so far cost together, and which entry of the ledger this one is."""
    parts = []
    if spent is not None:
        many = f" ({spent.releases:,} so far)" if isinstance(spent, Spent) else ""
        parts.append(
            paragraph(
                f"This is what may have been lost by all releases{many} together, this one included. The losses of a "
                "record's columns add up."
            )
        )
        rows = [
            row(head(name, "row"), *(cell(figure(float(spent.column(name)(size)))) for size in SIZES))
            for name in spent.columns
        ]
        counts = float(spent.column(None)(0))
        if counts:
            rows.append(row(head("being counted", "row"), *(cell(figure(counts)) for _ in SIZES)))
        top = row(head("Size of the record"), *(head(f"{size:,}", numeric=True) for size in SIZES))
        title = caption("Table 4.", "PRzCDP loss by everything released so far.")
        parts.append(table(title, [top], [tag("tbody", *rows)], "PRzCDP loss by everything released so far"))
    entry = release.facts.get("ledger")
    if entry is not None:
        parts.append(
            paragraph(
                f"The release was charged to a ledger before any noise was drawn, as entry {entry['entry']}. "
                "The hash of that entry covers all the entries before it, so whoever keeps this page can tell later "
                "whether the ledger was changed: ",
                tag("code", entry["hash"]),
            )
        )
    return Section("ledger", "The ledger", "The ledger after this release", parts)
