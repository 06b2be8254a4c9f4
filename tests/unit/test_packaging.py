"""What a wheel says of itself, outside the folder that it was built in."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PINNED = {
    re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if "==" in line
}


def test_the_readme_of_a_wheel_leads_nowhere_in_this_folder():
    hook = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / hook["fragments"][0]["path"]).read_text(encoding="utf-8")
    links = r"\]\((?!https?://)[^)]*\)"
    assert re.search(links, text)  # otherwise no substitutions are needed
    for one in hook["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    assert not re.search(links, text)
    assert "![" not in text
    for words in ("Known limits has the rest", "pip install .", "`release.to_pandas()` is the table"):
        assert words in text


def test_every_package_has_a_tested_version():
    extras = PROJECT["project"]["optional-dependencies"]
    needed = [*PROJECT["project"]["dependencies"], *(line for lines in extras.values() for line in lines)]
    names = {re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", line)[0]).lower() for line in needed} - {"slowscale"}
    assert names <= PINNED


def test_charts_are_in_the_core():
    """Reports have charts, and a demonstration without extras has a report."""
    core = " ".join(PROJECT["project"]["dependencies"])
    assert "altair" in core
    assert "vl-convert-python" in core


def test_stated_versions_of_python_fit():
    stated = [line.rpartition(" :: ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert stated[0] == PROJECT["project"]["requires-python"].removeprefix(">=")
