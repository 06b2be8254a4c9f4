"""Rényi divergences at 50 digits, by quadrature of their definition in Arb, to hold certified bounds against.

The integral of p(z)^α·p(z − Δ)^(1 − α) is taken by the trapezoidal rule after a substitution that makes it decay doubly
exponentially: t = e^u outside of (0, Δ), and t = Δ/(1 + e^(−π sinh u)) inside. The rule converges exponentially for
functions that are analytic there; each value is compared with that of the doubled step.
"""

from itertools import pairwise

from flint import arb, ctx

BITS = 400


def drop_of(noise):
    """Return ln p(0) − ln p(z), z > 0, as a function of Arb numbers; written again, on its own."""
    name = type(noise).__name__
    if name == "GeneralizedGaussianNoise":
        return lambda z: ((z / arb(noise.sigma)).log() * arb(noise.p)).exp()
    if name == "ExponentialPolylogNoise":
        d, a, p, s = (arb(x) for x in (noise.d, noise.a, noise.p, noise.sigma))
        if noise.p == 1:
            return lambda z: d * (z / s / a).log1p()
        start = (a.log().log() * p).exp()
        return lambda z: d * (((z / s + a).log().log() * p).exp() - start)
    if name == "PointsNoise":
        return lambda z: _on_points(noise, z)
    if name == "ProductNoise":
        parts = [(count, drop_of(one)) for count, one in noise.factors]
        return lambda z: sum((count * drop(z) for count, drop in parts), arb(0))
    if name == "ArsinhNormalNoise":
        s, tau = arb(noise.scale), arb(noise.shape)
        return lambda z: (z / s).asinh() ** 2 / (2 * tau**2) + (1 + (z / s) ** 2).log() / 2
    raise TypeError(name)


def _on_points(noise, z):
    """The curve through points at z: on logarithmic axes, straight lines."""
    points = [(arb(size) * arb(noise.sigma), arb(loss)) for size, loss in noise.points]
    if z <= points[0][0] or len(points) == 1:
        return points[0][1] * z / points[0][0]
    at = max((i for i, (size, _) in enumerate(points[:-1]) if z >= size), default=0)
    (low, start), (high, end) = points[at], points[at + 1]
    return ((end / start).log() / (high / low).log() * (z / low).log()).exp() * start


def _beyond(function, start, step):
    """∫ from start to ∞ of function(t) dt."""
    total = arb(0)
    for sign in (1, -1):
        k, below = (0 if sign > 0 else 1), 0
        while below < 40 and k * float(step) < 900:
            t = (arb(sign * k) * step).exp()
            term = function(start + t) * t
            total += term
            below = below + 1 if abs(float(term)) <= 1e-60 * abs(float(total)) else 0
            k += 1
    return total * step


def _between(function, start, end, step):
    """∫ from start to end of function(t, end − t) dt; both arguments are accurate near their ends."""
    width, total, reach = end - start, arb(0), int(6.5 / float(step))
    for k in range(-reach, reach + 1):
        u = arb(k) * step
        x = arb.pi() * u.sinh()
        near, far = width / (1 + (-x).exp()), width / (1 + x.exp())
        total += function(start + near, far) * near * far / width * arb.pi() * u.cosh()
    return total * step


def _integral(function, breaks, step):
    """∫ from 0 to ∞ of a function that is analytic between breaks."""
    ends = [arb(0), *sorted((arb(b) for b in breaks if b > 0), key=float)]
    parts = [_between(lambda t, _: function(t), low, high, step) for low, high in pairwise(ends) if low < high]
    return sum(parts, arb(0)) + _beyond(function, ends[-1], step)


def log_moment(noise, shift, order, step):
    """ψ = ln ∫ p(z)^α p(z − Δ)^(1−α) dz, as an Arb number."""
    drop, shift, order = drop_of(noise), arb(shift), arb(order)
    kinks = [arb(kink) for kink in noise._kinks]
    whole = 2 * _integral(lambda t: (-drop(t)).exp(), kinks, step)

    def both(t):
        near, far = drop(t), drop(t + shift)
        return (-order * near - (1 - order) * far).exp() + (-order * far - (1 - order) * near).exp()

    def inside(low, high):
        rest = shift - high
        return _between(lambda t, far: (-order * drop(t) - (1 - order) * drop(rest + far)).exp(), low, high, step)

    ends = {float(kink): kink for kink in [arb(0), *kinks, *(shift - kink for kink in kinks), shift]}
    ends = [ends[place] for place in sorted(ends) if 0 <= place <= float(shift)]
    between = [inside(low, high) for low, high in pairwise(ends)]
    outside = _integral(both, [*kinks, *(kink - shift for kink in kinks)], step)
    return ((outside + sum(between, arb(0))) / whole).log()


def exact_log_peak(noise):
    """ln p(0), to far more digits than a float has."""
    drop = drop_of(noise)
    whole = 2 * _integral(lambda t: (-drop(t)).exp(), [arb(kink) for kink in noise._kinks], arb(1) / 32)
    return -float(whole.log())


def exact_loss(noise, shift, order):
    """d_α/α at one order, to far more digits than any bound has."""
    before, ctx.prec = ctx.prec, BITS
    try:
        coarse = log_moment(noise, shift, order, arb(1) / 16)
        for halvings in range(5, 9):
            fine = log_moment(noise, shift, order, arb(1) / 2**halvings)
            if abs(float((fine - coarse) / fine)) < 1e-12:
                return float((fine / (arb(order) * (arb(order) - 1))).mid())
            coarse = fine
        raise AssertionError("the quadrature has not converged")
    finally:
        ctx.prec = before
