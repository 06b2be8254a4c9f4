"""Plan files: a release described in TOML, for those who do not write Python."""

from slowscale.plan.mechanisms import MECHANISMS, PARAMETERS, CapPlan, MechanismPlan
from slowscale.plan.reading import locate, read_plan
from slowscale.plan.schema import Plan
