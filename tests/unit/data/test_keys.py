"""Keys: made from public data of any kind, combined, typed, and never changed silently."""

import ast
import dataclasses
import re
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from helpers.bitsources import Recorded
from helpers.errors import refused
from hypothesis import given
from hypothesis import strategies as st

import slowscale as ss
from slowscale import DataError, Keys, ParameterError, ParameterTypeError
from slowscale.data.keys import GIVEN, TAKEN

PAIRS = Keys.cross({"county": ["01001", "01003"], "naics3": [111, 112, 113]})


@pytest.mark.parametrize(
    "frame",
    [
        {"county": ["01001", "01003"], "size": [1, 2]},
        pd.DataFrame({"county": ["01001", "01003"], "size": [1, 2]}),
        pd.DataFrame({"county": pd.Categorical(["01001", "01003"]), "size": np.array([1, 2], np.int8)}, index=[7, 9]),
        pl.DataFrame({"county": ["01001", "01003"], "size": [1, 2]}),
        pl.LazyFrame({"county": ["01001", "01003"], "size": [1, 2]}),
        pa.table({"county": pa.array(["01001", "01003"]).dictionary_encode(), "size": pa.array([1, 2], pa.uint16())}),
        pa.table({"county": pa.array(["01001", "01003"], pa.large_string()), "size": [1, 2]}),
    ],
    ids=lambda frame: type(frame).__module__,
)
def test_any_frame_gives_the_same_keys(frame):
    keys = Keys.from_frame(frame)
    assert list(keys) == [("01001", 1), ("01003", 2)]
    assert keys == Keys.from_frame({"county": ["01001", "01003"], "size": [1, 2]})
    assert keys.kinds == {"county": "text", "size": "whole numbers"}


def test_cross_varies_the_last_column_fastest():
    assert list(PAIRS) == [(county, naics) for county in ("01001", "01003") for naics in (111, 112, 113)]
    assert Keys.cross({"county": ["01001", "01003"]}, Keys.cross({"naics3": [111, 112, 113]})) == PAIRS


def test_files_keep_leading_zeros(tmp_path):
    path = tmp_path / "keys.csv"
    path.write_text("county,naics3\n" + "".join(f"{48000 + i},111\n" for i in range(30_000)) + "01001,112\n")
    keys = Keys.from_file(path)
    assert keys.kinds == {"county": "text", "naics3": "text"}
    assert list(keys)[-1] == ("01001", "112")
    typed = Keys.from_file(path, types={"naics3": "int64"})
    assert typed.kinds == {"county": "text", "naics3": "whole numbers"}
    assert list(typed)[-1] == ("01001", 112)
    assert Keys.from_file(path, columns=["county"]).columns == ("county",)
    parquet = tmp_path / "keys.parquet"
    pa.parquet.write_table(PAIRS.table, parquet)
    assert Keys.from_file(parquet) == PAIRS


def test_keys_of_the_data_say_so_and_leave_out_missing_labels():
    data = pd.DataFrame({"county": ["b", None, "a", "b"], "x": [1, 2, 3, 4]})
    keys = Keys.from_data(data, "county", declared_public=True)
    assert list(keys) == [("a",), ("b",)]
    assert keys.assumption == TAKEN
    other = Keys.cross({"county": ["c"]})
    assert other.assumption == GIVEN
    for mixed in (keys | other, other - keys, keys.filter(county="a"), keys.project("county")):
        assert mixed.assumption == TAKEN
    assert (other * Keys.from_data(data, "x", declared_public=True)).assumption == TAKEN


def test_algebra():
    texas = Keys.from_frame({"naics3": [113, 999], "county": ["01001", "48001"]})
    assert list(PAIRS | texas) == [*PAIRS, ("48001", 999)]
    assert list(PAIRS - texas) == [key for key in PAIRS if key != ("01001", 113)]
    assert list(PAIRS.project("naics3")) == [(111,), (112,), (113,)]
    assert list(PAIRS.filter(county="01003", naics3=[111, 113])) == [("01003", 111), ("01003", 113)]
    assert list(PAIRS.filter(lambda county, naics3: county.endswith("1") and naics3 > 112)) == [("01001", 113)]


labels = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), min_size=1, max_size=12, unique=True)


@given(labels, labels)
def test_algebra_is_that_of_sets(left, right):
    one, other = (Keys.from_frame({"n": [n for n, _ in pairs], "t": [t for _, t in pairs]}) for pairs in (left, right))
    assert set(one | other) == {*left, *right}
    assert len(one | other) == len({*left, *right})
    rest = {*left} - {*right}
    if rest:
        assert set(one - other) == rest
    assert set(one.project("t")) == {(t,) for _, t in left}


def _with_a_missing_word():
    return pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", None]))})


def test_columns_may_have_any_name():
    names = ["__row", "__row_min", "count_all", "row", "row_min", "0", "condition", "self", "at", "rows"]
    keys = Keys.from_frame({name: [1, 2] for name in names})
    assert list(keys | keys) == list(keys)
    assert keys.project(names[:2]) == keys.project(*names[:2])
    assert len(keys.filter(condition=np.array([1]))) == 1
    data = pa.table({**{name: [1, 1, 2] for name in names}, "x": [1, 10, 100]})
    release = ss.Session(data, bits=Recorded(1)).sum({"x": ss.Gaussian(sigma=1e-9)}, keys=keys)
    assert release.table["x"].to_pylist() == [11, 100]


def test_keys_of_a_session():
    session = ss.Session(pd.DataFrame({"county": ["b", "a"], "x": [1, 2]}))
    assert list(Keys.from_data(session, "county", declared_public=True)) == [("a",), ("b",)]


def test_every_kind_of_label():
    keys = Keys.from_frame({"day": [date(2022, 1, 1)], "open": [True]})
    assert keys.kinds == {"day": "dates", "open": "booleans"}
    assert list(keys) == [(date(2022, 1, 1), True)]


def test_keys_are_equal_only_with_the_same_labels_and_assumption():
    given, taken = Keys.cross({"a": ["x", "y"]}), Keys.from_data(pa.table({"a": ["y", "x"]}), "a", declared_public=True)
    assert given == Keys.cross({"a": ["x", "y"]})
    assert given != taken
    assert given != Keys.cross({"a": ["x", "z"]})
    assert given != Keys.cross({"a": ["y", "x"]})
    assert given != [("x",), ("y",)]
    assert (given.taken, taken.taken) == (False, True)


@pytest.mark.parametrize("labels", [["b", "a"], [2, 1], [True, False], [date(2020, 2, 29), date(1, 1, 1)]], ids=str)
def test_labels_may_be_given_in_any_collection(labels):
    forms = [tuple(labels), iter(labels), dict.fromkeys(labels), pa.array(labels), pd.Series(labels)]
    forms += [] if isinstance(labels[0], date) else [np.array(labels)]
    for form in forms:
        assert Keys.cross({"k": form}) == Keys.cross({"k": labels})
    assert list(Keys.cross({"k": labels})) == [(label,) for label in labels]


@pytest.mark.parametrize("collect", [list, tuple, iter])
def test_labels_of_several_types_are_refused_in_any_collection(collect):
    for labels, found in (([1, "a"], "int and str"), ([1.0, 2.0], "floats, which cannot be labels")):
        with refused(ss.ParameterTypeError, "keys k", code="type") as caught:
            Keys.cross({"k": collect(labels)})
        assert caught.value.given == found
    with refused(ss.ParameterTypeError, "keys k", code="type"):
        Keys.cross({"k": collect([1, True])})


def test_keys_neither_change_nor_are_hashed():
    keys = Keys.cross({"k": ["a"]})
    with pytest.raises(dataclasses.FrozenInstanceError):
        keys.table = keys.table
    with pytest.raises(TypeError, match="unhashable type: 'Keys'"):
        hash(keys)


def test_a_notebook_shows_the_first_ten_keys():
    ten, eleven = (Keys.cross({"a": [f"<{i}>" for i in range(size)]}) for size in (10, 11))
    assert "10 keys" in ten._repr_html_()
    assert "The first" not in ten._repr_html_()
    assert "The first 10 of 11 keys" in eleven._repr_html_()
    for html in (ten._repr_html_(), eleven._repr_html_()):
        assert [f"&lt;{i}&gt;" in html for i in range(11)] == [True] * 10 + [False]


def test_a_file_of_keys_with_labels_of_another_type_is_refused(tmp_path):
    path = tmp_path / "keys.csv"
    path.write_text("a,b\n1,x\n2,3\n")
    with refused(ParameterError, "keys b", code="declared-type"):
        Keys.from_file(path, types={"b": "int64"})
    assert list(Keys.from_file(path, columns=["a"], types={"b": "int64"})) == [("1",), ("2",)]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Keys.from_frame({"a": []}), "empty"),
        (lambda: Keys.from_frame({}), "empty"),
        (lambda: Keys.from_frame({"a": [1, 1]}), "duplicate"),
        (lambda: Keys.from_frame({"a": ["x", None]}), "type"),
        (lambda: Keys.from_frame(pa.table({"a": pa.array(["x", None])})), "nulls"),
        (lambda: Keys.from_frame({"a": [1, 2], "b": [1]}), "mismatch"),
        (
            lambda: Keys.from_frame({"a": [1.5]}),
            "type",
        ),
        (lambda: Keys.from_frame(pd.DataFrame({"a": [1, None]})), "type"),
        (lambda: Keys.cross({"pay": [1.5, 2]}), "type"),
        (lambda: Keys.cross({"a": [None]}), "type"),
        (lambda: Keys.from_frame({"a": ["x", 1]}), "type"),
        (lambda: Keys.from_frame({"a": "abc"}), "type"),
        (lambda: Keys.from_frame({"a": 5}), "type"),
        (lambda: Keys.from_frame({"a": [2**70]}), "type"),
        (lambda: Keys.from_frame({"a": np.array([1, 2], "datetime64[ns]")}), "type"),
        (lambda: Keys.from_frame({"a": np.array(5)}), "type"),
        (lambda: Keys.from_frame({"a": ["\ud800"]}), "type"),
        (lambda: Keys.from_frame(pd.DataFrame({"a": ["x", "\ud800"]}, dtype=object)), "label-type"),
        (lambda: Keys.from_frame(_with_a_missing_word()), "nulls"),
        (lambda: Keys._of(pa.table([[1], [2]], ["a", "a"])), "duplicate"),
        (lambda: Keys._of(pa.table({"a": [1]}), "words of mine"), "value"),
        (lambda: Keys.from_data(pd.DataFrame({"a": [1]}), None, declared_public=True), "type"),
        (
            lambda: Keys.from_data(pd.DataFrame({"a": [1]}), 5, declared_public=True),
            "type",
        ),
        (lambda: PAIRS.filter(lambda wrong: True), "callback"),
        (lambda: Keys.from_frame({3: ["x"]}), "column-names"),
        (lambda: Keys.from_frame([1, 2]), "type"),
        (lambda: Keys("county"), "type"),
        (lambda: Keys.cross(), "value"),
        (lambda: Keys.cross(["a"]), "type"),
        (lambda: Keys.from_file(7), "type"),
        (lambda: Keys.from_file("no/such/file.csv"), "missing"),
        (lambda: Keys.from_data(pd.DataFrame({"a": [1.5]}), "a", declared_public=True), "type"),
        (
            lambda: Keys.from_data(pd.DataFrame({"a": [1]}), "b", declared_public=True),
            "unknown-column",
        ),
        (lambda: PAIRS * PAIRS, "duplicate"),
        (lambda: PAIRS | Keys.cross({"county": ["x"]}), "mismatch"),
        (
            lambda: PAIRS | Keys.cross({"county": ["x"], "naics3": ["1"]}),
            "type",
        ),
        (lambda: PAIRS.filter(county=1), "type"),
        (lambda: PAIRS.filter(naics3=["x", "y"]), "type"),
        (lambda: PAIRS.filter(state="x"), "unknown-column"),
        (lambda: PAIRS.filter(county="x"), "empty"),
        (lambda: PAIRS.filter("county"), "type"),
        (lambda: PAIRS.project("county", "county"), "duplicate"),
        (lambda: PAIRS.project(), "empty"),
    ],
)
def test_mistakes_raise_clear_errors(make, code):
    with refused((ParameterError, ParameterTypeError), code=code):
        make()


def test_that_no_record_has_a_label_is_an_error_of_the_data():
    with refused(DataError, "keys", code="no-labels"):
        Keys.from_data(pd.DataFrame({"a": [None, None]}, dtype="str"), "a", declared_public=True)


@pytest.mark.parametrize(
    ("column", "values", "labels"),
    [
        ('odd "name"', pd.to_datetime(["2024-01-01", "2024-01-02"]), [date(2024, 1, 2)]),
        ("when", pd.to_datetime(["2024-01-01", "2024-01-02"]), [date(2024, 1, 2)]),
        ("a b", [1.0, 2.0], [2]),
    ],
)
def test_the_advice_on_key_columns_works(column, values, labels):
    session = ss.Session(pd.DataFrame({column: values, "x": [3, 4]}))
    with pytest.raises(ss.ParameterTypeError) as refused:
        session.sum({"x": ss.Gaussian(sigma=1e-6)}, keys=Keys.from_frame({column: labels}))
    name, expression = re.search(r"derive the column (\w+) as ('.*'), and use", str(refused.value)).groups()
    assert f"use {name} as the key column" in str(refused.value)
    derive = {name: ast.literal_eval(expression)}
    release = session.sum({"x": ss.Gaussian(sigma=1e-6)}, keys=Keys.from_frame({name: labels}), derive=derive)
    assert release.table["x"].to_pylist() == [4]
