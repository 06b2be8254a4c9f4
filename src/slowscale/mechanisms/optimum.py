"""How near a noise comes to the best possible: a lower bound on the standard deviation of every noise with a policy.

Noise with density h has the PRDP policy P if h(x) <= exp(P(|x − y|))·h(y) for all x and y. These constraints are
linear in h, and so is the variance, so the least variance is a linear program. `least_std` cuts the real line into bins
and relaxes the program so that its optimum is below that of the continuous one, for all noises on the whole line:

- The constraints are symmetric and linear. The mean of h and its mirror image therefore has the policy as well, and no
  larger variance, and it is enough to bound noises that are symmetric about 0. Only z >= 0 is cut into bins.
- For two bins i and j with mean densities g, the constraint between their points implies g_i <= F_ij·g_j, where F_ij is
  the least of three bounds (see `_log_factors`).
- A bin with a given mass adds at least that mass times c_j to the variance (see `_least_squares`).
- Beyond the last edge b every unit of mass adds at least b². No constraint is used there.

For any multipliers v_ij >= 0 of the constraints between bins, the least of

    c_j + (Σ_i v_ji − Σ_i v_ij·F_ij)/width_j  over all bins j, and of b²,

is a lower bound on the variance (weak duality). HiGHS only proposes the multipliers. The bound is computed from them
anew, with a margin for rounding, so it does not depend on the tolerances of the solver.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slowscale.core.errors import ParameterError, ParameterTypeError, Shown
from slowscale.core.numbers import format_number
from slowscale.core.parameters import Array, check_whole
from slowscale.policy import Policy
from slowscale.policy.base import PURE

DEFAULT_BINS = 200
MOST_BINS = 500  # the program has a constraint for each pair of bins
BIN_PARTS = 16  # how many parts a bin is divided into, to bound integrals over it
# The last edge leaves out this share of the second moment of the noise with density exp(−P). If the solver fails, which
# happens for heavy tails, a larger share is left out.
SHARES_LEFT_OUT = (1e-3, 1e-2, 1e-1)
CORE = 0.1  # up to this many standard deviations the edges are equally spaced, and geometrically beyond
LOSS_ROUNDING = 4e-15  # a bound on the relative rounding error of a loss, of a square, and of a total
TOLERANCE = 1e-9  # of the solver
LARGEST_SCALE = 1e90  # the cubes of standard deviations must be floats
SOLVED = 0.999  # the share of the solver's optimum that a bound must reach; otherwise another grid is tried
# Constraints whose factor exceeds that of the noise exp(−P) by more than exp of this are never reached.
LOOSE = 30.0

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LeastStd:
    """The result of `least_std`: no additive noise with the policy has a smaller standard deviation than `std`.

    Attributes
    ----------
    policy
        The PRDP policy.
    std
        The lower bound on the standard deviation, over all noises with the policy.
    attained
        The standard deviation of a noise that was found and has the policy, computed to about three digits. The least
        possible standard deviation is between `std` and `attained`. (If P is not subadditive, which the policies of all
        mechanisms are, that noise may not have the policy.)
    edges
        The edges of the bins. The first one is 0.
    pairs, multipliers
        The proof: pairs of bins (i, j), and a multiplier of the constraint between each pair.
    """

    policy: Policy
    std: float
    attained: float
    edges: Array
    pairs: Indices
    multipliers: Array

    def verify(self) -> bool:
        """Return whether the multipliers prove the bound. It is computed anew, and no program is solved."""
        return _bound(_Bins.of(self.policy, self.edges), self.pairs, self.multipliers) >= self.std

    def __str__(self) -> str:
        least, attained = format_number(self.std), format_number(self.attained)
        return f"a standard deviation of at least {least}, and {attained} can be attained"


def least_std(policy: Policy, bins: int = DEFAULT_BINS) -> LeastStd:
    """Return a lower bound on the standard deviation of any additive noise with a PRDP policy.

    The bound holds for every noise on the real line that gives records of every size Δ > 0 the loss P(Δ) or less. It is
    proved by a linear program, whose solution is checked independently of the solver.

    Parameters
    ----------
    policy
        The PRDP policy P, such as `m.pure_policy`.
    bins
        The number of bins that the program uses. More bins take longer and raise the bound.

    Examples
    --------
    >>> import slowscale as ss
    >>> m = ss.GeneralizedGaussian(sigma=1, p=1)  # Laplace noise
    >>> found = ss.least_std(m.pure_policy, bins=60)
    >>> round(m.std(), 3), round(found.std, 2), found.verify()
    (1.414, 1.4, True)
    """
    if not isinstance(policy, Policy):
        raise ParameterTypeError("policy", allowed="a policy, such as m.pure_policy", given=policy)
    if policy.notion != PURE:
        given = Shown(f"the {policy.notion} policy {policy}")
        remedy = "pass m.pure_policy, not m.policy"
        raise ParameterError("policy", allowed=f"a {PURE} policy", code="notion", given=given, remedy=remedy)
    count = check_whole("bins", bins, at_least=10)
    if count > MOST_BINS:
        raise ParameterError("bins", allowed=f"at most {MOST_BINS}", given=bins)
    best: LeastStd | None = None
    for share in SHARES_LEFT_OUT:
        grid = _Bins.of(policy, _edges(policy, count, share))
        solved = _solve(grid)
        if solved is None:
            continue
        optimum, masses, pairs, multipliers = solved
        bound = _bound(grid, pairs, multipliers)
        if best is None or bound > best.std:
            best = LeastStd(policy, bound, _attained(grid, masses), grid.edges, pairs, multipliers)
        if bound >= SOLVED * optimum:
            break
    if best is None:
        problem = f"lead to no bound for the policy {policy}"
        raise ParameterError("bins", problem, code="unsolved", given=bins, remedy="try another number of bins")
    return best


@dataclass(frozen=True, eq=False)
class _Bins:
    """The program: the edges of the bins, what the mass in each bin adds to the variance, and the factors ln F_ij."""

    policy: Policy
    edges: Array
    widths: Array
    costs: Array
    log_factors: Array

    @classmethod
    def of(cls, policy: Policy, edges: Array) -> "_Bins":
        """Return the relaxed program on these edges."""
        return cls(policy, edges, np.diff(edges), _least_squares(policy, edges), _log_factors(policy, edges))


def _edges(policy: Policy, bins: int, share: float) -> Array:
    """Return the edges of the bins, at places that are typical for the noise with density exp(−P)."""
    std, _ = _second_moment(policy, np.arange(-690.0, 690.0, 0.05))
    if not 1 / LARGEST_SCALE <= std <= LARGEST_SCALE:
        raise ParameterError(
            "policy",
            allowed=f"one whose noise has a standard deviation from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}",
            given=Shown(f"{std:.3g} for {policy}"),
            remedy="measure records in another unit",
        )
    places = np.arange(-30.0, 60.0, 0.02)
    std, beyond = _second_moment(policy, math.log(std) + places)  # at places that are relative to the scale
    last = math.exp(places[np.argmax(beyond <= share)])
    return np.asarray(std * CORE * np.sinh(np.linspace(0, math.asinh(last / CORE), bins + 1)))


def _second_moment(policy: Policy, places: Array) -> tuple[float, Array]:
    """Return the std of the noise with density exp(−P), and how much of its variance lies beyond each of the places.

    The places are logarithms. Both results are approximate, and only decide where the bins are.
    """
    log_mass = places - policy(np.exp(places))
    log_square = log_mass + 2 * places
    mass, square = np.exp(log_mass - log_mass.max()), np.exp(log_square - log_square.max())
    if square[-1] > SHARES_LEFT_OUT[0]:
        # Every noise has h(z) >= h(0)·exp(−P(|z|)), so its variance is infinite if that of exp(−P) is.
        raise ParameterError(
            "policy",
            "must grow so fast that some noise with it has a finite variance, which is infinite or nearly so",
            code="infinite",
            given=Shown(policy),
            remedy="take a policy that grows faster, such as d·ln(Δ/σ + 1) with d above 3.2",
        )
    std = math.exp((log_square.max() - log_mass.max()) / 2) * math.sqrt(square.sum() / mass.sum())
    return std, np.asarray(square[::-1].cumsum()[::-1] / square.sum())


def _least_squares(policy: Policy, edges: Array) -> Array:
    """Return for each bin a lower bound c on the mean of z² over the bin, for any noise that has the policy.

    The bin is divided into parts of equal width. Let part s be the one that contains √c. The parts to the left have at
    most exp(P) times its mass and those to the right at least exp(−P) times, with P at the distance of the parts. If
    the mean with these weights, each part at its left end, is c or more, then so is the mean of every noise.
    """
    left, widths = edges[:-1], np.diff(edges) / BIN_PARTS
    parts = np.arange(BIN_PARTS + 1)
    squares = (left[:, None] + widths[:, None] * parts) ** 2
    losses = policy(widths[:, None] * parts[:-1])
    found = left**2
    for s in range(BIN_PARTS):
        weights = np.exp(np.where(parts[:-1] <= s, 1.0, -1.0) * losses[:, np.abs(parts[:-1] - s)])
        mean = (weights * squares[:, :-1]).sum(axis=1) / weights.sum(axis=1)
        proved = np.minimum(mean, squares[:, s + 1])
        found = np.where(mean >= squares[:, s], np.maximum(found, proved), found)
    return found * (1 - LOSS_ROUNDING * (10 + 2 * losses[:, -1]))


def _log_factors(policy: Policy, edges: Array) -> Array:
    """Return ln F_ij for all pairs of bins: the mean density in bin i is at most F_ij times that in bin j.

    F_ij is the least of three bounds. P is P(|x − y|), x is in bin i, and y in bin j:

    1. exp(P) for the longest way of a point, when bin i is mapped linearly to bin j. (For this the density must be
       continuous. Adding a little Gaussian noise makes it so, keeps the policy and hardly changes the variance.)
    2. 1 / (the mean of exp(−P) over y), for the x that is farthest away: the mass in bin j is at least h(x)·∫exp(−P)dy.
    3. The mean of exp(P) over x, for the y that is farthest away: the mass in bin i is at most h(y)·∫exp(P)dx.

    The means are bounded by sums over parts of the bins, each at the end that is farther away.
    """
    left, right, widths = edges[:-1], edges[1:], np.diff(edges)
    bins = np.arange(widths.size)
    ahead = bins[:, None] < bins
    mapped = policy(np.maximum(np.abs(left[:, None] - left), np.abs(right[:, None] - right)))
    falls, rises = np.zeros_like(mapped), np.zeros_like(mapped)  # the means, relative to the first bound
    for part in range(BIN_PARTS):
        low, high = left + widths * (part / BIN_PARTS), left + widths * ((part + 1) / BIN_PARTS)
        falls += np.exp(mapped - policy(np.where(ahead, high - left[:, None], right[:, None] - low).clip(0)))
        rises += np.exp(policy(np.where(ahead, right - low[:, None], high[:, None] - left).clip(0)) - mapped)
    least = mapped + np.minimum(0.0, np.minimum(-np.log(falls / BIN_PARTS), np.log(rises / BIN_PARTS)))
    return np.asarray(least + LOSS_ROUNDING * (10 + mapped))


def _solve(grid: _Bins) -> tuple[float, Array, Indices, Array] | None:
    """Return the optimal standard deviation, the masses of the bins, pairs of bins and multipliers; None if it fails.

    The variables are the masses. Costs and constraints are scaled to numbers near 1.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    count, log_widths = grid.widths.size, np.log(grid.widths)
    log_density = -grid.policy((grid.edges[:-1] + grid.edges[1:]) / 2)
    masses = np.exp(log_widths + log_density - (log_widths + log_density).max())
    variance = float((grid.costs * masses).sum() / masses.sum())
    slack = grid.log_factors + log_density - log_density[:, None]
    first, second = np.nonzero((slack < LOOSE) & ~np.eye(count, dtype=bool))
    one, two = -log_widths[first], grid.log_factors[first, second] - log_widths[second]
    rows = np.arange(first.size)
    matrix = csr_array(
        (
            np.concatenate([np.exp((one - two) / 2), -np.exp((two - one) / 2)]),
            (np.concatenate([rows, rows]), np.concatenate([first, second])),
        ),
        shape=(first.size, count),
    )
    found = linprog(
        grid.costs / variance,
        A_ub=matrix,
        b_ub=np.zeros(first.size),
        A_eq=np.ones((1, count)),
        b_eq=[1.0],
        method="highs-ds",
        options={"dual_feasibility_tolerance": TOLERANCE, "primal_feasibility_tolerance": TOLERANCE},
    )
    if found.x is None or found.ineqlin.marginals is None:
        return None
    multipliers = np.maximum(-found.ineqlin.marginals, 0.0) * variance * np.exp(-(one + two) / 2)
    used = multipliers > 0
    pairs = np.stack([first[used], second[used]], axis=1)
    return math.sqrt(found.fun * variance), np.maximum(found.x, 0.0), pairs, multipliers[used]


def _bound(grid: _Bins, pairs: Indices, multipliers: Array) -> float:
    """Return the standard deviation that the multipliers prove; see the top of this module."""
    first, second = pairs.T
    gained = _totals(multipliers, first, grid.widths)
    paid = _totals(multipliers * np.exp(grid.log_factors[first, second]), second, grid.widths)
    margin = LOSS_ROUNDING * (grid.costs + gained + paid)
    least = float(np.min(grid.costs + gained - paid - margin))
    return math.sqrt(max(min(least, float(grid.edges[-1]) ** 2), 0.0)) * (1 - LOSS_ROUNDING)


def _totals(values: Array, bins: Indices, widths: Array) -> Array:
    """Return the totals by bin, correctly rounded, divided by the widths of the bins."""
    return np.array([math.fsum(values[bins == j]) for j in range(widths.size)]) / widths


def _attained(grid: _Bins, masses: Array) -> float:
    """Return the least standard deviation of some densities with the policy: exp(−P), and three made of the solution.

    These are max_j g_j·exp(−P(distance of z from a part of bin j)), with the mean densities g of the solution. All have
    the policy if P(x + y) <= P(x) + P(y), because distances obey the triangle inequality.
    """
    left, right = grid.edges[:-1], grid.edges[1:]
    places = [left + grid.widths * ((part + 0.5) / BIN_PARTS) for part in range(BIN_PARTS)]
    beyond = grid.edges[-1] * np.exp(np.arange(0, 20.0, 0.02))
    z = np.concatenate([*places, np.sqrt(beyond[:-1] * beyond[1:])])
    widths = np.concatenate([*[grid.widths / BIN_PARTS] * BIN_PARTS, np.diff(beyond)])
    densities = [np.exp(-grid.policy(z))]
    for share in (0.0, 0.5, 1.0):  # of the bin, around its middle
        density = np.zeros_like(z)
        for middle, half, height in zip((left + right) / 2, share * grid.widths / 2, masses / grid.widths, strict=True):
            density = np.maximum(density, height * np.exp(-grid.policy((np.abs(z - middle) - half).clip(0))))
        densities.append(density)
    return math.sqrt(min(np.average(z**2, weights=density * widths) for density in densities))
