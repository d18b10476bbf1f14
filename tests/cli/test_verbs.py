from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars
import pytest

from node2seq import MODELS, ops
from node2seq.cli import info

QUICK = ("--epochs", "3", "--set", "hidden_channels=8")


@pytest.fixture
def run(cli) -> Path:
    done = cli("train", "karate", "--json", *QUICK)
    assert done.status == 0, done.err
    return Path(done.json["run"])


def test_evaluate(cli, run: Path):
    done = cli("evaluate", run, "--json")
    assert done.status == 0, done.err
    final = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert done.json == final["metrics"]
    shown = cli("evaluate", run).out
    for word in ("training", "validation", "test", "macro-F1", "ROC-AUC", "precision", "recall"):
        assert word in shown


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predict(cli, run: Path, suffix: str):
    done = cli("predict", run, "--out", f"p.{suffix}", "--embeddings", f"e.{suffix}")
    assert done.status == 0, done.err
    assert done.out == f"34 nodes predicted: p.{suffix}\n"
    read = polars.read_csv if suffix == "csv" else polars.read_parquet
    table = read(f"p.{suffix}")
    assert table.columns == ["id", "label", "0", "1", "2", "3"]
    assert table.height == 34
    assert table.select(polars.sum_horizontal("0", "1", "2", "3")).to_series().to_list() == pytest.approx(
        [1.0] * 34, abs=1e-5
    )
    assert read(f"e.{suffix}").columns == ["id", *(f"e{i}" for i in range(8))]


def test_predict_json(cli, run: Path):
    done = cli("predict", run, "--out", "p.csv", "--json")
    assert done.json == {"nodes": 34, "out": "p.csv", "embeddings": None, "unlabelled": []}


def test_info(cli, run: Path):
    found = cli("info", "--json").json
    assert found["torch"]
    assert "node2seq" in found["models"]
    assert "reference" in found["backends"]
    about = cli("info", run, "--json").json
    assert about["state"] == "finished"
    assert about["data"] == "karate"
    assert about["split"] == {"train": 19, "val": 7, "test": 8}
    options = cli("info", "--model", "node2seq", "--json").json
    assert options["options"]["kernel_size"] == 3
    assert options["training"]["lr"] == 0.01
    assert "kernel_size" in cli("info", "--model", "node2seq").out
    assert "finished" in cli("info", run).out


def test_help_imports_no_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from node2seq.cli import app; "
        "result = CliRunner().invoke(app, ['--help']); assert result.exit_code == 0, result.output; "
        "assert 'train' in result.output; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


NO_TORCH = [
    (["--version"], "node2seq 0."),
    (["info"], "backends"),
    (["data", "list"], "homophily"),
    (["train", "--edges", "nowhere.csv", "--nodes", "nowhere.csv", "--label", "x"], "there is no such file"),
    (["evaluate", "nowhere"], "there is no such run folder"),
    (["explain", "nowhere", "--node", "3"], "there is no such run folder"),
    (["explore", "nowhere"], "there is no such run folder"),
]


def test_what_needs_no_torch_does_not_wait_for_it():
    code = f"""
import contextlib, io, sys
from node2seq import environment
from node2seq.cli.commands import make_app
environment.has_gpu_driver = lambda: False
for arguments, words in {NO_TORCH!r}:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        make_app()(arguments)
    assert words in said.getvalue(), (arguments, said.getvalue())
    late = {{"torch", "torch_geometric", "polars", "numba", "optuna"}} & set(sys.modules)
    assert not late, (arguments, late)
print("all")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "all\n", done.stderr


def test_info_names_what_there_is():
    assert (*info.BACKENDS,) == ops.BACKEND_NAMES[1:]
    assert (*info.MODELS,) == (*MODELS,)


def test_python_m_works():
    done = subprocess.run([sys.executable, "-m", "node2seq", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage: node2seq" in done.stdout


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [
        ("typer", ["--help"]),
        ("rich", ["--help"]),
        pytest.param("safetensors", ["train", "karate"], marks=pytest.mark.slow),
    ],
)
def test_a_missing_extra_is_named(missing: str, arguments: list[str]):
    code = f"import sys; sys.modules[{missing!r}] = None; from node2seq.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"Error: {missing} is not installed. Run `pip install 'node2seq[cli]'`.\n"
