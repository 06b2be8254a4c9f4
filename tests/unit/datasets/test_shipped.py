"""The project ships no data of others: tables are simulated."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLES = {".csv", ".dta", ".gz", ".parquet", ".sas7bdat", ".sav", ".sqlite", ".tsv", ".xls", ".xlsx", ".zip"}


def test_no_folder_has_tables_of_others():
    folders = ("bench", "docs", "examples", "src", "tests")
    assert [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix.lower() in TABLES] == []
