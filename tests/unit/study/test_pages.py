"""docs/study.md and the errata say what `slowscale study` measures; it gives everybody the same numbers."""

import re
from collections import Counter

import pytest
from helpers.pages import BLOCK, one_line, path_of, unaccounted

from slowscale.core.numbers import format_number
from slowscale.study.attributes import mechanisms_with_printed_d
from slowscale.study.claims import CLAIMS, check_claims
from slowscale.study.claims_about_loss import last_ahead
from slowscale.study.experiments import (
    AS_ACCURATE,
    CLIPPED,
    LOG_LAPLACE,
    MATCHED,
    ROOT_LAPLACE,
    TIGHT_POLYLOG,
    carry_out,
    plan_experiments,
)
from slowscale.study.run import REPETITIONS

pytestmark = pytest.mark.xdist_group("study")

GAUSS, POWER, POLYLOG, FOURTH, LOG = (
    "Gaussian", "generalized Gaussian 1/2", "exponential polylog 2", "fourth root", "log"
)  # fmt: skip
TIGHT = TIGHT_POLYLOG
STUDY_ROWS = {
    "exponential polylog, scale matched": MATCHED,
    "exponential polylog, σ = 1": POLYLOG,
    "generalized Gaussian ½": POWER,
    "fourth root": FOURTH,
    "log": LOG,
    "fourth root, Laplace noise, a = 622": ROOT_LAPLACE,
    "log, Laplace noise, a = 2,430": LOG_LAPLACE,
    "Gaussian": GAUSS,
    "unit splitting": "unit splitting",
    "clipping at 32,878, then Gaussian": CLIPPED,
}
VALUE_ROWS = {
    "exponential polylog, scale matched, tight losses": TIGHT,
    "Gaussian, same accuracy": AS_ACCURATE,
    "generalized Gaussian ½": POWER,
    "fourth root, Laplace noise": ROOT_LAPLACE,
    "log, Laplace noise": LOG_LAPLACE,
    "fourth root": FOURTH,
    "log": LOG,
    "Gaussian": GAUSS,
    "clipping at 32,878, then Gaussian": CLIPPED,
}
# The claims in the tables of docs/study.md, and how they start in the study.
CLAIM_OF = {
    "errors of additive noise are lower on cattle than on CBP": "Cattle: errors of additive mechanisms",
    "because the sums of cattle are larger": "Cattle: the reason is that its sums",
    "log and polylog with d = 1/(2σ²) have asymptotically the same policy": "Log and polylog with d = 1/(2σ²) and the "
    "same a achieve",
    "the cattle data have 35,556 values": "The cattle data have",
    "the printed parameters follow from the stated rule": "The printed parameters",
    "on CBP, slowly scaling additive noise has the higher loss CDF except near 0": "CBP: generalized Gaussian and",
    "on CBP, the identity is ahead up to losses of 50 (PAYANN) and 30 (PAYQTR1)": "CBP: the identity has",
    "on cattle, the slowest policies catch up in the end": "Cattle: polylog and log catch up",
    "on CBP, all additive mechanisms have comparable errors": "CBP: all additive mechanisms",
    "on cattle, generalized Gaussian noise follows the polylog closely": "Cattle: the polylog mostly",
    "on cattle, the errors of additive noise are almost all below 10 %": "Cattle: in each quintile almost",
    "the region where transformations are better is large for cattle": "That is a large space",
    "on sparse data transformations could be better": "On very sparse data",
    "the two examples with standard deviations of 1,000": "Transformations with a standard deviation of 1,000",
    "additive noise is unbiased": "Additive mechanisms are unbiased",
    "a variance can be estimated by inserting the published value": "Users can estimate the variance",
    "the threshold of log against polylog": "Log and polylog with d = 1/(2σ²) and the same a: the log has",
    "the 95 % interval of generalized Gaussian noise with p = ½ is q ± 0.963·σ": "The 95 % interval of generalized",
    "a step of the proof of Theorem transform": "Step of the proof",
    "the estimator is a function on the range of f": "The estimator g is a function",
    "small records lose more under the log than under the fourth root, large ones less": "Compared with the fourth",
    "on cattle, unlike CBP, the less slow policies are ahead over a wide range": "Cattle, unlike CBP",
    "the median of a median-unbiased estimator is the sum": "With g = f⁻¹ − a above f(a)",
    "such an estimator has the least risk if it is 0 below f(a)": "Of these, g = 0 below f(a)",
    "the interval of a transformation contains the result with the stated probability": "The interval from the",
    "only the log has bounds that are linear in the sum": "Of all mechanisms of the paper only the log",
    "the quantile function of generalized Gaussian noise with p = ½": "The quantile function of this noise",
    "the odd moments of polylog noise are 0": "The odd moments are 0",
}


@pytest.fixture(scope="module")
def named(subjects):
    return {one.attribute.name: one for one in subjects}


@pytest.fixture(scope="module")
def printed(store, subjects):
    """The same with the d of the polylog that the paper prints."""
    attributes = [one.attribute for one in subjects]
    plans = [plan_experiments(one, REPETITIONS, (), mechanisms_with_printed_d(one)) for one in attributes]
    return [carry_out(plan, store, lambda draws: None) for plan in plans]


@pytest.fixture(scope="module")
def measured(found):
    """What was measured for each claim, by the claim's words."""
    return {claim.text: finding for claim, finding in found}


def percent(x):
    """Write a measured error: its first two digits are known, the third changes with the random numbers."""
    return f"{format_number(float(f'{100 * x:.2g}'))} %"


def row(words, errors, bias, loss=None):
    shown = "0" if bias == 0 else bias if isinstance(bias, str) else f"{format_number(100 * bias)} %"
    return f"| {words} | {' | '.join(map(percent, errors))} | {shown} | " + (
        "|" if loss is None else f"{format_number(loss)} |"
    )


def rows(gains, names, first):
    """Return the rows of a table of errors by size of cell, from a class of cells on."""
    start = [one.label for one in gains.classes].index(first)
    found = {one.name: one for one in gains.contenders}
    for words, name in names.items():
        yield row(words, gains.medians[name][start:], found[name].total_bias, found[name].median_loss)
    yield row("clipping, best threshold for each column", gains.clipped_by_size[start:], "not one release")


def test_no_verdict_on_the_experiments_changes_with_the_printed_d(printed, measured):
    found = {claim.text: finding for claim, finding in check_claims(printed) if claim.place.startswith("6.4")}
    assert {text: one.verdict for text, one in found.items()} == {text: measured[text].verdict for text in found}
    changed = [text for text, one in found.items() if one.measured != measured[text].measured]
    assert 5 < len(changed) < len(found)
    gaussian = next(one.measured for text, one in found.items() if text.startswith("CBP: generalized Gaussian and"))
    assert "EMP 4.74, 0;" in gaussian  # "Gaussian noise is never ahead"


def test_the_page_of_the_study(named, printed, measured):
    payroll, cattle = named["PAYANN"], named["Cattle"]
    verdicts = Counter(finding.verdict for finding in measured.values())
    one, ten, fifty = payroll.gains
    first = [one.label for one in ten.classes].index("1,000 to 10,000")
    errors = {name: list(map(percent, ten.medians[name][first:])) for name in (MATCHED, TIGHT, CLIPPED)}
    small = {name: list(map(percent, one.medians[name][first + 1 :])) for name in (TIGHT, GAUSS, CLIPPED)}
    assert one.medians[MATCHED].min() > 1e4  # "above a million %"
    one_clipped, ten_clipped, fifty_clipped = map(clipping, payroll.gains)
    losses = {one.name: one.median_loss for one in fifty.contenders}
    ratio = fifty.medians[POWER][first:] / fifty.medians[MATCHED][first:]
    assert ((ratio > 6.5) & (ratio < 7.5)).all()  # "a seventh"
    assert losses[MATCHED] == pytest.approx(losses[POWER], rel=0.1)  # "about as much"
    *_, herds = cattle.gains
    typical = [one.label for one in herds.classes].index("1 million to 10 million")
    computed = [
        f"Of {len(CLAIMS)} claims, {verdicts['holds']} hold, {verdicts['holds in part']} hold in part, "
        f"{verdicts['does not hold']} do not hold, and {verdicts['not measured']} are judgements",
        *rows(fifty, STUDY_ROWS, "100 to 1,000"),
        f"Here the largest establishment (payroll {payroll.attribute.largest:,.0f}) loses 50",
        f"the median record loses {format_number(losses[POLYLOG])}. "
        f"With the matched scale it loses {losses[MATCHED]:.2g}",
        f"under the paper's polylog ({payroll.losses[POLYLOG].largest:.0f})",
        f"({', '.join(errors[MATCHED][:-1])} and {errors[MATCHED][-1]} with the closed form)",
        f"The matched polylog is off by {', '.join(errors[TIGHT][:-1])} and {errors[TIGHT][-1]} in cells from",
        f"the matched polylog is off by {', '.join(small[TIGHT][:-1])} and {small[TIGHT][-1]} in cells from",
        f"plain Gaussian noise by {', '.join(small[GAUSS][:-1])} and {small[GAUSS][-1]}; clipping at "
        f"{threshold(one_clipped, 1)} by {', '.join(small[CLIPPED][:-1])} and {small[CLIPPED][-1]}, with a total that "
        f"is {-100 * one_clipped.total_bias:.1f} % too small",
        f"The polylog is off by {percent(herds.medians[TIGHT][typical])}",
        *value_rows(fifty),
        *(
            f"| {loss} | {ahead(gains)} of {len(gains.classes)} | {ahead(other)} of {len(other.classes)} |"
            for loss, gains, other in zip((1, 10, 50), payroll.gains, cattle.gains, strict=True)
        ),
        f"Under Laplace noise on the log its loss is {format_number(band(fifty, LOG_LAPLACE))}",
        f"the largest loss is {format_number(printed[0].losses[POLYLOG].largest)} instead of "
        f"{format_number(named['EMP'].losses[POLYLOG].largest)}",
        f"only at a loss of {last_ahead(named['EMP'].losses[POWER], named['EMP'].losses[POLYLOG]):.1f}",
        f"Clipping at {threshold(ten_clipped, 10)} is off by {', '.join(errors[CLIPPED][:-1])} and "
        f"{errors[CLIPPED][-1]}, with a total that is {-100 * ten_clipped.total_bias:.1f} % too small",
        f"clipping at {threshold(fifty_clipped, 50)}, then Gaussian",
        f"even Gaussian noise is off by only {100 * fifty.medians[GAUSS][-1]:.0f} %",
        f"the largest record is {cattle.attribute.largest / cattle.attribute.median:.0f} times the median",
        f"Gaussian noise at a loss of 50 is off by {100 * herds.medians[GAUSS][typical]:.0f} % in a typical state, and "
        f"clipping by {100 * herds.medians[CLIPPED][typical]:.0f} %",
        f"{len(payroll.attribute.values):,} | {len(payroll.attribute.sums):,} (county × NAICS3)",
        f"{len(cattle.attribute.values):,} | {len(cattle.attribute.sums):,} (states)",
    ]
    text = path_of("study.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        if re.match(r"\| (4|6|A|B|C|D|F)[ .]", line):
            check_measured(line, measured)
            computed.append(line)
    real = text.partition("## On real data")[2]  # facts about other data, with their source
    limits = ["about is within 15 %"]  # that verdicts use
    given = [part for part in re.split(r"\n\n|\n(?=- )", BLOCK.sub("", real)) if part.strip()]
    assert unaccounted("study.md", computed, limits + given) == []


def check_measured(line, measured):
    """Check that every number in the last column was measured for the claim, up to rounding."""
    claim, words = line.split(" | ")[1:3]
    start = CLAIM_OF[claim]
    found = " ".join(text + finding.measured for text, finding in measured.items() if text.startswith(start))
    assert found, start
    known = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?:\.\d+)?", found)]
    for number in re.findall(r"(?<![\wE])\d[\d,]*(?:\.\d+)?", re.sub(r"\(E.*?\)|p = 1|d ≤ 2|1/\(2d\)|10⁶", "", words)):
        places = len(number.partition(".")[2])
        assert any(round(one, places) == float(number.replace(",", "")) for one in known), (claim, number, found)


def band(gains, name):
    found = next(one for one in gains.contenders if one.name == name)
    return found.band_loss(found.attribute.largest)


def value_rows(gains):
    found = {one.name: one for one in gains.contenders}
    for words, name in VALUE_ROWS.items():
        one = found[name]
        losses = map(format_number, (one.largest_loss, band(gains, name)))
        share = f"{format_number(100 * one.share_at_most_one)} %"
        cells = (words, percent(gains.medians[name][-1]), format_number(one.median_loss), share, *losses)
        yield f"| {' | '.join(cells)} |"


def ahead(gains):
    """Return in how many size classes the matched polylog has the smallest error, from the verdict."""
    counted = re.search(r"pays in (\d+) of", gains.verdict)
    return int(counted[1]) if counted else 0 if "does not pay" in gains.verdict else len(gains.classes)


def clipping(gains):
    return next(one for one in gains.contenders if one.name == CLIPPED)


def threshold(contender, loss):
    """Return the threshold of clipping, at which its Gaussian noise has this loss."""
    return format_number(contender.mechanism.sigma * (2 * loss) ** 0.5)


def test_the_errata_that_the_study_judges(named):
    """E26: how far Gaussian noise is ahead, and from which loss on the fourth root is."""
    shares = []
    for name in ("EMP", "PAYQTR1", "PAYANN"):
        losses = named[name].losses
        shares.append(round(100 * losses[GAUSS].share_at(last_ahead(losses[GAUSS], losses[POLYLOG]))))
    losses = named["PAYQTR1"].losses
    text = one_line(path_of("paper.md").read_text(encoding="utf-8"))
    assert f"ahead for {min(shares)} to {max(shares)} % of the records" in text
    assert f"from a loss of {format_number(last_ahead(losses[GAUSS], losses[FOURTH]))} on" in text
