"""Hypothesis strategies that draw from the domains which the classes themselves declare."""

import math

from hypothesis import strategies as st

import slowscale as ss
from slowscale.core.parameters import domains
from slowscale.noise import (
    ArsinhNormalNoise,
    ExponentialPolylogNoise,
    GaussianNoise,
    GeneralizedGaussianNoise,
    PointsNoise,
)
from slowscale.policy import (
    ArsinhNormalPolicy,
    ArsinhPolicy,
    ComposedPolicy,
    ConstantPolicy,
    LaplacePolicy,
    LogPolicy,
    MaxPolicy,
    PointsPolicy,
    PolylogPolicy,
    PowerPolicy,
    RootPolicy,
    SumPolicy,
    TanhPolicy,
    TimesPolicy,
    UnitSplittingPolicy,
)


def log_uniform(low, high):
    return st.floats(math.log(low), math.log(high)).map(math.exp)


def parameter(domain):
    """Draw from the typical part of a declared domain, on a log scale where it spans decades; its ends too."""
    low, high = domain.typical
    if domain.integer:
        return st.integers(low, high)
    inner = log_uniform(low, high) if low > 0 else st.one_of(st.just(0.0), log_uniform(1e-3, high))
    ends = [end for end in (low, high) if end in domain]
    return st.one_of(inner.map(lambda x: min(max(x, low), high)), st.sampled_from(ends or [high]))


def instances(cls, **fixed):
    given = {name: parameter(domain) for name, domain in domains(cls).items() if name not in fixed}
    if "k" in given:  # Gaussian noise has mean estimates for whole k only
        given["k"] = st.integers(1, 8)
    chosen = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()}
    return st.builds(cls, **given, **chosen)


@st.composite
def polylogs(draw, cls):
    """Exponential polylogs: the offset depends on p, and d on p = 1."""
    parts = {name: draw(parameter(domain)) for name, domain in domains(cls).items()}
    p = draw(st.one_of(st.sampled_from([1.0, 2.0, 3.0]), st.floats(1.3, 6)))
    a = draw(st.one_of(st.none(), log_uniform(1, 1e3).map(lambda x: x * math.exp(p - 1) * (1 + 1e-12))))
    d = parts["d"] + (1.01 if p == 1 else 0)
    return cls(d=d, sigma=parts["sigma"], a=a, p=p)


@st.composite
def points(draw):
    """Tables of (size, loss) pairs: powers of the size from 1 down to 0.15, with steps from tiny to three decades."""
    table, power = [(draw(log_uniform(1e-3, 1e4)), draw(log_uniform(1e-3, 10)))], 1.0
    for _ in range(draw(st.integers(0, 4))):
        size, loss = table[-1]
        ratio, power = draw(log_uniform(1.001, 1e3)), draw(st.one_of(st.just(power), st.floats(0.15, power)))
        table.append((size * ratio, loss * ratio**power))
    return table


def drawn_curves(cls):
    """Instances of a class that has points and a scale."""
    return st.builds(cls, points(), sigma=st.one_of(st.just(1.0), log_uniform(1e-3, 1e3)))


noises = st.one_of(
    instances(GaussianNoise),
    instances(GeneralizedGaussianNoise),
    polylogs(ExponentialPolylogNoise),
    instances(ArsinhNormalNoise),
    drawn_curves(PointsNoise),
)
estimators = st.sampled_from(["mean", "median"])
roots = estimators.flatmap(lambda estimator: instances(ss.Root, estimator=estimator))
logs = estimators.flatmap(lambda estimator: instances(ss.Log, estimator=estimator))
# Of the shapes whose tight curves are part of the package: another one would take seconds to compute.
arsinh_normals = st.sampled_from([1.0, 1.6, 3.0]).flatmap(lambda shape: instances(ss.ArsinhNormal, shape=shape))
additive_mechanisms = st.one_of(
    instances(ss.Gaussian),
    instances(ss.GeneralizedGaussian),
    instances(ss.Laplace),
    polylogs(ss.ExponentialPolylog),
    instances(ss.UnitSplitting),
    arsinh_normals,
    drawn_curves(ss.FromPolicy),
)
# For tests that evaluate tight policies: of a few shapes, at any scale. The curve of each further shape takes seconds.
mechanisms_of_few_curves = st.one_of(
    instances(ss.Gaussian),
    st.sampled_from([0.5, 1.0]).flatmap(lambda p: instances(ss.GeneralizedGaussian, p=p)),
    instances(ss.ExponentialPolylog, d=0.23783644562980624, a=None, p=2.0),
    instances(ss.UnitSplitting),
    arsinh_normals,
    st.builds(ss.FromPolicy, st.just([(2.0, 0.1), (200.0, 2.0), (1e5, 5.0)]), sigma=log_uniform(1e-3, 1e3)),
)
# Laplace noise has mean estimates with a variance for logarithms up to a scale of 1/2, and any k from 2 on.
laplace_roots = estimators.flatmap(
    lambda estimator: instances(ss.Root, estimator=estimator, noise="laplace", k=st.floats(2, 6))
)
laplace_logs = estimators.flatmap(
    lambda estimator: instances(ss.Log, estimator=estimator, noise="laplace", sigma=st.floats(0.01, 0.4))
)
arsinhs = st.builds(
    ss.Arsinh,
    s=log_uniform(1, 1e6),
    sigma=st.floats(0.01, 0.4),
    noise=st.sampled_from(["gaussian", "laplace"]),
    estimator=estimators,
)
transformations = st.one_of(roots, logs)  # with Gaussian noise
mechanisms = st.one_of(additive_mechanisms, transformations, laplace_roots, laplace_logs, arsinhs)

pure_policies = st.one_of(
    instances(PowerPolicy),
    polylogs(PolylogPolicy),
    instances(ArsinhNormalPolicy),
    instances(ConstantPolicy, of="PRDP"),
    drawn_curves(PointsPolicy),
)
composed_policies = st.builds(
    ComposedPolicy,
    st.one_of(instances(LaplacePolicy), instances(PowerPolicy).map(TanhPolicy)),
    st.one_of(instances(RootPolicy, sigma=1.0), instances(LogPolicy, sigma=1.0), instances(ArsinhPolicy, sigma=1.0)),
)
plain_policies = st.one_of(
    instances(RootPolicy),
    instances(RootPolicy, k=st.floats(1, 8)),
    instances(LogPolicy),
    instances(LaplacePolicy),
    instances(ArsinhPolicy),
    composed_policies,
    instances(UnitSplittingPolicy),
    instances(ConstantPolicy),
    pure_policies.map(TanhPolicy),
)
policies = st.recursive(
    plain_policies,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: SumPolicy(tuple(terms))),
        st.lists(inner, min_size=1, max_size=3).map(lambda terms: MaxPolicy(tuple(terms))),
        st.builds(TimesPolicy, st.integers(1, 20), inner),
    ),
    max_leaves=4,
)
influences = st.one_of(st.just(0.0), log_uniform(1e-6, 1e12))
