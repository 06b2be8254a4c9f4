"""Claims about the protection of values: Appendix E (bounded neighbours)."""

import numpy as np

import slowscale as ss
from slowscale.core.numbers import format_number
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.study.attributes import NAMES
from slowscale.study.claims import LOG, POLYLOG, Finding, Subjects, claim, each, judged, numbers
from slowscale.study.printed_tables import VALUE_SUMMARY
from slowscale.study.values import band_loss, pair_loss

TRIED_TRANSFORMATIONS = (
    ss.Root(k=2, sigma=1, a=1),
    ss.Root(k=4, sigma=0.5),
    ss.Root(k=3, sigma=1),
    ss.Log(sigma=1, a=3),
)
TRIED_NOISES: tuple[AdditiveMechanism, ...] = (
    ss.GeneralizedGaussian(sigma=2, p=0.5),
    ss.ExponentialPolylog(d=1, sigma=2, p=2),
)
PAIRS = [(r, other) for r in (0.0, 1.0, 60.0, 1e6) for other in (0.0, 0.7, 66.0, 1.1e6) if r != other]
CHANGES = (0.5, 20.0, 1e5)
RATIOS = (0.2, 0.9, 1.1, 5.0)
GLOBAL_SUMS = "E.1 Global sums"


@claim("E Lemma BndSensTransSum, Theorem transform-BndPRzCDPTight", certain=True)
def _(_: Subjects) -> Finding:
    """Between two values r and r′ of a record, a transformation loses (f(r + a) − f(r′ + a))²/(2σ²): most if there are
    no other records.
    """
    rest = np.concatenate([[0.0], np.geomspace(1e-3, 1e9, 200)])
    highest = [
        np.max((m.transform(rest + r) - m.transform(rest + other)) ** 2 / (2 * m.sigma**2)) / pair_loss(m, r, other)
        for m in TRIED_TRANSFORMATIONS
        for r, other in PAIRS
    ]
    return Finding(
        judged(abs(ratio - 1) < 1e-6 for ratio in highest),
        f"The largest loss over {len(rest)} sums of the other records, in {len(highest)} cases.",
    )


@claim("E Theorem BndPrivSymCnvxDens", certain=True)
def _(_: Subjects) -> Finding:
    """Between r and r′, additive noise with density exp(f(|z|)) has the pure loss f(0) − f(|r − r′|), and no less."""
    z = np.concatenate([[0.0], np.geomspace(1e-6, 1e7, 2000)])
    z = np.concatenate([-z[:0:-1], z])
    highest = [
        np.max(np.abs(m.noise.logpdf(z) - m.noise.logpdf(z + other - r))) / pair_loss(m, r, other, pure=True)
        for m in TRIED_NOISES
        for r, other in PAIRS
    ]
    return Finding(
        judged(abs(ratio - 1) < 1e-6 for ratio in highest),
        f"The largest log ratio of the densities over {len(z)} results, in {len(highest)} cases.",
    )


@claim("E Lemma PPDP-implies-PPzCDP", certain=True)
def _(_: Subjects) -> Finding:
    """A pure loss of P between r and r′ implies a PRzCDP loss of P·tanh(P/2)."""
    pairs = [
        (pair_loss(m, r, other, pure=True), m.tight_loss(abs(r - other)))
        for m in TRIED_NOISES
        for r, other in ((0.0, 0.7), (1.0, 66.0))
    ]
    shares = [tight / (pure * np.tanh(pure / 2)) for pure, tight in pairs]
    return Finding(
        judged(share <= 1 for share in shares),
        f"The tight PRzCDP losses are {numbers(shares)} of these bounds, in {len(pairs)} cases. E24: the paper writes "
        "P(r) instead of P(r, r′).",
    )


@claim(f"{GLOBAL_SUMS}, Corollary BndPrivTransMechGlobSum 1", certain=True)
def _(_: Subjects) -> Finding:
    """Between r and r + δ, a transformation loses at most (f(|δ| + a) − f(a))²/(2σ²), whatever r is; a power at most
    |δ|^(2k)/(2σ²).
    """
    kept = []
    for m in TRIED_TRANSFORMATIONS:
        for step in CHANGES:
            general = m.policy(step)
            power = step ** (2 / m.k) / (2 * m.sigma**2) if isinstance(m, ss.Root) else general
            losses = [pair_loss(m, r, r + step) for r in (0.0, 1.0, 60.0, 1e6)]
            losses += [pair_loss(m, r + step, r) for r in (0.0, 1.0, 60.0, 1e6)]
            kept.append(max(losses) <= general * (1 + 1e-9) and general <= power * (1 + 1e-9))
    return Finding(judged(kept), f"In {8 * len(kept)} cases with δ of both signs. It is exact for r = 0.")


@claim(f"{GLOBAL_SUMS}, Corollary BndPrivTransMechGlobSum 2", certain=True)
def _(_: Subjects) -> Finding:
    """Between r and δ·r, a power loses at most ((1 − δ^k)·r^k)²/(2σ²), and the log at most ln(δ)²/(2σ²)."""
    kept = []
    for m in TRIED_TRANSFORMATIONS:
        for r in (1.0, 60.0, 1e6):
            for times in RATIOS:
                if isinstance(m, ss.Root):
                    bound = ((1 - times ** (1 / m.k)) * r ** (1 / m.k)) ** 2 / (2 * m.sigma**2)
                else:
                    bound = np.log(times) ** 2 / (2 * m.sigma**2)
                kept.append(pair_loss(m, r, times * r) <= bound * (1 + 1e-9))
    alone = pair_loss(ss.Log(sigma=1, a=3), 60.0, 0.0)
    return Finding(
        judged(kept),
        f"In {len(kept)} cases. E24: r means r.c. For δ = 0 the bound of the log is infinite; the loss is finite, for "
        f"instance {format_number(alone)} for r = 60, a = 3, σ = 1.",
    )


@claim(f"{GLOBAL_SUMS}, Corollary BndPrivAddMechGlobSum", certain=True)
def _(_: Subjects) -> Finding:
    """Generalized Gaussian noise has the pure losses (|δ|/σ)^p and (|(1 − δ)·r|/σ)^p, the polylog
    d·(ln(|δ|/σ + a)^p − ln(a)^p) and the same with (1 − δ)·r.
    """
    rows = [row for row in VALUE_SUMMARY if row.pure]
    return Finding(
        judged(row.agrees for row in rows),
        f"Exactly, for {len(rows)} noises at {sum(len(one) for one in rows[0].ratios)} pairs each.",
    )


@claim(f"{GLOBAL_SUMS}, Table metric-mechSummaryNew", certain=True)
def _(_: Subjects) -> Finding:
    """The formulas for losses between two values; those with stars are upper bounds."""
    loose = [row for row in VALUE_SUMMARY if row.loose]
    return Finding(
        judged(row.agrees for row in VALUE_SUMMARY),
        f"{len(VALUE_SUMMARY) - len(loose)} rows are exact. Those with stars are, for δ·r, up to "
        + ", ".join(f"{format_number(max(row.ratios[1]))} ({row.name.rstrip('*')})" for row in loose)
        + " times the loss, at small r.",
    )


@claim(GLOBAL_SUMS, "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """Between r and r + δ every mechanism has a bound that does not depend on r, so each can promise any protection of
    a value up to an additive error.
    """
    kept = [
        pair_loss(m, r, r + step) <= m.policy(step) * (1 + 1e-9)
        for s in subjects
        for m in s.mechanisms.values()
        for step in (s.attribute.median, s.attribute.largest / 10)
        for r in (0.0, s.attribute.median, s.attribute.largest)
    ]
    return Finding(judged(kept), f"The loss is at most the policy of δ, in {len(kept)} cases.")


@claim(GLOBAL_SUMS, certain=True)
def _(_: Subjects) -> Finding:
    """Between r and δ·r only the log has a bound that does not depend on r; for the others the loss grows with r."""
    named = {
        "log": ss.Log(sigma=1),
        "Gaussian": ss.Gaussian(sigma=1),
        "square root": ss.Root(k=2, sigma=1),
        "fourth root": ss.Root(k=4, sigma=1),
        "generalized Gaussian": ss.GeneralizedGaussian(sigma=1, p=0.5),
        "polylog": ss.ExponentialPolylog(d=1, sigma=1),
    }
    growth = {name: float(np.divide(*band_loss(m, [1e12, 1e6]))) for name, m in named.items()}
    return Finding(
        judged([growth["log"] < 1.001, *(ratio > 1.5 for name, ratio in growth.items() if name != "log")]),
        "A 10 % change of a record of 10¹² loses so many times as much as one of 10⁶: "
        + "; ".join(f"{name} {format_number(ratio)}" for name, ratio in growth.items())
        + ". Laplace noise on the log, which the paper does not have, is bounded, too.",
    )


@claim(GLOBAL_SUMS, "both")
def _(subjects: Subjects) -> Finding:
    """The log may therefore be acceptable even where an additive mechanism offers the same protection of presence with
    less error.
    """
    losses = {
        (s.name, name): float(band_loss(s.mechanisms[name], s.attribute.largest))
        for s in subjects
        for name in (LOG, POLYLOG)
    }
    presence = {(s.name, name): s.losses[name].largest for s in subjects for name in (LOG, POLYLOG)}
    return Finding(
        "not measured",
        "A judgement. The largest record loses so much if its value changes by 10 %, and by its presence (log; "
        "polylog): "
        + each(
            subjects,
            lambda s: "; ".join(
                f"{format_number(losses[s.name, name])} and {format_number(presence[s.name, name])}"
                for name in (LOG, POLYLOG)
            ),
        ),
    )


@claim(GLOBAL_SUMS, certain=True)
def _(_: Subjects) -> Finding:
    """The losses between r and δ·r grow more slowly for roots of higher order and for smaller p, and at a
    polylogarithmic rate for the polylog.
    """

    def exponent(m: ss.Mechanism) -> float:
        return float(np.log10(np.divide(*band_loss(m, [1e30, 1e20]))) / 10)

    roots = [exponent(ss.Root(k=k, sigma=1)) for k in (1, 2, 4, 8)]
    powers = [exponent(ss.GeneralizedGaussian(sigma=1, p=p)) for p in (1, 0.5, 0.25)]
    polylog = exponent(ss.ExponentialPolylog(d=1, sigma=1))
    near = [*np.isclose(roots, [2, 1, 0.5, 0.25], rtol=0.01), *np.isclose(powers, [1, 0.5, 0.25], rtol=0.01)]
    return Finding(
        judged([*map(bool, near), polylog < 0.05]),
        f"They grow like r to the power of {numbers(roots)} for k = 1, 2, 4, 8, and {numbers(powers)} for p = 1, 0.5, "
        f"0.25; for the polylog the power is {format_number(polylog)} from 10²⁰ to 10³⁰.",
    )


@claim(f"{GLOBAL_SUMS}, Figure pl_metricDP", "both", certain=True)
def _(subjects: Subjects) -> Finding:
    """A change of a value by 10 % loses less than its presence, and grows slowly for slowly scaling mechanisms."""
    ratios = {
        (s.name, name): float(band_loss(s.mechanisms[name], s.attribute.largest)) / s.losses[name].largest
        for s in subjects
        for name in NAMES
    }
    return Finding(
        judged(ratio < 1 for ratio in ratios.values()),
        "Loss of the largest record by a 10 % change, divided by that of its presence (Gaussian, generalized Gaussian, "
        "polylog, fourth root, log): " + each(subjects, lambda s: numbers(ratios[s.name, name] for name in NAMES)),
    )
