"""Rényi divergences at 50 digits, by quadrature of their definition in Arb, to hold certified bounds against.

The integral of p(z)^α·p(z − Δ)^(1 − α) is taken by the trapezoidal rule after a substitution that makes it decay doubly
exponentially: t = e^u outside of (0, Δ), and t = Δ/(1 + e^(−π sinh u)) inside. The rule converges exponentially for
functions that are analytic there; each value is compared with that of the doubled step.
"""

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
    if name == "ArsinhNormalNoise":
        s, tau = arb(noise.scale), arb(noise.shape)
        return lambda z: (z / s).asinh() ** 2 / (2 * tau**2) + (1 + (z / s) ** 2).log() / 2
    raise TypeError(name)


def _outside(function, step):
    """∫ from 0 to ∞ of function(t) dt."""
    total = arb(0)
    for sign in (1, -1):
        k, below = (0 if sign > 0 else 1), 0
        while below < 40 and k * float(step) < 900:
            t = (arb(sign * k) * step).exp()
            term = function(t) * t
            total += term
            below = below + 1 if abs(float(term)) <= 1e-60 * abs(float(total)) else 0
            k += 1
    return total * step


def _inside(function, width, step):
    """∫ from 0 to width of function(t, width − t) dt."""
    total, reach = arb(0), int(6.5 / float(step))
    for k in range(-reach, reach + 1):
        u = arb(k) * step
        x = arb.pi() * u.sinh()
        near, far = width / (1 + (-x).exp()), width / (1 + x.exp())
        term = function(near, far) * near * far / width * arb.pi() * u.cosh()
        total += term
    return total * step


def log_moment(noise, shift, order, step):
    """ψ = ln ∫ p(z)^α p(z − Δ)^(1−α) dz, as an Arb number."""
    drop, shift, order = drop_of(noise), arb(shift), arb(order)
    whole = 2 * _outside(lambda t: (-drop(t)).exp(), step)

    def both(t):
        near, far = drop(t), drop(t + shift)
        return (-order * near - (1 - order) * far).exp() + (-order * far - (1 - order) * near).exp()

    between = _inside(lambda t, rest: (-order * drop(t) - (1 - order) * drop(rest)).exp(), shift, step)
    return ((_outside(both, step) + between) / whole).log()


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
