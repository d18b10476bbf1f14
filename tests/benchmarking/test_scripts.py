"""The scripts in benchmarks/ run as they stand, print their tables and keep their rows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from bench_determinism import MODEL_CASES
from script import Report, growth_exponent

from node2seq.benchmarking.layers import COMPILED
from node2seq.benchmarking.rows import BenchmarkRow, StoredRow, read_rows
from node2seq.data import load
from node2seq.storage import read_lines

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler here")


def run(script: str, folder: Path, *arguments: str) -> tuple[str, list[StoredRow]]:
    rows = folder / "rows.jsonl"
    command = [sys.executable, f"benchmarks/{script}", *arguments, "--device", "cpu", "--rows", str(rows)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, read_rows(rows)


@pytest.mark.slow
def test_determinism_compares_two_processes(tmp_path: Path):
    only = ("--graphs", "hub", "--epochs", "1", "--only", "models")
    printed, rows = run("bench_determinism.py", tmp_path, *only)
    assert [row.case for row in rows] == [case.name for case in MODEL_CASES]
    assert {(row.result, row.variant, row.threads) for row in rows} == {("the same bits", "1 epochs", 1)}
    assert printed.count("the same bits") == len(MODEL_CASES)


@pytest.mark.slow
@needs_compiler
def test_determinism_of_a_compiled_layer(tmp_path: Path):
    only = ("--graphs", "hub", "--epochs", "2", "--only", "compiled")
    _, rows = run("bench_determinism.py", tmp_path, *only)
    assert [(row.case, row.result) for row in rows] == [
        (f"Node2SeqConv {readout}, reduce-overhead", "the same bits") for readout in ("max", "mean")
    ]


@pytest.mark.slow
def test_scaling_measures_gat_and_both_readouts(tmp_path: Path):
    printed, rows = run("bench_scaling.py", tmp_path, "--largest", "1000000")
    # A row of GATConv under torch.compile is kept where there is a C compiler.
    assert [(row.case, row.readout, row.edges) for row in rows if row.variant != COMPILED] == [
        ("GATConv", None, 1_000_000),
        ("Node2SeqConv", "max", 1_000_000),
        ("Node2SeqConv", "mean", 1_000_000),
    ]
    assert all(row.p50_ms and row.peak_bytes for row in rows)
    assert all(row.ratio and row.bound_share and row.backend for row in rows if row.case == "Node2SeqConv")
    assert "1M edges" in printed


@pytest.mark.slow
def test_batches_are_measured_in_four_ways(tmp_path: Path):
    _, rows = run("bench_batches.py", tmp_path, "--graphs", "4", "--seconds", "0")
    ours = [row for row in rows if row.case == "Node2SeqConv"]
    ways = [f"{how}, {what} graphs" for how in ("training", "inference") for what in ("new", "the same")]
    assert list(dict.fromkeys(row.graph for row in rows)) == [f"4 graphs, {way}" for way in ways]
    assert {(row.readout, row.variant, row.base) for row in ours} >= {
        ("max", "", "GATConv"),
        ("mean", "", "GATConv"),
    }
    assert all(row.p50_ms and row.ratio for row in ours)


@pytest.mark.slow
def test_an_epoch_on_large_graphs_is_measured_in_every_way(tmp_path: Path):
    _, rows = run("bench_large.py", tmp_path, "--shrink", "5000", "--workers", "1")
    ways = [
        "mini-batches, drawn on the device",
        "the same batches, ready, plans anew",
        "the same batches, ready",
        "mini-batches, 1 workers",
    ]
    assert [row.variant for row in rows if row.graph == "2.4M nodes"] == ["full batch"] * 2 + ways
    assert [row.variant for row in rows if row.graph == "10M nodes"] == ["full batch"] * 2
    hops = [(row.case, row.readout, row.variant) for row in rows if "hops" in row.case]
    cases, each = ("Node2Seq, 2 hops", "Node2Seq, 2 hops, 64 walks"), ("first epoch", "full batch")
    assert hops == 2 * [(case, r, way) for case in cases for r in ("max", "mean") for way in each]
    assert all(row.p50_ms for row in rows)


def test_a_slow_case_is_a_result_and_the_next_one_is_measured(tmp_path: Path):
    small = ("--shrink", "20000", "--parts", "nonlocal")
    printed, rows = run("bench_large.py", tmp_path, *small, "--limit", "1e-6")
    assert len(rows) == 8
    assert {(row.variant, row.result) for row in rows} == {("first epoch", "more than 1e-06 s")}
    assert printed.count("more than 1e-06 s") == 8


@pytest.mark.slow
def test_the_sampler_is_measured_alone_and_with_workers(tmp_path: Path):
    small = ("--nodes", "3000", "--edges", "9000", "--batches", "4", "--seconds", "0")
    _, rows = run("bench_sampler.py", tmp_path, *small)
    assert [(row.case, row.variant) for row in rows] == [
        ("NeighbourSampler", "compiled"),
        ("NeighbourSampler", "plain"),
        ("one worker", ""),
        ("two workers", ""),
    ]
    assert rows[-1].base == "one worker"
    assert rows[-1].ratio


@pytest.mark.slow
def test_epoch_measures_every_network(tmp_path: Path, real_data):
    real_data("cora-f", load)
    _, rows = run("bench_epoch.py", tmp_path, "--graphs", "cora", "--seconds", "0")
    assert [row.case for row in rows] == ["GAT of PyG", "Node2Seq max", "Node2Seq mean", "GCN"]
    assert {(row.graph, row.nodes, row.variant) for row in rows} == {("Cora", 2708, "eager")}
    assert all(row.base == "GAT of PyG" for row in rows[1:])


def test_a_new_version_is_compared_with_what_the_old_one_varies_by(load_script: Callable[[str], ModuleType]):
    script = load_script("bench_versions")
    times = [[10.0, 9.0, 10.0], [20.0, 30.0, 22.0], [10.0, 10.4, 9.0]]
    found = script.summary("a graph", "max k=3", script.np.array(times))
    assert (found.old_ms, found.new_ms, found.ratio, found.old_to_old) == (10.0, 10.4, 1.04, 1.0)
    assert (found.low, found.high) == (0.92, 1.08)
    assert found.passed
    assert replace(found, ratio=1.08).passed
    assert not replace(found, ratio=1.081).passed
    assert not replace(found, ratio=1.06, high=1.0).passed


def test_tiles_are_tried_in_turn_and_put_back(
    load_script: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    pytest.importorskip("triton")
    script = load_script("bench_ops")
    tile = script.launch.Tile
    table = {"a": tile(8, 2), "b": tile(4, 1)}
    before = dict(table)
    # As if the time were the number of warps: so it is the tile in force that is timed.
    monkeypatch.setattr(script, "median_ms", lambda step, _: float(step()))
    tried = script.tile_variants(table, ["a"], [tile(8, 2), tile(4, 1), tile(2, 4)], table["a"])
    script.compare("a", lambda: table["a"].warps, tried, most=2)
    assert capsys.readouterr().out == "a: 4×1 1.000, 8×2* 2.000\n"
    assert table == before
    stages = script.tile_variants(table, list(table), [tile(4, 2, 1), tile(4, 2, 3)], None)
    assert list(stages) == ["4×2/1", "4×2/3"]


@pytest.mark.slow
def test_versions_times_both_checkouts(
    load_script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
):
    script = load_script("bench_versions")
    found = script.compare(ROOT, ROOT, {"tiny": (50, 300)}, device="cpu", rounds=2, seconds=0)
    assert [one.case for one in found] == ["max k=3", "max k=10", "mean k=3", "mean k=10"]
    assert all(one.old_ms > 0 and one.new_ms > 0 and one.low <= one.old_to_old <= one.high for one in found)
    assert capsys.readouterr().out.count("tiny") == 4


def test_a_training_step_changes_file_at_most_thirty_times(load_script: Callable[[str], ModuleType]):
    """One line of the layer after the other, each through few files."""
    script = load_script("count_file_changes")
    for readout in ("max", "mean"):
        walk = script.Walk(script.training_step(readout))
        assert walk.files[0] == "nn/conv/node2seq.py"
        assert {"ops/layer.py", "ops/dispatch.py"} <= set(walk.files)
        assert 10 < walk.changes <= 30, walk.changes


def test_a_csv_file_becomes_a_report_through_few_files(load_script: Callable[[str], ModuleType]):
    files = load_script("count_file_changes").walk_to_report().files
    assert files[0] == "cli/commands.py"
    assert {"data/reading.py", "runs/training.py", "reporting/run.py"} <= set(files)
    assert 30 < len(files) <= 45, files


def test_changes_of_file_are_counted_in_a_command_too(
    load_script: Callable[[str], ModuleType],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sys, "argv", ["count_file_changes.py", "node2seq", "info"])
    load_script("count_file_changes").main()
    printed = capsys.readouterr().out.splitlines()
    counted = next(number for number, line in enumerate(printed) if line.startswith("node2seq info: "))
    assert int(printed[counted].split()[6]) == len(printed) - counted - 1
    assert "  cli/info.py" in printed


@pytest.mark.slow
def test_the_study_of_batches_trains_both_arms_and_writes_its_table(
    tmp_path: Path, real_data, load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
):
    real_data("cora-r", load)
    script = load_script("study_batches")
    monkeypatch.setattr(script, "GRAPHS", {"cora-r": "Cora"})
    packed, rows, page = tmp_path / "graphs.npz", tmp_path / "rows.jsonl", tmp_path / "page.md"
    script.main(["pack", str(packed)])
    few = ["--seeds", "0,1", "--epochs", "1", "--models", "residual-gcn", "--device", "cpu"]
    script.main(["measure", str(packed), "--rows", str(rows), *few])
    page.write_text("Before.\n<!-- rows -->\nold\n<!-- end of rows -->\nAfter.\n")
    script.main(["page", "--rows", str(rows), "--page", str(page)])
    text = page.read_text()
    assert "| Cora | `residual-gcn` |" in text
    assert text.splitlines()[-3].endswith("| 2 |")
    assert "old" not in text
    assert text.endswith("<!-- end of rows -->\nAfter.\n")


def test_the_study_of_candidates_writes_its_table(
    tmp_path: Path, load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
):
    script = load_script("study_candidates")
    monkeypatch.setattr(script, "SETS", {})
    monkeypatch.setattr(script, "LARGE", (300, 1_500))
    rows, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    script.main(["measure", "--rows", str(rows), "--device", "cpu"])
    found = list(read_lines(rows))
    assert [row["walks"] for row in found] == [16, 64, 256]
    same, score = ([row[name] for row in found] for name in ("same", "score"))
    assert 0 < same[0] < same[1] < same[2] <= 1
    assert 0 < score[0] < score[2] <= 1
    assert found[0]["drawn"] < found[2]["drawn"] <= found[2]["candidates"]
    page.write_text(f"Before.\n{script.START}\nold\n{script.END}\nAfter.\n")
    script.main(["page", "--rows", str(rows), "--page", str(page)])
    assert "| random, 300 nodes |" in page.read_text()
    assert "old" not in page.read_text()


def test_the_exponent_of_a_power_is_its_exponent():
    sizes = [1e6, 5e6, 2e7, 1e8]
    assert growth_exponent(sizes, [3 * size**1.25 for size in sizes]) == pytest.approx(1.25)
    assert growth_exponent(sizes[:2], [1.0, 2.0]) is None


def test_ratios_are_to_the_first_row_of_a_table_and_to_it_compiled(tmp_path: Path):
    report = Report(Namespace(device="cpu", rows=tmp_path / "rows.jsonl", commit="abc"))
    base = BenchmarkRow("layer", "a graph", 4, 8, "GATConv", p50_ms=4.0)
    ours = replace(base, case="Node2SeqConv", p50_ms=1.0)
    report.header("without ratios")
    assert report.add(ours) == ours
    for _ in range(2):  # every table has a base of its own
        report.header("a graph", "GATConv")
        assert report.add(base) == base
        compiled = report.add(replace(base, variant=COMPILED, p50_ms=2.0))
        assert (compiled.base, compiled.ratio, compiled.compiled_ratio) == ("GATConv", 0.5, None)
        found = report.add(replace(ours, variant=COMPILED))
        assert (found.base, found.ratio, found.compiled_ratio) == ("GATConv", 0.25, 0.5)
        assert report.add(ours).compiled_ratio == 0.5
    assert len(read_rows(tmp_path / "rows.jsonl")) == 4
