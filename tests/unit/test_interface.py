"""What people meet: names, types, notebooks, and mistakes in names."""

import inspect
from html import escape
from importlib import import_module
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from helpers.strategies import policies
from hypothesis import given

import slowscale as ss
from slowscale.accounting import Spent
from slowscale.policy.base import POLICY_KINDS, Policy

HOSTILE = "<script>alert(1)</script>"
PACKAGES = ("accounting", "datasets", "mechanisms", "noise", "policy", "release", "sampling")
# The only parameters that may be of any type, each with the reason.
ANY_TYPE = {
    # Mechanisms make it, never a user: Python integers, or arrays of whatever type holds the numbers.
    "Noisy.__init__": {"units", "transformed"},
    # A ball of this package or of python-flint, which has no types; and one row or an array of rows.
    "Task.finish": {"variate", "rows"},
}


def test_only_public_names_are_listed():
    assert set(dir(ss)) == {*ss.__all__, "__version__"}
    assert all(getattr(ss, name) is not None for name in ss.__all__)


def public_things():
    """Yield the public classes and functions: those of the package itself, and of its rooms with a public face."""
    modules = [ss, *(import_module(f"slowscale.{name}") for name in PACKAGES)]
    found = {name: getattr(module, name) for module in modules for name in module.__all__}
    yield from ((name, thing) for name, thing in found.items() if callable(thing))


def callables(name, thing):
    """Yield the functions that a user of a public name may call, by their qualified names."""
    if not inspect.isclass(thing):
        yield name, thing
        return
    for attribute in dir(thing):
        if attribute.startswith("_") and attribute not in ("__init__", "__call__"):
            continue
        method = inspect.getattr_static(thing, attribute)
        method = method.__func__ if isinstance(method, classmethod | staticmethod) else method
        if inspect.isfunction(method) and method.__module__.startswith("slowscale"):
            yield f"{name}.{attribute}", method


def is_any(annotation):
    """Whether an annotation says nothing: Any, alone or beside others."""
    beside = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return annotation in (Any, "Any", inspect.Parameter.empty) or Any in beside


def of_any_type(function):
    """Return the parameters of a function that are annotated as Any, or not at all."""
    parameters = list(inspect.signature(function).parameters.values())
    return {one.name for one in parameters if one.name not in ("self", "cls") and is_any(one.annotation)}


@pytest.mark.parametrize(
    ("name", "thing"), list(public_things()), ids=lambda given: given if isinstance(given, str) else ""
)
def test_every_parameter_has_a_type(name, thing):
    for where, function in callables(name, thing):
        if function.__module__.startswith("slowscale"):
            assert of_any_type(function) <= ANY_TYPE.get(where, set()), where


def test_a_parameter_of_any_type_is_seen():
    def one(a: Any, b: "Any", c, d: Any | None = None, *, e: int = 1, f: dict[str, Any] | None = None, **g: Any):
        pass

    assert of_any_type(one) == {"a", "b", "c", "d", "g"}


def test_notebooks_show_tables_and_escape_everything():
    keys = ss.Keys.from_frame({"g": [HOSTILE, *map(str, range(20))]})
    session = ss.Session(pd.DataFrame({"g": [HOSTILE], "x": [5]}), bits=Recorded(1))
    release = session.sum({"x": ss.Root(k=2, sigma=1)}, keys=keys)
    shown = [release, keys, session.losses(release), ss.compare([ss.Gaussian(sigma=1), ss.Log(sigma=1)]), session.spent]
    for thing in shown:
        html = thing._repr_html_()
        assert "<script>" not in html
        assert html.startswith(("<table>", "<pre>"))
    assert "The first 10 of 21 rows" in release._repr_html_()
    assert "CONFIDENTIAL" in shown[2]._repr_html_()


def test_notebooks_show_everything_with_a_table_of_its_own():
    for shown in (ss.Release, ss.Comparison, ss.Keys, ss.Losses, Spent):
        assert inspect.isfunction(inspect.getattr_static(shown, "_repr_html_"))


def test_notebooks_show_what_was_spent():
    session = ss.Session(pd.DataFrame({"x": [5], HOSTILE: [1]}), bits=Recorded(1))
    assert "No release has been charged to this account yet" in session.spent._repr_html_()
    session.sum({"x": ss.Root(k=2, sigma=1), HOSTILE: ss.Gaussian(sigma=1)})
    html = session.spent._repr_html_()
    assert html == f"<pre>{escape(str(session.spent))}</pre>"
    assert "1 release so far" in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("cls", POLICY_KINDS.values(), ids=lambda cls: cls.__name__)
def test_notebooks_show_policies_as_formulas(cls):
    assert cls._repr_latex_ is Policy._repr_latex_


@given(policies)
def test_every_policy_is_a_formula_in_a_notebook(policy):
    shown = policy._repr_latex_()
    assert shown == f"${policy.latex()}$"
    assert len(shown) > 2


def test_a_bounded_policy_is_a_formula_in_a_notebook():
    assert ss.Gaussian(sigma=3).bounded_policy()._repr_latex_() == r"$\frac{\left|r - r'\right|^{2}}{2 \cdot 3^2}$"


def test_overwriting_is_said_by_name(tmp_path):
    release = ss.Session(pd.DataFrame({"x": [5]}), bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=1)})
    for write in (release.to_csv, release.to_parquet):
        with pytest.raises(TypeError, match="positional"):
            write(tmp_path / "x", True)


def test_names_are_suggested():
    session = ss.Session(pd.DataFrame({"state": ["a"], "payroll": [5]}), bits=Recorded(1))
    with refused(ss.ParameterError, "column 'payrol'", code="unknown-column"):
        session.sum({"payrol": ss.Gaussian(sigma=1)})
    with refused(ss.ParameterError, "column 'zzz'", code="unknown-column"):
        session.sum({"zzz": ss.Gaussian(sigma=1)})
