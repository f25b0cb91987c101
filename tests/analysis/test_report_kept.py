"""The section on what each policy kept and what it cost: joined from two records, whole or in part."""

import pytest
import sweep_builder as build
from page_reader import Page

from analysis.compare import compare
from analysis.detail import rules
from analysis.kept import kept_views, part_of
from analysis.load import load_run
from analysis.report import write_report

MIB = build.MIB
ATTACK = "</script><img src=x onerror=alert(1)>|"


def explained(of, saved, recomputed, **options):
    memory, flops = build.memory(of, 2 * saved, saved), build.flops(of, 1e9, recomputed)
    build.explain(memory, flops, **options)
    return [memory, flops]


def sweep(root):
    """Two lengths; one cell has no effect, one is wrong, one cannot apply."""
    records, cells = [], []
    for length in (1024, 2048):
        whole = 80 * MIB * length / 1024
        none, full = build.cell("none", seq_len=length), build.cell("full", seq_len=length)
        records += explained(none, whole, 0, rules=()) + explained(full, whole / 4, 2.4e8)
        cells += [none, full]
    idle, wrong = build.cell("blocks", {"every_n": 9}, seq_len=2048), build.cell("tiled", seq_len=2048)
    refused = build.cell("ops", {"save": "attn"}, seq_len=2048)
    records += explained(idle, 160 * MIB, 0) + explained(wrong, 50 * MIB, 1e7)
    gap = {"type": "GradientMismatch", "message": "blocks.3 differs by 4.1e-02", "where": "parity"}
    records += [
        build.record(wrong, "parity", "wrong", error=gap),
        build.record(refused, "memory", "unsupported"),
    ]
    return build.store(root / "run", records, build.manifest([*cells, idle, wrong, refused]))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    index = write_report(sweep(root).root, root / "out")
    return index, Page(index.read_text()), (root / "out" / "report.md").read_text()


def words(page):
    return " ".join(page.text.split())


def test_each_policy_is_one_line_that_expands(report):
    _, page, _ = report
    assert page.headings[page.headings.index("Memory over time") - 1] == (
        "What each policy kept, and what it cost"
    )
    text = words(page)
    line = "full 40.0 MiB 25 % +24.0 % FLOPs 8 of 8 blocks recomputed, 12.0 MiB of activations outside any"
    assert line in text
    assert page.count("summary", **{"class": "kept-line"}) == 2 + 4
    assert page.count("p", **{"class": "kept-line kept-alone unsupported"}) == 1


def test_the_longest_workload_comes_first_and_others_fold(report):
    _, page, _ = report
    text = words(page)
    assert text.index("2,048 tokens, policy by policy") < text.rindex("1,024 tokens 2 cells")
    assert page.count("details", **{"class": "kept-more"}) == 1


def test_tables_join_rules_places_and_what_ran_again(report):
    _, page, _ = report
    slug = next(name.removeprefix("rules-") for name in page.tables if name.startswith("rules-"))
    of_rules, places, ran = (page.tables[f"{kind}-{slug}"] for kind in ("rules", "places", "ran"))
    assert of_rules == [
        ["Rule", "Hits", "Kept", "Spared, FLOP", "Replayed, FLOP"],
        ["norm", "8", "0 B", "2 M", "0"],
        ["act", "16", "1.0 MiB", "2 M", "1 M"],
    ]
    assert places[1] == ["blocks.*.mlp.gate_up", "mm", "8", "20.0 MiB"]
    assert places[-1][0] == "the model itself"
    assert ran[1] == ["blocks.*.p11", "mm", "11", "11 M"]
    assert ran[-1] == ["3 further", "-", "6", "6 M"]


def test_cells_in_trouble_say_why(report):
    _, page, text = report
    for said in (
        "no effect: keeps the same bytes and executes the same FLOPs as none; 8 of 8 blocks",
        "wrong gradients: blocks.3 differs by 4.1e-02; 8 of 8 blocks",
        "unsupported: unsupported on purpose",
    ):
        assert said in words(page)
        assert said in text


def test_the_picture_and_the_markdown_say_the_same(report):
    index, page, text = report
    figure = page.figures["kept-0"]
    assert [note["text"] for note in figure["layout"]["annotations"]] == [
        "+24.0 %",
        "+1.0 %, wrong gradients",
        "+0.0 %, no effect",
        "+0.0 %",
    ]
    assert {bar["name"] for bar in figure["data"]} == {"residual stream", "norms", "MLP up", "other"}
    assert "](kept.png)" in text
    assert (index.parent / "kept.png").read_bytes().startswith(b"\x89PNG")
    assert r"| full | blocks.\*.mlp.gate_up mm 20.0 MiB, blocks.\* add.Tensor 12.0 MiB" in text
    assert "<summary>1,024 tokens</summary>" in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "blocks recomputed" in line]
    assert len({row.count("|") for row in rows}) == 1


def test_host_bytes_have_a_column_only_where_there_are_any(tmp_path):
    cell = build.cell("full")
    memory, flops = explained(cell, 40 * MIB, 1e8)
    memory.detail["entries"][0]["host_bytes"] = 3 * MIB
    store = build.store(tmp_path / "run", [memory, flops], build.manifest([cell]))
    index = write_report(store.root, tmp_path / "out")
    (table,) = [rows for name, rows in Page(index.read_text()).tables.items() if name.startswith("rules-")]
    assert [row[-1] for row in table] == ["On the host", "3.0 MiB", "-"]


def test_records_of_an_earlier_version_have_no_section(tmp_path):
    cells = [build.cell("none"), build.cell("full")]
    store = build.store(tmp_path / "run", [build.memory(c, 9e7, 5e7) for c in cells], build.manifest(cells))
    index = write_report(store.root, tmp_path / "out")
    page = Page(index.read_text())
    assert "What each policy kept, and what it cost" not in page.headings
    assert page.count("a", href="#kept") == 0
    assert not (tmp_path / "out" / "kept.png").exists()


def test_details_of_an_unexpected_shape_are_left_out(tmp_path):
    cell = build.cell("full")
    memory, flops = explained(cell, 40 * MIB, 1e8)
    memory.detail.update(kept=[1, {"place": 3, "bytes": "many"}, {"bytes": 5e6}], entries={"a": 1})
    flops.detail.update(work="much", entries=[None])
    store = build.store(tmp_path / "run", [memory, flops], build.manifest([cell]))
    page = Page(write_report(store.root, tmp_path / "out").read_text())
    (table,) = [rows for name, rows in page.tables.items() if name.startswith("places-")]
    assert table[1:] == [["the model itself", "", "0", "4.8 MiB"]]


def test_hostile_names_stay_text(tmp_path):
    cell = build.cell("full")
    memory, flops = explained(cell, 40 * MIB, 1e8, rules=(ATTACK,))
    memory.detail["kept"][0] |= {"place": ATTACK, "operator": ATTACK}
    flops.detail["work"][-1] |= {"place": ATTACK, "operator": ATTACK}
    store = build.store(tmp_path / "run", [memory, flops], build.manifest([cell]))
    index = write_report(store.root, tmp_path / "out")
    page = Page(index.read_text())
    assert page.count("img") == 0
    assert page.text.count(ATTACK) >= 5
    assert "<img" not in (tmp_path / "out" / "report.md").read_text()


def test_rules_of_one_name_are_joined_in_their_order():
    cell = build.cell("assignment")
    memory, flops = explained(cell, 40 * MIB, 1e8, rules=("norm", "norm"))
    assert [(r.hits, r.replayed_flops) for r in rules(memory, flops)] == [(8, 0.0), (16, 1e6)]
    assert [r.replayed_flops for r in rules(memory, None)] == [None, None]


def test_the_first_view_has_at_least_half_of_what_any_explains(tmp_path):
    store = sweep(tmp_path)
    lonely = build.cell("none", seq_len=4096)
    store.write(explained(lonely, 320 * MIB, 0)[0])
    views = kept_views(compare(load_run(store.root)))
    assert [view.workload.seq_len for view in views] == [2048, 1024, 4096]


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("blocks.*", "residual stream"),
        ("embed.token", "residual stream"),
        ("blocks.*.attn.core", "attention"),
        ("blocks.*.mlp.experts.gate_up", "MLP up"),
        ("norm", "norms"),
        ("", "other"),
        ("blocks.*.mlp.router", "MLP routing"),
        ("blocks.*.attn.dropout", "other"),
    ],
)
def test_parts_of_the_model(place, part):
    assert part_of(place) == part
