"""The site that `make docs` builds, opened from its folder in a real browser: it searches, and fetches nothing."""

import os
import subprocess
import sys

import pytest
from helpers.pages import ROOT
from helpers.workbench import chromium

CONFIG = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: {ROOT / 'docs'}\nsite_dir: {{site}}\nstrict: false\n"
# Without the API, which takes most of the time to build.
PLUGINS = "plugins: [search, offline]\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    config = folder / "mkdocs.yml"
    config.write_text(CONFIG.format(site=folder / "site") + PLUGINS, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(config)]
    subprocess.run(command, check=True, cwd=folder, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder / "site"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", ["index.html", "howto/spark.html"])
def test_the_site_is_searched_without_a_server_and_a_network(site, page, width):
    from playwright.sync_api import expect, sync_playwright

    path = chromium()
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]) as opened,
    ):
        tab = opened.new_context(viewport={"width": width, "height": 844}, offline=True).new_page()
        fetched, errors = [], []
        tab.on("request", lambda request: fetched.append(request.url))
        tab.on("pageerror", lambda error: errors.append(error))
        tab.goto((site / page).as_uri())
        if width < 900:
            tab.click("label.md-header__button[for=__search]")
        tab.click("input.md-search__input")
        tab.keyboard.type("survey weights")
        expect(tab.locator(".md-search-result__link").first).to_be_visible(timeout=60_000)
        tab.locator(".md-search-result__link", has_text="Survey weights").first.click()
        expect(tab.locator("h1")).to_contain_text("Cookbook")
        assert not errors
        assert not [url for url in fetched if not url.startswith(("file:", "data:"))]
