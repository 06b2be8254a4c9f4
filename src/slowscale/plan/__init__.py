"""Plan files: a release described in TOML, for those who do not write Python.

A plan says where the records are, which cells are public, which ledger is charged, and which columns are summed with
which mechanism. A mechanism is given by its parameters or by a target (`std = 75`, or `loss = 1, at = 106`). Mistakes
are reported with the line and the field, and without values that may hold a password.
"""

from slowscale.plan.charging import check_charge, check_room, open_account
from slowscale.plan.checking import Checked, check_columns, check_plan, preview_plan
from slowscale.plan.finishing import finish_plan
from slowscale.plan.mechanisms import MECHANISMS, PARAMETERS, CapPlan, MechanismPlan
from slowscale.plan.mistakes import locate
from slowscale.plan.models import Plan
from slowscale.plan.outputs import check_outputs, existing_outputs
from slowscale.plan.reading import read_plan
from slowscale.plan.running import describe_matches, inspect_plan, inspect_tables, run_plan, run_quantiles
from slowscale.plan.starting import EXAMPLE, plan_address, plan_for, proposed_name, starting_plan

__all__ = [
    "EXAMPLE",
    "MECHANISMS",
    "PARAMETERS",
    "CapPlan",
    "Checked",
    "MechanismPlan",
    "Plan",
    "check_charge",
    "check_columns",
    "check_outputs",
    "check_plan",
    "check_room",
    "describe_matches",
    "existing_outputs",
    "finish_plan",
    "inspect_plan",
    "inspect_tables",
    "locate",
    "open_account",
    "plan_address",
    "plan_for",
    "preview_plan",
    "proposed_name",
    "read_plan",
    "run_plan",
    "run_quantiles",
    "starting_plan",
]
