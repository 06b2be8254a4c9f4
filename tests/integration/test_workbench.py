"""The workbench as a curator uses it, and as an attacker would."""

import html
import json
import os
import re
import shutil
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
from helpers.workbench import browsing, serving, tab_to

import slowscale as ss
from slowscale.plan import read_plan, run_plan
from slowscale.workbench.jobs import Jobs

pytestmark = pytest.mark.xdist_group("workbench")

# Facts that differ between two releases of one plan.
OWN_FACTS = ("id", "created", "ledger")
SECRET = "the-secret-of-another-folder"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A folder with simulated records as Parquet and CSV."""
    folder = tmp_path_factory.mktemp("records")
    table = ss.datasets.establishments(3_000)
    pq.write_table(table, folder / "establishments.parquet")
    table.to_pandas().to_csv(folder / "establishments.csv", index=False)
    return folder


@pytest.fixture
def folder(tmp_path, records):
    """An empty folder with the records, and a secret beside it."""
    (tmp_path / "secret.csv").write_text(f"a\n{SECRET}\n")
    place = tmp_path / "work"
    shutil.copytree(records, place)
    return place


COUNTIES = "\n".join(sorted(set(ss.datasets.establishments(3_000)["county"].to_pylist()))[:4])
SIZES = {"median": "12", "p90": "200", "largest": "150,000"}


def picture(page, name):
    """Take a picture for the documentation, if a folder for pictures is given."""
    if folder := os.environ.get("SLOWSCALE_PICTURES"):
        page.wait_for_load_state("networkidle")
        page.evaluate("() => document.querySelector('footer')?.remove()")  # it names a folder of this machine
        page.screenshot(path=f"{folder}/workbench-{name}.png", full_page=name != "report")


def walk(page, data):
    """Go from an empty folder to a published table."""
    page.fill("#place", data)
    page.click("text=Use this data")
    picture(page, "data")
    page.click("text=Next: tables")
    page.check("input[name=sum][value=emp]")
    page.check("input[name=kind][value=cross]")
    page.check("input[name=by][value=county]")
    page.click("summary:has-text('Labels')") if page.locator("details[open] #labels-1").count() == 0 else None
    page.fill("textarea[name='labels:county']", COUNTIES)
    page.fill("[name=margin0]", "nation")
    page.click("text=Save the tables")
    picture(page, "tables")
    page.click("text=Next: noise")
    for i, (name, size) in enumerate(SIZES.items()):
        page.fill(f"[name=name{i}]", name)
        page.fill(f"[name=size{i}]", size)
    page.fill("#interval", "150")
    page.click("text=Recommend noise")
    page.wait_for_selector("#sliders[data-drawn]")
    move(page, "#position", "7")
    picture(page, "noise")
    page.click("text=Use this position")
    page.click("text=Next: cost")
    page.wait_for_selector("#costs")
    picture(page, "cost")
    page.click("text=Next: release")
    page.fill("#report", "report.html")
    page.click("text=Save")
    page.wait_for_selector("#question")
    page.check("[name=confirmed]")
    picture(page, "release")
    page.click("#question button:has-text('Release')")
    wait_for_release(page)
    page.click("text=Next: report")
    page.wait_for_load_state("networkidle")
    picture(page, "report")


def wait_for_release(page):
    """Wait until a release is done. If it failed, say why."""
    page.wait_for_selector("#job:not([data-status=starting]):not([data-status=running])")
    assert page.get_attribute("#job", "data-status") == "done", page.inner_text("#job")


def move(page, slider, value):
    """Move a slider, and wait until the charts have followed."""
    drawn = int(page.get_attribute("#sliders", "data-drawn"))
    page.locator(slider).evaluate(
        "(element, value) => { element.value = value; element.dispatchEvent(new Event('input')); }", value
    )
    page.wait_for_selector(f"#sliders[data-drawn='{drawn + 1}']")


def test_from_an_empty_folder_to_a_published_table(folder, tmp_path):
    data = "establishments.csv"  # those with the keyboard and without scripts have the records as Parquet
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        walk(page, data)
        assert "nation" in page.inner_text("main")
        with page.expect_download() as download:
            page.click("aside a")
        plan = tmp_path / "again" / "plan.toml"
        plan.parent.mkdir()
        shutil.copy(download.value.path(), plan)
    # The command makes the same from the downloaded plan.
    shutil.copy(folder / data, plan.parent)
    run_plan(read_plan(plan))
    for name in ("cells", "nation"):
        one, two = (
            json.loads(json.dumps(ss.read_release(place / "published" / f"{name}.parquet").facts.to_dict()))
            for place in (folder, plan.parent)
        )
        for facts in (one, two):
            drop_own(facts)
        assert one == two
    assert len(ss.read_release(folder / "published")["cells"]) == 4
    assert (folder / "report.html").exists()


def drop_own(facts):
    """Remove what is different in every release: identifiers, times, entries of the ledger."""
    if isinstance(facts, dict):
        for name in OWN_FACTS:
            facts.pop(name, None)
        for part in facts.values():
            drop_own(part)


def test_everything_can_be_done_with_the_keyboard(folder):
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        tab_to(page, "#place")
        page.keyboard.type("establishments.parquet")
        page.keyboard.press("Enter")
        tab_to(page, "text=Next: tables")
        page.keyboard.press("Enter")
        tab_to(page, "input[name=sum][value=emp]")
        page.keyboard.press("Space")
        tab_to(page, "input[name=kind]:checked")
        page.keyboard.press("ArrowUp")
        while not page.locator("input[name=kind][value=total]").is_checked():
            page.keyboard.press("ArrowUp")
        tab_to(page, "text=Save the tables")
        page.keyboard.press("Enter")
        tab_to(page, "text=Next: noise")
        page.keyboard.press("Enter")
        for i, (name, size) in enumerate(SIZES.items()):
            tab_to(page, f"[name=name{i}]")
            page.keyboard.type(name)
            tab_to(page, f"[name=size{i}]")
            page.keyboard.type(size)
        tab_to(page, "#interval")
        page.keyboard.type("150")
        page.keyboard.press("Enter")
        page.wait_for_selector("#sliders[data-drawn]")
        tab_to(page, "#position")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#sliders[data-drawn='2']")
        tab_to(page, "text=Use this position")
        page.keyboard.press("Enter")
        tab_to(page, "text=Next: cost")
        page.keyboard.press("Enter")
        page.wait_for_selector("#costs")
        tab_to(page, "text=Next: release")
        page.keyboard.press("Enter")
        page.wait_for_selector("#question")
        tab_to(page, "[name=confirmed]")
        page.keyboard.press("Space")
        tab_to(page, "#question button:has-text('Release')")
        page.keyboard.press("Enter")
        wait_for_release(page)
    assert (folder / "published" / "cells.parquet").exists()


def test_the_browser_is_led_in_by_a_file_that_only_its_owner_may_read(folder, tmp_path):
    """The command line of the browser, which everybody on a machine can read, does not have the token."""
    ready(folder)
    program, given = tmp_path / "browser", tmp_path / "given"
    program.write_text(f'#!/bin/sh\necho "$@" > {given}.part && mv {given}.part {given}\n')
    program.chmod(0o700)
    with serving(folder, "--browser", env={"BROWSER": f"{program} %s"}) as server, browsing() as page:
        wait_for(given.exists)
        address = given.read_text().strip()
        assert address.startswith("file://")
        assert server.address.partition("token=")[2] not in address
        assert stat.S_IMODE(os.stat(address.removeprefix("file://")).st_mode) == 0o600
        server.enter(page, address)
        assert page.inner_text("h1") == "Data"
        server.enter(page)  # the printed address, in the same browser
        # Another server on this machine gets the cookie, and learns nothing of the path.
        with listener() as (port, requests):
            page.goto(f"http://127.0.0.1:{port}/")
        (request,) = requests[:1]
        assert f"slowscale_{server.port}=" in request
        assert server.base.removeprefix(server.origin) not in request


@contextmanager
def listener():
    """Yield the port of another server on this machine, and the requests that it gets."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(f"{self.requestline}\n{self.headers}")
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b'<!doctype html><title>other</title><link rel="icon" href="data:,">')

        def log_message(self, *given):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, requests
    server.shutdown()
    server.server_close()


def test_keys_that_match_no_record_are_seen_before_the_charge_and_after_it(folder):
    ready(folder)
    with (folder / "plan.toml").open("a") as file:
        file.write('[tables.cells.keys]\ncross = { county = ["Nowhere"] }\n')
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        page.goto(server.base + "/release")
        page.click("text=Check the records")
        page.wait_for_selector("#data-check pre")
        picture(page, "data-check")
        assert "No record has any of the keys" in page.inner_text("#data-check")
        assert not (folder / "plan.ledger").exists()
        page.check("[name=confirmed]")
        page.click("#question button:has-text('Release')")
        wait_for_release(page)
        picture(page, "noise-on-zeros")
        assert "Do not publish this yet" in page.inner_text("#job .problem")
        assert page.locator("#job .message").count() == 0


def test_a_position_without_numbers_cannot_be_used(folder):
    ready(folder)
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        page.goto(server.base + "/noise")
        page.wait_for_selector("#sliders[data-drawn]")
        use = page.locator("text=Use this position")
        assert use.is_enabled()
        waiting = []
        page.route("**/noise/preview*", lambda route: waiting.append(route))
        page.locator("#position").evaluate(
            "element => { element.value = 2; element.dispatchEvent(new Event('input')) }"
        )
        assert use.is_disabled()
        assert page.input_value("#slider-mechanism") == ""
        wait_for(lambda: page.evaluate("1") and waiting)
        waiting[0].fulfill(body="not an answer")
        page.wait_for_selector("#slider-words:has-text('does not answer')")
        assert use.is_disabled()
        assert page.locator("#slider-losses tbody tr").count() == 0


def test_points_of_a_chart_have_tooltips(folder):
    ready(folder)
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        page.goto(server.base + "/noise")
        chart = page.locator("#preview svg").first
        chart.scroll_into_view_if_needed()
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        point = chart.locator("[aria-roledescription=point]").nth(10)
        box = point.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        assert page.inner_text(".tip") == point.get_attribute("aria-label")
        assert re.fullmatch(r"record size \S+: loss \S+", page.inner_text(".tip"))
        page.keyboard.press("Escape")
        assert page.locator(".tip").count() == 0


def test_names_in_charts_are_not_run(folder):
    ready(folder)
    names = ["</svg><script>alert(1)</script>", "<img src=x onerror=alert(2)> largest"]
    sizes = ", ".join(f"{{ name = {json.dumps(name)}, emp = {9 ** (i + 1)} }}" for i, name in enumerate(names))
    with (folder / "plan.toml").open("a") as file:
        file.write(f"[report]\nsizes = [{sizes}]\n")
    with serving(folder) as server, browsing() as page:
        page.on("dialog", lambda dialog: pytest.fail("a script ran"))
        server.enter(page)
        page.goto(server.base + "/noise")
        for _ in range(2):  # drawn by the server, and by the script
            assert page.locator("main script, main img").count() == 0
            assert all(name in page.locator("#preview svg").first.inner_html() for name in map(html.escape, names))
            move(page, "#position", "3")


def test_charts_follow_the_theme(folder):
    """Text and axes have the colour of the page's text, which is light on dark in the dark theme."""
    ready(folder)
    seen = {}
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.goto(server.base + "/noise")
            colour = "element => getComputedStyle(element)"
            seen[scheme] = page.locator("#preview svg text").first.evaluate(f"{colour}.fill")
            assert seen[scheme] == page.locator("body").evaluate(f"{colour}.color")
    assert seen["light"] != seen["dark"]


def test_everything_can_be_done_without_scripts(folder):
    with serving(folder) as server, browsing(java_script_enabled=False) as page:
        server.enter(page)
        page.fill("#place", "establishments.parquet")
        page.click("text=Use this data")
        page.click("text=Next: tables")
        page.check("input[name=sum][value=emp]")
        page.check("input[name=kind][value=total]")
        page.click("text=Save the tables")
        page.click("text=Next: noise")
        for i, (name, size) in enumerate(SIZES.items()):
            page.fill(f"[name=name{i}]", name)
            page.fill(f"[name=size{i}]", size)
        page.fill("#interval", "150")
        page.click("text=Recommend noise")
        assert page.locator("#preview svg").count() == 2
        page.fill("#position", "7")
        page.click("text=Show this position")
        page.click("text=Use this position")
        page.click("text=Next: cost")
        page.click("text=Show the cost of this plan")
        page.click("#costs >> text=Next: release")
        page.click("main >> text=Check the plan")
        page.click("text=Check the records")
        assert "CONFIDENTIAL" in page.inner_text("#data-check")
        page.click("text=Back to the release")
        page.click("main >> text=Check the plan")
        page.check("[name=confirmed]")
        page.click("#question button:has-text('Release')")
        while page.locator("#job[data-status=done]").count() == 0:
            page.click("#job noscript a")  # Look again
            time.sleep(0.2)
    assert (folder / "published" / "cells.parquet").exists()


def test_only_our_own_scripts_are_served():
    """The package has no scripts that others wrote."""
    from slowscale.workbench.app import STATIC

    assert {file.name for file in STATIC.iterdir()} == {"icon.svg", "workbench.css", "workbench.js"}


def ready(folder, data="establishments.parquet"):
    """Write a plan that is complete, with packaged noise."""
    (folder / "plan.toml").write_text(
        f'[data]\npath = "{data}"\n[ledger]\npath = "plan.ledger"\n[tables.cells.sums.emp]\n'
        'mechanism = "arsinh-normal"\nscale = 8\nshape = 1.6\n[output]\nfolder = "published"\n'
    )


def question(client):
    """Return the fields of the page that asks for confirmation."""
    text = client.get("/release/question").text
    return dict(re.findall(r'name="(version|name)" value="([^"]*)"', text)) | {"confirmed": "yes"}


PAGES = ("/data", "/tables", "/noise", "/cost", "/inspect", "/release", "/report")


def test_pages_are_accessible(folder):
    ready(folder)
    with serving(folder) as server, browsing(bypass_csp=True) as page:
        server.enter(page)
        for path in PAGES:
            page.goto(server.base + path)
            if path in ("/cost", "/release"):
                page.wait_for_selector("#costs, #question")
            check_access(page, path)
        page.goto(server.base + "/noise")
        page.fill("[name=name0]", "largest")
        page.fill("[name=size0]", "150000")
        page.fill("#interval", "150")
        page.click("text=Recommend noise")
        page.wait_for_selector("text=(recommended)")
        page.wait_for_selector("#sliders[data-drawn]")
        check_access(page, "a recommendation")
        page.goto(server.base + "/inspect")
        page.click("text=Look at the records")
        page.wait_for_selector("iframe")
        check_access(page, "a look at the records")
        page.goto(server.base + "/release")
        page.wait_for_selector("#question")
        page.click("text=Check the records")
        page.wait_for_selector("#data-check pre")
        check_access(page, "a data check")
        page.check("[name=confirmed]")
        page.click("#question button:has-text('Release')")
        page.wait_for_selector("#job")
        check_access(page, "a release")
        wait_for_release(page)
        check_access(page, "a finished release")


def check_access(page, place):
    """Check a page in both themes."""
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{place}, {scheme}: {found.generate_report()}"


def test_pages_fit_narrow_screens(folder):
    ready(folder)
    with serving(folder) as server, browsing() as page:
        server.enter(page)
        for path in PAGES:
            for width in (360, 640):  # a phone, and 200 % zoom of a screen of 1280
                page.set_viewport_size({"width": width, "height": 800})
                page.goto(server.base + path)
                assert page.evaluate("() => document.documentElement.scrollWidth") <= width, path


class TestStrangers:
    """Requests that must be refused: they change nothing, so that they share one workbench."""

    @pytest.fixture(scope="class")
    def shared(self, records, tmp_path_factory):
        place = tmp_path_factory.mktemp("shared")
        (place / "secret.csv").write_text(f"a\n{SECRET}\n")
        folder = place / "work"
        shutil.copytree(records, folder)
        os.symlink(place / "secret.csv", folder / "link.csv")
        ready(folder)
        with serving(folder) as server:
            assert httpx.get(server.origin + "/?token=wrong").status_code == 403
            # A link in a file or a mail counts as another site; the token is what counts.
            entered = httpx.get(server.address, headers={"sec-fetch-site": "cross-site"})
            assert entered.status_code == 200
            server.base = server.origin + re.search(r'<a href="(.*)/"', entered.text).group(1)
            server.cookie = entered.headers["set-cookie"]
            cookie = {"cookie": server.cookie.partition(";")[0]}
            assert httpx.get(server.address).status_code == 403  # the address works once
            assert httpx.get(server.address, headers=cookie).status_code == 200  # except in the same browser
            headers = {"origin": server.origin, **cookie}
            with httpx.Client(base_url=server.base, headers=headers, follow_redirects=True) as server.known:
                yield server

    def test_the_cookie_is_strict(self, shared):
        assert shared.known.get("/data").status_code == 200
        assert "SameSite=Strict" in shared.cookie
        assert "HttpOnly" in shared.cookie

    def test_without_the_cookie_nothing_is_shown(self, shared):
        for path in (*PAGES, "/", "/static/workbench.js", "/plan/download", "/noise/preview", "/inspect/result"):
            for headers in ({}, {"cookie": f"slowscale_{shared.port}=wrong"}):
                answer = httpx.get(shared.base + path, headers=headers)
                assert answer.status_code == 403, path
                assert "emp" not in answer.text

    def test_the_cookie_alone_is_not_enough(self, shared):
        """A browser sends cookies to every server of a machine, whatever its port."""
        for path in ("/", "/data", "/inspect/result", "/static/workbench.js", "/wrong/data", "//data", "/?token="):
            answer = shared.known.get(shared.origin + path)
            assert answer.status_code == 403, path
            assert "emp" not in answer.text
        assert shared.known.post(shared.origin + "/data", data={"place": "x"}).status_code == 403

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost.evil"])
    def test_another_site_is_refused(self, shared, origin):
        for method, path in (("GET", "/data"), ("POST", "/data"), ("POST", "/release")):
            assert shared.known.request(method, path, headers={"origin": origin}).status_code == 403

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_a_request_from_a_page_of_another_site_is_refused(self, shared, site):
        assert shared.known.get("/data", headers={"sec-fetch-site": site}).status_code == 403

    def test_a_post_must_say_where_it_comes_from(self, shared):
        headers = {"cookie": shared.cookie.partition(";")[0]}
        assert httpx.post(shared.base + "/data", data={"place": "x"}, headers=headers).status_code == 403

    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1.evil.example:{}", "[::1]:{}", ""])
    def test_another_host_is_refused(self, shared, host):
        answer = shared.known.get("/data", headers={"host": host.format(shared.port)})
        assert answer.status_code in (400, 421)

    def test_it_listens_on_this_machine_only(self, shared):
        lines = "".join(file.read_text() for file in Path("/proc/net").glob("tcp*"))
        ours = [line.split()[1] for line in lines.splitlines() if line.split()[1].endswith(f":{shared.port:04X}")]
        assert {address.partition(":")[0] for address in ours} == {"0100007F"}  # 127.0.0.1

    @pytest.mark.parametrize(
        "place", ["../secret.csv", "/etc/passwd", "link.csv", "..%2fsecret.csv", "a/../../secret.csv", "secret\0.csv"]
    )
    def test_files_elsewhere_are_not_read(self, shared, place):
        answer = shared.known.post("/data", data={"place": place})
        assert answer.status_code == 400
        assert SECRET not in answer.text
        place = place.replace("\0", "%00")
        for path in (f"/report/files/{place}", f"/static/{place}", f"/report/files/../{place}"):
            answer = shared.known.get(path)
            assert answer.status_code in (400, 404), path
            assert SECRET not in answer.text

    def test_no_page_may_be_stored_or_framed_elsewhere(self, shared):
        for path in PAGES:
            headers = shared.known.get(path).headers
            assert headers["cache-control"] == "no-store"
            assert "frame-ancestors 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]

    def test_a_large_request_is_refused(self, shared):
        assert shared.known.post("/data", content=b"x" * 5_000_000).status_code == 413


class TestAttacks:
    @pytest.fixture
    def server(self, folder):
        ready(folder)
        with serving(folder) as found:
            yield found

    def test_names_of_columns_are_not_run(self, folder):
        name = "<script>alert(1)</script>"
        pd.DataFrame({name: [1, 2], 'a"onmouseover="x': ["<img src=x onerror=alert(2)>", "b"]}).to_parquet(
            folder / "odd.parquet"
        )
        with serving(folder) as server, browsing() as page:
            server.enter(page)
            page.fill("#place", "odd.parquet")
            page.click("text=Use this data")
            page.on("dialog", lambda dialog: pytest.fail("a script ran"))
            for path in PAGES:
                page.goto(server.base + path)
                assert page.locator("main script, main img").count() == 0
            page.goto(server.base + "/data")
            assert name in page.inner_text("main")

    def test_mistakes_are_beside_their_fields(self, server, folder):
        text = (folder / "plan.toml").read_text()
        (folder / "plan.toml").write_text(text.replace("[ledger]", 'name = " "\n[ledger]'))
        client = server.client()
        words = [line for line in client.get("/data").text.splitlines() if "field-problem" in line]
        with pytest.raises(ss.PlanError) as refused:
            read_plan(folder / "plan.toml")
        shown = re.search(r'field-problem">(.*?)</p>', "".join(words)).group(1)
        assert html.unescape(shown) in str(refused.value)

    def test_sizes_without_a_largest_record_are_not_taken(self, server, folder):
        before = (folder / "plan.toml").read_text()
        asked = {"column": "emp", "name0": "p50", "size0": "12", "name1": "p90", "size1": "200", "interval": "150"}
        answer = server.client().post("/noise", data=asked)
        assert answer.status_code == 400
        assert "the sizes do not include the largest record" in answer.text
        assert (folder / "plan.toml").read_text() == before

    def test_two_tabs_that_save_at_once(self, server, folder):
        client = server.client()
        page = client.get("/cost").text
        version = re.search(r'name="version" value="([^"]*)"', page).group(1)
        assert client.post("/cost", data={"version": version, "ledger": "one.ledger"}).status_code == 200
        answer = client.post("/cost", data={"version": version, "ledger": "two.ledger"})
        assert answer.status_code == 400
        assert "was changed since this page was loaded" in answer.text
        assert "one.ledger" in (folder / "plan.toml").read_text()

    def test_tabs_that_release_at_once(self, server, folder):
        client = server.client()
        tabs = [question(client) for _ in range(4)]
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda tab: client.post("/release", data=tab), [*tabs, tabs[0]]))
        wait_for(lambda: not any(job.open for job in jobs_of(folder).all()))
        (job,) = jobs_of(folder).all()
        assert job.status == "done"
        assert len(ss.Ledger(folder / "plan.ledger").account.charges) == 1
        refused = [answer for answer in answers if answer.status_code == 409]
        assert len(refused) >= 3
        assert all("another release is running" in answer.text for answer in refused)

    def test_a_server_that_is_killed_in_a_release(self, folder):
        ready(folder)
        with serving(folder) as server:
            client = server.client()
            assert client.post("/release", data=question(client)).status_code == 200
            server.kill()
        with serving(folder) as server:
            client = server.client()
            (job,) = jobs_of(folder).all()
            wait_for(lambda: jobs_of(folder).get(job.name).status == "done")
            assert "Released" in client.get(f"/release/{job.name}").text
            assert "published/cells.parquet" in client.get("/report").text
        assert ss.Ledger(folder / "plan.ledger").verify() == []
        assert len(ss.Ledger(folder / "plan.ledger").account.charges) == 1

    @pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
    def test_a_release_that_is_stopped_says_whether_it_was_charged(self, server, folder, stop):
        client = server.client()
        fields = question(client)
        assert client.post("/release", data=fields).status_code == 200
        job = jobs_of(folder).get(fields["name"])
        if stop == signal.SIGINT:
            client.post(f"/release/{job.name}/cancel")
        else:
            process_of(job).kill()
        wait_for(lambda: not jobs_of(folder).get(job.name).open)
        ledger = folder / "plan.ledger"
        charged = ledger.exists() and len(ss.Ledger(ledger).account.charges) == 1
        status = jobs_of(folder).get(job.name).status
        assert status in ("done", "cancelled" if stop == signal.SIGINT else "stopped")
        text = client.get(f"/release/{job.name}").text
        if status != "done":
            assert ("It was charged" in text) == charged
            assert ("Nothing was charged" in text) != charged
            # A later release does not change what is said about this one.
            again = question(client) | {"overwrite": "yes"}
            client.post("/release", data=again)
            wait_for(lambda: jobs_of(folder).get(again["name"]).status == "done")
            assert client.get(f"/release/{job.name}").text == text
        assert ss.Ledger(ledger).verify() == []

    def test_a_release_that_fails_after_its_charge_says_so(self, server, folder):
        client = server.client()
        fields = question(client)
        (folder / "published" / "cells.parquet").mkdir(parents=True)  # appears after the check
        client.post("/release", data=fields)
        wait_for(lambda: not jobs_of(folder).get(fields["name"]).open)
        text = client.get(f"/release/{fields['name']}").text
        ledger = folder / "plan.ledger"
        charged = ledger.exists() and len(ss.Ledger(ledger).account.charges) == 1
        assert ("Nothing was charged" in text) != charged

    def test_damaged_jobs_are_no_trouble(self, server, folder):
        place = jobs_of(folder).folder / ("0" * 32)
        place.mkdir(parents=True)
        client = server.client()
        for state in ("[]", '{"files": 5}', '{"started": 5, "status": 7}', '{"message": []}', "{", "5"):
            (place / "state.json").write_text(state)
            assert jobs_of(folder).get("0" * 32) is None or not jobs_of(folder).get("0" * 32).open, state
            for path in ("/release", "/report", f"/release/{'0' * 32}"):
                assert client.get(path).status_code in (200, 404), state

    def test_a_plan_that_was_changed_after_the_confirmation(self, server, folder):
        client = server.client()
        fields = question(client)
        with (folder / "plan.toml").open("a") as file:
            file.write("# changed\n")
        answer = client.post("/release", data=fields)
        assert answer.status_code == 409
        assert not (folder / "plan.ledger").exists()


def jobs_of(folder):
    return Jobs(folder, folder / "plan.toml")


def process_of(job):
    (found,) = [one for one in psutil.process_iter() if one.is_running() and job.name in cmdline(one)]
    return found


def cmdline(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def wait_for(done, seconds=90):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
