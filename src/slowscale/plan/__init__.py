"""Plan files: a release described in TOML, for those who do not write Python.

A plan says where the records are, which ledger is charged, which tables are published with which mechanisms, and where
the files go. A mechanism is given by its parameters or by a target (`std = 75`, or `loss = 1, at = 106`). Mistakes are
reported with the line and the field, and without values that may hold a password.
"""

from slowscale.plan.checking import Checked, check_plan
from slowscale.plan.outputs import check_outputs
from slowscale.plan.parts import MECHANISMS, NOISE_MECHANISMS, PARAMETERS, CapPlan, DataPlan, MechanismPlan
from slowscale.plan.reading import locate, read_plan
from slowscale.plan.running import (
    describe_matches,
    finish_plan,
    inspect_plan,
    plan_sql,
    run_checked,
    run_plan,
    run_quantiles,
)
from slowscale.plan.schema import Plan
from slowscale.plan.starting import EXAMPLE, plan_address, plan_for, proposed_name, starting_plan

__all__ = [
    "EXAMPLE",
    "MECHANISMS",
    "NOISE_MECHANISMS",
    "PARAMETERS",
    "CapPlan",
    "Checked",
    "DataPlan",
    "MechanismPlan",
    "Plan",
    "check_outputs",
    "check_plan",
    "describe_matches",
    "finish_plan",
    "inspect_plan",
    "locate",
    "plan_address",
    "plan_for",
    "plan_sql",
    "proposed_name",
    "read_plan",
    "run_checked",
    "run_plan",
    "run_quantiles",
    "starting_plan",
]
