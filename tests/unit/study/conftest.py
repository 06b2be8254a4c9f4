"""The study of the paper's data, computed once."""

import pytest

from slowscale.study.attributes import paper_attributes
from slowscale.study.claims import check_claims
from slowscale.study.experiments import Store, carry_out, plan_experiments
from slowscale.study.run import REPETITIONS

LOSSES = {"PAYANN": (1.0, 10.0, 50.0), "Cattle": (1.0, 10.0, 50.0)}


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="session")
def subjects(store):
    plans = [plan_experiments(one, REPETITIONS, LOSSES.get(one.name, ())) for one in paper_attributes()]
    return [carry_out(plan, store, lambda draws: None) for plan in plans]


@pytest.fixture(scope="session")
def found(subjects):
    """All claims, with what was found."""
    return check_claims(subjects)
