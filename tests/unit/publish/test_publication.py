"""A publication is a value: checked, written as a dictionary and read back."""

import json
from datetime import date
from fractions import Fraction

import pytest

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
    ("changes", "words"),
    [
        ({"title": " "}, "title must not be empty"),
        ({"title": 3}, "title must be text, got int"),
        ({"source": ""}, "source must not be empty"),
        ({"notes": "one"}, "notes must be a list or a tuple, got str"),
        ({"columns": {"pay": 3}}, r"columns\['pay'\] must be text or a label"),
        ({"columns": {"pay": {"titel": "x"}}}, "no entry 'titel'; did you mean 'title'"),
        ({"columns": {1: "x"}}, "columns must have names as keys"),
        ({"codes": {"state": {"01": ""}}}, r"codes\['state'\]\['01'\] must not be empty"),
        ({"codes": {"state": "x.csv"}}, r"codes\['state'\] must be a mapping"),
        ({"rounding": 0}, "rounding must be a number > 0"),
        ({"rounding": {"pay": 0.1}}, 'rounding must be exact: give the text "0.1"'),
        ({"cv_limits": [33.3, 16.5]}, "cv_limits must be multiples of 0.1 above 0 that increase"),
        ({"cv_limits": [16.55, 33.3]}, "cv_limits must be multiples of 0.1"),
        ({"cv_limits": [float("nan"), 33.3]}, "cv_limits must be multiples of 0.1"),
        ({"flags": ["a", "b"]}, "flags must be different texts, one more than there are cv_limits"),
        ({"flags": ["a", "a", "b"]}, "flags must be different"),
        ({"flags": ["a", "negative", "b"]}, "and not 'negative'"),
        ({"negatives": "hide"}, "negatives must be one of flag, zero, keep, got 'hide'"),
        ({"negatives": {"pay": "hide"}}, "negatives must be one of"),
        ({"titel": "x"}, "'titel' is not a field of a publication; did you mean 'title'"),
    ],
)
def test_what_is_not_allowed(changes, words):
    with pytest.raises(ss.SlowscaleError, match=words):
        ss.Publication.from_dict({"title": "T", **changes})


def test_a_title_is_needed():
    with pytest.raises(ss.ParameterError, match="title is missing"):
        ss.Publication.from_dict({})


def test_code_lists_are_read_as_text(tmp_path):
    path = tmp_path / "states.csv"
    path.write_text('\ufeffcode,name,more\n01001,"Autauga, AL",x\n\n1e5,Ünï\n', encoding="utf-8")
    assert ss.Publication.read_codes(path) == {"01001": "Autauga, AL", "1e5": "Ünï"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("code,name\n01\n", "a label and a name in every line, but '01' has none"),
        ("code,name\n01, \n", "'01' has none"),
        ("code,name\n01,a\n01,b\n", "two names for '01'"),
        ("code,name\n", "must have a header, then one line"),
        ('code,name\n"01', "cannot be read"),
    ],
)
def test_code_lists_with_mistakes(tmp_path, text, words):
    path = tmp_path / "codes.csv"
    path.write_text(text)
    with pytest.raises(ss.ParameterError, match=words):
        read_codes(path)
    with pytest.raises(ss.ParameterError, match="No such file"):
        read_codes(tmp_path / "none.csv")
