"""Errors know the place of a mistake in the request, in copies and pickles too."""

import copy
import pickle
from decimal import Decimal
from string import Formatter

import numpy as np
import pyarrow as pa
import pytest

import slowscale as ss
from slowscale.core.data_errors import SENTENCES, Name
from slowscale.core.errors import CalibrationError, ParameterError, ParameterTypeError, located

NOISE = ss.Gaussian(sigma=5)
KEYS = ss.Keys.cross({"state": ["IA", "TX"]})
CELLS = ss.Sums({"emp": NOISE}, KEYS)


@pytest.mark.parametrize("kind", [ParameterError, ParameterTypeError, CalibrationError])
def test_paths_survive_copies(kind):
    error = kind("unit must be > 0", path=("sums", "emp", 0))
    for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (type(again), str(again), again.path) == (kind, "unit must be > 0", ("sums", "emp", 0))
    assert kind("no place").path == pickle.loads(pickle.dumps(kind("no place"))).path == ()
    assert ss.DataError("no-records").path == ()


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
        assert "{" not in str(again).replace("csv={", "")
    assert all(str(fact) in str(error) for fact in facts.values())


def test_an_error_has_all_problems_of_a_column():
    error = ss.DataError("nulls", "negatives", column=Name("emp"))
    assert (error.code, error.codes, error.subject) == ("nulls", ("nulls", "negatives"), "column 'emp'")
    assert "missing values" in error.problem
    assert "negative values" in error.problem


def test_places_are_put_before_a_path():
    with pytest.raises(ParameterError) as caught, located("tables", "cells"), located("sums", "emp"):
        raise ParameterError("wrong", path=("unit",))
    assert caught.value.path == ("tables", "cells", "sums", "emp", "unit")
    with pytest.raises(ss.DataError) as other, located("tables"):
        raise ss.DataError("no-records")
    assert other.value.path == ()


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
    with pytest.raises((ParameterError, ParameterTypeError)) as caught:
        make()
    assert caught.value.path == path


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
    import pandas as pd

    session = ss.Session(pd.DataFrame({"state": ["IA"], "emp": [3]}))
    with pytest.raises((ParameterError, ParameterTypeError)) as caught:
        session.preview({"cells": table})
    assert caught.value.path == ("tables", "cells", *path)
