"""The noise of the grid, with losses from formulas and by quadrature, independently of the library."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from grid.records import COUNT, layout

# What tight losses may be above the divergence: their curves are certified within 1 %.
TIGHT_ABOVE = 1.02


@dataclass(frozen=True)
class Noise:
    """A mechanism by its name in plans, and its parameters."""

    kind: str
    parameters: tuple[tuple[str, float], ...]
    unit: str = "1"

    def __getattr__(self, name):
        try:
            return dict(object.__getattribute__(self, "parameters"))[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def is_transformation(self):
        return self.kind in ("root", "log")

    def transform(self, total):
        """Return what noise is added to."""
        return math.log(total + self.a) if self.kind == "log" else float(total) ** (1 / self.k)

    def closed(self, influence):
        """Return the loss of an influence by the closed form (PRzCDP)."""
        x = abs(float(influence))
        if self.kind == "gaussian":
            return (x / self.sigma) ** 2 / 2
        if self.kind == "root":
            return (x ** (1 / self.k) / self.sigma) ** 2 / 2
        if self.kind == "log":
            return (math.log1p(x / self.a) / self.sigma) ** 2 / 2
        pure = -self._log_density(x) + self._log_density(0.0)
        return math.tanh(pure / 2) * pure

    def _log_density(self, z):
        """Return the log of the density, up to a constant."""
        if self.kind == "generalized-gaussian":
            return -((np.abs(z) / self.sigma) ** self.p)
        return -self.d * np.log(np.abs(z) / self.sigma + math.e) ** 2  # the exponential polylog

    def bounds(self, influence, accounting):
        """Return bounds on the loss that must be stated for an influence."""
        closed = self.closed(influence)
        if accounting == "closed" or self.kind in ("gaussian", "root", "log") or not closed:
            return closed * (1 - 1e-9), closed * (1 + 1e-9)
        least = _divergence(self, abs(float(influence)))
        usual = 1e-2 <= abs(float(influence)) / self.sigma <= 1e4
        return least * (1 - 1e-4), min(closed * (1 + 1e-9), TIGHT_ABOVE * least if usual else math.inf)


@cache
def _divergence(noise, shift):
    """Return the largest Rényi divergence of the noise and of the shifted noise, each divided by its order."""
    near = np.geomspace(1e-9, 1e9, 91) * noise.sigma
    edges = np.unique([0.0, shift, *-near, *(shift + near), *(shift * special.expit(np.linspace(-25, 25, 81)))])
    low, high = edges[:-1, None], edges[1:, None]
    nodes, weights = special.roots_legendre(16)
    z = (low + high) / 2 + (high - low) / 2 * nodes
    weights = weights * (high - low) / 2
    here, there = noise._log_density(z), noise._log_density(z - shift)
    whole = special.logsumexp(here, b=weights)
    largest = 0.0
    for order in 1 + np.geomspace(1e-2, 1e2, 25):
        found = special.logsumexp(order * here + (1 - order) * there, b=weights) - whole
        largest = max(largest, float(found) / (order - 1) / order)
    return largest


def _noise(kind, unit="1", **parameters):
    return Noise(kind, tuple(parameters.items()), unit)


# Shapes whose tight curves are part of the package.
_POLYLOG = _noise("exponential-polylog", d=0.23783644562980624, sigma=50.0)
NOISES = {
    "additive": (_POLYLOG, _noise("generalized-gaussian", "0.01", sigma=300.0, p=0.5)),
    "root": (_noise("root", k=2, sigma=20.0), _noise("root", "0.01", k=4, sigma=2.0)),
    "log": (_noise("log", sigma=0.5, a=100.0), _noise("log", "0.01", sigma=0.3, a=1000.0)),
    "count": (_noise("generalized-gaussian", sigma=60.0, p=1.0),),
    "mean": (_noise("generalized-gaussian", sigma=2000.0, p=1.0), _noise("gaussian", sigma=80.0)),
}


def noises(case):
    """Return the noise of each published column; it is the same in all drawn tables."""
    columns = [*layout(case).values, *([COUNT] if case.statistic in ("count", "mean") else [])]
    return dict(zip(columns, NOISES[case.statistic], strict=True))


def loss_bounds(case, person, columns=None):
    """Return bounds on what a person loses by one release: over all drawn tables, their cells, and some columns."""
    low = high = 0.0
    for cells in person.values():
        for cell in cells:
            for column, noise in noises(case).items():
                if columns is None or column in columns:
                    some = noise.bounds(cell[column], case.accounting)
                    low, high = low + some[0], high + some[1]
    return low, high
