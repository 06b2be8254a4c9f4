"""The engine's own progress bar is never printed into a program's output."""

import subprocess
import sys

CODE = """
import duckdb, slowscale as ss
duckdb.execute("SET enable_progress_bar = false")
duckdb.execute("COPY (SELECT range AS x FROM range(3000000)) TO '{path}' (FORMAT parquet)")
session = ss.Session("{path}")
connection = session.table.get_backend()
(shown,) = connection.con.execute("SELECT current_setting('enable_progress_bar')").fetchone()
connection.con.execute("SET progress_bar_time = 1")  # this also turns the bar on
connection.con.execute(f"SET enable_progress_bar = {{shown}}")
{bar}
release = session.sum({{"x": ss.Gaussian(1)}}, where="x % 3 = 1 and sqrt(x) > 2")
session.losses(release)
"""


def output(folder, bar):
    code = CODE.format(bar=bar, path=folder / "a.parquet")
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_nothing_is_printed_without_a_terminal(tmp_path):
    assert output(tmp_path, "") == ""


def test_duckdb_would_print_its_own_bar(tmp_path):
    silent = "import slowscale.tables.progress as p; p._set = lambda *given: None"
    assert "%" in output(tmp_path, f"{silent}; connection.con.execute('SET enable_progress_bar = true')")
