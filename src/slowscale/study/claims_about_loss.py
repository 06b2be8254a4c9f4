"""Claims about what records lose: Section 6.2 (mechanisms) and Section 6.4.1 (empirical CDFs of the loss)."""

import numpy as np

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.study.attributes import NAMES, parameter_table
from slowscale.study.claims import (
    COUNTERPARTS,
    GAUSS,
    LOG,
    POLYLOG,
    POWER,
    ROOT,
    Finding,
    Subjects,
    claim,
    each,
    is_given,
    judged,
    percent,
)
from slowscale.study.experiments import CLIPPED, Subject, last_ahead

SECTION_MECHANISMS, SECTION_LOSSES = "6.2 Mechanisms", "6.4.1 Loss CDFs"


def lower_share(subject: Subject, one: str, two: str) -> float:
    """Return the share of the records that lose less under the first mechanism than under the second."""
    values = subject.attribute.values
    return float(np.mean(subject.mechanisms[one].policy(values) < subject.mechanisms[two].policy(values)))


@claim(SECTION_MECHANISMS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """A standard deviation of √½ times the median record gives Gaussian noise a loss of 1 for the median record, and at
    least half of the records lose no more than that.
    """
    shares = {s.name: s.losses[GAUSS].share_at(1 + 1e-9) for s in subjects}
    ones = [abs(s.mechanisms[GAUSS].policy(s.attribute.median) - 1) < 1e-9 for s in subjects]
    return Finding(
        judged([*ones, *(share >= 0.5 for share in shares.values())]),
        "Share of the records that lose at most 1: " + each(subjects, lambda s: percent(shares[s.name])),
    )


@claim(SECTION_MECHANISMS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The slowly scaling additive mechanisms have the standard deviation of the Gaussian mechanism; the transformation
    mechanisms have it when the sum equals the median record.
    """
    worst = max(abs(m.std(s.attribute.median) / s.std - 1) for s in subjects for m in s.mechanisms.values())
    return Finding(judged([worst < 1e-9]), f"Largest relative difference of all standard deviations: {worst:.1e}.")


@claim(f"{SECTION_MECHANISMS}, Table experiment-params", "both", printed=True, certain=True)
def _(subjects: Subjects) -> Finding:
    """The printed parameters follow from this rule and the medians."""
    rows = [row for s in subjects for row in parameter_table(s.attribute, s.mechanisms)]
    wrong = [row for row in rows if not row.agrees]
    words = "; ".join(
        f"{row.attribute}, {row.mechanism}: {row.name} = {row.found:.4g}, printed {row.printed:g}, which gives "
        f"{row.printed_std / row.target_std:.2f} times the standard deviation"
        for row in wrong
    )
    verdict = judged(row.agrees for row in rows)
    return Finding(verdict, f"{len(rows) - len(wrong)} of {len(rows)} agree to the printed digits. E02: {words}.")


@claim(SECTION_LOSSES, "CBP", certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: generalized Gaussian and polylog noise have higher loss CDFs than Gaussian noise for all losses, except for
    small ones near 0.
    """
    ends = [last_ahead(s.losses[GAUSS], s.losses[name]) for s in subjects for name in (POWER, POLYLOG)]
    beyond = [s.losses[name].largest < s.losses[GAUSS].largest for s in subjects for name in (POWER, POLYLOG)]
    small = [end <= 1 for end in ends]
    return Finding(
        "holds" if all(small) and all(beyond) else "holds in part" if all(beyond) else "does not hold",
        "Gaussian noise has the higher CDF up to a loss of (generalized Gaussian, polylog): "
        + each(
            subjects,
            lambda s: ", ".join(
                format_number(last_ahead(s.losses[GAUSS], s.losses[name])) for name in (POWER, POLYLOG)
            ),
        )
        + ". So many records lose less than that under Gaussian noise: "
        + each(subjects, lambda s: percent(s.losses[GAUSS].share_at(last_ahead(s.losses[GAUSS], s.losses[POLYLOG]))))
        + ". With the printed polylog parameters, which have more noise, the losses are lower (E02, E26)."
        * (not is_given(subjects)),
    )


@claim(SECTION_LOSSES, "CBP", certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: the CDF of the polylog mechanism reaches 1 first, so its largest loss is the smallest of all mechanisms."""
    smallest = [min(s.losses, key=lambda name: s.losses[name].largest) == POLYLOG for s in subjects]
    return Finding(judged(smallest), "Largest losses: " + each(subjects, _largest_losses))


def _largest_losses(subject: Subject) -> str:
    return "(" + ", ".join(f"{name} {format_number(subject.losses[name].largest)}" for name in NAMES) + ")"


@claim(SECTION_LOSSES, "CBP", certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: the transformation mechanisms show the same pattern, with larger losses than their additive counterparts:
    fourth root against generalized Gaussian, log against polylog.
    """
    shares = {(s.name, one): 1 - lower_share(s, one, two) for s in subjects for one, two in COUNTERPARTS}
    return Finding(
        judged(share > 0.5 for share in shares.values()),
        "Share of the records that lose at least as much (fourth root, log): "
        + each(subjects, lambda s: ", ".join(percent(shares[s.name, one]) for one, _ in COUNTERPARTS))
        + ". Records of size 0 lose nothing under any of them.",
    )


@claim(SECTION_LOSSES, "CBP", printed=True, certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: the identity has the highest CDF up to a loss of about 50 for PAYANN and 30 for PAYQTR1; beyond, the slowly
    scaling transformations have higher ones.
    """
    printed = {"PAYANN": 50, "PAYQTR1": 30}
    ends = {(s.name, name): last_ahead(s.losses[GAUSS], s.losses[name]) for s in subjects for name in (ROOT, LOG)}
    near = [abs(ends[name, slow] / about - 1) < 0.15 for name, about in printed.items() for slow in (ROOT, LOG)]
    beyond = [s.losses[slow].largest < s.losses[GAUSS].largest for s in subjects for slow in (ROOT, LOG)]
    return Finding(
        judged([*near, *beyond]),
        "The identity is ahead up to a loss of (fourth root, log): "
        + each(subjects, lambda s: ", ".join(format_number(ends[s.name, name]) for name in (ROOT, LOG)))
        + ". E26: on PAYQTR1 the fourth root has the higher CDF only from that loss on, not from 30 on",
    )


@claim(SECTION_LOSSES, "cattle", printed=True, certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: Gaussian noise has the highest CDF of the additive mechanisms up to a loss of about 6, where generalized
    Gaussian noise overtakes it, and later the polylog.
    """
    [subject] = subjects
    ends = [last_ahead(subject.losses[GAUSS], subject.losses[name]) for name in (POWER, POLYLOG)]
    return Finding(
        judged([abs(ends[0] / 6 - 1) < 0.15, ends[0] < ends[1]]),
        f"Overtaken by generalized Gaussian noise at {format_number(ends[0])}, by the polylog at "
        f"{format_number(ends[1])}.",
    )


@claim(SECTION_LOSSES, "cattle", certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the additive mechanisms follow the same trend as on CBP: the slower a policy grows, the later it
    overtakes Gaussian noise, and the smaller its largest loss.
    """
    ordered = [
        s.losses[POLYLOG].largest < s.losses[POWER].largest < s.losses[GAUSS].largest
        and last_ahead(s.losses[GAUSS], s.losses[POWER]) < last_ahead(s.losses[GAUSS], s.losses[POLYLOG])
        for s in subjects
    ]
    return Finding(judged(ordered), "Largest losses: " + each(subjects, _largest_losses))


@claim(SECTION_LOSSES, "cattle", printed=True, certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the identity has the highest CDF of the transformations up to a loss of about 50, where the fourth root
    overtakes it.
    """
    [subject] = subjects
    ends = [last_ahead(subject.losses[GAUSS], subject.losses[name]) for name in (ROOT, LOG)]
    return Finding(
        judged([abs(ends[0] / 50 - 1) < 0.15 and ends[0] < ends[1]]),
        f"Overtaken by the fourth root at {format_number(ends[0])}, by the log at {format_number(ends[1])}.",
    )


@claim(SECTION_LOSSES, "cattle", certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the largest losses of the fourth root and the log are smaller than that of the identity."""
    smaller = [s.losses[name].largest < s.losses[GAUSS].largest for s in subjects for name in (ROOT, LOG)]
    return Finding(judged(smaller), "Largest losses: " + each(subjects, _largest_losses))


@claim(SECTION_LOSSES, "both", printed=True, certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle, unlike CBP: generalized Gaussian noise and the fourth root have higher CDFs than polylog and log over a
    wide range of losses.
    """
    shares = {(s.name, one): lower_share(s, one, two) for s in subjects for one, two in ((POWER, POLYLOG), (ROOT, LOG))}
    cattle = [share > 0.5 for (name, _), share in shares.items() if name == "Cattle"]
    others = [share < 0.5 for (name, _), share in shares.items() if name != "Cattle"]
    return Finding(
        judged([*cattle, *others]),
        "Share of the records that lose less under them (generalized Gaussian, fourth root): "
        + each(subjects, lambda s: ", ".join(percent(shares[s.name, one]) for one in (POWER, ROOT)))
        + ". Wide: more than half of the records.",
    )


@claim(SECTION_LOSSES, "cattle", certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: polylog and log catch up in the end, and then lead by a thin margin only."""
    caught, words = [], []
    for s in subjects:
        for slow, fast in ((POLYLOG, POWER), (LOG, ROOT)):
            x = np.union1d(s.losses[slow].losses, s.losses[fast].losses)
            lead = float(np.max(s.losses[slow].share(x) - s.losses[fast].share(x)))
            last = s.losses[slow].largest < s.losses[fast].largest
            caught.append(last and lead < 0.05)
            words.append(f"{s.name}: {slow} " + (f"leads by at most {percent(lead)}" if last else "never catches up"))
    known = "" if is_given(subjects) else ". E12 says so of the paper's cattle data, too"
    return Finding(judged(caught), "; ".join(words) + known)


@claim(SECTION_LOSSES, "cattle", certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the less slowly scaling mechanisms protect the vast majority of the records better."""
    shares = {(s.name, one): lower_share(s, one, two) for s in subjects for one, two in ((POWER, POLYLOG), (ROOT, LOG))}
    return Finding(
        judged(share > 0.9 for share in shares.values()),
        "Share of the records that lose less under generalized Gaussian noise than under the polylog, and under the "
        "fourth root than under the log: "
        + each(subjects, lambda s: ", ".join(percent(shares[s.name, one]) for one in (POWER, ROOT))),
    )


@claim(SECTION_MECHANISMS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The policies of the mechanisms grow like Δ² (Gaussian), √Δ (generalized Gaussian, fourth root) and ln(Δ)²
    (polylog, log).
    """
    far = 1e40  # of the median record
    right = []
    for s in subjects:
        one, two = s.attribute.median * far, s.attribute.median * far**2
        growth = {name: m.policy(two) / m.policy(one) for name, m in s.mechanisms.items()}
        logs = (np.log(two) / np.log(one)) ** 2
        expected = {GAUSS: far**2, POWER: far**0.5, ROOT: far**0.5, POLYLOG: logs, LOG: logs}
        right += [abs(growth[name] / expected[name] - 1) < 0.01 for name in NAMES]
    return Finding(judged(right), "Checked between 10⁴⁰ and 10⁸⁰ times the median record.")


@claim("6.1 Datasets", "cattle", printed=True, certain=True)
def _(subjects: Subjects) -> Finding:
    """The cattle data have 35,556 values in 43 groups; the table of statistics has N = 5,926."""
    [subject] = subjects
    count = len(subject.attribute.values)
    return Finding(
        "holds in part" if count == 5926 and 6 * count == 35_556 else "does not hold",
        f"The two numbers differ by a factor of exactly 6, perhaps rows times columns (E11). Simulated here: {count:,} "
        f"records in {len(subject.attribute.sums)} groups.",
    )


@claim("7 Conclusion", "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The loss CDFs of slowly scaling mechanisms mostly reach 1 earlier than that of Gaussian noise: their largest loss
    is smaller.
    """
    smaller = [s.losses[name].largest < s.losses[GAUSS].largest for s in subjects for name in NAMES[1:]]
    return Finding(judged(smaller), f"{sum(smaller)} of {len(smaller)} combinations of attribute and mechanism.")


@claim("7 Conclusion", "both")
def _(subjects: Subjects) -> Finding:
    """Publishing without clipping becomes tenable, which reduces or removes bias."""
    found = [
        (s.name, gain, one) for s in subjects for gain in s.gains for one in gain.contenders if one.name == CLIPPED
    ]
    words = "; ".join(
        f"{name}, loss {format_number(gain.loss)}: {percent(one.total_bias)}" for name, gain, one in found
    )
    return Finding(
        "holds" if found and all(one.total_bias < 0 for *_, one in found) else "not measured",
        f"Bias of the total if records are clipped with hindsight: {words or 'not computed'}. Without clipping it is "
        "0. Whether the errors are smaller, too, depends on the loss and the size of the cell: see the next section.",
    )


@claim("7 Conclusion")
def _(_: Subjects) -> Finding:
    """The policies of additive mechanisms may be loose, as they follow from their PRDP policies."""
    noise = ss.GeneralizedGaussian(sigma=1, p=1)
    true = 1 + np.exp(-1.0) - 1  # the supremum for Laplace noise and Δ = σ is the Kullback-Leibler divergence
    return Finding(
        "holds",
        f"Laplace noise, Δ = σ: the policy gives {format_number(noise.policy(1.0))}; the true supremum is "
        f"{format_number(true)}.",
    )
