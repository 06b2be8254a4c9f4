"""Attributes: records cell by cell, from simulated data and from files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from slowscale.core.errors import DataError, ParameterError
from slowscale.study.attributes import PRINTED_SUMMARIES, given_attributes, paper_attributes


@pytest.fixture(scope="module")
def paper():
    return {one.name: one for one in paper_attributes()}


def table(path, **columns):
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("name", PRINTED_SUMMARIES)
def test_the_simulated_data_have_the_statistics_of_the_paper(paper, name):
    assert list(paper[name].summary.values()) == pytest.approx(PRINTED_SUMMARIES[name], rel=0.02)


def test_a_shift_of_five_percent_would_be_noticed(paper):
    shifted = np.quantile(paper["PAYANN"].values * 1.05, 0.5)
    assert shifted != pytest.approx(PRINTED_SUMMARIES["PAYANN"][2], rel=0.02)


def test_there_are_as_many_cells_as_in_the_paper(paper):
    assert {name: len(one.sums) for name, one in paper.items()} == {
        "EMP": 1095,
        "PAYQTR1": 1095,
        "PAYANN": 1095,
        "Cattle": 43,
    }


def test_cells_are_in_the_order_of_their_sums(tmp_path):
    path = table(
        tmp_path / "t.parquet", g=["b", "a", "c", "b", "d", "e", None, "a"], h=[1] * 8, x=[5, 9, 1, 6, 2, 3, 4, None]
    )
    [one] = given_attributes(path, ["x"], ["g", "h"])
    assert one.sums.tolist() == [1, 2, 3, 4, 9, 11]
    assert one.values.tolist() == [1, 2, 3, 4, 9, 5, 6]
    assert one.clipped_sums(5).tolist() == [1, 2, 3, 4, 5, 10]
    assert one.left_out == 1


def test_cells_are_combinations_of_all_columns(tmp_path):
    path = table(tmp_path / "t.parquet", g=[0, 0, 1, 1, 2, 0], h=["x", "y", "x", "y", "x", "x"], v=[1, 2, 3, 4, 5, 6])
    [one] = given_attributes(path, ["v"], ["g", "h"])
    assert one.sums.tolist() == [2, 3, 4, 5, 7]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["1", "2", "a", "4", "5"], "must hold numbers"),
        ([1, 2, -3, 4, 5], "none below 0"),
        ([1.0, 2.0, float("inf"), 4.0, 5.0], "all finite"),
        ([0, 0, 0, 4, 5], "median must be greater than 0"),
        ([1, 2, None, None, None], "at least 5 values"),
    ],
)
def test_a_column_that_cannot_be_studied_is_refused(tmp_path, values, words):
    path = table(tmp_path / "t.parquet", g=list("abcde"), x=values)
    with pytest.raises(DataError, match=words):
        given_attributes(path, ["x"], ["g"])


def test_too_few_cells_are_refused(tmp_path):
    path = table(tmp_path / "t.parquet", g=list("aabbc"), x=[1, 2, 3, 4, 5])
    with pytest.raises(DataError, match="3 cells"):
        given_attributes(path, ["x"], ["g"])


def test_cells_with_the_sum_zero_do_not_count(tmp_path):
    path = table(tmp_path / "t.parquet", g=list("abcdefgg"), x=[0, 0, 0, 1, 2, 3, 4, 5])
    with pytest.raises(DataError, match="4 cells whose sum is greater than 0"):
        given_attributes(path, ["x"], ["g"])


def test_integers_that_floats_cannot_hold_are_rounded(tmp_path):
    path = table(tmp_path / "t.parquet", g=list("abcde"), x=[2**60 + i for i in range(5)])
    assert given_attributes(path, ["x"], ["g"])[0].largest == 2.0**60


@pytest.mark.parametrize(("value", "by"), [("y", "g"), ("x", "k")])
def test_a_column_that_is_not_there_is_named(tmp_path, value, by):
    path = table(tmp_path / "t.parquet", g=list("abcde"), x=[1, 2, 3, 4, 5])
    with pytest.raises(ParameterError, match="must name columns of the data"):
        given_attributes(path, [value], [by])
