"""The project ships no data of others: tables are simulated."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
OWN = ROOT / "src/slowscale/datasets/demo"  # lists of industries in our own words, for the demonstration
TABLES = {".csv", ".dta", ".gz", ".parquet", ".sas7bdat", ".sav", ".sqlite", ".tsv", ".xls", ".xlsx", ".zip"}


def test_no_folder_has_tables_of_others():
    folders = ("bench", "docs", "examples", "src", "tests")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix.lower() in TABLES]
    assert [path for path in found if path.parent != OWN] == []
