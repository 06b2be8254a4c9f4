"""A small release, and what is published about it."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.bitsources import Recorded
from helpers.releases import with_table

import slowscale as ss

STATES = {"01": "Alabama", "02": "=Alaska", "04": "@Arizona"}


@pytest.fixture(scope="session")
def release():
    generator = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "state": generator.choice(["01", "02"], 400),
            "year": generator.choice([2023, 2024], 400),
            "emp": generator.integers(1, 300, 400),
            "pay": generator.integers(100, 9000, 400),
        }
    )
    keys = ss.Keys.cross({"state": ["01", "02", "04"], "year": [2023, 2024]})
    session = ss.Session(frame, bits=Recorded(4))
    made = session.sum(
        {"emp": ss.ExponentialPolylog(d=0.5), "pay": ss.Root(k=4, sigma=0.5)}, keys=keys, count=ss.Gaussian(sigma=3)
    )
    return made.ratio("pay", "emp")


@pytest.fixture(scope="session")
def publication():
    return ss.Publication(
        "Payroll by state",
        source="Register",
        period="2023 to 2024",
        contact="a@example.org",
        notes=["=1+1 is not a formula."],
        columns={
            "emp": ss.ColumnLabel("Employees", "persons"),
            "pay": ss.ColumnLabel("Annual payroll", "thousand USD", "Before taxes."),
            "count": "Establishments",
            "pay_per_emp": ss.ColumnLabel("Payroll per employee", "thousand USD"),
        },
        keys={"state": "State", "year": "Year"},
        codes={"state": STATES},
        rounding={"emp": 10, "pay": 1000, "pay_per_emp": "0.1"},
        negatives={"emp": "zero", "count": "flag", "pay": "keep"},
    )


@pytest.fixture
def with_numbers(release):
    """Return a function that puts other numbers into the column "emp" of the release."""

    def change(estimates, errors, lows=None, highs=None):
        kind = None if max(map(abs, estimates)) < 2**63 else pa.decimal128(38, 0)
        columns = {"emp": estimates, "emp_se": errors, "emp_low": lows or estimates, "emp_high": highs or estimates}
        table = release.table.slice(0, len(estimates))
        for name, values in columns.items():
            place = table.column_names.index(name)
            table = table.set_column(place, name, pa.array(values, pa.float64() if name == "emp_se" else kind))
        return with_table(release, table)

    return change
