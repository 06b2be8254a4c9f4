"""Policy functions P(Δ), which bound the loss of a record of influence Δ, and their algebra.

A policy belongs to a notion: PRzCDP (Definition PRzCDP) or PRDP, its pure form (Definition PRDP). Policies of one
notion add under sequential composition (`P + Q`, Lemma PRzCDP-seq), take the maximum under parallel composition
(`P | Q`, Lemma PRzCDP-par), and bound the loss of a group of records (`P.group`, at least as tight as Lemma
PRzCDP-group). The influence of a record is the absolute change that it makes to the query: for a sum, its value.

>>> P = RootPolicy(k=4, sigma=2)
>>> P([5, 10_000]).round(3).tolist()
[0.28, 12.5]
>>> print(P + RootPolicy(k=1, sigma=100))
Δ^(1/2) / (2·2²) + Δ² / (2·100²)
"""

from slowscale.policy.base import POLICY_KINDS, PURE, ZCDP, Function, Policy
from slowscale.policy.combination import MaxPolicy, SumPolicy, TanhPolicy, TimesPolicy
from slowscale.policy.families import (
    ArsinhNormalPolicy,
    ArsinhPolicy,
    ComposedPolicy,
    ConstantPolicy,
    LaplacePolicy,
    LogPolicy,
    PointsPolicy,
    PolylogPolicy,
    PowerPolicy,
    RankPolicy,
    RootPolicy,
    TransformationPolicy,
    TransformingPolicy,
    UnitSplittingPolicy,
)
from slowscale.policy.tight import Certificate, TightPolicy
from slowscale.policy.writing import number

__all__ = [
    "POLICY_KINDS",
    "PURE",
    "ZCDP",
    "ArsinhNormalPolicy",
    "ArsinhPolicy",
    "Certificate",
    "ComposedPolicy",
    "ConstantPolicy",
    "Function",
    "LaplacePolicy",
    "LogPolicy",
    "MaxPolicy",
    "PointsPolicy",
    "Policy",
    "PolylogPolicy",
    "PowerPolicy",
    "RankPolicy",
    "RootPolicy",
    "SumPolicy",
    "TanhPolicy",
    "TightPolicy",
    "TimesPolicy",
    "TransformationPolicy",
    "TransformingPolicy",
    "UnitSplittingPolicy",
    "number",
]
