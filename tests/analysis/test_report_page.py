"""The rendered page and Markdown: order, words, numbers, and nothing unescaped."""

import dataclasses
import json
import re

import pytest
import sweep_builder as build
from page_reader import Page

from analysis.report import escape_markdown, write_report
from suite.config.schema import ModelConfig

MIB = build.MIB
ATTACK = "</script><script>document.title='pwned'</script><img src=x onerror=alert(1)>|`*_$x^2$"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("sweep")
    store = build.long_sweep(root / "run")
    (store.root / "records" / "torn.json").write_text("{")
    index = write_report(store.root, root / "out")
    return index, Page(index.read_text())


def column(page, head):
    heads = page.tables["verdicts"][0]
    return [row[heads.index(head)] for row in page.tables["verdicts"][1:]]


def test_the_answer_comes_first_and_sections_follow_in_order(report):
    _, page = report
    assert page.headings == [
        "example: recomputation policies",
        "Verdict",
        "Memory against time",
        "Peak against sequence length",
        "Where the peak sits",
        "Memory over time",
        "Noise",
        "Provenance",
    ]
    lead = "At 4,096 tokens (sdpa) the cheapest policy that fits 160 MiB is ops(save=attn): peak 127 MiB"
    assert (
        0
        < page.text.index(lead)
        < page.text.index("36ok")
        < page.text.index("The answer for every workload")
    )
    assert page.text.index("The answer for every workload") < page.text.index("One row per cell")


def test_every_cell_is_a_row_with_its_status_in_words_and_its_reason(report):
    _, page = report
    assert len(page.tables["verdicts"]) == 1 + 50
    statuses = column(page, "Status")
    assert sum(s == "ok" for s in statuses) == 36
    assert statuses.count("out of memory needs 216 MiB in backward, the budget is 160 MiB") == 1
    assert "wrong gradients blocks.3.wq.weight differs by 4.1e-02" in statuses
    assert any(
        s.startswith("no effect keeps the same bytes and executes the same FLOPs as none") for s in statuses
    )
    assert {"crashed SIGSEGV", "unsupported unsupported on purpose", "not measured no record yet"} <= set(
        statuses
    )
    classes = page.rows["verdicts"][1:]
    assert [classes.count(c) for c in ("ok", "oom", "wrong", "crash", "not-measured")] == [36, 9, 1, 1, 1]


def test_numbers_carry_units_and_name_what_they_are_relative_to(report):
    _, page = report
    heads = page.tables["verdicts"][0]
    assert heads[:8] == [
        "Policy",
        "Attention",
        "Tokens",
        "Status",
        "Peak, MiB",
        "Peak vs none",
        "Saved, MiB",
        "Step time",
    ]
    assert heads[8] == "Step time vs none [95 % interval]"
    policies, tokens = column(page, "Policy"), column(page, "Tokens")
    at = next(
        i
        for i, (p, t) in enumerate(zip(policies, tokens, strict=True))
        if (p, t) == ("full frontier", "512")
    )
    assert column(page, "Peak, MiB")[at] == "34.2"
    assert column(page, "Peak vs none")[at] == "\N{MINUS SIGN}52.5 %"
    assert re.fullmatch(r"\+2\d\.\d % \[2\d\.\d, 2\d\.\d\]", column(page, heads[8])[at])
    assert column(page, "Recomputed, FLOP (of model's)")[at].endswith("(25.0 %)")
    assert column(page, "Gradients")[at] == "bitwise equal"
    other = next(
        i
        for i, (p, t) in enumerate(zip(policies, tokens, strict=True))
        if (p, t) == ("full frontier", "2,048")
    )
    assert column(page, heads[8])[other].endswith("vs ops(save=mm+attn)")
    gradients = column(page, "Gradients")
    assert "within tolerance relative difference 3.2e-07" in gradients
    assert "WRONG relative difference 2.0e-01" in gradients
    assert "MFU and HFU are relative to this dense peak: Example data sheet." in page.text


def test_figures_are_described_and_their_data_is_in_the_page(report):
    _, page = report
    plots = [a for t, a in page.elements if t == "div" and a.get("class") == "plot"]
    assert len(plots) == 5 + 1 + 2 + 8 + 5
    for plot in plots:
        assert plot["role"] == "img"
        assert len(plot["aria-label"]) > 30
        assert page.figures[plot["data-figure"]]["data"]
    strip = page.figures["pareto-3"]["layout"]["annotations"][0]["text"]
    assert strip == "no time: out of memory"
    crosses = [t for t in page.figures["pareto-3"]["data"] if t.get("marker", {}).get("symbol") == "x-thin"]
    assert {t["name"] for t in crosses} >= {"none", "blocks(every_n=2)"}
    assert len(crosses) == 6
    assert page.figures["length-0"]["layout"]["xaxis"]["type"] == "log"
    assert page.figures["length-0"]["layout"]["yaxis"]["type"] == "log"


def test_tables_can_be_read_by_a_screen_reader_and_sorted(report):
    _, page = report
    assert page.count("table") == page.count("caption")
    assert all(a.get("scope") in ("col", "row") for t, a in page.elements if t == "th")
    heads = len(page.tables["verdicts"][0])
    assert page.count("button", type="button") == heads
    assert [a["lang"] for t, a in page.elements if t == "html"] == ["en"]


def test_nothing_is_loaded_from_elsewhere(report):
    index, page = report
    for tag, attributes in page.elements:
        for name in ("src", "srcset", "href", "action", "data", "poster"):
            value = attributes.get(name) or ""
            assert value.startswith("#") or value in ("", "data:,", "cells.csv"), (tag, name, value)
    policy = next(
        a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none';")
    text = index.read_text()
    assert text.count("plotly.js v") == 1
    assert "@import" not in text[: text.index("</style>")]


def test_provenance_and_damaged_files_are_told(report):
    _, page = report
    for words in (
        "python -m suite +sweep=long_seq",
        "2026-01-01T10:03:00Z",
        "Example CPU",
        "2.13.0",
        "Files that are no records (1)",
        "torn.json: not JSON",
        "trust the ratios, not the absolute times",
    ):
        assert words in page.text


def test_markdown_and_pictures_say_the_same(report):
    index, _ = report
    text = (index.parent / "report.md").read_text()
    assert "At 4,096 tokens (sdpa) the cheapest policy that fits 160 MiB is ops(save=attn)" in text
    verdict = text[text.index("## Verdict") :].split("##")[2 - 1]
    rows = [line for line in verdict.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 50
    assert len({row.count("|") for row in rows}) == 1
    assert "out of memory <br>needs 216 MiB in backward, the budget is 160 MiB" in text
    for name in ("pareto.png", "peak_by_length.png", "composition.png"):
        assert f"]({name})" in text
        picture = (index.parent / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 20_000
    assert len((index.parent / "cells.csv").read_text().splitlines()) == 51


def test_rendering_twice_gives_the_same_bytes(report, tmp_path):
    index, _ = report
    again = write_report(index.parent.parent / "run", tmp_path)
    for name in ("index.html", "report.md", "cells.csv", "pareto.png", "composition.png"):
        assert (again.parent / name).read_bytes() == (index.parent / name).read_bytes(), name


def test_hostile_names_and_reasons_stay_text(tmp_path):
    model: ModelConfig = dataclasses.replace(build.MODEL, name=ATTACK)
    reference, evil = build.cell("none", model=model), build.cell(ATTACK, {ATTACK: ATTACK}, model=model)
    longer = [build.cell("none", seq_len=2048), build.cell("_" + ATTACK, seq_len=2048)]
    records = []
    for cell in (reference, evil, *longer):
        found = build.memory(cell, 90 * MIB, 5e7, phase=ATTACK)
        found.detail["top_tensors"][0] |= {
            "module": ATTACK,
            "operator": ATTACK,
            "shape": ATTACK,
            "kind": ATTACK,
        }
        found.detail["peak_composition"][ATTACK] = 3 * MIB
        found.warnings.append(ATTACK)
        records += [found, build.time(cell, 0.1, 0), build.time(cell, 0.11, 1)]
    error = {"type": "x", "message": ATTACK, "where": ATTACK}
    records.append(build.record(evil, "parity", "crash", error=error))
    manifest = build.manifest(
        [reference, evil, *longer], name=ATTACK, command=ATTACK, code={ATTACK: ATTACK}
    )
    store = build.store(tmp_path / "run", records, manifest)
    (store.root / "records" / "bad.json").write_text(json.dumps({"schema": ATTACK}))
    index = write_report(store.root, tmp_path / "out")
    page = Page(index.read_text())
    assert page.count("img") == 0
    scripts = [a for t, a in page.elements if t == "script"]
    assert [a for a in scripts if "type" not in a] == [{}, {}]
    assert all("onerror" not in a for _, a in page.elements)
    assert ATTACK in page.headings[0]
    for name, figure in page.figures.items():
        if name != "code":
            assert not re.search(r"<(?!b>|/b>|br>)", json.dumps(figure)), name
    text = (tmp_path / "out" / "report.md").read_text()
    assert "<script" not in text
    assert "<img" not in text
    rows = [line for line in text.splitlines() if line.startswith("| none")]
    assert rows
    assert all(
        len(re.findall(r"(?<!\\)\|", row)) == len(re.findall(r"(?<!\\)\|", rows[-1])) for row in rows[-2:]
    )


def test_markdown_text_stays_literal():
    assert escape_markdown("a|b `c` *d* <e> snake_case _f_\n# g") == (
        r"a\|b \`c\` \*d\* &lt;e&gt; snake_case \_f\_ # g"
    )
    assert escape_markdown("[x](y) +7.2 % [5.9, 8.5]") == r"[x\](y) +7.2 % [5.9, 8.5]"
