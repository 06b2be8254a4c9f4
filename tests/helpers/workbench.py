"""A running workbench in a folder of its own, and a browser that drives it without any other network."""

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
from helpers.engines import unavailable

OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
STARTED_WITHIN, ANSWERED_WITHIN = 60, 180  # seconds, on a machine that has other work to do


def chromium():
    """Return the path of the browser, or say loudly that there is none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or unavailable("CHROMIUM", "install it: apt-get install chromium")


class Server:
    """A workbench as `slowscale serve` starts it."""

    def __init__(self, folder, *options, env=None):
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slowscale", "serve", *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
        )
        printed = ""
        while (found := re.search(r"http://\S+", printed)) is None:
            line = self.process.stdout.readline()
            assert line, printed
            printed += line
        self.address = found.group(0)
        self.origin = self.address.partition("/?")[0]
        self.port = int(self.origin.rpartition(":")[2])
        self.base = None  # the pages: known to who comes in through the one-time address
        deadline = time.monotonic() + STARTED_WITHIN
        while True:
            try:
                httpx.get(self.origin, timeout=5)
                return
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the workbench does not answer"
                time.sleep(0.05)

    def client(self):
        """Return a client that came in through the one-time address."""
        client = httpx.Client(follow_redirects=True, timeout=120, headers={"origin": self.origin})
        answer = client.get(self.address)
        assert answer.status_code == 200, answer.text
        client.base_url = self.base = self.origin + re.search(r'<a href="(.*)/"', answer.text).group(1)
        return client

    def enter(self, page, address=None):
        """Open the workbench in a browser."""
        page.goto(address or self.address)
        page.wait_for_url(f"{self.origin}/*/data")
        self.base = page.url.removesuffix("/data")

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(folder, *options, env=None):
    """Yield a workbench in a folder, which is stopped at the end."""
    server = Server(folder, *(options or ["--no-browser"]), env=env)
    try:
        yield server
    finally:
        server.kill()
        server.process.stdout.close()


@contextmanager
def browsing(**options):
    """Yield a page of a browser that reaches nothing but this machine, and fail if the page reports an error."""
    from playwright.sync_api import sync_playwright

    errors = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(),
            args=["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"],
        )
        page = browser.new_page(**options)
        page.set_default_timeout(1_000 * ANSWERED_WITHIN)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        foreign = []
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("http://127.0.0.1:", "file:")) else foreign.append(asked.url),
        )
        yield page
        browser.close()
    assert errors == [], errors
    assert [url for url in foreign if not url.startswith(("http://127.0.0.1:", "data:", "blob:", "about:"))] == []


def tab_to(page, selector, most=150):
    """Press Tab until an element has the focus."""
    wanted = page.locator(selector).first
    for _ in range(most):
        if wanted.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{selector} cannot be reached with the keyboard")
