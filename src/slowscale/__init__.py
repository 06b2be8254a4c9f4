"""Publish sums of skewed data under per-record differential privacy.

>>> import slowscale as ss
>>> m = ss.ExponentialPolylog.calibrate(std=75)
>>> print(m.policy)
tanh(ε/2)·ε with ε = 0.237836·(ln(Δ + 2.71828)^2 − 1)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from slowscale import datasets
    from slowscale.accounting import Ledger, RecordPolicy, epsilon, posterior
    from slowscale.accounting.attackers import Attacker, Posterior, attacker
    from slowscale.advice import Advice, ColumnAdvice, advise, advise_columns
    from slowscale.core.errors import (
        CacheWarning,
        CalibrationError,
        CapError,
        CapWarning,
        ConfidentialWarning,
        DataError,
        EngineError,
        IncompleteError,
        LedgerError,
        ParameterError,
        ParameterTypeError,
        PlanError,
        ScaleWarning,
        SignatureError,
        SlowscaleError,
        UnitWarning,
    )
    from slowscale.data.guessing import guess_types
    from slowscale.data.hierarchies import Hierarchy
    from slowscale.data.keys import Keys
    from slowscale.data.losses import Losses
    from slowscale.mechanisms import (
        Arsinh,
        ArsinhNormal,
        Comparison,
        Crossover,
        ExponentialPolylog,
        FromPolicy,
        Gaussian,
        GeneralizedGaussian,
        Laplace,
        Log,
        Mechanism,
        Root,
        Transformation,
        UnitSplitting,
        compare,
    )
    from slowscale.mechanisms.base import Noisy
    from slowscale.mechanisms.optimum import LeastStd, least_std
    from slowscale.plan import read_plan
    from slowscale.policy import Policy
    from slowscale.policy.bounded import BandPolicy, BoundedPolicy
    from slowscale.publish import ColumnLabel, Publication
    from slowscale.publish.minisign import keygen
    from slowscale.publish.signing import sign, verify
    from slowscale.release.derived import DerivedTable
    from slowscale.release.dominance import Dominance
    from slowscale.release.inspection import Inspection
    from slowscale.release.quantiles import ReleasedQuantiles
    from slowscale.release.release import Release, read_release
    from slowscale.release.request import Quantiles, Request, Rollup, Sums, size_grid
    from slowscale.release.session import Session
    from slowscale.release.supplied import SumsSql, SuppliedSums
    from slowscale.release.table import ReleasedSums

# Where each name lives. Names are imported at first use, which keeps `import slowscale` fast.
_HOMES = {
    "slowscale.accounting": ("Ledger", "RecordPolicy", "epsilon", "posterior"),
    "slowscale.advice": ("Advice", "ColumnAdvice", "advise", "advise_columns"),
    "slowscale.accounting.attackers": ("Attacker", "Posterior", "attacker"),
    "slowscale.policy.bounded": ("BandPolicy", "BoundedPolicy"),
    "slowscale.core.errors": (
        "CacheWarning", "CalibrationError", "CapError", "CapWarning", "ConfidentialWarning", "DataError",
        "EngineError", "IncompleteError", "LedgerError", "ParameterError", "ParameterTypeError", "PlanError",
        "ScaleWarning",
        "SignatureError", "SlowscaleError", "UnitWarning",
    ),
    "slowscale.data.hierarchies": ("Hierarchy",),
    "slowscale.mechanisms": (
        "Arsinh", "ArsinhNormal", "Comparison", "Crossover", "ExponentialPolylog", "FromPolicy", "Gaussian",
        "GeneralizedGaussian", "Laplace", "Log", "Mechanism", "Root", "Transformation", "UnitSplitting", "compare",
    ),
    "slowscale.mechanisms.base": ("Noisy",),
    "slowscale.mechanisms.optimum": ("LeastStd", "least_std"),
    "slowscale.plan": ("read_plan",),
    "slowscale.policy": ("Policy",),
    "slowscale.publish": ("ColumnLabel", "Publication"),
    "slowscale.publish.minisign": ("keygen",),
    "slowscale.publish.signing": ("sign", "verify"),
    "slowscale.release.quantiles": ("ReleasedQuantiles",),
    "slowscale.release.request": ("Quantiles", "Request", "Rollup", "Sums", "size_grid"),
    "slowscale.release.table": ("ReleasedSums",),
    "slowscale.release.release": ("Release", "read_release"),
    "slowscale.release.derived": ("DerivedTable",),
    "slowscale.release.dominance": ("Dominance",),
    "slowscale.release.inspection": ("Inspection",),
    "slowscale.release.session": ("Session",),
    "slowscale.release.supplied": ("SumsSql", "SuppliedSums"),
    "slowscale.data.guessing": ("guess_types",),
    "slowscale.data.keys": ("Keys",),
    "slowscale.data.losses": ("Losses",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("datasets",)  # modules that are public as a whole

__all__ = [
    "Advice",
    "Arsinh",
    "ArsinhNormal",
    "Attacker",
    "BandPolicy",
    "BoundedPolicy",
    "CacheWarning",
    "CalibrationError",
    "CapError",
    "CapWarning",
    "ColumnAdvice",
    "ColumnLabel",
    "Comparison",
    "ConfidentialWarning",
    "Crossover",
    "DataError",
    "DerivedTable",
    "Dominance",
    "EngineError",
    "ExponentialPolylog",
    "FromPolicy",
    "Gaussian",
    "GeneralizedGaussian",
    "Hierarchy",
    "IncompleteError",
    "Inspection",
    "Keys",
    "Laplace",
    "LeastStd",
    "Ledger",
    "LedgerError",
    "Log",
    "Losses",
    "Mechanism",
    "Noisy",
    "ParameterError",
    "ParameterTypeError",
    "PlanError",
    "Policy",
    "Posterior",
    "Publication",
    "Quantiles",
    "RecordPolicy",
    "Release",
    "ReleasedQuantiles",
    "ReleasedSums",
    "Request",
    "Rollup",
    "Root",
    "ScaleWarning",
    "Session",
    "SignatureError",
    "SlowscaleError",
    "Sums",
    "SumsSql",
    "SuppliedSums",
    "Transformation",
    "UnitSplitting",
    "UnitWarning",
    "advise",
    "advise_columns",
    "attacker",
    "compare",
    "datasets",
    "epsilon",
    "guess_types",
    "keygen",
    "least_std",
    "posterior",
    "read_plan",
    "read_release",
    "sign",
    "size_grid",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("slowscale.core.version").running_version()
    if name in _ROOMS:
        return import_module(f"slowscale.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'slowscale' has no attribute {name!r}{_suggestion(name)}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def _suggestion(name: str) -> str:
    """Return what a public name that does not exist may mean, in words."""
    from slowscale.core.errors import similar

    near = None if name.startswith("_") else similar(name, __all__)
    return f"; did you mean {near!r}?" if near else ""


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
