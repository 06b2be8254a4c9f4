"""Random requests, drawn with known bits, in one form that does not depend on the names of the library."""

import hashlib
import random

import pandas as pd

import slowscale as ss

STATES, SECTORS = ["IA", "NV", "TX", "WY"], ["11", "31", "44"]
CASES = 50


def records(seed):
    """Return skewed records: labels, two amounts, a signed one, and firms with several sites."""
    generator = random.Random(seed)
    rows = [
        {
            "state": generator.choice(STATES[:3]),
            "naics": generator.choice(SECTORS),
            "firm": f"f{generator.randrange(40)}",
            "emp": round(generator.lognormvariate(3, 2)),
            "pay": round(generator.lognormvariate(9, 2.5)),
            "change": round(generator.gauss(0, 50)),
        }
        for _ in range(300)
    ]
    return pd.DataFrame(rows)


def mechanism(generator, signed=False):
    """Return a random mechanism; transformations need sums of at least 0."""
    made = [
        lambda: ss.Gaussian(sigma=generator.choice([0.5, 10, 400])),
        lambda: ss.GeneralizedGaussian(sigma=generator.choice([3, 50]), p=generator.choice([0.5, 1])),
        lambda: ss.ExponentialPolylog(d=generator.choice([0.3, 1.5]), sigma=generator.choice([1, 20])),
        lambda: ss.ArsinhNormal(scale=generator.choice([4, 30]), shape=1.6),
        lambda: ss.Root(k=generator.choice([2, 4]), sigma=generator.choice([0.4, 2])),
        lambda: ss.Log(sigma=generator.choice([0.1, 0.6]), a=generator.choice([1, 50])),
    ]
    return generator.choice(made[:4] if signed else made)()


def case(seed):
    """Return the description of a request."""
    generator = random.Random(f"case {seed}")

    def table():
        by = generator.choice([(), ("state",), ("state", "naics")])
        columns = generator.sample(["emp", "pay", "change", "double"], generator.randint(0, 3))
        count = mechanism(generator) if not columns or generator.random() < 0.5 else None
        return {
            "by": by,
            "columns": {name: mechanism(generator, name == "change") for name in columns},
            "count": count,
            "means": "box" if columns and count is not None and generator.random() < 0.5 else None,
            "where": generator.choice([None, "emp > 5"]),
            "derive": {"double": "2 * emp"},
            "nonnegative": generator.random() < 0.2,
            "unit": generator.choice([1, "0.5"]),
        }

    first = table()
    rollups = {}
    if first["by"] and generator.random() < 0.6:
        rollups = {"nation": ("cells", ())}
        if len(first["by"]) == 2:
            rollups["states"] = ("cells", ("state",))
        first["nonnegative"] = False  # biases would add up
    second = table() if rollups and generator.random() < 0.5 else None
    return {
        "tables": {"cells": first, **({} if second is None else {"other": second})},
        "rollups": rollups,
        "level": generator.choice([0.9, 0.95]),
        "partition": "state" if second is None and "state" in first["by"] and generator.random() < 0.3 else None,
        "protect": generator.choice([None, None, "firm"]),
        "accounting": generator.choice(["closed", "tight"]),
    }


def keys_of(by):
    labels = {"state": STATES, "naics": SECTORS}
    return ss.Keys.cross({name: labels[name] for name in by}) if by else None


def digest(table):
    """Return a hash of the names, types and values of a table."""
    text = repr([(name, str(table[name].type), table[name].to_pylist()) for name in table.column_names])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def result(policy, tables):
    sizes = [{"emp": 10.0, "pay": 1e4, "change": 5.0, "double": 20.0, "count": 1}]
    sizes.append({"emp": 1e6, "pay": 1e9, "change": 1e5, "double": 2e6, "count": 3})
    losses = [
        float(policy({name: value for name, value in size.items() if name in names}))
        for size in sizes
        for names in [set(policy.columns)]
    ]
    return {"losses": losses, "tables": {name: digest(table) for name, table in sorted(tables.items())}}
