"""Publish sums of skewed data under per-record differential privacy.

>>> import slowscale as ss
>>> m = ss.ExponentialPolylog.calibrate(std=75)
>>> print(m.policy)
tanh(ε/2)·ε with ε = 0.237836·(ln(Δ + 2.71828)^2 − 1)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slowscale import datasets
    from slowscale.accounting import Ledger, RecordPolicy, epsilon, posterior
    from slowscale.advice import Advice, advise
    from slowscale.attackers import Attacker, Posterior, attacker
    from slowscale.bounded import BoundedPolicy
    from slowscale.errors import (
        CalibrationError,
        CapError,
        CapWarning,
        ConfidentialWarning,
        DataError,
        EngineError,
        LedgerError,
        ParameterError,
        ParameterTypeError,
        PlanError,
        ScaleWarning,
        SignatureError,
        SlowscaleError,
        UnitWarning,
    )
    from slowscale.hierarchies import Hierarchy
    from slowscale.mechanisms import (
        ArsinhNormal,
        Comparison,
        Crossover,
        ExponentialPolylog,
        FromPolicy,
        Gaussian,
        GeneralizedGaussian,
        Log,
        Mechanism,
        Root,
        Transformation,
        UnitSplitting,
        compare,
    )
    from slowscale.mechanisms.noisy import Noisy
    from slowscale.mechanisms.optimum import LeastStd, least_std
    from slowscale.plan import read_plan
    from slowscale.policy import Policy
    from slowscale.publication import ColumnLabel, Publication
    from slowscale.quantiles import PrivateQuantiles, size_grid
    from slowscale.query import Query
    from slowscale.release import Release, ReleaseSet, read_release, read_release_set
    from slowscale.session import Inspection, Session
    from slowscale.signatures import Verified, sign, verify
    from slowscale.signing_keys import keygen
    from slowscale.table_set import Derived, TableSet
    from slowscale.tables.guessing import guess_types
    from slowscale.tables.keys import Keys
    from slowscale.tables.losses import Losses

__version__ = "0.1.0.dev0"

# Where each name lives: it is imported when it is first asked for, so that nobody waits for what is not needed.
_HOMES = {
    "slowscale.accounting": ("Ledger", "RecordPolicy", "epsilon", "posterior"),
    "slowscale.advice": ("Advice", "advise"),
    "slowscale.attackers": ("Attacker", "Posterior", "attacker"),
    "slowscale.bounded": ("BoundedPolicy",),
    "slowscale.errors": (
        "CalibrationError", "CapError", "CapWarning", "ConfidentialWarning", "DataError", "EngineError",
        "LedgerError", "ParameterError", "ParameterTypeError", "PlanError", "ScaleWarning", "SignatureError",
        "SlowscaleError", "UnitWarning",
    ),
    "slowscale.hierarchies": ("Hierarchy",),
    "slowscale.mechanisms": (
        "ArsinhNormal", "Comparison", "Crossover", "ExponentialPolylog", "FromPolicy", "Gaussian",
        "GeneralizedGaussian", "Log", "Mechanism", "Root", "Transformation", "UnitSplitting", "compare",
    ),
    "slowscale.mechanisms.noisy": ("Noisy",),
    "slowscale.mechanisms.optimum": ("LeastStd", "least_std"),
    "slowscale.plan": ("read_plan",),
    "slowscale.policy": ("Policy",),
    "slowscale.publication": ("ColumnLabel", "Publication"),
    "slowscale.quantiles": ("PrivateQuantiles", "size_grid"),
    "slowscale.query": ("Query",),
    "slowscale.release": ("Release", "ReleaseSet", "read_release", "read_release_set"),
    "slowscale.session": ("Inspection", "Session"),
    "slowscale.signatures": ("Verified", "sign", "verify"),
    "slowscale.signing_keys": ("keygen",),
    "slowscale.table_set": ("Derived", "TableSet"),
    "slowscale.tables.guessing": ("guess_types",),
    "slowscale.tables.keys": ("Keys",),
    "slowscale.tables.losses": ("Losses",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("datasets",)  # modules that are public as a whole

__all__ = [
    "Advice",
    "ArsinhNormal",
    "Attacker",
    "BoundedPolicy",
    "CalibrationError",
    "CapError",
    "CapWarning",
    "ColumnLabel",
    "Comparison",
    "ConfidentialWarning",
    "Crossover",
    "DataError",
    "Derived",
    "EngineError",
    "ExponentialPolylog",
    "FromPolicy",
    "Gaussian",
    "GeneralizedGaussian",
    "Hierarchy",
    "Inspection",
    "Keys",
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
    "PrivateQuantiles",
    "Publication",
    "Query",
    "RecordPolicy",
    "Release",
    "ReleaseSet",
    "Root",
    "ScaleWarning",
    "Session",
    "SignatureError",
    "SlowscaleError",
    "TableSet",
    "Transformation",
    "UnitSplitting",
    "UnitWarning",
    "Verified",
    "advise",
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
    "read_release_set",
    "sign",
    "size_grid",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"slowscale.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'slowscale' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
