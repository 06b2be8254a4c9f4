"""The docs tell the truth: their code runs, prints what they say, and the names and links in them exist.

In docs/**/*.md and README.md the comment `<!-- run -->` before a block of Python means that it runs, after those before
it on the page, or in its recipe of the cookbook; `<!-- prints -->` before a block of text, that the block run last
printed exactly that.
"""

import ast
import bisect
import contextlib
import fnmatch
import importlib
import importlib.util
import io
import json
import re
import tomllib
from pathlib import Path

import pytest

import slowscale as ss
import slowscale.mechanisms
from slowscale.core.errors import install_hint

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
ALL_PAGES = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"))]
BLOCK = re.compile(r"^(?:<!-- (?P<mark>\w+) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
ROOMS = {path.stem for path in (ROOT / "src/slowscale").iterdir() if path.stem[0] not in "._"}
COLUMNS = 80
# Pages with wider lines, still to be narrowed.
WIDE = ("howto/command-line.md",)
RUN = [page for page in ALL_PAGES if "<!-- run -->" in page.read_text(encoding="utf-8")]


def name(page):
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


@pytest.mark.parametrize("page", RUN, ids=name)
def test_code_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    recipes = (
        [found.start() for found in re.finditer("^## ", text, re.MULTILINE)] if name(page) == "cookbook.md" else []
    )
    namespace, printed, part = {}, "", None
    data = page.with_name(f"{page.stem}_data.py")  # what makes the files that a page reads
    for block in BLOCK.finditer(text):
        if (here := bisect.bisect(recipes, block.start())) != part:  # each recipe is complete
            part, namespace = here, {"__name__": "docs"}
            (folder := tmp_path / str(part)).mkdir()
            monkeypatch.chdir(folder)
            if data.exists():
                exec(compile(data.read_text(encoding="utf-8"), str(data), "exec"), namespace)
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


def test_code_and_output_fit_on_the_site():
    """The site shows 80 characters of a line, and cuts off the rest."""
    wide = {
        name(page): line
        for page in ALL_PAGES
        for block in BLOCK.finditer(page.read_text(encoding="utf-8"))
        for line in block["text"].splitlines()
        if len(line) > COLUMNS
    }
    assert sorted(wide) == sorted(WIDE), wide


def test_no_table_has_an_empty_head():
    for page in ALL_PAGES:
        heads = re.findall(
            r"^(\|.*)\n\|(?: ?:?-+:? ?\|)+$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
        )
        assert not any(set(head) <= set("| ") for head in heads), page


def test_the_tutorial_runs_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    code = "".join(block["text"] for block in BLOCK.finditer(text) if block["mark"] == "run")
    namespace = {"__name__": "docs"}
    for _ in range(2):
        exec(compile(code, "tutorial.md", "exec"), namespace)
    assert len(namespace["session"].ledger.account.charges) == 2


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


def test_each_word_of_the_glossary_is_explained_once():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    entries = [entry.lower() for entry in re.findall(r"^\*\*([^*]+?)[.,]\*\*", text, re.MULTILINE)]
    assert len(entries) > 40
    assert len(set(entries)) == len(entries)
    plain = re.sub(r"\*\*.*?\*\*", "", text)
    named = {word.lower() for word in re.findall(r"\*([\w-][\w -]*)\*", plain)} - {"italics"}
    assert {
        word for word in named if not {word, word.removesuffix("s"), re.sub("ies$", "y", word)} & {*entries}
    } == set()


def test_every_public_name_is_in_the_reference():
    entries = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = {entry.rpartition(".")[2] for entry in entries}
    assert set(ss.__all__) <= listed
    assert all(found(entry) is not None for entry in entries)


def test_every_page_is_in_the_navigation():
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r": ([\w/-]+\.md)$", site, re.MULTILINE)) == sorted(map(name, PAGES))


def test_the_pages_on_plan_keys_and_commands_are_up_to_date():
    spec = importlib.util.spec_from_file_location("reference_pages", DOCS / "reference_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for page, text in module.pages().items():
        assert (DOCS / page).read_text(encoding="utf-8") == text, "run `python docs/reference_pages.py`"


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
        asked = {extra.strip(" '\"") for names in named for extra in names.split(",")}
        assert asked - {""} <= set(extras), path


def test_the_hint_names_the_source_folder_and_the_wheel():
    hint = install_hint("files", "excel")
    assert "pip install '.[files,excel]'" in hint
    assert "pip install './WHEEL[files,excel]'" in hint
    wheel = "pip install './slowscale-0.1.0-py3-none-any.whl["
    assert wheel in (DOCS / "install.md").read_text(encoding="utf-8")
