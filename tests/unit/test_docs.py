"""The docs tell the truth: their code runs, prints what they say, and the names and links in them exist.

In docs/**/*.md and README.md the comment `<!-- run -->` before a block of Python means that it runs, after those before
it on the page; `<!-- prints -->` before a block of text, that the block run last printed exactly that.
"""

import ast
import contextlib
import fnmatch
import importlib
import io
import json
import re
import tomllib
from pathlib import Path

import pytest

import slowscale as ss
import slowscale.mechanisms
from slowscale.core.errors import install_hint
from slowscale.plan import run_plan

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ALL_PAGES = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
BLOCK = re.compile(r"^(?:<!-- (?P<mark>\w+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
ROOMS = {path.stem for path in (ROOT / "src/slowscale").iterdir() if path.stem[0] not in "._"}
RUN = [page for page in ALL_PAGES if "<!-- run -->" in page.read_text(encoding="utf-8")]


def name(page):
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


@pytest.mark.parametrize("page", RUN, ids=name)
def test_code_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace, printed = {"__name__": "docs"}, ""
    for block in BLOCK.finditer(text):
        if block["mark"] == "run":
            code = "\n" * text.count("\n", 0, block.start("text")) + block["text"]  # so that errors name the line
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(code, str(page), "exec"), namespace)
            printed = out.getvalue()
        elif block["mark"] == "prints":
            assert printed == block["text"]


@pytest.mark.parametrize("page", ALL_PAGES, ids=name)
def test_code_is_python(page):
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "python":
            ast.parse(block["text"])
        assert block["mark"] in (None, "run", "prints")
        assert block["mark"] != "run" or block["kind"] == "python"


@pytest.mark.parametrize("page", ALL_PAGES, ids=name)
def test_the_rows_of_a_table_have_as_many_cells_as_its_head(page):
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for table in re.findall(r"(?:^\|.*\n?)+", prose, re.MULTILINE):
        head, rule, *rows = table.splitlines()
        assert re.fullmatch(r"(\| ?:?-+:? ?)+\|", rule), head
        for row in rows:
            assert len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", head)), row


def test_the_plan_of_the_readme_is_released(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (plan,) = [block["text"] for block in BLOCK.finditer(text) if block["kind"] == "toml"]
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    (tmp_path / "farms.csv").write_text("state,cattle\nIA,120\nIA,4000\nTX,31000\n", encoding="utf-8")
    run_plan(ss.read_plan(tmp_path / "plan.toml"))
    assert ss.read_release(tmp_path / "published" / "states.csv").table.num_rows == 3
    assert (tmp_path / "published" / "report.html").exists()


def test_all_of_the_tutorial_runs():
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    blocks = [block for block in BLOCK.finditer(text) if block["kind"] == "python"]
    assert len(blocks) > 5
    assert all(block["mark"] == "run" for block in blocks)


@pytest.mark.parametrize("page", ALL_PAGES, ids=name)
def test_links_lead_somewhere(page):
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        assert "://" not in target, "the docs are read offline"
        assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("page", ALL_PAGES, ids=name)
def test_named_things_exist(page):
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for path in re.findall(r"`((?:src|tests|examples|docs)/[\w/.*-]+)`", prose):
        assert list(ROOT.glob(path)), path
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", prose):
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file}::{test}"
    for attribute in re.findall(r"`ss\.(\w+(?:\.\w+)*)", prose):
        thing = ss
        for part in attribute.split("."):
            thing = getattr(thing, part)
    for module in re.findall(r"(?:`|::: )(slowscale(?:\.\w+)+)", prose):
        found(module)


def found(dotted):
    """Return what a dotted name stands for: a module, or something in one."""
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        home, _, attribute = dotted.rpartition(".")
        return getattr(found(home), attribute)


def test_the_map_of_the_paper_leads_somewhere():
    """Every name in code on that page is a fact, a test, or something in the library."""
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    facts = [fact["id"] for fact in json.loads((ROOT / "tests/reference/golden.json").read_text(encoding="utf-8"))]
    for term in set(re.findall(r"`([\w./:*]+)`", text)):
        if fnmatch.filter(facts, term) or (ROOT / term).exists():
            continue
        file, _, test = term.partition("::")
        if file.endswith(".py"):
            places = [ROOT / "tests" / file, ROOT / "tests/unit/accounting" / file]
            assert any(place.exists() and f"def {test}" in place.read_text(encoding="utf-8") for place in places), term
        elif term.split(".")[0] in ROOMS:
            found(f"slowscale.{term}")
        elif term[0].isupper() and "." in term:
            home, _, attribute = term.partition(".")
            assert hasattr(getattr(ss, home, None) or getattr(slowscale.mechanisms, home), attribute), term


def test_no_label_of_a_picture_is_hidden():
    """Labels of an axis that would overlap are left out of sight, the last one too."""
    hidden = {
        picture.name: re.findall(r'opacity="0">([^<]+)</text>', picture.read_text(encoding="utf-8"))
        for picture in (DOCS / "images").glob("*.svg")
    }
    assert hidden
    assert not any(hidden.values())


def test_every_public_name_is_in_the_reference():
    entries = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {entry.rpartition(".")[2] for entry in entries}
    assert set(ss.__all__) <= listed
    assert all(found(entry) is not None for entry in entries)


def test_every_page_is_in_the_navigation():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": ([\w/-]+\.md)$", site, re.MULTILINE)) == sorted(map(name, PAGES))


def test_nobody_is_told_to_install_from_an_index():
    """The name slowscale is on no package index, and anyone could take it there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    sources = sorted((ROOT / "src/slowscale").rglob("*.py"))
    for path in [*ALL_PAGES, *sources, *(ROOT / "src/slowscale").rglob("*.html")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"pip install\s+(?:-\S+\s+)*['\"]?slowscale\b(?!-)", text), path
        if path.suffix == ".md":
            named = re.findall(r"pip install '\.\[([\w,]+)\]'", text)
        else:
            assert "pip install" not in text or path.name == "errors.py", path
            named = re.findall(r"install_hint\(([^*)]*)\)", text)
        assert {extra.strip(" '\"") for names in named for extra in names.split(",")} <= set(extras), path


def test_the_hint_names_the_source_folder_and_the_wheel():
    hint = install_hint("files", "plots")
    assert "pip install '.[files,plots]'" in hint
    assert "pip install './WHEEL[files,plots]'" in hint
    wheel = "pip install './slowscale-0.1.0-py3-none-any.whl["
    assert wheel in (DOCS / "index.md").read_text(encoding="utf-8")
