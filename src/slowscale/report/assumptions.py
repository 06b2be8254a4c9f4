"""What the guarantee rests on, and where the release comes from."""

from importlib.metadata import version

from slowscale.facts import ABSENT
from slowscale.release import Release
from slowscale.report.page import Section, facts, joined, tag
from slowscale.report.words import listed, upper

LABELS_SHOWN = 12  # of a partition
TREATED = {
    "error": "Not allowed: they would have stopped the release.",
    "zero": "Counted as 0.",
    "kept": "Counted as they are.",
}
NOT_PROMISED = (
    "What is true of a whole group is what the table is for, and is not hidden. Other tables from the same records "
    "cost more on top of this one; a ledger tells what all of them cost together."
)


def assumptions_section(release: Release) -> Section:
    """State the assumptions."""
    known = release.facts
    keys = known.cells
    columns = known.columns.values()
    entries: list[tuple[str, object]] = [("Protected", f"{upper(known.protects)}.")]
    if keys is None:
        entries.append(("Groups", "None: the total of all records is published."))
    else:
        empty = "" if keys.from_data else ", also those that no record has"
        told = f"{keys.assumption} There are {keys.count:,}, and all are published{empty}."
        entries.append(("Groups", f"{told} Records outside them are left out."))
    entries.append(("Filter", tag("code", known.where) if known.where else "None: every record may count."))
    if known.derived:
        derived = joined((tag("code", f"{name} = {text}") for name, text in known.derived.items()), ", ")
        entries.append(("Derived columns", joined([derived, ". Row by row: no record changes what another adds."])))
    for term, key in (("Missing values", "nulls"), ("Negative values", "negatives")):
        entries += _treatment(release, term, key)
    if known.partition:
        labels = known.partition.labels
        shown = [str(label) for label in labels[:LABELS_SHOWN]]
        more = [f"{len(labels) - LABELS_SHOWN} more"] if len(labels) > LABELS_SHOWN else []
        part = f"{known.partition.by} is {listed([*shown, *more], 'or')}"
        told = f"This release is about the records whose {part}. Releases about others cost these records nothing."
        entries.append(("Part of the records", told))
    clipped = (
        "Results below 0 are published as 0, which biases them upwards."
        if any(column.nonnegative for column in columns)
        else "Results are published as they came out, also below 0."
    )
    entries.append(("Clipping", f"The method clips no record: each counts in full, however large. {clipped}"))
    entries.append(("Not promised", NOT_PROMISED))
    return Section("assumptions", "Assumptions", "Assumptions", [facts(entries)])


def _treatment(release: Release, term: str, key: str) -> list[tuple[str, object]]:
    """Return how missing or negative values were treated: once where it is the same for all columns."""
    found: dict[str, list[str]] = {}
    for name, column in release.facts.columns.items():
        if getattr(column, key) is not ABSENT:
            found.setdefault(getattr(column, key), []).append(name)
    if len(found) <= 1:
        return [(term, TREATED[how]) for how in found]
    return [(f"{term} of {listed(names)}", TREATED[how]) for how, names in found.items()]


def versions_section(release: Release) -> Section:
    """Say what the release is called, when it was drawn, and by which versions."""
    from slowscale import __version__

    known = release.facts
    made = f"slowscale {__version__}, Altair {version('altair')}, vl-convert {version('vl-convert-python')}"
    entries = {
        "Release": tag("code", known.id),
        "Drawn on": tag("time", known.created, datetime=known.created),
        "Drawn by": f"slowscale {known.slowscale} (format {known.format})",
        "Noise": "from secret bits" if known.private else "from test bits: NOT PRIVATE",
        "Report made by": made,
        "Method": "B. Finley et al., Slowly Scaling Per-Record Differential Privacy, 2024",
    }
    return Section("versions", "About this release", "About this release", [facts(entries)])
