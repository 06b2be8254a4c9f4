"""Claims about errors: Section 6.4.2 (absolute relative error) and Section 6.4.3 (standard deviations)."""

import numpy as np

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array
from slowscale.study.attributes import ADDITIVE
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
    judged,
    percent,
)
from slowscale.study.experiments import Subject

SECTION_ERRORS, SECTION_STDS = "6.4.2 Relative error", "6.4.3 Standard deviation"


def listed(numbers: Array) -> str:
    """Write relative errors, one for each quintile."""
    return "(" + ", ".join(percent(x) for x in numbers) + ")"


def fall(subject: Subject, name: str) -> float:
    """Return by what factor the median error falls from the first quintile to the last one."""
    first, *_, last = subject.percentile(name, 50)
    return float(first / last)


def medians_of(subjects: Subjects, name: str) -> str:
    """Return the medians of the relative error of a mechanism, by attribute and quintile."""
    return each(subjects, lambda s: listed(s.percentile(name, 50)))


def _errors_fall(subjects: Subjects) -> Finding:
    return Finding(
        judged(bool(np.all(np.diff(s.percentile(name, 50)) < 0)) for s in subjects for name in ADDITIVE),
        "Medians by quintile with the polylog: " + medians_of(subjects, POLYLOG),
    )


@claim(SECTION_ERRORS, "CBP", certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: with additive mechanisms the relative error falls clearly from quintile to quintile."""
    return _errors_fall(subjects)


@claim(SECTION_ERRORS, "CBP")
def _(subjects: Subjects) -> Finding:
    """CBP: all additive mechanisms have comparable errors, with the same pattern over the quintiles."""
    ratios = [
        float(np.max(np.maximum(a / b, b / a)))
        for s in subjects
        for a, b in [(s.percentile(GAUSS, 50), s.percentile(name, 50)) for name in ADDITIVE[1:]]
    ]
    return Finding(
        "holds" if max(ratios) < 3 else "holds in part" if max(ratios) < 10 else "does not hold",
        f"The medians of Gaussian noise and of another mechanism differ by a factor of up to {max(ratios):.2g} in a "
        "quintile: with the same standard deviation, heavier tails mean smaller typical errors.",
    )


@claim(SECTION_ERRORS, "CBP", certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: generalized Gaussian and polylog noise mostly have a lower median error than Gaussian noise, with a wider
    spread.
    """
    lower = [
        s.percentile(name, 50)[i] < s.percentile(GAUSS, 50)[i]
        for s in subjects
        for name in (POWER, POLYLOG)
        for i in range(5)
    ]
    wider = [_spread(s, name) > _spread(s, GAUSS) for s in subjects for name in (POWER, POLYLOG)]
    return Finding(
        judged([np.mean(lower) > 0.8, all(wider)]),
        f"Lower median in {sum(lower)} of {len(lower)} boxes. Ratio of the 95th to the 50th percentile in the middle "
        "quintile (Gaussian, generalized Gaussian, polylog): "
        + each(subjects, lambda s: ", ".join(f"{_spread(s, name):.3g}" for name in ADDITIVE)),
    )


def _spread(subject: Subject, name: str) -> float:
    return float(subject.percentile(name, 95)[2] / subject.percentile(name, 50)[2])


@claim(SECTION_ERRORS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The identity transformation is the Gaussian mechanism, so their errors agree."""
    same = [
        ss.Root(k=1, sigma=s.std).std(q) == s.std
        for s in subjects
        for q in (0.0, s.attribute.median, float(s.attribute.sums[-1]))
    ]
    return Finding(judged(same), "The standard deviations of both are equal at every sum that was tried.")


@claim(SECTION_ERRORS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The variance of the slowly scaling transformations grows with the sum, which cancels part of the fall of the
    relative error.
    """
    slower = [fall(s, name) < fall(s, GAUSS) for s in subjects for name in (ROOT, LOG)]
    return Finding(
        judged(slower),
        "From the first to the last quintile the median error falls by a factor of (identity, fourth root, log): "
        + each(subjects, lambda s: ", ".join(f"{fall(s, name):.3g}" for name in (GAUSS, ROOT, LOG))),
    )


@claim(SECTION_ERRORS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The standard deviation of the log mechanism is in the end proportional to the sum, so that its relative error has
    a positive limit.
    """
    sigmas = {s.name: float(s.mechanisms[LOG].to_dict()["sigma"]) for s in subjects}
    limits = {name: float(np.sqrt(np.expm1(sigma**2))) for name, sigma in sigmas.items()}
    reached = [abs(s.mechanisms[LOG].std(1e12) / 1e12 / limits[s.name] - 1) < 1e-6 for s in subjects]
    return Finding(judged(reached), "Limits of std/sum: " + each(subjects, lambda s: percent(limits[s.name])))


@claim(SECTION_ERRORS, "CBP", certain=True)
def _(subjects: Subjects) -> Finding:
    """CBP: the 25th percentile of the log's relative error is never below 10 %."""
    smallest = {s.name: float(s.percentile(LOG, 25).min()) for s in subjects}
    return Finding(
        judged(one >= 0.1 for one in smallest.values()),
        "Smallest 25th percentile: " + each(subjects, lambda s: percent(smallest[s.name])),
    )


@claim(SECTION_ERRORS, "CBP")
def _(subjects: Subjects) -> Finding:
    """CBP: this would probably rule out the log mechanism."""
    return Finding("not measured", "A judgement. Its median errors by quintile are " + medians_of(subjects, LOG))


@claim(SECTION_ERRORS, "CBP")
def _(subjects: Subjects) -> Finding:
    """CBP: the fourth root does little better: only in the largest quintile is its 75th percentile below 10 %."""
    thirds = {s.name: s.percentile(ROOT, 75) for s in subjects}
    return Finding(
        judged(bool(np.all(one[:4] >= 0.1)) and one[4] < 0.1 for one in thirds.values()),
        "75th percentiles by quintile: " + each(subjects, lambda s: listed(thirds[s.name])),
    )


@claim(SECTION_ERRORS, "cattle")
def _(subjects: Subjects) -> Finding:
    """Cattle: with additive mechanisms the relative error falls from quintile to quintile."""
    return _errors_fall(subjects)


@claim(SECTION_ERRORS, "cattle", certain=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the polylog mostly has the smallest error, closely followed by generalized Gaussian noise and then
    Gaussian noise.
    """
    ordered = [
        s.percentile(POLYLOG, 50)[i] < s.percentile(POWER, 50)[i] < s.percentile(GAUSS, 50)[i]
        for s in subjects
        for i in range(5)
    ]
    ratios = {s.name: float(np.median(s.percentile(POWER, 50) / s.percentile(POLYLOG, 50))) for s in subjects}
    return Finding(
        judged([np.mean(ordered) > 0.8, all(1 <= ratio < 2 for ratio in ratios.values())]),
        f"In this order in {sum(ordered)} of {len(ordered)} quintiles. The median error of generalized Gaussian noise, "
        "divided by that of the polylog: " + each(subjects, lambda s: f"{ratios[s.name]:.2g}"),
    )


@claim(SECTION_ERRORS, "cattle")
def _(subjects: Subjects) -> Finding:
    """Cattle: in each quintile almost the whole box of an additive mechanism is below 10 %."""
    below = [float(np.mean(s.percentile(name, 95) < 0.1)) for s in subjects for name in ADDITIVE]
    return Finding(
        "holds" if min(below) == 1 else "holds in part" if np.mean(below) >= 0.5 else "does not hold",
        "Largest 95th percentile of all quintiles (Gaussian, generalized Gaussian, polylog): "
        + each(subjects, lambda s: ", ".join(percent(float(s.percentile(name, 95).max())) for name in ADDITIVE)),
    )


def _by_source(subjects: Subjects) -> tuple[list[Subject], list[Subject]]:
    """Return the subjects of the cattle data and of the CBP data."""
    cattle = [s for s in subjects if s.attribute.source == "cattle"]
    return cattle, [s for s in subjects if s.attribute.source == "CBP"]


@claim(SECTION_ERRORS, "both", printed=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: errors of additive mechanisms are generally lower than on CBP."""
    cattle, business = _by_source(subjects)
    lower = [
        bool(one.percentile(name, 50)[i] < other.percentile(name, 50)[i])
        for one in cattle
        for other in business
        for name in ADDITIVE
        for i in range(5)
    ]
    share = float(np.mean(lower))
    return Finding(
        "holds" if share > 0.8 else "holds in part" if share > 0.5 else "does not hold",
        f"The median is lower in {sum(lower)} of {len(lower)} comparisons of quintiles: the simulated cells of CBP are "
        "large as well. Gaussian noise: " + medians_of(subjects, GAUSS),
    )


@claim(SECTION_ERRORS, "both", printed=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the reason is that its sums are larger, because it has fewer groups."""
    cattle, business = _by_source(subjects)
    ratios = {s.name: float(np.median(s.attribute.sums)) / s.std for s in subjects}
    return Finding(
        judged(ratios[one.name] > ratios[other.name] for one in cattle for other in business),
        "The median sum in standard deviations of the noise: "
        + each(subjects, lambda s: format_number(ratios[s.name])),
    )


@claim(SECTION_ERRORS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """Whether additive mechanisms are fit for use depends strongly on the sums."""
    return Finding(
        judged(fall(s, name) > 10 for s in subjects for name in ADDITIVE),
        "The median error of the first quintile, divided by that of the last (Gaussian, generalized Gaussian, "
        "polylog): " + each(subjects, lambda s: ", ".join(format_number(fall(s, name)) for name in ADDITIVE)),
    )


@claim(SECTION_ERRORS, "cattle")
def _(subjects: Subjects) -> Finding:
    """Cattle: in every quintile the medians of the fourth root and the log are above or near 10 %."""
    return Finding(
        judged(bool(np.all(s.percentile(name, 50) > 0.05)) for s in subjects for name in (ROOT, LOG)),
        "Fourth root: " + medians_of(subjects, ROOT) + ". Log: " + medians_of(subjects, LOG) + ". Near: above 5 %.",
    )


@claim(SECTION_ERRORS, "both", printed=True)
def _(subjects: Subjects) -> Finding:
    """Cattle: the fourth root improves less with the quintile than on CBP, because the sums lie closer together."""
    cattle, business = _by_source(subjects)

    def ratio(s: Subject) -> float:
        low, high = np.quantile(s.attribute.sums, [0.1, 0.9])
        return float(high / low)

    return Finding(
        judged(
            measure(one) < measure(other)
            for measure in (ratio, lambda s: fall(s, ROOT))
            for one in cattle
            for other in business
        ),
        "The 90th percentile of the sums is so many times the 10th: "
        + each(subjects, lambda s: format_number(ratio(s)))
        + "; the median error falls from the first to the last quintile by a factor of "
        + each(subjects, lambda s: f"{fall(s, ROOT):.2g}"),
    )


@claim(SECTION_STDS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The larger losses of the transformations could be remedied by larger variances."""

    def remedied(s: Subject, slow: str, other: str) -> ss.Mechanism:
        mechanism, at = s.mechanisms[slow], s.attribute.median
        fixed = {name: x for name, x in mechanism.to_dict().items() if name not in ("type", "sigma")}
        return type(mechanism).calibrate(loss=s.mechanisms[other].policy(at), at=at, accounting="closed", **fixed)

    factors = {
        (s.name, slow): remedied(s, slow, other).std(s.attribute.median) / s.std
        for s in subjects
        for slow, other in COUNTERPARTS
    }
    return Finding(
        judged(factor > 1 for factor in factors.values()),
        "To give the median record the loss of the additive counterpart, the standard deviation at a sum of the median "
        "record must grow by a factor of (fourth root, log): "
        + each(subjects, lambda s: ", ".join(format_number(factors[s.name, slow]) for slow, _ in COUNTERPARTS)),
    )


@claim(SECTION_STDS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """The standard deviation of additive mechanisms and of the identity does not depend on the sum."""
    q = np.geomspace(1, 1e9, 50)
    constant = [bool(np.ptp(s.mechanisms[name].std(q)) == 0) for s in subjects for name in ADDITIVE]
    return Finding(judged(constant), "The same number at 50 sums from 1 to a billion.")


@claim(SECTION_STDS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """For sums below the median record the transformations have lower variances than additive mechanisms."""
    lower = [
        bool(np.all(np.asarray(s.mechanisms[name].std(x[x < s.attribute.median])) < s.std))
        for s in subjects
        for name in (ROOT, LOG)
        for x in [np.linspace(0, s.attribute.median, 200)]
    ]
    return Finding(judged(lower), "Checked at 199 sums between 0 and the median.")


@claim(SECTION_STDS, "both", printed=True)
def _(subjects: Subjects) -> Finding:
    """That is a large space for cattle (all sums below 10,200) and an invisibly small one for EMP (0 to 2)."""
    medians = {s.name: s.attribute.median for s in subjects}
    shares = {s.name: float(np.mean(s.attribute.sums < s.attribute.median)) for s in subjects}
    return Finding(
        judged([medians["Cattle"] == 10_200 and medians["EMP"] == 2, shares["Cattle"] > 0.05]),
        "The ranges are as stated. But so many cells have a sum below the median record: "
        + each(subjects, lambda s: percent(shares[s.name])),
    )


@claim(SECTION_STDS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """For large sums the transformations can be far worse than additive mechanisms."""

    def ratio(s: Subject, name: str) -> float:
        return float(s.mechanisms[name].std(float(s.attribute.sums[-1])) / s.std)

    return Finding(
        judged(ratio(s, name) > 10 for s in subjects for name in (ROOT, LOG)),
        "Standard deviation at the largest sum, divided by the constant one (fourth root, log): "
        + each(subjects, lambda s: ", ".join(format_number(ratio(s, name)) for name in (ROOT, LOG))),
    )


@claim(SECTION_STDS, "both")
def _(subjects: Subjects) -> Finding:
    """On very sparse data, with many sums of one record or none, the transformations could have the smaller errors."""

    def smaller(s: Subject, name: str) -> float:
        """The share of the records that, as single cells, would typically be less wrong than with the polylog."""
        records = np.quantile(s.attribute.values, np.arange(0.005, 1, 0.01))
        low, high = s.mechanisms[name].prediction_interval(records, 0.5)
        usual_low, usual_high = s.mechanisms[POLYLOG].prediction_interval(0.0, 0.5)
        return float(np.mean((high - low) / 2 < (usual_high - usual_low) / 2))

    shares = {(s.name, name): smaller(s, name) for s in subjects for name in (ROOT, LOG)}
    return Finding(
        judged(share > 0.25 for share in shares.values()),
        "If every record were a separate cell, so many would typically be less wrong than with the polylog (fourth "
        "root, log): "
        + each(subjects, lambda s: ", ".join(percent(shares[s.name, name]) for name in (ROOT, LOG)))
        + ". A cell without records has a standard deviation of (fourth root, log) "
        + each(subjects, lambda s: ", ".join(format_number(s.mechanisms[name].std(0.0)) for name in (ROOT, LOG)))
        + " instead of "
        + each(subjects, lambda s: format_number(s.std)),
    )
