"""Integrals over the noise of a transformation mechanism, for estimators that have no closed form."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.polynomial.chebyshev import chebval
from scipy import special

from slowscale.core.parameters import Array
from slowscale.noise import SymmetricNoise

# How many standard deviations of the noise are integrated over on each side.
QUADRATURE_SPAN = 45
# Gauss-Legendre nodes per standard deviation, and rows processed at once.
NODES_PER_DEVIATION, ROWS_AT_ONCE = 24, 64


@cache
def _rule() -> tuple[Array, Array]:
    x, w = special.roots_legendre(NODES_PER_DEVIATION)
    panels = np.arange(-QUADRATURE_SPAN, QUADRATURE_SPAN)[:, None]
    return (panels + (x + 1) / 2).ravel(), np.tile(w / 2, 2 * QUADRATURE_SPAN) / math.sqrt(2 * math.pi)


def error_moments(error: Callable[[Array, Array], Array], q: Array, kink: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of error(q, N) for a standard normal N.

    The error must be a smooth function of N except for a kink at N = `kink`.
    """
    nodes, weights = _rule()
    mean, spread = np.empty_like(q), np.empty_like(q)
    for start in range(0, q.size, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        corner = np.clip(kink[rows, None], -QUADRATURE_SPAN, QUADRATURE_SPAN)
        n = nodes + (corner - np.floor(corner))  # shifted so that the kink lies between two panels
        column = q[rows, None]
        with np.errstate(all="ignore"):
            half = np.exp(-(n**2) / 4)
            unit = np.abs(error(column, np.array([[-1.0, 1.0]]))).max(axis=1, keepdims=True)
            unit = np.where((unit > 0) & np.isfinite(unit), unit, 1.0)
            errors = error(column, n) / unit
            weighted = errors * half
            outgrown = np.isnan(weighted).any(axis=1)  # inf·0: the error grows faster than the density falls
            first = (weighted * half) @ weights
            second = ((errors - first[:, None]) * half) ** 2 @ weights
            mean[rows] = unit[:, 0] * np.where(outgrown, np.inf, first)
            spread[rows] = unit[:, 0] * np.where(outgrown | np.isnan(second), np.inf, np.sqrt(second))
    return mean, spread


# Both tails of any noise are integrated over depths y = −ln(2·P(Z > z)), from 0 at z = 0. Panels shrink towards 0,
# where an estimator may have a singularity. Beyond the deepest panel lies less than 1e-270 of the noise.
PANELS = np.concatenate([[0.0], 2.0 ** np.array([-24, -16, -12, -8, -6, -4, -2, 0, 1, 2, 3, 4, 5, 6, 7, 9.3])])
NODES_PER_PANEL = 24


@cache
def _tail_rule() -> tuple[Array, Array]:
    """Return places and widths of nodes within panels from 0 to 1."""
    x, w = special.roots_legendre(NODES_PER_PANEL)
    return (x + 1) / 2, w / 2


def tail_moments(
    error: Callable[[Array, Array], Array], q: Array, noise: SymmetricNoise, kink: Array
) -> tuple[Array, Array]:
    """Return the mean and the mean square of error(q, Z), for any noise Z.

    The error must be a smooth function of Z, except for a kink or a jump at Z = `kink` <= 0, one per q.
    """
    places, widths = _tail_rule()
    deepest = PANELS[-1]
    kinks = np.minimum(-noise.logsf(-kink) - math.log(2), deepest)  # how deep in the left tail they lie
    mean, square = np.zeros_like(q), np.zeros_like(q)
    for start in range(0, q.size, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        half = kinks[rows, None] / 2
        near = np.minimum(PANELS, half)  # from 0 half-way to the kink, and from the kink half-way to 0
        for side, edges in (
            (1, np.broadcast_to(PANELS, near.shape)),
            (-1, near),
            (-1, 2 * half - near[:, ::-1]),
            (-1, np.minimum(2 * half + PANELS, deepest)),
        ):
            wide = np.diff(edges, axis=1)[:, :, None]
            depth = (edges[:, :-1, None] + wide * places).reshape(len(edges), -1)
            mass = (wide * widths).reshape(len(edges), -1) * np.exp(-depth) / 2
            with np.errstate(all="ignore"):
                found = error(q[rows, None], side * noise.isf(np.exp(-depth) / 2))
                found = np.where(mass == 0, 0.0, found)
                mean[rows] += (found * mass).sum(1)
                square[rows] += (found * found * mass).sum(1)
    return mean, square


# Chebyshev nodes of an interpolating polynomial, the largest relative error at the ends of its interval, and how little
# its last terms may add, relative to the values.
INTERPOLATION_NODES, INTERPOLATION_ERROR, LAST_TERMS, NEGLIGIBLE_TERMS = 32, 1e-9, 4, 1e-10


@cache
def _chebyshev() -> tuple[Array, Array]:
    """Return nodes from −1 to 1, and the matrix that turns values there into coefficients of Chebyshev polynomials."""
    nodes = np.cos(math.pi * (np.arange(INTERPOLATION_NODES) + 0.5) / INTERPOLATION_NODES)
    matrix = np.cos(np.arccos(nodes) * np.arange(INTERPOLATION_NODES)[:, None]) * (2 / INTERPOLATION_NODES)
    matrix[0] /= 2
    return nodes, matrix


def interpolated(function: Callable[[Array], Array], q: Array, pieces: Array) -> Array:
    """Return a positive function of many q that is costly to evaluate and has no narrow features within a piece.

    The q of a piece are halved by rank until a polynomial agrees with the function, as its ends and its last
    coefficients tell, or until so few are left that each is evaluated.
    """
    out = np.empty_like(q)
    nodes, matrix = _chebyshev()
    order = np.lexsort((q, pieces))
    parts = np.split(order, np.flatnonzero(np.diff(pieces[order])) + 1)
    few = []
    while parts:
        rows = parts.pop()
        if rows.size <= 4 * INTERPOLATION_NODES:
            few.append(rows)
            continue
        low, high = q[rows[0]], q[rows[-1]]
        if low == high:
            out[rows] = function(q[rows[:1]])
            continue
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        at, ends = np.split(function(np.append(middle + half * nodes, [low, high])), [nodes.size])
        with np.errstate(all="ignore"):
            terms = matrix @ at
            small = np.abs(terms[-LAST_TERMS:]).sum() <= NEGLIGIBLE_TERMS * at.min()
            agrees = (np.abs(chebval([-1.0, 1.0], terms) - ends) <= INTERPOLATION_ERROR * ends).all()
        if small and agrees:
            out[rows] = chebval((q[rows] - middle) / half, terms)
        else:
            parts += np.array_split(rows, 2)
    if few:
        rows = np.concatenate(few)
        out[rows] = function(q[rows])
    return out


def exact_coverage(
    estimate: Callable[[Array], Array],
    ends: Array,
    v: Array,
    noise: SymmetricNoise,
    low: Array,
    high: Array,
) -> Array:
    """Return P(low <= estimate(v + Z) <= high) for an estimator that is monotone between neighbouring `ends`.

    `ends` has one row per v. Between two ends, the estimates within [low, high] come from one interval of the noise.
    The ends of that interval are found by root search, and the probabilities of all intervals are added.
    """
    total = np.zeros_like(v)
    for left, right in zip(ends.T[:-1], ends.T[1:], strict=True):
        at_left, at_right = estimate(left), estimate(right)
        some = (np.fmin(at_left, at_right) <= high) & (np.fmax(at_left, at_right) >= low) & (left < right)
        if some.any():
            ends_of = left[some], right[some]
            start = _edge(estimate, *ends_of, at_left[some], low[some], high[some])
            stop = _edge(estimate, *ends_of, at_right[some], low[some], high[some], last=True)
            total[some] += noise.cdf(stop - v[some]) - noise.cdf(start - v[some])
    return total


def _edge(
    estimate: Callable[[Array], Array],
    left: Array,
    right: Array,
    at: Array,
    low: Array,
    high: Array,
    last: bool = False,
) -> Array:
    """Return one end of a monotone piece, or where the estimate enters [low, high] if it is outside at that end."""
    out = (right if last else left).copy()
    outside = (at < low) | (at > high)
    if outside.any():
        from scipy.optimize import elementwise

        wanted = np.where(at < low, low, high)[outside]
        out[outside] = elementwise.find_root(
            lambda x, wanted: estimate(x) - wanted, (left[outside], right[outside]), args=(wanted,)
        ).x
    return out
