"""A publication is a value: checked, written as a dictionary and read back."""

import json
from datetime import date
from fractions import Fraction

import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.publish.publication import label_text, read_codes

FULL = {
    "title": "Payroll",
    "source": "Register",
    "period": "2024",
    "contact": "a@example.org",
    "notes": ["One.", "Two."],
    "columns": {"pay": {"title": "Annual payroll", "unit": "thousand USD", "description": "Before taxes."}},
    "keys": {"state": "State"},
    "codes": {"state": {"01": "Alabama"}},
    "tables": {"cells": "All cells"},
    "rounding": {"pay": 100, "mean": "1/10"},
    "cv_limits": [5.0, 10.0],
    "flags": ["A", "B", "C"],
    "negatives": {"pay": "zero"},
}


def test_it_is_read_back_from_its_description():
    for given in (FULL, {"title": "T"}, {"title": "T", "rounding": "0.1"}, {"title": "T", "negatives": "keep"}):
        one = ss.Publication.from_dict(given)
        written = json.loads(json.dumps(one.to_dict()))
        assert ss.Publication.from_dict(written) == one
        assert set(given) <= set(written)
    assert ss.Publication.from_dict(FULL).to_dict() == FULL
    fraction = Fraction  # the name that a pasted repr needs
    assert eval(repr(one), {"Publication": ss.Publication, "ColumnLabel": ss.ColumnLabel, "Fraction": fraction}) == one


def test_labels_steps_and_rules():
    one = ss.Publication("T", columns={"pay": "Payroll"}, rounding=10, negatives={"pay": "zero"})
    assert (str(one.label("pay")), str(one.label("emp"))) == ("Payroll", "emp")
    assert (one.step("pay"), one.step("mean", ratio=True)) == (10, None)
    assert (one.negative("pay"), one.negative("emp")) == ("zero", "flag")
    assert ss.Publication("T", rounding={"mean": "0.1"}).step("mean", ratio=True) == Fraction(1, 10)
    assert [label_text(label) for label in ("01", 7, True, date(2024, 2, 29))] == ["01", "7", "true", "2024-02-29"]


@pytest.mark.parametrize(
    ("changes", "subject", "code"),
    [
        ({"title": " "}, "title", "empty"),
        ({"title": 3}, "title", "type"),
        ({"rounding": [1]}, "rounding", "type"),
        ({"source": ""}, "source", "empty"),
        ({"notes": "one"}, "notes", "type"),
        ({"notes": ["one", " "]}, "notes", "empty"),
        ({"flags": ["a", "", "b"]}, "flags", "empty"),
        ({"columns": {"pay": 3}}, "columns['pay']", "type"),
        ({"columns": {"pay": {"titel": "x"}}}, "columns['pay']", "unknown-name"),
        ({"columns": {1: "x"}}, "the keys of columns", "type"),
        ({"codes": {"state": {"01": ""}}}, "codes['state']['01']", "empty"),
        ({"codes": {"state": "x.csv"}}, "codes['state']", "type"),
        ({"rounding": 0}, "rounding", "value"),
        ({"rounding": {"pay": 0.1}}, "rounding", "precision"),
        ({"cv_limits": [33.3, 16.5]}, "cv_limits", "value"),
        ({"cv_limits": [16.55, 33.3]}, "cv_limits", "value"),
        ({"cv_limits": [float("nan"), 33.3]}, "cv_limits", "value"),
        ({"cv_limits": [16.5, 16.5]}, "cv_limits", "value"),
        ({"cv_limits": [0, 16.5]}, "cv_limits", "value"),
        ({"cv_limits": [-0.1, 16.5]}, "cv_limits", "value"),
        ({"cv_limits": [16.5, 1e9]}, "cv_limits", "value"),
        ({"flags": ["a", "b"]}, "flags", "value"),
        ({"flags": ["a", "a", "b"]}, "flags", "value"),
        ({"flags": ["a", "negative", "b"]}, "flags", "value"),
        ({"negatives": "hide"}, "negatives", "value"),
        ({"negatives": {"pay": "hide"}}, "negatives", "value"),
        ({"titel": "x"}, "'titel'", "unknown-name"),
    ],
)
def test_what_is_not_allowed(changes, subject, code):
    with refused(ss.SlowscaleError, subject, code=code):
        ss.Publication.from_dict({"title": "T", **changes})


def test_a_title_is_needed():
    with refused(ss.ParameterError, "title", code="missing"):
        ss.Publication.from_dict({})


def test_code_lists_are_read_as_text(tmp_path):
    path = tmp_path / "states.csv"
    path.write_text('\ufeffcode,name,more\n01001,"Autauga, AL",x\n\n1e5,Ünï\n', encoding="utf-8")
    assert ss.Publication.read_codes(path) == {"01001": "Autauga, AL", "1e5": "Ünï"}


@pytest.mark.parametrize(
    ("text", "code", "problem"),
    [
        ("code,name\n01\n", "missing", "but '01' has no name"),
        ("code,name\n01, \n", "missing", "but '01' has no name"),
        ("code,name\n01,a\n01,b\n", "duplicate", "two names for '01'"),
        ("code,name\n", "empty", "must have a header"),
        ('code,name\n"01', "unreadable", "cannot be read: unexpected end of data"),
    ],
)
def test_code_lists_with_mistakes(tmp_path, text, code, problem):
    path = tmp_path / "codes.csv"
    path.write_text(text)
    with refused(ss.ParameterError, f"codes: {path}", code=code) as caught:
        read_codes(path)
    assert problem in str(caught.value)


def test_code_lists_that_are_not_there(tmp_path):
    with refused(ss.ParameterError, f"codes: {tmp_path / 'none.csv'}", code="unreadable") as caught:
        read_codes(tmp_path / "none.csv")
    assert "cannot be read: No such file or directory" in str(caught.value)


def test_a_limit_may_be_a_tenth_of_a_per_cent():
    assert ss.Publication("T", cv_limits=(0.1, 0.2)).cv_limits == (0.1, 0.2)
