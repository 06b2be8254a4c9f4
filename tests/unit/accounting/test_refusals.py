"""Refusals: a cap says how much of it is used, for which records, and what would still fit."""

import pickle
import re

import pandas as pd
import pytest
from helpers.bitsources import Recorded

import slowscale as ss
from slowscale.accounting import Charge
from slowscale.accounting.caps import describe_change
from slowscale.policy import ConstantPolicy

RECORDS = pd.DataFrame(
    {"state": ["IA", "IA", "TX"], "firm": ["a", "b", "a"], "x": [10, 20, 300], "y": [1, 2, 3], "n": [1, 1, 1]}
)
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
TEN = ss.Gaussian(sigma=10)
# By name: the caps, what is released before, what is refused, and whether entities are protected.
CASES = {
    "gaussian": ({"x": 2 * TEN.policy}, [{"x": TEN}], {"x": ss.Gaussian(sigma=7)}),
    "any column": ({"*": 2 * TEN.policy}, [{"x": ss.Gaussian(sigma=12)}], {"x": ss.Gaussian(sigma=8)}),
    "root": (
        {"x": 5 * ss.Root(k=4, sigma=2**0.5).policy},
        [{"x": ss.Root(k=4, sigma=1)}] * 2,
        {"x": ss.Root(k=4, sigma=1)},
    ),
    "log": ({"x": 2 * ss.Log(sigma=1).policy}, [], {"x": ss.Log(sigma=0.5)}),
    "laplace": ({"x": ss.GeneralizedGaussian(sigma=20, p=1).policy}, [], {"x": ss.GeneralizedGaussian(sigma=5, p=1)}),
    "polylog": (
        {"x": 2 * ss.ExponentialPolylog(d=0.3).policy},
        [{"x": ss.ExponentialPolylog(d=0.2)}],
        {"x": ss.ExponentialPolylog(d=0.5)},
    ),
    "arsinh-normal": (
        {"x": 2 * ss.ArsinhNormal(scale=20, shape=1.6).policy},
        [],
        {"x": ss.ArsinhNormal(scale=20, shape=1)},
    ),
    "unit splitting": (
        {"x": ss.UnitSplitting(threshold=10, sigma=50).policy},
        [],
        {"x": ss.UnitSplitting(threshold=10, sigma=20)},
    ),
    "count": ({"count": 2 * TEN.policy}, [{"count": TEN}], {"count": ss.Gaussian(sigma=3)}),
    "one of two columns": ({"*": 2 * TEN.policy}, [{"y": TEN}], {"x": TEN, "y": ss.Gaussian(sigma=8)}),
}


def release(session, mechanisms, **options):
    rest = {name: mechanism for name, mechanism in mechanisms.items() if name != "count"}
    if not rest:
        return session.count(keys=KEYS, mechanism=mechanisms["count"], **options)
    return session.sum(rest, keys=KEYS, count=mechanisms.get("count"), **options)


def refusal(session, mechanisms, **options):
    with pytest.raises(ss.CapError) as caught:
        release(session, mechanisms, **options)
    return caught.value


@pytest.mark.parametrize("ledger", [True, False])
@pytest.mark.parametrize("protect", [None, "firm"])
@pytest.mark.parametrize("partition", [None, "state"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_advised_fits_and_a_little_more_does_not(tmp_path, case, ledger, protect, partition):
    caps, before, refused = CASES[case]
    path = tmp_path / "census.ledger" if ledger else None
    session = ss.Session(RECORDS, path, caps, protect=protect, bits=Recorded(1))
    for mechanisms in before:
        release(session, mechanisms, partition=partition)
    error = refusal(session, refused, partition=partition)
    assert error.fits is not None
    assert not error.full
    (column,) = [name for name in refused if name in (error.column, "count")][-1:]
    assert error.column == column
    kind = type(refused[column]).__name__
    words = re.search(rf"({kind}\(.*?\)) would still fit", error.fits).group(1)
    parameters = dict(re.findall(r"(\w+)=([\w.+-]+)", words))
    made = {key: number if key == "estimator" else float(number) for key, number in parameters.items()}
    made |= {key: getattr(refused[column], key) for key in ("a",) if key in made}  # printed with fewer digits
    advised = type(refused[column])(**made)
    # one parameter differs, rounded to three digits
    (name,) = [name for name in advised._coarser if getattr(advised, name) != getattr(refused[column], name)]
    assert getattr(advised, name) == float(f"{getattr(advised, name):.3g}")
    finer = type(advised)(**{**made, name: made[name] * (0.985 if advised._coarser[name] else 1.015)})
    if advised.policy.upper is None or name == next(iter(advised._coarser)):  # otherwise a larger bound was used
        refusal(session, {**refused, column: finer}, partition=partition)
    release(session, {**refused, column: advised}, partition=partition)


def test_a_used_up_cap(tmp_path):
    session = ss.Session(RECORDS, tmp_path / "l", {"x": 2 * TEN.policy}, bits=Recorded(1))
    for _ in range(2):
        release(session, {"x": TEN})
    error = refusal(session, {"x": TEN})
    assert str(error) == (
        "the cap on 'x' would be exceeded, for records of every size: the cap allows 2 such releases, and 2 have been "
        "made; with one more, for example a record of size 10 would lose a total of 1.5, and the cap is 1. No Gaussian "
        "fits under what is left of the cap for every record size, unless it uses less than 0.01 % of the cap. To "
        "continue, raise the cap on 'x', with a reason, by `slowscale ledger set-cap` or Ledger.set_cap"
    )
    assert (error.column, error.influence, error.spent, error.cap, error.before) == ("x", 10, 1.5, 1, 1)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert session.ledger.history()[-1]["error"]["message"] == str(error)


def test_a_cap_that_unlike_releases_use():
    session = ss.Session(RECORDS, caps={"*": 2 * TEN.policy}, bits=Recorded(1))
    release(session, {"x": TEN})
    release(session, {"x": ss.Gaussian(sigma=12)})
    words = str(refusal(session, {"x": TEN}))
    assert "earlier releases use 84.7 % of the cap for a record of size 10; with this release" in words
    assert "Gaussian(sigma=18.1) would still fit, with a standard deviation of 18.1 in place of 10. Release" in words
    assert words.endswith("or open the session with a higher cap, Session(data, caps=…)")


def test_a_ledger_of_many_policies_is_refused_soon():
    """What would fit is not worked out where it would take long; the refusal stands."""
    session = ss.Session(RECORDS, caps={"x": 2 * TEN.policy}, bits=Recorded(1))
    for number in range(250):
        policy = ss.RecordPolicy((("x", ss.GeneralizedGaussian(sigma=1e6 + number, p=1).policy),))
        session._accountant.record(Charge(policy))
    error = refusal(session, {"x": ss.Gaussian(sigma=1)})
    assert error.fits is None
    assert "earlier releases use less than 0.01 % of the cap" in str(error)


def test_the_cap_to_raise_is_named(tmp_path):
    session = ss.Session(RECORDS, tmp_path / "l", {"*": TEN.policy, "y": TEN.policy}, bits=Recorded(1))
    assert "raise the cap on '*', with a reason" in str(refusal(session, {"x": ss.Gaussian(sigma=1)}))
    assert "raise the cap on 'y', with a reason" in str(refusal(session, {"y": ss.Gaussian(sigma=1)}))


def test_a_mechanism_of_another_shape_does_not_fit():
    session = ss.Session(RECORDS, caps={"x": ss.Root(k=4, sigma=1).policy}, bits=Recorded(1))
    words = str(refusal(session, {"x": TEN}))
    assert "would be exceeded, for records above 21.5: by this release alone" in words
    assert (
        "No Gaussian fits under the cap for every record size, unless it uses less than 0.01 % of the cap. To continue"
        in words
    )


def test_entities_and_counts_are_named():
    caps = {"x": ss.Root(k=4, sigma=1).policy, "count": TEN.policy}
    session = ss.Session(RECORDS, caps=caps, protect="firm", bits=Recorded(1))
    assert "where the total of one firm in a cell is above 21.5" in str(refusal(session, {"x": TEN}))
    assert "a firm with 20 records in a cell would lose" in str(refusal(session, {"count": ss.Gaussian(sigma=5)}))
    session = ss.Session(RECORDS, caps={"count": TEN.policy}, bits=Recorded(1))
    words = str(refusal(session, {"count": ss.Gaussian(sigma=5)}))
    assert "exceeded, for every record: by this release alone, a record" in words


def test_advice_that_fails_leaves_the_refusal(monkeypatch):
    def broken(*_):
        raise RuntimeError("no advice")

    monkeypatch.setattr("slowscale.accounting.refusals._advice", broken)
    session = ss.Session(RECORDS, caps={"x": TEN.policy}, bits=Recorded(1))
    error = refusal(session, {"x": ss.Gaussian(sigma=5)})
    assert error.fits is None
    assert "Make the release less precise, or open the session with a higher cap" in str(error)


def test_the_refusal_does_not_depend_on_the_records():
    other = RECORDS.assign(x=[5, 7, 10**9])
    found = {
        str(refusal(ss.Session(data, caps={"x": TEN.policy}), {"x": ss.Gaussian(sigma=5)})) for data in (RECORDS, other)
    }
    assert len(found) == 1


def test_what_fits_can_be_typed_and_may_have_no_variance():
    endless = ss.ExponentialPolylog(d=2.5, p=1)
    caps = {"x": endless.policy + ss.ExponentialPolylog(d=2.5, sigma=10, p=1).policy}
    session = ss.Session(RECORDS, caps=caps, bits=Recorded(1))
    release(session, {"x": endless})
    words = str(refusal(session, {"x": endless}))
    assert "ExponentialPolylog(d=2.5, sigma=10.0, p=1.0) would still fit, with sigma 10 in place of 1" in words
    session = ss.Session(RECORDS, caps={"x": 2 * ss.ExponentialPolylog(d=0.3).policy}, bits=Recorded(1))
    release(session, {"x": ss.ExponentialPolylog(d=0.4)})
    found = re.search(
        r"(ExponentialPolylog\(.*?\)) would still fit", str(refusal(session, {"x": ss.ExponentialPolylog(d=0.3)}))
    )
    release(session, {"x": eval(found[1], {"ExponentialPolylog": ss.ExponentialPolylog})})


def test_all_columns_that_are_refused_are_named():
    session = ss.Session(RECORDS, caps={"x": TEN.policy, "y": TEN.policy}, bits=Recorded(1))
    error = refusal(session, {"x": ss.Gaussian(sigma=1), "y": ss.Gaussian(sigma=1)})
    assert (error.column, error.also) == ("x", ("y",))
    assert "The cap on 'y' would be exceeded as well" in str(error)


def test_a_cap_that_was_lowered_is_not_called_kept(tmp_path):
    ledger = ss.Ledger(tmp_path / "l", {"x": 4 * TEN.policy})
    session = ss.Session(RECORDS, ledger, bits=Recorded(1))
    for _ in range(3):
        release(session, {"x": TEN})
    ledger.set_cap("x", 2 * TEN.policy + ConstantPolicy(1.0), "less is enough")
    words = ledger.describe()
    assert "never loses more" not in words
    assert "The total already exceeds it for records above 14.1" in words


def test_every_range_is_named():
    slow, root = ss.ExponentialPolylog.calibrate(std=75), ss.GeneralizedGaussian.calibrate(std=75, p=0.5)
    assert describe_change("x", root.policy, slow.policy) == (
        "The new cap is LOWER than the old one for records below about 7.49 and above 653, and higher for records "
        "between about 7.49 and about 653"
    )
