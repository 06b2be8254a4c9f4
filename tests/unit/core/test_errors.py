"""Errors are data: each face renders the same fields, which survive copies and pickles."""

import copy
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from string import Formatter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers.errors import refused

import slowscale as ss
from slowscale.core import errors
from slowscale.core.data_errors import SENTENCES, Name
from slowscale.core.errors import (
    CalibrationError,
    CapError,
    ParameterError,
    ParameterTypeError,
    Shown,
    SlowscaleError,
    install_hint,
    located,
)

NOISE = ss.Gaussian(sigma=5)
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
CELLS = ss.Sums({"emp": NOISE}, KEYS)
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SlowscaleError)]
CODES = {
    "SlowscaleError": "error", "ParameterError": "value", "ParameterTypeError": "type", "DataError": "data",
    "EngineError": "engine", "PlanError": "plan", "CapError": "cap", "LedgerError": "ledger",
    "SignatureError": "signature", "IncompleteError": "incomplete", "CalibrationError": "calibration",
}  # fmt: skip


# --- rendering -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "sigma"),
        ({"problem": "is missing"}, "sigma is missing"),
        ({"allowed": "> 0"}, "sigma must be > 0"),
        ({"allowed": ("mean", "median")}, "sigma must be one of mean, median"),
        ({"problem": "is missing", "allowed": "> 0"}, "sigma is missing"),
        ({"given": -1}, "sigma, got -1"),
        ({"problem": "is too small", "given": -1}, "sigma is too small, got -1"),
        ({"allowed": "> 0", "given": -1}, "sigma must be > 0, got -1"),
        ({"allowed": "> 0", "given": None}, "sigma must be > 0, got None"),
        ({"remedy": "give it"}, "sigma; give it"),
        ({"problem": "is missing", "remedy": "give it"}, "sigma is missing; give it"),
        ({"allowed": "> 0", "remedy": "give it"}, "sigma must be > 0; give it"),
        ({"allowed": "> 0", "given": -1, "remedy": "give it"}, "sigma must be > 0, got -1; give it"),
        ({"problem": "is x", "allowed": "> 0", "given": -1, "remedy": "give it"}, "sigma is x, got -1; give it"),
        ({"remedy": ""}, "sigma"),
    ],
)
def test_the_fields_make_a_sentence(fields, sentence):
    error = ParameterError("sigma", **fields)
    assert str(error) == error.render() == sentence
    assert error.render(subject="[noise] scale") == f"[noise] scale{sentence.removeprefix('sigma')}"
    assert error.render(subject="") == sentence.removeprefix("sigma").removeprefix(" ")


def test_a_subject_may_be_a_whole_sentence_a_path_or_nothing(tmp_path):
    assert str(SlowscaleError("no decision was reached", remedy="try again")) == "no decision was reached; try again"
    assert str(SlowscaleError(tmp_path, "is a folder")) == f"{tmp_path} is a folder"
    assert SlowscaleError(tmp_path).subject == str(tmp_path)
    assert str(SlowscaleError()) == ""
    assert str(SlowscaleError(problem="nothing is left")) == "nothing is left"


def test_other_arguments_are_spelled_by_each_face():
    error = ParameterError(
        "std", "excludes `loss`", given=Shown("`loss=1`"), remedy="give `at`, or `pure=True` with `loss`, as in `a b`"
    )
    assert str(error) == "std excludes loss, got loss=1; give at, or pure=True with loss, as in `a b`"
    option = error.render("--std", spell=lambda name: f"--{name}")
    assert option == "--std excludes --loss, got --loss=1; give --at, or --pure=True with --loss, as in `a b`"
    assert error.render(spell=str.upper).startswith("std excludes LOSS")  # the subject is not a mention


@pytest.mark.parametrize(
    ("given", "value", "of_a_type"),
    [
        (5, "5", "5 of type int"),
        (-0.5, "-0.5", "-0.5 of type float"),
        (math.nan, "nan", "nan of type float"),
        (np.float64(2.5), "2.5", "2.5 of type float64"),
        (Decimal("0.10"), "0.10", "0.10 of type Decimal"),
        (Fraction(1, 3), "1/3", "1/3 of type Fraction"),
        (True, "True", "True of type bool"),
        (None, "None", "None of type NoneType"),
        ("a 'b'", "\"a 'b'\"", "\"a 'b'\" of type str"),
        (["a"], "['a']", "['a'] of type list"),
        (int, "int", "int"),
        (Shown("int and str"), "int and str", "int and str"),
        ("x" * 100, "'" + "x" * 59, "'" + "x" * 59 + " of type str"),
        (Shown("x" * 100), "x" * 100, "x" * 100),
    ],
)
def test_what_was_given_is_described(given, value, of_a_type):
    assert ParameterError("x", given=given).given == value
    assert ParameterTypeError("x", given=given).given == of_a_type


def test_nothing_given_is_not_none():
    assert ParameterError("x").given is None
    assert ParameterError("x", given=None).given == "None"


# --- fields ----------------------------------------------------------------------------------------------------------


def test_every_class_has_a_default_code():
    assert {kind.__name__: kind.code for kind in KINDS} == CODES
    for kind in KINDS:
        if kind not in (CapError, ss.DataError):
            assert kind("x").code == kind.code
            assert kind("x", code="exists").code == "exists"
            assert kind.code == CODES[kind.__name__]  # the class keeps its default


def test_python_catches_them_as_its_errors():
    for kind, python in [
        (ParameterError, ValueError), (ParameterTypeError, TypeError), (CalibrationError, ParameterError),
        (ss.DataError, ValueError), (ss.EngineError, RuntimeError), (ss.PlanError, ValueError),
    ]:  # fmt: skip
        assert issubclass(kind, python)
    assert all(issubclass(kind, SlowscaleError) for kind in KINDS)


def made(kind):
    """Return an error of a class with all its fields."""
    if kind is CapError:
        return CapError(column="emp", influence=10.0, spent=3.0, cap=2.0, before=1.0, fits="one more", also=("pay",))
    if kind is ss.DataError:
        return kind("nulls", column=Name("emp"), path=("sums", "emp", 0))
    if kind is ss.SignatureError:
        return kind("a.csv", "was changed", code="changed", file="a.csv")
    error = kind(
        "emp", "is x", code="exists", path=("sums", "emp", 0), given=[1], allowed=("a", "b"), remedy="give `at`"
    )
    if kind is errors.IncompleteError:
        error.missing, error.lost = ("a.csv",), ("b.csv",)
    return error


@pytest.mark.parametrize("kind", KINDS)
def test_all_fields_survive_copies_and_pickles(kind):
    error = made(kind)
    for again in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is kind
        assert vars(again) == vars(error)
        assert (str(again), again.args, again.code, again.path) == (str(error), error.args, error.code, error.path)


@pytest.mark.parametrize("kind", [ParameterError, ParameterTypeError, CalibrationError])
def test_places_are_put_before_a_path(kind):
    with (
        refused(kind, path=("tables", "cells", "sums", "emp", "unit")),
        located("tables", "cells"),
        located("sums", "emp"),
    ):
        raise kind("wrong", path=("unit",))
    with refused(kind, path=("tables", 0)), located("tables", 0):
        raise kind("wrong")


def test_errors_about_a_ledger_get_no_place():
    with refused(ss.LedgerError, path=()), located("tables"):
        raise ss.LedgerError("l", "is locked")
    with refused(ss.DataError, path=("tables",)), located("tables"):
        raise ss.DataError("no-records")
    with located("tables"):
        pass


def test_a_hint_names_the_extras():
    assert install_hint("files", "excel").count("[files,excel]") == 2
    assert "[" not in install_hint()


# --- places in a request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: ss.Sums({"emp": 3}), ("sums", "emp")),
        (lambda: ss.Sums({"count": NOISE}), ("sums", "count")),
        (lambda: ss.Sums({"": NOISE}), ("sums", "")),
        (lambda: ss.Sums(["emp"]), ("sums",)),
        (lambda: ss.Sums({}), ()),
        (lambda: ss.Sums({"state": NOISE}, KEYS), ("sums", "state")),
        (lambda: ss.Sums({"emp": NOISE}, ["IA"]), ("keys",)),
        (lambda: ss.Sums({"emp": NOISE}, count=3), ("count",)),
        (lambda: ss.Sums({"emp": NOISE}, unit={"emp": 0}), ("sums", "emp", "unit")),
        (lambda: ss.Sums({"emp": NOISE}, unit=0), ("sums", "emp", "unit")),
        (lambda: ss.Sums({"emp": NOISE}, unit={"pay": 1}), ("sums", "pay", "unit")),
        (lambda: ss.Sums({"emp": NOISE}, means="box"), ("means",)),
        (lambda: ss.Sums({"emp": NOISE}, means="bix", count=NOISE), ("means",)),
        (lambda: ss.Sums({"emp": NOISE}, nulls="nil"), ("nulls",)),
        (lambda: ss.Sums({"emp": NOISE}, negatives="nil"), ("negatives",)),
        (lambda: ss.Sums({"emp": NOISE}, nonnegative=1), ("nonnegative",)),
        (lambda: ss.Sums({"emp": NOISE}, where=3), ("where",)),
        (lambda: ss.Sums({"emp": NOISE}, derive={"x": 3}), ("derive", "x")),
        (lambda: ss.Quantiles("", loss=1), ("quantiles",)),
        (lambda: ss.Quantiles("emp", loss=0), ("loss",)),
        (lambda: ss.Quantiles("emp", [2], loss=1), ("at",)),
        (lambda: ss.Quantiles("emp", loss=1, grid=[1]), ("grid",)),
        (lambda: ss.Quantiles("emp", loss=1, nulls="nil"), ("nulls",)),
        (lambda: ss.Rollup(""), ("rollup",)),
        (lambda: ss.Rollup("cells", ["a", "a"]), ("by",)),
        (lambda: ss.Request({"a b": CELLS}), ("tables", "a b")),
        (lambda: ss.Request({"a": CELLS, "A": CELLS}), ("tables", "A")),
        (lambda: ss.Request({"a": ss.Rollup("b"), "b": ss.Rollup("a")}), ("tables",)),
        (lambda: ss.Request({"c": CELLS, "a": ss.Rollup("b"), "b": ss.Rollup("a")}), ("tables", "a", "rollup")),
        (lambda: ss.Request({"c": CELLS, "a": ss.Rollup("none")}), ("tables", "a", "rollup")),
        (lambda: ss.Request({"c": CELLS, "a": ss.Rollup("c", ["none"])}), ("tables", "a", "by")),
        (lambda: ss.Request({"c": CELLS, "a": ss.Rollup("c", ["state"])}), ("tables", "a", "by")),
        (lambda: ss.Request({"c": ss.Sums({"emp": NOISE}), "a": ss.Rollup("c")}), ("tables", "a", "rollup")),
        (lambda: ss.Request({"c": CELLS}, level=2), ("level",)),
        (lambda: ss.Request({"c": CELLS}, partition="naics"), ("partition",)),
        (lambda: ss.Request({"c": CELLS}, period=2024), ("period",)),
        (lambda: ss.Request({"c": CELLS}, 3), ("hierarchies",)),
    ],
)
def test_an_error_of_a_request_has_a_place(make, path):
    with refused((ParameterError, ParameterTypeError), path=path):
        make()


@pytest.mark.parametrize(
    ("table", "path"),
    [
        (ss.Sums({"epm": NOISE}), ("sums", "epm")),
        (ss.Sums({"emp": NOISE}, ss.Keys.cross({"stat": ["IA"]})), ("keys",)),
        (ss.Sums({"emp": NOISE}, ss.Keys.cross({"state": [1]})), ("keys",)),
        (ss.Sums({"emp": NOISE}, where="epm > 1"), ("where",)),
        (ss.Sums({"x": NOISE}, derive={"x": "epm + 1"}), ("derive",)),
        (ss.Quantiles("epm", loss=1), ("quantiles",)),
        (ss.Quantiles("state", loss=1), ("quantiles",)),
    ],
)
def test_an_error_about_the_columns_has_a_place(table, path):
    session = ss.Session(pd.DataFrame({"state": ["IA"], "emp": [3]}))
    with refused((ParameterError, ParameterTypeError), path=("tables", "cells", *path)):
        session.preview({"cells": table})


# --- errors about records --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fact",
    [
        "Ada Lovelace",
        3.5,
        True,
        None,
        np.int64(3),
        np.str_("Ada"),
        b"Ada",
        pa.scalar("Ada"),
        Decimal(3),
        type("S", (str,), {})("Ada"),
    ],
)
def test_an_error_about_records_cannot_hold_a_value(fact):
    for name in ("column", "file", "line"):
        with pytest.raises(TypeError, match="names and whole numbers only"):
            ss.DataError("nulls", **{name: fact})
    with pytest.raises(KeyError):
        ss.DataError("Ada Lovelace is missing")


@pytest.mark.parametrize("code", SENTENCES)
def test_errors_about_records_survive_copies(code):
    names = {name for part in SENTENCES[code] for _, name, _, _ in Formatter().parse(part) if name}
    facts = {name: 7 if name in ("line", "row", "width", "most", "cells") else Name(f"a {name}") for name in names}
    error = ss.DataError(code, path=("sums", "emp"), **facts)
    for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(again), again.code, again.path) == (str(error), code, ("sums", "emp"))
        assert (again.subject, again.remedy, again.facts) == (error.subject, error.remedy, facts)
        assert again.given is None
        assert "{" not in str(again).replace("csv={", "").replace("csv = {", "")
    assert all(str(fact) in str(error) for fact in facts.values())


def test_an_error_has_all_problems_of_a_column():
    error = ss.DataError("nulls", "negatives", column=Name("emp"))
    assert (error.code, error.codes, error.subject) == ("nulls", ("nulls", "negatives"), "column 'emp'")
    assert "missing values" in error.problem
    assert "negative values" in error.problem
