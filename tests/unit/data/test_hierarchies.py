"""Hierarchies of labels: made from mappings, digits and files, and what is refused."""

import json
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from helpers.errors import refused

import slowscale as ss

COUNTIES = {"01001": "01", "01003": "01", "02013": "02"}


def test_levels_of_the_column():
    h = ss.Hierarchy("county", {"state": COUNTIES})
    assert h.labels("state", ["02013", "01001"]) == ["02", "01"]
    assert repr(h) == "Hierarchy: county (3 labels) → state (2 labels)"


def test_levels_of_the_level_below():
    h = ss.Hierarchy("county", {"state": COUNTIES, "region": {"01": 3, "02": 4}, "coast": {3: True, 4: False}})
    assert h.labels("region", ["02013", "01001"]) == [4, 3]
    assert h.labels("coast", ["02013", "01001"]) == [False, True]


def test_levels_of_the_column_above_others():
    direct = ss.Hierarchy("county", {"state": COUNTIES, "region": {"01001": 3, "01003": 3, "02013": 4}})
    assert direct == ss.Hierarchy("county", {"state": COUNTIES, "region": {"01": 3, "02": 4}})


def test_digits():
    h = ss.Hierarchy.digits("naics", {"sector": 2, "subsector": 3})
    assert h.labels("sector", ["1125", "3361"]) == ["11", "33"]
    assert h.labels("subsector", [1125, 3361]) == [112, 336]
    assert repr(h) == "Hierarchy: naics → sector (2 digits) → subsector (3 digits)"
    with refused(ss.ParameterError, "hierarchy of naics", code="too-short"):
        h.labels("subsector", [11])
    with refused(ss.ParameterError, "hierarchy of naics", code="too-short"):
        h.labels("sector", [-11])


def test_a_column_of_labels():
    h = ss.Hierarchy("county", {"state": COUNTIES})
    column = pa.chunked_array([["01001", "02013"], ["01003", "01001"]])
    assert h.label_column("state", column).to_pylist() == ["01", "02", "01", "01"]
    days = ss.Hierarchy("day", {"year": {date(2022, 1, 1): 2022, date(2023, 5, 1): 2023}})
    assert days.label_column("year", pa.array([date(2023, 5, 1)])).to_pylist() == [2023]


def test_files(tmp_path):
    path = tmp_path / "counties.csv"
    path.write_text("county,state,region\n01001,01,3\n01003,01,3\n02013,02,4\n", encoding="utf-8")
    h = ss.Hierarchy.from_file("county", path, levels=["state", "region"], types={"region": "int64"})
    assert h == ss.Hierarchy("county", {"state": COUNTIES, "region": {"01": 3, "02": 4}})
    assert ss.Hierarchy.from_file("county", path, "state") == ss.Hierarchy("county", {"state": COUNTIES})


def test_a_label_with_two_parents_in_a_file(tmp_path):
    path = tmp_path / "counties.csv"
    path.write_text("county,state\n01001,01\n01001,02\n", encoding="utf-8")
    with refused(ss.ParameterError, "hierarchy of county", code="two-parents"):
        ss.Hierarchy.from_file("county", path, ["state"])


def test_descriptions_come_back():
    h = ss.Hierarchy("county", {"state": COUNTIES, "region": {"01": 3, "02": 4}})
    assert ss.Hierarchy.from_dict(h.to_dict()) == h
    digits = ss.Hierarchy.digits("naics", {"sector": 2})
    assert ss.Hierarchy.from_dict(digits.to_dict()) == digits


def test_dates_come_back_from_json():
    days = {date(2024, 1, 31): date(2024, 1, 1), date(2024, 2, 29): date(2024, 2, 1)}
    for levels in ({"month": days}, {"month": days, "year": {date(2024, 1, 1): 2024, date(2024, 2, 1): 2024}}):
        h = ss.Hierarchy("day", levels)
        back = ss.Hierarchy.from_dict(json.loads(json.dumps(h.to_dict())))
        assert back == h
        assert back.labels("month", [date(2024, 2, 29)]) == [date(2024, 2, 1)]
    numbers = ss.Hierarchy("k", {"half": {np.int64(3): np.True_}})
    assert json.loads(json.dumps(numbers.to_dict()))["levels"] == {"half": [[3, True]]}


def test_whole_numbers_without_their_leading_zeros():
    h = ss.Hierarchy.digits("county", {"state": 2})
    with refused(ss.ParameterError, "hierarchy of county", code="leading-zeros"):
        h.label_column("state", pa.array([1001, 1003, 11001]))
    assert h.labels("state", ["1125", "112"]) == ["11", "11"]


def test_booleans_are_not_whole_numbers():
    numbers = ss.Hierarchy("k", {"g": {0: "a", 1: "b"}})
    booleans = ss.Hierarchy("k", {"g": {False: "a", True: "b"}})
    for h, labels in ((numbers, [True, False]), (booleans, [0, 1])):
        with refused(ss.ParameterError, "hierarchy of k", code="missing"):
            h.labels("g", labels)
    with refused(ss.ParameterError, "levels['h']", code="missing"):
        ss.Hierarchy("k", {"g": {"x": 0, "y": 1}, "h": {False: "a", True: "b"}})
    assert numbers.labels("g", [1]) == booleans.labels("g", [True]) == ["b"]


@pytest.mark.parametrize(
    ("column", "levels", "code"),
    [
        ("", {"state": COUNTIES}, "type"),
        ("county", {}, "type"),
        ("county", [], "type"),
        ("county", {"county": COUNTIES}, "level-name"),
        ("county", {"state": {}}, "type"),
        ("county", {"state": COUNTIES, "digits": 2}, "type"),
        ("county", {"state": {"01001": "01", 2: "02"}}, "type"),
        ("county", {"state": {"01001": "01", "01003": None}}, "type"),
        ("county", {"state": {"01001": float("nan")}}, "type"),
        ("county", {"state": {"01001": 1.5}}, "type"),
        ("county", {"state": COUNTIES, "region": {"01": 3}}, "missing"),
        ("county", {"state": COUNTIES, "region": {"01001": 3, "01003": 4, "02013": 4}}, "two-parents"),
        ("naics", {"sector": 0}, "value"),
    ],
)
def test_what_is_refused(column, levels, code):
    with refused(ss.SlowscaleError, code=code):
        ss.Hierarchy(column, levels)


def test_what_is_refused_later():
    h = ss.Hierarchy("county", {"state": COUNTIES})
    with refused(ss.ParameterError, "level", code="value"):
        h.labels("region", ["01001"])
    with refused(ss.ParameterError, "hierarchy of county", code="missing"):
        h.labels("state", ["01001", "99"])
    with refused(ss.ParameterTypeError, "levels", code="type"):
        ss.Hierarchy.digits("naics", {"sector": "2"})
    assert ss.Hierarchy.digits("naics", {"sector": np.int64(2)}).labels("sector", ["112"]) == ["11"]
