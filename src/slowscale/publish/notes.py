"""Notes for readers: how to read the numbers, how the noise was added, and what the guarantee is."""

from collections.abc import Sequence

from slowscale.accounting import RecordPolicy
from slowscale.core.numbers import grid, percent
from slowscale.mechanisms.calibration import notion_in_words
from slowscale.publish.profiles import CV_WORDS, PublishedTable, flag_words
from slowscale.publish.publication import Publication
from slowscale.release.facts import Facts
from slowscale.release.table import ReleasedSums, released_by, rollup_in_words

NOT_PRIVATE_NOTE = "NOT PRIVATE: the noise was drawn from test bits that are not secret. Do not publish this table."
Notes = dict[str, list[str]]  # paragraphs, by heading


def publication_notes(publication: Publication, tables: Sequence[PublishedTable]) -> Notes:
    """Return the notes on published tables, by heading."""
    about = {"Source": publication.source, "Period": publication.period, "Contact": publication.contact}
    found: Notes = {name: [text] for name, text in about.items() if text is not None}
    if not all(table.release.whole.private for table in tables):
        found = {"Warning": [NOT_PRIVATE_NOTE], **found}
    if publication.notes:
        found["Notes"] = list(publication.notes)
    found["How to read the numbers"] = _reading(publication, tables)
    for table in tables:
        of = f" (table {table.name})" if len(tables) > 1 else ""
        found[f"How the noise was added{of}"] = _noise(publication, table.release)
        found[f"Privacy{of}"] = _privacy(table.release)
        found[f"Release{of}"] = _origin(table.release)
    return found


def _reading(publication: Publication, tables: Sequence[PublishedTable]) -> list[str]:
    columns = [column for table in tables for column in table.release.facts.columns.values()]
    ratios = [ratio for table in tables for ratio in table.release.facts.ratios.values()]
    found = {column.level for column in columns} | {ratio.level for ratio in ratios}
    levels = " or ".join(percent(level) for level in sorted(found))
    words = [
        "Every published number contains random noise, which protects the records. An estimate therefore differs from "
        "the true value, and sums of estimates differ from estimates of sums that were drawn separately.",
        f"The interval of an estimate contains the true value with a probability of {levels}: in that share of all "
        "numbers, over the noise. It describes the error by the noise only, and no other error of the data.",
    ]
    if any(ratio.approximate for ratio in ratios):
        words.append("The intervals of some ratios are approximate.")
    if tables[0].profile != "basic":
        return [*words, "A standard error is the standard deviation of the noise in an estimate, or an estimate of it."]
    return [
        *words,
        f"The coefficient of variation is {CV_WORDS[0].lower()}{CV_WORDS[1:]}",
        *_basic(publication, tables),
    ]


def _basic(publication: Publication, tables: Sequence[PublishedTable]) -> list[str]:
    """Return how the profile "basic" rounds and flags."""
    estimates = {column.of: column for table in tables for column in table.columns if column.role == "estimate"}
    rules = {publication.negative(name) for name in estimates}
    rule = "flag" if "flag" in rules else min(rules, default="keep")
    words = [f"The reliability flags are: {flag_words(publication, rule)}."]
    raised = [column.title for name, column in estimates.items() if publication.negative(name) == "zero"]
    if raised:
        words.append(
            f"The true values of {', '.join(raised)} are known not to be below 0. Estimates and ends of intervals "
            "below 0, which the noise causes, are shown as 0. Sums of such estimates are too high on average."
        )
    steps = {
        name: step
        for table in tables
        for name, column in estimates.items()
        if (step := publication.step(name, ratio=name in table.release.facts.ratios)) is not None
    }
    if steps:
        rounded = ", ".join(f"{estimates[name].title} to multiples of {grid(step)}" for name, step in steps.items())
        words.append(
            f"Rounded are: {rounded}. Estimates are rounded to the nearest multiple, and to the even one if two are "
            "equally near. Ends of intervals are rounded outwards."
        )
    return words


def _noise(publication: Publication, release: ReleasedSums) -> list[str]:
    words, rollup = [], release.facts.rollup
    if rollup:
        rules = [f"{publication.label(name).title}: {rule}" for name, rule in rollup.rules.items()]
        words += [rollup_in_words(rollup), "Noise was added to each cell, as said below, and not again to the sums."]
        words.append(f"The intervals of the sums come from: {'; '.join(rules)}.")
    for name, column in release.facts.columns.items():
        made_by = released_by(column)
        how = "" if made_by is None else f" {made_by.words}"
        clipped = " Results below 0 were raised to 0, which biases them upwards." if column.nonnegative else ""
        words.append(f"{publication.label(name).title} ({name}): {column.described}, unit {column.unit}.{how}{clipped}")
    for name, ratio in release.facts.ratios.items():
        parts = " / ".join(publication.label(part).title for part in (ratio.numerator, ratio.denominator))
        words.append(f"{publication.label(name).title} ({name}): {parts}, computed from the published numbers.")
    return words


def _privacy(release: ReleasedSums) -> list[str]:
    known, rollup = release.whole, release.facts.rollup
    notion = notion_in_words(known.notion, known.accounting)
    losses = [str(RecordPolicy((term,))) for term in release.policy.terms]
    once = [f"This is the loss by the cells, table {rollup.of}. The sums add nothing to it."] if rollup else []
    return [
        f"Protected: {known.protects}.",
        f"{'A record may lose' if known.protect is None else f'One {known.protect} may lose in each cell'} ({notion}), "
        f"added up: {'; '.join(losses)}. The loss depends on the size of the {known.protect or 'record'}, by this "
        "rule, which was fixed before the noise was drawn.",
        *once,
        *_of_whole(known),
        "What is published here is computed from the released numbers, so it adds nothing to the loss of any record.",
    ]


def _of_whole(facts: Facts) -> list[str]:
    """Return the loss by all tables of the release that a table belongs to: every reader has all of them."""
    if len(facts.tables) == 1:
        return []
    who = "a record" if facts.protect is None else f"one {facts.protect} in one cell of each"
    return [
        f"The table is one of {len(facts.tables)} that were published together. The losses by those that were drawn "
        f"({', '.join(facts.drawn)}) add up. By all of them together, {who} may lose: {facts.formula}."
    ]


def _origin(release: ReleasedSums) -> list[str]:
    known = release.whole
    words = [f"Identifier: {known.id}", f"Drawn on: {known.created}", f"Drawn by: slowscale {known.slowscale}"]
    return words + ([f"Data set: {known.dataset}"] if known.dataset else [])
