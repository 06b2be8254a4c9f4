"""Reference grids: densities, tails, quantiles and moments in extreme places."""

import math
import re

import mpmath
from flint import acb, arb, ctx

import slowscale as ss
from unit.golden.facts import FACTS, check, near
from unit.golden.quantities import additive, log_normaliser, polylog


@check(r"grid\.(?:ep|gg)\.(pdf|sf|cdf)\..*")
def _(fact, what):
    noise = additive(fact).noise
    if fact.log_truth < -1:  # the log must hold where the value itself is no double any more
        near(getattr(noise, f"log{what}")(fact["z"]), fact.log_truth)
    return getattr(noise, what)(fact["z"])


check(r"grid\.(?:ep|gg)\.(ppf|isf)\..*")(lambda fact, what: getattr(additive(fact).noise, what)(fact["q"]))
check(r"grid\.(?:ep|gg)\.var\..*")(lambda fact: additive(fact).variance())
check(r"grid\.(?:ep|gg)\.meanabs\..*")(lambda fact: additive(fact).noise.absolute_moment(1))
check(r"grid\.ep\.lognorm\..*", abs=1e-12)(lambda fact: log_normaliser(polylog(fact)))


@check(r"grid\.ep\.arb_agreement", abs=1e-36)  # which 40-digit quadrature was used decides the digits
def _(fact):
    return max(_deviation(other) for other in FACTS if other.id.startswith("grid.ep.lognorm."))


def _deviation(fact):
    """How far mpmath's normaliser is from the enclosure that Arb proves, relatively; the library's is checked too."""
    p, d, a = (str(fact.parameters[name]) for name in ("p", "d", "a"))
    power = re.fullmatch(r"exp\((.*)\)|(e)", a)
    end = 1.0
    while fact["d"] * end ** fact["p"] - end < 200:
        end += 1

    def integrand(u, analytic):
        return (u - arb(d) * u.pow(acb(arb(p)), analytic=analytic)).exp()

    with ctx.workprec(200):
        start = arb(power[1] or 1) if power else arb(a).log()
        proven = acb.integral(integrand, acb(start), acb(end)).real
        near(log_normaliser(polylog(fact)), float(proven.log()), abs=1e-13)
        middle = proven.mid().str(50, radius=False)
    with mpmath.workdps(45):
        start = mpmath.mpf(power[1] or 1) if power else mpmath.log(mpmath.mpf(a))
        ends = [start, *(start + (end - start) * i / 16 for i in range(1, 17))]
        p, d = mpmath.mpf(p), mpmath.mpf(d)
        return float(abs(mpmath.quad(lambda u: mpmath.exp(u - d * u**p), ends) / mpmath.mpf(middle) - 1))


check(r"grid\.ep\.d_for_sd\..*")(
    lambda fact: ss.ExponentialPolylog.calibrate(std=fact["sd"], sigma=fact["sigma"], a=fact["a"], p=fact["p"]).d
)


@check(r"grid\.policy\..*\.(prdp|przcdp)")
def _(fact, notion):
    m = additive(fact)
    return (m.pure_policy if notion == "prdp" else m.policy)(fact["Delta"])


@check(r"stability\.logvar_p2\..*")
def _(fact):
    log_unit = 0.35 * fact.truth  # in this unit even a variance of exp(2000) fits into a double
    return math.log(polylog(fact, sigma=math.exp(-log_unit)).moment(2)) + 2 * log_unit


@check(r"stability\.laplace_limit\..*")
def _(fact):
    noise = polylog(fact)
    scale = noise.a / (noise.p * noise.d * math.log(noise.a) ** (noise.p - 1))
    return noise.var() / (2 * scale**2)


check(r"stability\.fw\..*")(lambda fact: polylog(fact).sf(1))


@check(r"stability\.isf_p2\..*")
def _(fact):
    return polylog(fact).isf(fact["q"])
