"""The page in a real browser: every figure is drawn, tables sort and filter, the console stays silent."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import sweep_builder as build
from page_reader import Page

from analysis.report import write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--v=0",
    "--window-size=1280,900",
    "--virtual-time-budget=60000",
)
# Appended to a copy of the page: uses the table as a reader would and leaves what it saw in the document.
EXERCISE = """
<script>
(function wait() {
  if (document.documentElement.dataset.figures !== "done") { setTimeout(wait, 20); return; }
  const table = document.getElementById("verdicts");
  const heads = Array.from(table.tHead.rows[0].cells);
  const column = heads.findIndex((head) => head.textContent.startsWith("Peak, "));
  const read = () => Array.from(table.tBodies[0].rows).map((row) => row.cells[column].textContent);
  const seen = { order: [], sorts: [] };
  for (let i = 0; i < 2; i++) {
    heads[column].querySelector("button").click();
    seen.order.push(read());
    seen.sorts.push(heads[column].getAttribute("aria-sort"));
  }
  const filter = document.getElementById("filter");
  filter.value = "memory 4,096";
  filter.dispatchEvent(new Event("input"));
  seen.shown = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden).length;
  seen.said = document.getElementById("shown").textContent;
  seen.overflow = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  seen.title = document.title;
  const out = document.createElement("pre");
  out.id = "seen";
  out.textContent = JSON.stringify(seen);
  document.body.appendChild(out);
})();
</script>
</body>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(
                f"none of {', '.join(BROWSERS)} is installed, and CI must check the page in a browser"
            )
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    return found


def dump(browser: str, page: Path, profile: Path) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what they wrote to the console."""
    command = [browser, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def test_figures_are_drawn_and_tables_work(browser, tmp_path):
    store = build.long_sweep(tmp_path / "run", rounds=3)
    index = write_report(store.root, tmp_path / "out")
    copy = tmp_path / "out" / "exercised.html"
    copy.write_text(index.read_text().replace("</body>", EXERCISE))
    document, console = dump(browser, copy, tmp_path / "profile")
    assert console == []
    page = Page(document)
    plots = [a for t, a in page.elements if t == "div" and "plot" in (a.get("class") or "").split()]
    assert len(plots) == 21
    assert {a["data-drawn"] for a in plots} == {"true"}
    assert document.count('class="main-svg"') >= 21
    seen = json.loads(re.findall(r'<pre id="seen">(.*?)</pre>', document)[0])
    assert seen["sorts"] == ["ascending", "descending"]
    for order, sign in zip(seen["order"], (1, -1), strict=True):
        known = [float(text.replace(",", "")) for text in order if text != "-"]
        assert known == sorted(known, reverse=sign < 0)
        assert order[len(known) :] == ["-"] * 3
    assert (seen["shown"], seen["said"]) == (6, "6 of 50 cells")
    assert seen["overflow"] is False


def test_hostile_names_run_nothing(browser, tmp_path):
    attack = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
    cells = [build.cell("none"), build.cell(attack), build.cell(attack, seq_len=2048)]
    records = [
        r
        for c in cells
        for r in (build.memory(c, 9e7, 5e7, phase=attack), build.time(c, 0.1), build.time(c, 0.1, 1))
    ]
    store = build.store(tmp_path / "run", records, build.manifest(cells, name="mine"))
    index = write_report(store.root, tmp_path / "out")
    document, console = dump(browser, index, tmp_path / "profile")
    assert console == []
    assert "<title>mine: recomputation policies</title>" in document
    assert Page(document).count("img", src="x") == 0
    assert document.count('data-drawn="true"') == len(re.findall(r'class="plot[ "]', document)) > 0
