"""The same quantities in Arb balls (python-flint): independent of the library, and rigorous to many digits."""

import math

from flint import acb, arb, ctx

BITS = 200


def polylog_integral(start, d, p, order=0, a=1.0):
    """∫ from `start` to ∞ of (e^u − a)^order·e^u·exp(−d·u^p) du, as (log of a factor, ball of the rest)."""
    ctx.prec = BITS
    exponent = lambda u: (order + 1) * u - d * u**p  # noqa: E731
    mode = ((order + 1) / (d * p)) ** (1 / (p - 1)) if p > 1 else 0.0
    peak = max(float(start), mode)
    right = left = 1e-9
    while exponent(peak) - exponent(peak + right) < 150:
        right *= 1.3
    while left < peak - float(start) and exponent(peak) - exponent(peak - left) < 150:
        left *= 1.3
    low = arb(start) if peak - left <= float(start) else arb(peak - left)
    factor = (order + 1) * arb(peak) - arb(d) * arb(peak) ** arb(p)

    def integrand(u, analytic):
        value = (acb(order + 1) * u - acb(d) * u.pow(acb(p), analytic=analytic) - acb(factor)).exp()
        return value * (1 - acb(a) * (-u).exp()) ** order if order else value

    integral = acb.integral(integrand, acb(low), acb(peak + right), rel_tol=arb(2) ** -90, eval_limit=10**6)
    return factor, integral.real


def polylog_tail(noise, z):
    """P(Z > z) for z >= 0."""
    ctx.prec = BITS
    whole, all_of_it = polylog_integral(arb(noise.a).log(), noise.d, noise.p)
    factor, part = polylog_integral((arb(z) / arb(noise.sigma) + arb(noise.a)).log(), noise.d, noise.p)
    return (factor - whole).exp() * part / all_of_it / 2


def polylog_log_density(noise, z):
    ctx.prec = BITS
    whole, all_of_it = polylog_integral(arb(noise.a).log(), noise.d, noise.p)
    u = (arb(z) / arb(noise.sigma) + arb(noise.a)).log()
    return -arb(noise.d) * u ** arb(noise.p) - whole - all_of_it.log() - (2 * arb(noise.sigma)).log()


def polylog_absolute_moment(noise, order):
    ctx.prec = BITS
    start = arb(noise.a).log()
    whole, all_of_it = polylog_integral(start, noise.d, noise.p)
    factor, part = polylog_integral(start, noise.d, noise.p, order, noise.a)
    return (factor - whole).exp() * part / all_of_it * arb(noise.sigma) ** order


def power_tail(noise, z):
    """P(Z > z) for z >= 0 under a generalized Gaussian."""
    ctx.prec = BITS
    shape = 1 / arb(noise.p)
    return ((arb(z) / arb(noise.sigma)) ** arb(noise.p)).gamma_upper(shape, regularized=1) / 2


def normal_tail(noise, z):
    ctx.prec = BITS
    return (arb(z) / arb(noise.sigma) / arb(2).sqrt()).erfc() / 2


def relative_error(value, ball):
    """|value/ball − 1|, or the same of logs where the ball is below the smallest float."""
    ctx.prec = BITS
    assert ball.rad() < abs(ball.mid()) * arb(2) ** -60, "the reference itself is not accurate enough"
    return float(abs(arb(value) / ball - 1).mid())


def is_float(ball):
    return math.log(1e-300) < float(ball.log().mid()) < math.log(1e300)
