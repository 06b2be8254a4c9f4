"""The numbers behind each figure, as tables in long form."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import slowscale as ss
from slowscale.core.parameters import Array
from slowscale.mechanisms.additive import AdditiveMechanism
from slowscale.study.attributes import KINDS, parameter_table
from slowscale.study.chart_style import ALL_ADDITIVE
from slowscale.study.claims import Claim, Finding
from slowscale.study.experiments import (
    AS_ACCURATE,
    LOG_LAPLACE,
    MATCHED,
    PERCENTILES,
    ROOT_LAPLACE,
    Gains,
    Subject,
    last_ahead,
)
from slowscale.study.values import band_loss

POINTS = 241  # per line
CDF_LIMITS = {"additive": 20.0, "transformation": 100.0}  # the CDFs show at least losses up to here
CDF_MARGIN = 1.25  # and beyond the last crossing by this factor
THINNEST = 0.006  # of a violin, relative to its widest place, so that single large records can be seen


def _long(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> pa.Table:
    """Return rows of single values and arrays as a table; single values are repeated along the arrays."""
    blocks = []
    for row in rows:
        length = max((len(value) for value in row if isinstance(value, np.ndarray)), default=1)
        values = [value if isinstance(value, np.ndarray) else pa.array([value] * length) for value in row]
        blocks.append(pa.table(dict(zip(columns, values, strict=True))))
    return pa.concat_tables(blocks)


def density_mechanisms() -> dict[str, dict[str, AdditiveMechanism]]:
    """Return the mechanisms of Figure ep_pdfs: with variance 1, and with a loss of 1 for an influence of 1."""
    found: dict[str, dict[str, AdditiveMechanism]] = {}
    targets: dict[str, dict[str, Any]] = {
        "equal variance": {"std": 1},
        "equal loss": {"loss": 1, "at": 1, "accounting": "closed"},
    }
    for panel, target in targets.items():
        found[panel] = {
            f"exponential polylog {p}": ss.ExponentialPolylog.calibrate(**target, free="sigma", a=3, d=4, p=p)
            for p in (1, 2)
        }
        found[panel]["Gaussian"] = ss.Gaussian.calibrate(**target)
    return found


def densities() -> pa.Table:
    """Return the densities of Figure ep_pdfs."""
    z = np.linspace(-4, 4, 2 * POINTS + 1)
    return _long(
        ("panel", "mechanism", "z", "density"),
        (
            (panel, name, z, np.asarray(m.noise.pdf(z)))
            for panel, mechanisms in density_mechanisms().items()
            for name, m in mechanisms.items()
        ),
    )


def distributions(subjects: Sequence[Subject], bins: int = 60) -> tuple[pa.Table, pa.Table]:
    """Return smoothed densities of log10 of the positive records and sums; quartiles of all, and the share of zeros."""
    from scipy.stats import gaussian_kde

    shapes, quartiles = [], []
    for subject in subjects:
        for what, every in _records_and_sums(subject):
            logs = np.log10(every[every > 0])
            few = np.quantile(logs, np.linspace(0, 1, 2001)) if len(logs) > 2001 else logs
            grid = np.linspace(logs.min(), logs.max(), bins)
            density = gaussian_kde(few)(grid) if np.ptp(few) > 0 else np.ones(bins)
            shapes.append((subject.name, what, 10.0**grid, np.maximum(density / density.max(), THINNEST)))
            quartiles.append((subject.name, what, *np.quantile(every, [0.25, 0.5, 0.75]).tolist(), np.mean(every == 0)))
    return (
        _long(("attribute", "what", "value", "density"), shapes),
        _long(("attribute", "what", "q25", "q50", "q75", "zeros"), quartiles),
    )


def histogram(subject: Subject, bins: int = 30) -> pa.Table:
    """Return histograms of the positive records and sums with bins of equal width on a logarithmic scale."""
    rows = []
    for what, every in _records_and_sums(subject):
        count, edges = np.histogram(np.log10(every[every > 0]), bins)
        rows.append((what, 10.0 ** edges[:-1], 10.0 ** edges[1:], count))
    return _long(("what", "low", "high", "count"), rows)


def _records_and_sums(subject: Subject) -> list[tuple[str, Array]]:
    return [("records", subject.attribute.values), ("sums of cells", subject.attribute.sums)]


def cdf_limits(subjects: Sequence[Subject]) -> dict[tuple[str, str], float]:
    """Return the largest losses that the CDFs show, by attribute and kind of mechanism.

    The axes are long enough to show where the slowest policy overtakes the next one for good, if it does.
    """
    limits = {}
    for subject in subjects:
        for kind, (_, fast, slow) in KINDS.items():
            one, two = subject.losses[fast], subject.losses[slow]
            crossing = last_ahead(one, two) if two.largest < one.largest else 0.0
            limits[subject.name, kind] = max(CDF_LIMITS[kind], 10.0 * math.ceil(CDF_MARGIN * crossing / 10))
    return limits


def loss_tails(subjects: Sequence[Subject]) -> pa.Table:
    """Return the share of the records that lose more than x, up to three times the largest loss of slow policies."""
    rows = []
    for subject in subjects:
        for kind, names in KINDS.items():
            most = max(subject.losses[name].largest for name in names[1:])
            x = np.geomspace(0.1, 3 * most, 2 * POINTS - 1)
            for name in names:
                rows.append((f"{subject.name}: {kind}", name, x, 1 - subject.losses[name].share(x)))
    return _long(("panel", "mechanism", "loss", "share"), rows)


def loss_cdfs(subjects: Sequence[Subject], limits: dict[tuple[str, str], float]) -> pa.Table:
    """Return the share of the records that lose at most x, for x from 0 to a limit."""
    return _long(
        ("attribute", "kind", "mechanism", "loss", "share"),
        (
            (subject.name, kind, name, x, subject.losses[name].share(x))
            for subject in subjects
            for kind, names in KINDS.items()
            for x in [np.linspace(0, limits[subject.name, kind], 2 * POINTS - 1)]
            for name in names
        ),
    )


def relative_errors(subjects: Sequence[Subject]) -> pa.Table:
    """Return percentiles of the absolute relative error by quintile of the cells."""
    return _long(
        ("attribute", "kind", "mechanism", "quintile", *(f"p{p}" for p in PERCENTILES)),
        (
            (subject.name, kind, name, np.arange(1, 6), *np.ascontiguousarray(subject.errors[name].T))
            for subject in subjects
            for kind, names in KINDS.items()
            for name in names
        ),
    )


def stds(subjects: Sequence[Subject]) -> pa.Table:
    """Return standard deviations by the sum, from a hundredth of the median record to a thousand times it."""
    rows = []
    for subject in subjects:
        q = np.geomspace(subject.attribute.median / 100, 1e3 * subject.attribute.median, POINTS)
        named = {ALL_ADDITIVE: subject.mechanisms["Gaussian"]}
        named |= {name: subject.mechanisms[name] for name in ("fourth root", "log")}
        rows += [(subject.name, name, q, np.asarray(m.std(q))) for name, m in named.items()]
    return _long(("attribute", "mechanism", "query", "std"), rows)


def policies(subject: Subject) -> pa.Table:
    """Return the policies of all mechanisms over a large domain."""
    x = np.geomspace(1, 1e8, POINTS)
    return _long(
        ("mechanism", "size", "loss"), ((name, x, np.asarray(m.policy(x))) for name, m in subject.mechanisms.items())
    )


def _unit_loss(at: float = 100) -> dict[str, ss.Mechanism]:
    """Return mechanisms with a loss of 1 for a record of the given size."""
    target: dict[str, Any] = {"loss": 1, "at": at, "accounting": "closed"}
    return {
        "Gaussian": ss.Gaussian.calibrate(loss=1, at=at),
        "square root": ss.Root.calibrate(loss=1, at=at, k=2),
        "fourth root": ss.Root.calibrate(loss=1, at=at, k=4),
        "log": ss.Log.calibrate(loss=1, at=at),
        "Laplace": ss.GeneralizedGaussian.calibrate(**target, p=1),
        "generalized Gaussian 1/2": ss.GeneralizedGaussian.calibrate(**target, p=0.5),
        "exponential polylog 2": ss.ExponentialPolylog.calibrate(**target, p=2),
    }


def transformation_stds() -> pa.Table:
    """Return standard deviations of transformation mechanisms that give a record of 100 a loss of 1, by the sum."""
    q = np.geomspace(1, 1e6, POINTS)
    named = {name: m for name, m in _unit_loss().items() if name in ("Gaussian", "square root", "fourth root", "log")}
    return _long(
        ("panel", "mechanism", "query", "value"),
        (
            (panel, name, q, np.asarray(m.std(q)) / (q if panel.startswith("relative") else 1))
            for panel in ("standard deviation", "relative standard deviation")
            for name, m in named.items()
        ),
    )


def variances(sigmas: Sequence[float] = (5, 10, 20)) -> pa.Table:
    """Return the variances of Laplace noise and of the square root with the same policy far out, by the sum."""
    q = np.geomspace(0.1, 1000, POINTS)
    return _long(
        ("sigma", "mechanism", "query", "variance"),
        (
            (float(sigma), name, q, np.asarray(m.variance(q)))
            for sigma in sigmas
            for name, m in (
                ("Laplace", ss.GeneralizedGaussian(sigma=sigma, p=1)),
                ("square root", ss.Root(k=2, sigma=math.sqrt(sigma / 2))),
            )
        ),
    )


def neighbour_policies() -> pa.Table:
    """Return policies for a record's presence, which are 1 for a record of 100, and for a change of it by 10 %."""
    x = np.geomspace(1, 1e6, POINTS)
    rows = []
    for name, m in _unit_loss().items():
        rows.append(("unbounded: presence", name, x, np.asarray(m.policy(x))))
        rows.append(("bounded: a 10 % change", name, x, band_loss(m, x)))
    return _long(("panel", "mechanism", "size", "loss"), rows)


def gains(subject: Subject, found: Gains) -> pa.Table:
    """Return median relative errors by size of cell at the same loss of the largest record."""
    labels = np.array([one.label for one in found.classes])
    cells = np.array([one.cells for one in found.classes])
    columns = ("attribute", "loss", "cells", "cells_order", "number_of_cells")
    same = (subject.name, found.loss, labels, np.arange(len(labels)), cells)
    return _long(
        (*columns, "mechanism", "median_error", "total_bias", "median_record_loss", "largest_record_loss"),
        (
            (*same, one.name, found.medians[one.name], one.total_bias, one.median_loss, one.largest_loss)
            for one in found.contenders
        ),
    )


VALUE_SIZES = {"median": 0.5, "p90": 0.9, "p99": 0.99, "largest": 1.0}


def value_losses(subject: Subject, found: Gains) -> pa.Table:
    """Return the losses by presence and within a band of 10 %, of records of several sizes, by contender."""
    sizes = np.quantile(subject.attribute.values, list(VALUE_SIZES.values()))
    return _long(
        ("attribute", "loss", "mechanism", "record", "size", "presence", "band"),
        (
            (subject.name, found.loss, one.name, np.array(list(VALUE_SIZES)), sizes,
             np.array([one.loss(size) for size in sizes]), np.array([one.band_loss(size) for size in sizes]))
            for one in found.contenders
        ),
    )  # fmt: skip


DRAWN_VALUES = (
    MATCHED, "generalized Gaussian 1/2", "fourth root", "log", ROOT_LAPLACE, LOG_LAPLACE, "Gaussian", AS_ACCURATE
)  # fmt: skip


def value_policies(subject: Subject, found: Gains) -> pa.Table:
    """Return the losses by presence and within a band of 10 %, by size, from a tenth of the median to the largest."""
    x = np.geomspace(subject.attribute.median / 10, subject.attribute.largest, POINTS)
    rows = []
    for one in found.contenders:
        if one.name in DRAWN_VALUES:
            rows.append(("unbounded: presence", one.name, x, np.asarray(one.mechanism.policy(x))))
            rows.append(("bounded: a 10 % change", one.name, x, band_loss(one.mechanism, x)))
    return _long(("panel", "mechanism", "size", "loss"), rows)


TAIL_WEIGHTS = {
    "exponential polylog 1": (0.314, 0.137, 0.071, 0.042),
    "exponential polylog 2": (0.221, 0.051, 0.013, 0.003),
    "Gaussian": (0.157, 0.005, 0.000, 0.000),
}  # Table ep_probs of the paper


def tail_weights() -> pa.Table:
    """Return P[|Z| > z] for mechanisms with a loss of 1 at an influence of 1, beside the printed ones."""
    z = np.arange(1.0, 5.0)
    return _long(
        ("mechanism", "z", "found", "printed"),
        (
            (name, z, 2 * np.asarray(m.noise.sf(z)), np.array(TAIL_WEIGHTS[name]))
            for name, m in density_mechanisms()["equal loss"].items()
        ),
    )


def listed(subjects: Sequence[Subject], found: Sequence[tuple[Claim, Finding]]) -> dict[str, pa.Table]:
    """Return the tables of the page that no figure is drawn from, by name."""
    claims = [
        {"place": claim.place, "claim": claim.text, "measured": finding.measured, "verdict": finding.verdict}
        for claim, finding in found
    ]
    parameters: list[dict[str, object]] = []
    for subject in subjects:
        printed = {one.mechanism: one for one in parameter_table(subject.attribute, subject.mechanisms)}
        for name, mechanism in subject.mechanisms.items():
            parameters.append({"attribute": subject.name, "mechanism": name, "calibrated": str(mechanism)})
            if one := printed.get(name):
                ratio = one.printed_std / one.target_std
                parameters[-1] |= {
                    "parameter": one.name, "printed": one.printed, "found": one.found, "std_ratio": ratio
                }  # fmt: skip
    summaries = [{"attribute": subject.name, **subject.attribute.summary} for subject in subjects]
    rows = {"claims": claims, "records": summaries, "parameters": parameters}
    return {name: pa.Table.from_pylist(table) for name, table in rows.items()} | {"tail-weights": tail_weights()}
