"""What a stranger gets: a wheel that works outside of the checkout, and benchmarks that run."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from node2seq.benchmarking.rows import read_rows

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_wheel_works_in_an_environment_of_its_own(tmp_path):
    """Source archive and wheel as docs/release.md makes them; node2seq comes from the wheel alone."""
    run([sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)])
    (wheel,) = tmp_path.glob("node2seq-*.whl")
    (archive,) = tmp_path.glob("node2seq-*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "node2seq/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "examples/", "runs/"))]
    # Every file that the package reads at run time, not only its modules.
    assert set(run(["git", "ls-files", "node2seq"], cwd=ROOT).split()) <= set(names)
    with tarfile.open(archive) as packed:
        kept = {Path(*Path(name).parts[1:]).as_posix() for name in packed.getnames()}
    assert {"mkdocs.yml", "docs/index.md", "examples/first_graph.ipynb", "constraints.txt"} <= kept

    home = tmp_path / "empty"
    run([sys.executable, "-m", "venv", "--without-pip", str(home)])
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    # What the package depends on is lent by path. Editable installs are not: a path in a .pth file is not
    # searched for further .pth files.
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (site / "lent.pth").write_text("\n".join(lent))
    missing = subprocess.run([python, "-c", "import torch, node2seq"], cwd=tmp_path, env=clean(), text=True)
    assert missing.returncode != 0
    run([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)])
    where = run([python, "-c", "import node2seq; print(node2seq.__file__)"], cwd=tmp_path, env=clean())
    assert where.strip() == str(site / "node2seq/__init__.py")
    run([home / "bin/node2seq", "train", "karate", "--epochs", "3"], cwd=tmp_path, env=clean())
    assert (tmp_path / "runs/karate-node2seq-s0/report.html").exists()


def clean() -> dict[str, str]:
    """The environment without a path to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(command: list[Any], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
