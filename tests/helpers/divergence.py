"""Rényi divergences by brute force, to hold policies against."""

import math

import numpy as np
from scipy import integrate, special

from slowscale.noise import GaussianNoise

ORDERS = (1.0001, 1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


def shifted_divergence(noise, shift, order):
    """d_order(Z ‖ Z + shift) by quadrature over z, split at the kinks and on a log scale beyond them.

    A Gaussian far in its tail is not seen by that rule; Lemma BS-Gauss has its divergence, checked on its own.
    """
    if isinstance(noise, GaussianNoise):
        return order * (shift / noise.sigma) ** 2 / 2
    edges = set()
    for scale in np.geomspace(1e-4, 1e6, 41) * noise.sigma:
        edges |= {-scale, shift + scale}
    edges |= set((shift * np.linspace(0, 1, 33)).tolist())
    edges |= {end for kink in noise._kinks for end in (-kink, kink, shift - kink, shift + kink)}
    edges = sorted(edges)

    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    nodes, weights = special.roots_legendre(40)
    z = (low + high) / 2 + (high - low) / 2 * nodes
    logs = order * noise.logpdf(z) + (1 - order) * noise.logpdf(z - shift)
    total = special.logsumexp(logs, b=weights * (high - low) / 2)
    return float(total) / (order - 1)


def gaussian_divergence(distance, order):
    """d_order(N(0, 1) ‖ N(distance, 1)) by quadrature (Lemma BS-Gauss says order·distance²/2)."""
    middle = (1 - order) * distance  # where the integrand peaks
    peak = order * (order - 1) * distance**2 / 2

    def integrand(x):
        return math.exp(-order * x**2 / 2 - (1 - order) * (x - distance) ** 2 / 2 - peak) / math.sqrt(2 * math.pi)

    value = integrate.quad(integrand, middle - 40, middle + 40, points=[middle], epsrel=1e-12, limit=400)[0]
    return (peak + math.log(value)) / (order - 1)
