"""Requests of several tables: one charge for all drawn tables, and roll-ups that are derived from them."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.divergence import ORDERS, shifted_divergence
from helpers.errors import refused
from scipy import special

import slowscale as ss
from slowscale.accounting import Charge
from slowscale.accounting.explanation import at_most

RECORDS = pd.DataFrame(
    {
        "state": ["IA", "IA", "IA", "TX", "TX", "NV"],
        "kind": ["farm", "shop", "farm", "farm", "shop", "mine"],
        "firm": ["a", "a", "b", "a", "c", "b"],
        "emp": [3, 40, 7, 500, 20, 6],
        "pay": [10, 900, 30, 70_000, 400, 80],
    }
)
KEYS = ss.Keys.cross({"state": ["IA", "NV", "TX"], "kind": ["farm", "mine", "shop"]})
STATES, KINDS = ss.Keys.cross({"state": ["IA", "NV", "TX"]}), ss.Keys.cross({"kind": ["farm", "shop"]})
LAPLACE, POLYLOG = ss.GeneralizedGaussian(sigma=5, p=1), ss.ExponentialPolylog.calibrate(std=20)
REGIONS = ss.Hierarchy("state", {"region": {"IA": "middle", "NV": "west", "TX": "south"}, "half": {
    "middle": "east", "south": "east", "west": "west"}})  # fmt: skip
CELLS = ss.Sums({"emp": POLYLOG}, keys=KEYS)


class Forbidden:
    """Bits that nobody may ask for."""

    private = True

    def key(self):
        raise AssertionError("noise was drawn")


def several(**others):
    return ss.Request(
        {
            "cells": CELLS,
            "states": ss.Rollup("cells", by=["state"]),
            "kinds": ss.Sums({"emp": LAPLACE}, keys=KINDS, count=ss.Gaussian(sigma=2)),
            "regions": ss.Rollup("states", by=["region"]),
            "nation": ss.Rollup("regions"),
            **others,
        },
        [REGIONS],
    )


@pytest.fixture
def session():
    return ss.Session(RECORDS, bits=Recorded(3))


# The release


def test_whole_numbers_add_up_everywhere(session):
    found = session.release(several())
    assert list(found) == ["cells", "states", "kinds", "regions", "nation"]
    cells = found["cells"].to_pandas()
    by_state = cells.groupby("state")["emp"].sum()
    states = found["states"].to_pandas().set_index("state")["emp"]
    assert states.to_dict() == by_state.to_dict()
    assert found["regions"].to_pandas()["emp"].sum() == cells["emp"].sum()
    assert found["nation"].table["emp"].to_pylist() == [int(cells["emp"].sum())]
    assert found["nation"].table["cells"].to_pylist() == [9]
    assert found["kinds"].to_pandas()["emp"].sum() != cells["emp"].sum()  # independent noise


def test_all_tables_have_one_charge(tmp_path):
    ledger = ss.Ledger(tmp_path / "x.ledger")
    session = ss.Session(RECORDS, ledger)
    found = session.release(several())
    assert [entry["kind"] for entry in ledger.history()] == ["created", "charge"]
    assert session.spent.releases == 1
    record = {"emp": 40}
    count = ss.Gaussian(sigma=2).policy(1)
    assert found.policy(record) == pytest.approx(POLYLOG.tight_policy(40) + LAPLACE.tight_policy(40) + count, rel=1e-15)
    assert session.spent(record) == found.policy(record)
    assert found.pure_policy is None  # the count has no pure guarantee
    assert {table.whole.ledger.entry for table in found.tables.values()} == {2}
    assert found.facts.ledger.entry == 2
    facts = ledger.history()[1]["facts"]
    assert facts["id"] == found.facts.id
    assert {name for name, one in facts["tables"].items() if "rollup" not in one} == {"cells", "kinds"}
    read = Charge.from_facts(facts)
    assert read.tables == 2
    assert read.policy({"emp": 40}) == found.policy(record)
    # Both columns of "emp" are pure, so its losses may be counted as pure.
    assert [column for column, _ in read.pure_columns.terms] == ["emp", "emp"]
    again = ss.Ledger(tmp_path / "x.ledger")
    assert again.verify() == []
    assert again.spent(record) == found.policy(record)


def test_every_table_says_which_release_it_belongs_to(session):
    found = session.release(several())
    assert found["states"].whole == found.facts
    written = found["states"].to_pandas().attrs["slowscale"]
    assert (written["id"], written["table"]) == (found.facts.id, "states")
    assert found.facts.table is None
    assert found.facts.drawn == found.drawn == ("cells", "kinds")
    assert {name: (one.of, one.by, one.rows) for name, one in found.facts.tables.items()} == {
        "cells": (None, ("state", "kind"), 9),
        "states": ("cells", ("state",), 3),
        "kinds": (None, ("kind",), 2),
        "regions": ("states", ("region",), 3),
        "nation": ("regions", (), 1),
    }
    assert {name: len(table) for name, table in found.tables.items()} == {
        name: one.rows for name, one in found.facts.tables.items()
    }
    assert found["nation"].facts.rollup.of == "cells"  # the cells that its numbers are sums of
    assert found.facts.formula == str(found.policy)
    assert found["cells"].facts.formula == str(found["cells"].policy) != found.facts.formula
    shown = repr(found)
    assert "Release of 5 tables" in shown
    assert "regions: 3 groups by region, derived from states without further loss" in shown
    assert "A record may lose (PRzCDP), added up:" in shown


def test_a_table_is_found_by_its_name(session):
    found = session.release(several())
    with refused(ss.ParameterError, "table", code="unknown-name"):
        found["counties"]
    assert "states" in found
    assert "counties" not in found
    for ask in (found.to_pandas, found.rollup, lambda: found.interval("emp"), lambda: found.table):
        with refused(ss.ParameterError, "the release", code="too-many"):
            ask()
    one = session.release({"cells": CELLS})
    assert one.to_pandas().equals(one["cells"].to_pandas())


def test_pure_policies_add_up():
    pure = ss.Request({"a": CELLS, "b": ss.Sums({"emp": LAPLACE}, keys=KINDS)})
    found = ss.Session(RECORDS).release(pure)
    assert found.pure_policy({"emp": 9}) == POLYLOG.pure_policy(9) + LAPLACE.pure_policy(9)
    mixed = ss.Request({"a": CELLS, "b": ss.Sums({"emp": ss.Gaussian(sigma=3), "pay": LAPLACE}, keys=KINDS)})
    bound = ss.Session(RECORDS)._bind(mixed)
    assert [column for column, _ in bound.charge.pure_columns.terms] == ["pay"]  # "emp" has one pure term of two
    assert bound.pure_policy is None


def test_refused_as_a_whole(tmp_path):
    """A cap that has room for each table, but not for both, refuses both."""
    session = ss.Session(RECORDS, tmp_path / "x.ledger", caps={"emp": POLYLOG.policy}, bits=Forbidden())
    twice = ss.Request({"a": CELLS, "b": ss.Sums({"emp": POLYLOG}, keys=KINDS)})
    assert session.preview(ss.Request({"a": CELLS})).refusal is None
    assert isinstance(session.preview(twice).refusal, ss.CapError)
    with refused(ss.CapError, "the cap on 'emp'", code="cap"):
        session.release(twice)
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "attempt"]
    assert session.spent.releases == 0


def test_data_that_one_table_refuses_costs_nothing(tmp_path):
    records = RECORDS.assign(gap=pd.array([1, None, 3, 4, 5, 6], "Int64"))
    session = ss.Session(records, tmp_path / "x.ledger", bits=Forbidden())
    both = ss.Request({"a": CELLS, "b": ss.Sums({"gap": POLYLOG}, keys=KINDS)})
    with pytest.raises(ss.DataError):
        session.release(both)
    assert [entry["kind"] for entry in session.ledger.history()] == ["created", "attempt"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (ss.Sums({"emp": POLYLOG}, keys=KEYS, nonnegative=True), "biased|nonnegative|raised to 0"),
        (ss.Sums({"emp": ss.Root(k=4, sigma=1, estimator="median")}, keys=KEYS), "median|biased|unbiased"),
    ],
)
def test_what_cannot_be_derived_fails_before_the_charge(tmp_path, table, words):
    session = ss.Session(RECORDS, tmp_path / "x.ledger", bits=Forbidden())
    with pytest.raises(ss.ParameterError, match=rf"table 'total' cannot be derived.*({words})"):
        session.release(ss.Request({"cells": table, "total": ss.Rollup("cells")}))
    assert [entry["kind"] for entry in session.ledger.history()] == ["created"]
    missing = ss.Hierarchy("state", {"region": {"IA": "middle"}})
    with refused(ss.ParameterError, "table 'regions'", code="missing"):
        session.release(ss.Request({"cells": CELLS, "regions": ss.Rollup("cells", "region")}, [missing]))


def test_tables_have_filters_of_their_own():
    large = ss.Sums({"emp": ss.Gaussian(sigma=1e-9)}, keys=KINDS, where="emp > 10")
    every = ss.Sums({"emp": ss.Gaussian(sigma=1e-9)}, keys=STATES)
    session, tables = ss.Session(RECORDS), ss.Request({"large": large, "every": every})
    found = session.release(tables)
    assert found["large"].table["emp"].to_pylist() == [500, 60]
    assert found["every"].table["emp"].to_pylist() == [50, 6, 520]
    assert found.policy.filtered
    assert found["large"].facts.where == "emp > 10"
    assert found["every"].facts.where is None


def test_units_are_warned_of_by_table(session):
    coarse = ss.Sums({"emp": ss.Gaussian(sigma=1)}, keys=KINDS, unit=1000)
    with pytest.warns(ss.UnitWarning, match="table 'coarse': column 'emp'") as seen:
        session.release(ss.Request({"cells": CELLS, "coarse": coarse}))
    assert seen[0].filename == __file__
    assert len(session.preview(ss.Request({"coarse": coarse})).warnings) == 1


def test_cells_that_no_record_has_are_warned_of(session):
    empty = ss.Sums({"emp": POLYLOG}, keys=ss.Keys.cross({"state": ["ZZ"]}))
    with pytest.warns(ss.ConfidentialWarning, match="no record has any") as seen:
        session.release(ss.Request({"cells": CELLS, "empty": empty}))
    assert seen[0].filename == __file__


# What the curator sees


def test_the_preview_prices_the_alternatives(session):
    seen = session.preview(several())
    sizes = {"small": {"emp": 5}, "largest": {"emp": 1e4}}
    losses = seen.losses(sizes)
    assert losses[""]["largest"] == pytest.approx(losses["cells"]["largest"] + losses["kinds"]["largest"])
    assert losses["cells"]["small"] == pytest.approx(POLYLOG.tight_policy(5))
    assert losses["states"] == losses["cells"]  # what drawing it would add
    by_name = {table.name: table for table in seen.tables}
    nation, (emp,) = by_name["nation"], by_name["nation"].columns
    assert nation.cells == (9, 9, 9)
    assert nation.errors(emp)[0] == pytest.approx(3 * POLYLOG.std(unit=1))
    found = session.release(several())["nation"]
    low, high = found.interval("emp", 0.95)
    assert nation.half_widths["emp"][0] == pytest.approx(float(high[0] - low[0]) / 2)
    text = seen.describe(sizes)
    extra = ss.Sums({"emp": POLYLOG}, keys=STATES)
    could = session.preview(several(more=extra))
    assert {table.name: table.instead for table in could.tables}["more"] == "cells"
    assert "Deriving more from cells, instead of drawing it, lowers the loss of a record of size " in str(could)
    assert "Drawing states or regions or nation with the noise of cells, instead of deriving it, raises the" in text
    other = ss.Sums({"emp": POLYLOG}, keys=STATES, where="emp > 3")
    assert all(table.instead is None for table in session.preview(several(more=other)).tables)


def test_losses_of_records_are_added_over_tables():
    few = ss.Keys.cross({"kind": ["farm"]})
    tables = ss.Request(
        {
            "cells": CELLS,
            "farms": ss.Sums({"pay": ss.Root(k=4, sigma=1)}, keys=few, where="emp > 5"),
            "double": ss.Sums({"twice": LAPLACE}, derive={"twice": "emp * 2"}),
            "nation": ss.Rollup("cells"),
        }
    )
    session = ss.Session(RECORDS)
    found = session.release(tables)
    emp, pay = RECORDS["emp"].to_numpy(float), RECORDS["pay"].to_numpy(float)
    wanted = POLYLOG.tight_policy(emp) + LAPLACE.tight_policy(2 * emp)
    wanted += np.where((RECORDS["kind"] == "farm") & (emp > 5), ss.Root(k=4, sigma=1).policy(pay), 0)
    losses = session.losses(found)
    assert losses.records == 6
    for look in (session.losses, session.errors):
        for part in (found["cells"], found["nation"]):
            with refused(ss.ParameterError, "release", code="value"):
                look(part)
    assert losses.largest[1] == pytest.approx(wanted.max(), rel=1e-9)
    assert losses.quantiles[0.5] == pytest.approx(np.median(wanted), rel=2e-3)


def test_losses_of_entities_are_added_over_cells_and_tables():
    session = ss.Session(RECORDS, protect="firm")
    found = session.release(several())
    cells = [{"emp": 3, "count": 1}, {"emp": 40, "count": 1}, {"emp": 500, "count": 1}]
    kinds = [{"emp": 503, "count": 2}, {"emp": 40, "count": 1}]
    wanted = sum(POLYLOG.tight_policy(cell["emp"]) for cell in cells)
    wanted += sum(LAPLACE.tight_policy(cell["emp"]) + ss.Gaussian(sigma=2).policy(cell["count"]) for cell in kinds)
    assert found.entity({"cells": cells, "kinds": kinds}) == pytest.approx(wanted, rel=1e-14)
    assert session.losses(found).largest[1] == pytest.approx(wanted, rel=1e-9)
    assert session.losses(found).records == 3
    for policy in (found.policy, session.spent):
        with refused(ss.ParameterError, "cells"):
            policy.entity(cells)
    for wrong in (cells, {"cells": cells}, {"cells": cells, "states": kinds}):
        with refused(ss.ParameterError, "cells", code="value"):
            found.entity(wrong)
    alone = session.release(ss.Request({"cells": CELLS, "nation": ss.Rollup("cells")}))
    assert alone.policy.entity(cells) == found["cells"].policy.entity(cells)


def test_the_curator_looks_at_each_drawn_table(session):
    found = session.inspect(several())
    assert list(found) == ["cells", "kinds"]
    assert found["kinds"].outside == 1
    assert (found["cells"].duplicates, found["kinds"].duplicates) == (0, None)


# Files


def test_files_of_several_tables(session, tmp_path):
    found = session.release(several())
    for write, ending in ((found.to_parquet, "parquet"), (found.to_csv, "csv")):
        folder = tmp_path / ending
        assert write(folder) == folder
        written = [f"{name}.{ending}" for name in found]
        assert sorted(path.name for path in folder.iterdir() if path.suffix != ".json") == sorted(written)
        read = ss.read_release(folder)
        assert list(read) == list(found)
        assert read.facts == found.facts
        assert read.policy == found.policy
        assert {name: one.table for name, one in read.tables.items()} == {
            name: one.table for name, one in found.tables.items()
        }
        assert read.facts.to_dict() == found.facts.to_dict()
        assert session.losses(read).largest == session.losses(found).largest
        alone = ss.read_release(folder / f"states.{ending}")
        assert list(alone) == ["states"]
        assert alone.facts.formula == str(found.policy)
        assert alone.policy == found.policy


def test_all_files_or_none(session, tmp_path):
    found = session.release(several())
    (tmp_path / "nation.parquet").write_text("mine")
    with refused(ss.ParameterError, code="exists"):
        found.to_parquet(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["nation.parquet"]
    found.to_parquet(tmp_path, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 5
    with refused(ss.ParameterError, "folder", code="value"):
        found.to_csv(tmp_path / "no" / "folder")
    with refused(ss.ParameterError, "folder", code="value"):
        found.to_csv(tmp_path / "nation.parquet")


def test_files_that_do_not_belong_together(session, tmp_path):
    one, other = (session.release(several()) for _ in range(2))
    one.to_parquet(tmp_path)
    other["states"].to_parquet(tmp_path / "states.parquet", overwrite=True)
    with refused(ss.EngineError, code="mismatch"):
        ss.read_release(tmp_path)
    (tmp_path / "states.parquet").unlink()
    with refused(ss.EngineError, code="missing"):
        ss.read_release(tmp_path)
    session.release({"cells": CELLS}).to_parquet(tmp_path / "cells.parquet", overwrite=True)
    assert list(ss.read_release(tmp_path)) == ["cells"]  # a release of its own, beside files of another one
    (tmp_path / "empty").mkdir()
    with refused(ss.ParameterError, "path", code="empty"):
        ss.read_release(tmp_path / "empty")


def test_reports_state_the_loss_of_the_whole_release(session, tmp_path):
    found = session.release(several())
    found.to_parquet(tmp_path / "tables")
    alone = ss.read_release(tmp_path / "tables" / "states.parquet")
    whole = found.report(tmp_path / "all.html", session.spent, sizes={"largest": {"emp": 1e4}}).read_text()
    one = alone.report(tmp_path / "states.html", sizes={"largest": {"emp": 1e4}}).read_text()
    total = at_most(found.policy({"emp": 1e4}))
    assert total != at_most(found["states"].policy({"emp": 1e4}))
    for text in (whole, one):
        assert total in text
        assert 'class="set-map"' in text
        assert "nation is derived from regions" in text
    for names in (re.findall(r' id="([^"]*)"', whole), re.findall(r"<caption>(Table \d+)\.", whole)):
        assert len(names) == len(set(names)) > 5
    confidential = found.confidential_report(tmp_path / "c.html", session)
    assert "CONFIDENTIAL" in confidential.read_text()
    assert confidential.stat().st_mode & 0o077 == 0


# Losses against brute force: the divergence of everything that is published, by quadrature over all noisy numbers


def grid(noise, shift, edges, nodes):
    """Nodes and weights for integrals over one noisy number, fine around 0 and around the shift."""
    reach = np.concatenate([-np.asarray(edges)[::-1], [0.0], edges]) * noise.sigma
    ends = np.unique(np.concatenate([reach, shift + reach, np.linspace(0, shift, 5)]))
    at, weight = special.roots_legendre(nodes)
    low, high = ends[:-1, None], ends[1:, None]
    return ((low + high) / 2 + (high - low) / 2 * at).ravel(), ((high - low) / 2 * weight).ravel()


def joint_divergence(numbers, order, edges, nodes):
    """d_order of noisy numbers, each (noise, shift), by quadrature over all of them at once."""
    logs, weights = 0.0, 1.0
    for i, (noise, shift) in enumerate(numbers):
        z, w = grid(noise, shift, edges, nodes)
        shape = [-1 if k == i else 1 for k in range(len(numbers))]
        logs = logs + (order * noise.logpdf(z) + (1 - order) * noise.logpdf(z - shift)).reshape(shape)
        weights = weights * w.reshape(shape)
    return float(special.logsumexp(logs, b=weights)) / (order - 1)


FINE, WIDE, NARROW = np.geomspace(1e-3, 1e7, 41), np.geomspace(1e-3, 1e6, 19), np.geomspace(0.1, 60, 7)


@pytest.mark.parametrize("size", [1, 6, 40])
def test_the_loss_of_a_record_against_brute_force(session, size):
    """Without the record, one number of each drawn table is shifted. The derived tables are functions of these."""
    tables = ss.Request(
        {"cells": CELLS, "states": ss.Rollup("cells", "state"), "kinds": ss.Sums({"emp": LAPLACE}, keys=KINDS)}
    )
    policy = session.release(tables).policy
    numbers = [(POLYLOG.noise, size), (LAPLACE.noise, size)]
    reached = 0.0
    for order in ORDERS:
        found = joint_divergence(numbers, order, WIDE, 16)
        apart = sum(shifted_divergence(noise, shift, order) for noise, shift in numbers)
        assert found == pytest.approx(apart, rel=1e-4), order
        assert found <= order * policy({"emp": size}) * (1 + 1e-9), order
        reached = max(reached, found / (order * policy({"emp": size})))
    assert reached > 0.2  # the bound is not idle


def test_the_loss_of_gaussian_tables_is_reached(session):
    """For Gaussian noise the losses are exact: with a table less in the policy, the divergence would exceed it."""
    noises = ss.Gaussian(sigma=30), ss.Gaussian(sigma=20)
    tables = ss.Request(
        {
            "cells": ss.Sums({"emp": noises[0]}, keys=KEYS),
            "nation": ss.Rollup("cells"),
            "kinds": ss.Sums({"emp": noises[1]}, keys=KINDS),
        }
    )
    found = session.release(tables)
    for order in (1.5, 2.0, 8.0):
        numbers = [(noise.noise, 25.0) for noise in noises]
        divergence = joint_divergence(numbers, order, NARROW, 24)
        assert divergence == pytest.approx(order * found.policy({"emp": 25}), rel=1e-7)
        assert divergence > order * found["cells"].policy({"emp": 25}) * 1.1


def test_a_derived_table_adds_nothing():
    """Published cells x and y, and their total: in the coordinates (x, x + y) the divergence is the same."""
    noise, shift = ss.Gaussian(sigma=3).noise, 4.0
    for order in (1.5, 4.0):
        x, w = grid(noise, shift, NARROW, 24)
        total, v = special.roots_legendre(200)
        total, v = 100 * total, 100 * v
        first = order * noise.logpdf(x) + (1 - order) * noise.logpdf(x - shift)
        second = noise.logpdf(total[None, :] - x[:, None])  # the other cell does not change, given x
        logs = first[:, None] + order * second + (1 - order) * second
        both = float(special.logsumexp(logs, b=w[:, None] * v)) / (order - 1)
        alone = order * shift**2 / (2 * 18)  # the total alone, whose noise is Gaussian with twice the variance
        assert both == pytest.approx(order * ss.Gaussian(sigma=3).policy(4), rel=1e-7)
        assert alone < both


def test_the_loss_of_an_entity_against_brute_force():
    """A firm in two cells of one table, which are one cell of the other: three numbers are shifted at once."""
    laplace, gaussian = ss.GeneralizedGaussian(sigma=8, p=1), ss.Gaussian(sigma=6)
    tables = ss.Request(
        {
            "cells": ss.Sums({"emp": laplace}, keys=KEYS),
            "states": ss.Sums({"emp": gaussian}, keys=STATES),
            "nation": ss.Rollup("cells"),
        }
    )
    found = ss.Session(RECORDS, protect="firm").release(tables)
    inside = {"cells": [{"emp": 3, "count": 1}, {"emp": 5, "count": 2}], "states": [{"emp": 8, "count": 3}]}
    policy = found.entity(inside)
    numbers = [(laplace.noise, 3.0), (laplace.noise, 5.0), (gaussian.noise, 8.0)]
    for order in (1.1, 2.0, 6.0):
        divergence = joint_divergence(numbers, order, NARROW, 6)
        assert divergence == pytest.approx(sum(shifted_divergence(*one, order) for one in numbers), rel=1e-3)
        assert divergence <= order * policy * (1 + 1e-9)
        # The policy of the set at the cells of one table would be too small: 3² + 5² < 8².
        wrong = sum(found.policy({"emp": cell["emp"]}) for cell in inside["cells"])
        assert math.isclose(policy - wrong, (64 - 34) / (2 * 36), rel_tol=1e-9)


# Splitting one policy over several drawn tables (docs/table-sets.md)

SPLITS = {
    1: (ss.ArsinhNormal(scale=5.08, shape=1.6), 46.3),
    2: (ss.ArsinhNormal(scale=34.3, shape=2.1), 1995),
    4: (ss.ArsinhNormal(scale=8040, shape=1.5), 53_640),
}


@pytest.mark.parametrize("tables", SPLITS)
def test_splitting_a_policy_is_ruinous(tables):
    """The noise of the page stays within the policy of one table, and a scale that is 5 % smaller does not.

    The loss is the largest divergence by its order, found by quadrature: independent of the curves that the page uses.
    """
    one = ss.ExponentialPolylog(d=0.2378, sigma=1, p=2).policy
    mechanism, std = SPLITS[tables]
    assert mechanism.std() == pytest.approx(std, rel=1e-3)
    orders = np.geomspace(1.001, 60, 12)

    def share(scale, size):
        noise = ss.ArsinhNormal(scale=scale, shape=mechanism.shape).noise
        found = [joint_divergence([(noise, size)], order, FINE, 24) / order for order in orders]
        return tables * max(found) / one(size)

    sizes = [1.0, 10.0, 300.0, 1e4, 1.55e6]
    assert max(share(mechanism.scale, size) for size in sizes) <= 1
    assert max(share(0.95 * mechanism.scale, size) for size in sizes) > 0.98
