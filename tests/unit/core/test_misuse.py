"""Mistakes of callers: each raises an error of the library that says what it is about, and none a bare one."""

import pickle

import pyarrow as pa
import pytest

import slowscale as ss

GAUSSIAN = ss.Gaussian(sigma=10)


@pytest.fixture(scope="module")
def release():
    session = ss.Session(pa.table({"x": [1, 2, 3]}))
    return session.release(ss.Request({"t": ss.Sums({"x": GAUSSIAN})}))


def assert_refused(action, subject, kind):
    with pytest.raises((ss.ParameterError, ss.ParameterTypeError)) as caught:
        action()
    error = caught.value
    assert type(error) is kind
    assert error.subject == subject
    assert error.allowed or error.code not in ("value", "type")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("derive", ["z=x", ["z"], True, 0, {1: "x"}, {"z": 1}])
@pytest.mark.parametrize("make", [ss.Sums, ss.Quantiles])
def test_derived_columns_are_a_mapping_of_names_to_text(make, derive):
    arguments = ({"x": GAUSSIAN},) if make is ss.Sums else ("x", [0.5])
    options = {} if make is ss.Sums else {"loss": 1}
    subject = "derive['z']" if derive == {"z": 1} else "derive"
    assert_refused(lambda: make(*arguments, derive=derive, **options), subject, ss.ParameterTypeError)


@pytest.mark.parametrize(
    ("csv", "subject", "kind"),
    [
        ({"header": True}, "csv header", ss.ParameterTypeError),
        ({"header": "xy"}, "csv header", ss.ParameterTypeError),
        ({"header": [1, 2]}, "csv header", ss.ParameterTypeError),
        ({"encoding": "\ud800"}, "csv encoding", ss.ParameterError),
        ({"encoding": "utf\0"}, "csv encoding", ss.ParameterError),
        ({"encoding": 8}, "csv encoding", ss.ParameterError),
    ],
)
def test_the_format_of_a_file(csv, subject, kind, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    assert_refused(lambda: ss.Session(tmp_path / "a.csv", csv=csv), subject, kind)


@pytest.mark.parametrize(
    ("action", "subject", "kind"),
    [
        (lambda: ss.ExponentialPolylog(d=1, sigma=1, p=10**30), "p", ss.ParameterError),
        (lambda: ss.ExponentialPolylog(d=1, sigma=1, p=711), "p", ss.ParameterError),
        (lambda: ss.size_grid(5e-324), "low and high", ss.ParameterError),
        (lambda: ss.size_grid(1e-300, 1e300, 1), "low and high", ss.ParameterError),
        (lambda: ss.read_plan(None), "path", ss.ParameterTypeError),
        (lambda: ss.sign(None, None), "paths", ss.ParameterTypeError),
        (lambda: ss.sign(3, None), "paths", ss.ParameterTypeError),
        (lambda: ss.advise({"a": float("nan")}, interval=10), "records['a']", ss.ParameterError),
        (lambda: ss.advise({"a": "1"}, interval=10), "records['a']", ss.ParameterTypeError),
        (lambda: ss.advise({"a": 1}, interval=1e308), "interval", ss.ParameterError),
        (lambda: ss.advise({"a": 1}, std=1e308), "std", ss.ParameterError),
        (lambda: ss.advise({"a": 1}, relative=1e300, large=1e300), "relative", ss.ParameterError),
    ],
)
def test_wrong_arguments(action, subject, kind):
    assert_refused(action, subject, kind)


@pytest.mark.parametrize(
    ("ask", "subject", "kind"),
    [
        (lambda release: release[[]], "table", ss.ParameterError),
        (lambda release: release[None], "table", ss.ParameterError),
        (lambda release: release.policy.entity(None), "cells", ss.ParameterTypeError),
        (lambda release: release.policy.entity([None]), "cells", ss.ParameterTypeError),
        (lambda release: release.policy.entity([{"x": []}]), "'x' in `cells`", ss.ParameterTypeError),
        (lambda release: release.policy.entity([{"x": [1, 2]}]), "'x' in `cells`", ss.ParameterTypeError),
    ],
)
def test_wrong_questions_to_a_release(release, ask, subject, kind):
    assert_refused(lambda: ask(release), subject, kind)
    assert [] not in release
    assert "t" in release


def test_sizes_of_a_report_are_no_smaller_than_floats_allow(release, tmp_path):
    tiny = {"largest": 5e-324}
    assert_refused(lambda: release.report(tmp_path / "a.html", sizes=tiny), "sizes: 'largest'", ss.ParameterError)
    assert not (tmp_path / "a.html").exists()
    for size in (0, 1e-300):
        release.report(tmp_path / "b.html", sizes={"largest": size}, overwrite=True)
