"""The report in a real browser, light, dark and printed: every chart appears, nothing is fetched, nothing fails.

Chromium keeps a log of the network, in which what a page asks for has an origin, and what the browser does by itself
has none. Names are never resolved. A page that does ask for something shows that both checks would see it.
"""

import json
import re
import shutil
import subprocess
import zlib

import numpy as np
import pandas as pd
import pytest
from helpers.bitsources import Recorded
from helpers.engines import unavailable
from helpers.workbench import chromium as browser_path

import slowscale as ss

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr"),
    "--window-size=1200,1400",
]
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND"
DARK = "--blink-settings=preferredColorScheme=0"
COLOURS = {  # of the banner and the background
    "light": ((0xA4, 0x0E, 0x26), (0xFF, 0xFF, 0xFF)),
    "dark": ((0xB3, 0x15, 0x2D), (0x12, 0x17, 0x1D)),
}
# The largest number of sizes, for data in dollars.
SIZES = {
    **{f"{place}th percentile of firms": {"emp": place, "payann": 4e10 - 100 + place} for place in range(1, 99, 14)},
    "largest firm": {"emp": 150_000, "payann": 4e10},
}
pytestmark = pytest.mark.xdist_group("reports")  # so that the reports are made once

BLUE, VERMILION = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)


@pytest.fixture(scope="module")
def chromium():
    return browser_path()


@pytest.fixture(scope="module")
def poppler():
    return shutil.which("pdftoppm") or unavailable("PDFTOPPM", "install it: apt-get install poppler-utils")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def pages(folder):
    frame = pd.DataFrame({"county": ["a", "b"] * 50, "emp": range(100), "payann": range(0, 1000, 10)})
    session = ss.Session(frame, ledger=folder / "test.ledger", bits=Recorded(1))
    mechanisms = {"emp": ss.ExponentialPolylog.calibrate(std=2), "payann": ss.Root(k=4, sigma=0.5)}
    release = session.sum(mechanisms, keys=ss.Keys.cross({"county": ["a", "b", "c"]}))
    public = release.report(folder / "public.html", spent=session.spent)
    sized = release.report(folder / "sized.html", spent=session.spent, sizes=SIZES)
    secret = release.confidential_report(folder / "secret.html", session)
    return {"public": public, "confidential": secret, "sized": sized}


def browse(chromium, page, folder, *flags):
    """Open a page; return the output of the browser, its error messages, and the network requests of the page."""
    log = folder / "network.json"
    command = [chromium, *FLAGS, OFFLINE, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}", *flags]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    events = (event.get("params", {}) for event in json.loads(log.read_text())["events"])
    asked = {event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"}
    return done.stdout, complaints, asked


@pytest.mark.parametrize("kind", ["public", "confidential"])
def test_opens_without_network_access_or_errors(chromium, pages, tmp_path, kind):
    dom, complaints, asked = browse(chromium, pages[kind], tmp_path, "--dump-dom")
    assert not complaints
    assert not asked
    charts = re.findall(r'<figure id="(figure-\w+)">.*?<svg[^>]*role="img".*?</svg>', dom, re.DOTALL)
    assert charts == (["figure-policy", "figure-error"] if kind == "public" else ["figure-cdf"])
    for chart in re.findall(r"<svg.*?</svg>", dom, re.DOTALL):
        assert 'stroke="#0072B2"' in chart
        assert 'stroke="#D55E00"' in chart or kind == "confidential"
    assert dom.count("<math") == (2 if kind == "public" else 0)


def test_the_checks_detect_errors(chromium, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>console.error("oops")</script>', encoding="utf-8")
    _, complaints, asked = browse(chromium, page, tmp_path, "--dump-dom")
    assert any("oops" in line for line in complaints)
    assert asked == {"http://example.invalid/x.png"}


@pytest.mark.parametrize("scheme", COLOURS)
def test_light_and_dark(chromium, pages, tmp_path, scheme):
    """The first pixel belongs to the banner or, without a banner, to the background."""
    bare = tmp_path / "bare.html"
    text = pages["public"].read_text(encoding="utf-8")
    bare.write_text(re.sub(r'<p class="banner".*?</p>', "", text), encoding="utf-8")
    for page, colour in zip((pages["public"], bare), COLOURS[scheme], strict=True):
        picture = tmp_path / f"{page.stem}.png"
        browse(chromium, page, tmp_path, f"--screenshot={picture}", *([DARK] if scheme == "dark" else []))
        assert corner(picture.read_bytes()) == colour


@pytest.mark.parametrize("scheme", COLOURS)
def test_prints(chromium, poppler, pages, tmp_path, scheme):
    """In print the charts keep their colours, the background is white in both schemes, and no part is missing."""
    paper = tmp_path / "report.pdf"
    dark = [DARK] if scheme == "dark" else []
    browse(chromium, pages["public"], tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}", *dark)
    subprocess.run([poppler, "-r", "80", paper, tmp_path / "sheet"], check=True)
    sheets = [pixels(file.read_bytes()) for file in sorted(tmp_path.glob("sheet-*.ppm"))]
    assert 2 <= len(sheets) <= 6
    assert all((sheet[0, 0] == 255).all() for sheet in sheets)
    for colour in (BLUE, VERMILION):
        assert sum((np.abs(sheet.astype(int) - colour).max(axis=2) < 24).sum() for sheet in sheets) > 100
    text = subprocess.run(["pdftotext", "-layout", paper, "-"], capture_output=True, text=True, check=True).stdout
    places = [text.index(said) for said in ("What was published", "Figure 1", "Table 3", "Figure 2", "Table 4")]
    assert places == sorted(places)
    assert re.search(r"Table \d+\. The columns\.", text)  # folded on the screen
    assert "The columns and what they mean" not in text  # the word to unfold them
    assert "NOT PRIVATE" in text


def test_stated_sizes_are_drawn(chromium, pages, tmp_path):
    """The sizes are points on the lines; if there are few, their names are beside them, on the background colour."""
    dom, complaints, asked = browse(chromium, pages["sized"], tmp_path, "--dump-dom")
    assert not complaints
    assert not asked
    drawn = re.search(r'<figure id="figure-policy">.*?(<svg.*?</svg>)', dom, re.DOTALL)[1]
    assert len(re.findall(r'<path[^>]*fill="#(?:0072B2|D55E00)"', drawn)) == 2 * len(SIZES)
    assert "largest firm</text>" not in drawn  # too many


@pytest.mark.parametrize("kind", ["public", "sized"])
def test_nothing_is_cut_off_in_print(chromium, poppler, pages, tmp_path, kind):
    """Every word is inside its page, even in a table with the largest number of sizes."""
    paper = tmp_path / "report.pdf"
    browse(chromium, pages[kind], tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={paper}")
    boxes = subprocess.run(["pdftotext", "-bbox", paper, "-"], capture_output=True, text=True, check=True).stdout
    width = float(re.search(r'<page width="([\d.]+)"', boxes)[1])
    ends = [float(end) for end in re.findall(r'xMax="([\d.]+)"', boxes)]
    assert len(ends) > 500
    assert max(ends) < width - 36
    assert "40,000,000,000" in boxes or kind == "public"


def corner(png):
    """Return the colour of the first pixel of a PNG, which no filter changes."""
    chunks, place = b"", 8
    while place < len(png):
        size, kind = int.from_bytes(png[place : place + 4]), png[place + 4 : place + 8]
        chunks += png[place + 8 : place + 8 + size] if kind == b"IDAT" else b""
        place += 12 + size
    return tuple(zlib.decompress(chunks)[1:4])


def pixels(ppm):
    """Return the pixels of a PPM file."""
    _, size, _, data = ppm.split(b"\n", 3)
    width, height = map(int, size.split())
    return np.frombuffer(data, np.uint8).reshape(height, width, 3)


def test_the_chart_of_a_release_opens_without_network_access_or_errors(chromium, tmp_path):
    labels = ["</script><script>document.title = 'changed'</script>", "<img src=https://example.org/a.png>", "c"]
    keys = ss.Keys.from_frame({"image": labels})
    records = pd.DataFrame({"image": labels, "emp": [5, 80, 900]})
    page = ss.Session(records).sum({"emp": ss.Gaussian(sigma=3)}, keys=keys).plot("emp").save(tmp_path / "plot.html")
    dom, complaints, asked = browse(chromium, page, tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert not complaints
    assert not asked
    assert "<title>changed</title>" not in dom
    assert 'aria-label="emp: all 3 cells. ' in dom
    chart = re.search(r'<svg[^>]*class="marks".*?</svg>', dom, re.DOTALL)[0]
    assert chart.count('stroke="#56B4E9"') == 3
    assert "&lt;img src=https" in chart
