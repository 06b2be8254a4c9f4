"""The workbench: time to the first chart, time from a slider to the new chart, and memory.

Targets: at most 4 s from the start of the process to the first chart; at most 300 ms from a slider to the new chart, at
the 95th percentile; at most 200 MB more than a process that has imported the library and asked the advisor, of which
vl_convert takes 70 MB or more: it keeps a JavaScript engine, so that a chart takes milliseconds. It needs Chromium and
the packages of the tests.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.workbench import browsing, serving

import slowscale as ss

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the server reads compiled modules, as an installed one does
MOVES = 60
PLAN = """
[data]
path = "records.csv"
[tables.cells.sums.emp]
mechanism = "arsinh-normal"
scale = 8
shape = 1.6
[report]
sizes = [{ name = "median", emp = 12 }, { name = "largest", emp = 150_000 }]
[output]
folder = "published"
"""
OWN = """
import slowscale as ss, slowscale.plan, slowscale.release.session, slowscale.publish.report
ss.advise({"median": 12, "largest": 150_000}, interval=150)
print([line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1])
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ss.datasets.establishments(2_000).to_pandas().to_csv(folder / "records.csv", index=False)
        (folder / "plan.toml").write_text(PLAN)
        with browsing() as page:  # the browser runs already, as a curator's does
            start = time.perf_counter()
            with serving(folder) as server:
                server.enter(page)
                page.goto(server.base + "/noise")
                page.wait_for_selector("#sliders[data-drawn]")
                first = time.perf_counter() - start
                moves = [_move(page, i % 12) for i in range(MOVES)]
                page.fill("#interval", "150")
                page.click("text=Recommend noise")
                page.wait_for_selector("text=(recommended)")
                page.wait_for_load_state("networkidle")
                status = Path(f"/proc/{server.process.pid}/status").read_text()
    used = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])
    own = int(subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=True).stdout)
    for name, value, limit, unit in (
        ("start to first chart", first, 4.0, "s"),
        ("slider to new chart, 95 %", float(np.quantile(moves, 0.95)), 0.3, "s"),
        ("memory above the library's own", (used - own) / 1024, 200.0, "MB"),
    ):
        print(f"{name:<32} {value:8.2f} {unit:<3} {'ok' if value <= limit else f'OVER {limit:g}'}")


def _move(page: object, position: int) -> float:
    drawn = int(page.get_attribute("#sliders", "data-drawn"))  # type: ignore[attr-defined]
    start = time.perf_counter()
    page.locator("#position").evaluate(  # type: ignore[attr-defined]
        "(element, value) => { element.value = value; element.dispatchEvent(new Event('input')); }", str(position)
    )
    page.wait_for_selector(f"#sliders[data-drawn='{drawn + 1}']")  # type: ignore[attr-defined]
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
