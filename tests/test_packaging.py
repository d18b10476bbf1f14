"""What a stranger gets: a wheel that works outside of the checkout, and benchmarks that run."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from node2seq.benchmarking.rows import read_rows

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_wheel_works_outside_of_the_checkout(tmp_path):
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("node2seq-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "node2seq/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "examples/", "runs/"))]
    # Every file that the package reads at run time, not only its modules.
    tracked = subprocess.run(
        ["git", "ls-files", "node2seq"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert set(tracked.stdout.split()) <= set(names)

    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(install, check=True)
    run = "from node2seq.__main__ import main; import node2seq; print(node2seq.__file__); main()"
    done = subprocess.run(
        [sys.executable, "-c", run, "train", "karate", "--epochs", "3"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert str(site) in done.stdout
    assert (tmp_path / "runs/karate-node2seq-s0/report.html").exists()


@pytest.mark.slow
def test_the_layer_benchmark_prints_ratios_and_failures_and_keeps_rows(tmp_path):
    command = [
        sys.executable,
        "benchmarks/bench_conv.py",
        "--graphs",
        "cora",
        "--kernels",
        "3",
        "--repeats",
        "1",
        "--rows",
        str(tmp_path / "rows.jsonl"),
    ]
    done = subprocess.run(
        [*command, "--time-limit", "60"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    for layer in ("GATConv", "GATv2Conv", "GCNConv", "SAGEConv(lstm)", "Node2SeqConv max k=3, plan anew"):
        (line,) = [line for line in lines if line.startswith(f"{layer} ")]
        assert len(line.split()) >= 3, line
    # A row of GATConv under torch.compile is kept where there is a C compiler.
    rows = [row for row in read_rows(tmp_path / "rows.jsonl") if row.variant != "compiled"]
    assert len(rows) == 9
    ours = {(row.readout, row.variant): row for row in rows if row.case == "Node2SeqConv"}
    windows = {(readout, variant) for readout in ("max", "mean") for variant in ("", "plan anew")}
    assert set(ours) == {*windows, ("ranks", "")}
    for row in ours.values():
        assert row.base == "GATConv"
        assert row.ratio == pytest.approx((row.p50_ms or 0) / (rows[0].p50_ms or 1), rel=1e-3)
        assert row.bound_share
