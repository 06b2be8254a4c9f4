"""A notebook in a Jupyter kernel without ipywidgets, where DuckDB refuses a progress bar."""

import textwrap

import nbformat
from nbconvert.preprocessors import ExecutePreprocessor

CELLS = [
    """
    import sys
    sys.modules["ipywidgets"] = None          # not importable, even if it is installed
    try:
        import ipywidgets
    except ImportError:
        print("no widgets")
    """,
    """
    import pandas as pd
    import slowscale as ss
    farms = pd.DataFrame({"state": ["IA", "IA", "TX"], "cattle": [120, 4_000, 31_000]})
    farms.to_parquet("farms.parquet")
    keys = ss.Keys.cross({"state": ["IA", "NV", "TX"]})
    """,
    """
    release = ss.Session(farms).sum({"cattle": ss.Gaussian(sigma=1e-6)}, keys=keys)
    release.to_pandas()
    """,
    """
    session = ss.Session("farms.parquet", ledger="farms.ledger")
    release = session.sum({"cattle": ss.Root(k=4, sigma=1e-6)}, keys=keys)
    print(release)
    print(session.losses(release).records)
    """,
    """
    release = session.count(mechanism=ss.Gaussian(sigma=1e-6), where="cattle > 200", keys=keys)
    print(release.table["count"].to_pylist())
    """,
    "ss.Gaussian(sigma=2).policy",
]


def executed(folder):
    cells = [nbformat.v4.new_code_cell(textwrap.dedent(cell).strip()) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    ExecutePreprocessor(timeout=120, kernel_name="python3").preprocess(notebook, {"metadata": {"path": str(folder)}})
    return notebook


def stdout(outputs):
    """The printed text: a slow kernel sends what one cell prints in several pieces."""
    assert {(output.output_type, output.name) for output in outputs} == {("stream", "stdout")}
    return "".join(output.text for output in outputs)


def test_a_release_in_a_notebook(tmp_path):
    first, opened, frame, parquet, counted, policy = (cell.outputs for cell in executed(tmp_path).cells)
    assert first[0].text == "no widgets\n"
    assert opened == []
    (shown,) = frame
    assert "31000" in shown.data["text/plain"]
    assert "<table" in shown.data["text/html"]
    printed = stdout(parquet)
    assert printed.startswith("Release of 3 groups by state\n")
    assert printed.endswith("\n3\n")
    assert stdout(counted) == "[1, 0, 1]\n"
    assert policy[0].data["text/latex"].startswith("$")
    assert (tmp_path / "farms.ledger").exists()
