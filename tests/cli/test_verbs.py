from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars
import pytest

from node2seq import MODELS, ops
from node2seq.cli import names
from node2seq.experiments.paper import TABLES
from node2seq.experiments.stages import STAGES
from node2seq.train.metrics import METRIC_TITLES
from node2seq.train.processes import DRAWS

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
    assert table.columns == ["id", "label", "0", "1", "2", "3", "unlabelled"]
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
    shown = " ".join(cli("info", "--model", "node2seq").out.split())
    assert "options.kernel_size 3 Taps of the Node2Seq layer." in shown
    assert "training.lr 0.01 Learning rate." in shown
    assert "finished" in cli("info", run).out
    for model in MODELS:
        found = cli("info", "--model", model, "--json").json
        for part, texts in found["meanings"].items():
            assert list(texts) == list(found[part])
            assert all(len(text) > 10 and not set("`\n") & set(text) for text in texts.values()), texts


def test_help_imports_no_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from node2seq.cli import app; "
        "result = CliRunner().invoke(app, ['--help']); assert result.exit_code == 0, result.output; "
        "assert 'train' in result.output; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


FILES = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")
NO_TORCH = [
    (["--version"], "node2seq 0."),
    (["info"], "backends"),
    (["data", "list"], "homophily"),
    (["train"], "the graph: it is missing"),
    (["train", "nope"], "data set 'nope': no such name"),
    (["train", "--edges", "nowhere.csv", "--nodes", "nowhere.csv", "--label", "x"], "there is no such file"),
    (["train", *FILES, "--label", "sort"], "it has no column 'sort'"),
    (["train", *FILES, "--source", "start"], "it has no column 'start'"),
    (["train", *FILES, "--order-by", "time"], "it has no column 'time'"),
    (["train", *FILES, "--edge-weight", "source"], "it holds an end of each edge"),
    (["train", *FILES, "--feature", "hight"], "perhaps 'height' was meant"),
    (["train", *FILES, "--ignore", "kind"], "it is the column of the id, the label or the split"),
    (["train", *FILES, "--task", "sorting"], "task='sorting': there is no such choice"),
    (["train", *FILES, "--delimiter", ";;"], "it must be a single character"),
    (["train", *FILES, "--delimiter", ""], "it must be a single character"),
    (["train", *FILES, "--delimiter", ";"], "delimiter ';': the cells are separated by ','"),
    (["train", *FILES[:2], "--nodes", "nodes.npz", "--label", "sort"], "nodes.npz: it has no column 'sort'"),
    (["train", *FILES, "--epochs", "0"], "epochs=0: training needs at least one epoch"),
    (["train", *FILES, "--set", "epochs=many"], "--set epochs='many': it should be a whole number"),
    (["train", *FILES, "--set", "lr=-1"], "lr=-1.0: the learning rate must be positive"),
    (["train", *FILES, "--workers", "1000", "--batch-size", "8"], "--workers 1000: each is a process"),
    (["train", *FILES, "--config", "wrong.toml"], "wrong.toml: settings: epochs=True: it should be a whole"),
    (["tune", *FILES, "--fix", "lr=[0.1, none]"], "--fix lr='none': it should be a number"),
    (["tune", *FILES, "--start", "wrong.toml"], "wrong.toml: settings: epochs=True: it should be a whole"),
    (["train", *FILES, "--label-separator", ""], "labels cannot be told apart by nothing"),
    (["train", *FILES, "--split", "kind"], "column 'kind' is named as label and split"),
    (["train", "--edges", "names.csv", *FILES[2:]], "it has no column 'source'"),
    (["train", "karate", "--model", "node2vec"], "model 'node2vec': there is no such model"),
    (["train", "karate", "--baseline", "gnc"], "model 'gnc': there is no such model"),
    (["train", "karate", "--metric", "luck"], "metric='luck': there is no such choice"),
    (["train", "karate", "--draw", "all"], "draw='all': there is no such choice"),
    (["train", "karate", "--set", "lr"], "--set lr: there is no = in it"),
    (["train", "karate", "--set", "=5"], "--set =5: no setting is named before the ="),
    (["train", "--store", "nowhere"], "nowhere: there is no such store"),
    (["tune", "nope"], "data set 'nope': no such name"),
    (["tune", *FILES, "--label", "sort"], "it has no column 'sort'"),
    (["tune", "karate", "--sampler", "dice"], "sampler='dice': there is no such choice"),
    (["tune", "karate", "--rule", "odd"], "rule='odd': there is no such choice"),
    (["tune", "karate", "--seeds", "1-4"], "seed 1: seeds below 100 are kept"),
    (["tune", "karate", "--seeds", "104-100"], "seeds '104-100': there is no seed among them"),
    (["tune", "karate", "--trials", "1"], "trials=1: too few"),
    (["tune", "karate", "--fix", "lr"], "--fix lr: there is no = in it"),
    (["evaluate", "nowhere"], "there is no such run folder"),
    (["evaluate", "empty"], "it has no config.json, so it is not a run folder"),
    (["predict", "nowhere", "--out", "p.csv"], "there is no such run folder"),
    (["predict", "nowhere", "--out", "p.doc"], "the ending of no format that can be written"),
    (["predict", "run", "--out", "p.csv", "--edges", "nowhere.csv"], "nowhere.csv: there is no such file"),
    (["explain", "nowhere", "--node", "3"], "there is no such run folder"),
    (["explain", "empty", "--node", "3"], "it has no config.json, so it is not a run folder"),
    (["explain", "run", "--node", "3", "--html", "nodes.csv"], "nodes.csv: it exists"),
    (["explore", "nowhere"], "there is no such run folder"),
    (["explore", "empty"], "it has no config.json, so it is not a run folder"),
    (["info", "empty"], "it has no config.json, so it is not a run folder"),
    (["info", "--model", "gcm"], "model 'gcm': there is no such model"),
    (["info", "run", "--model", "gcn"], "--model gcn with the run run: these are two questions"),
    (["bench", "--json", "nodes.csv"], "nodes.csv: it exists"),
    (["protocol", "nope"], "stage='nope': there is no such choice"),
    (["reproduce", "9"], "table='9': there is no such choice"),
    (["data", "fetch", "nope"], "data set 'nope': no such name"),
    (["data", "export", "nope", "--edges", "e.csv", "--nodes", "n.csv"], "data set 'nope': no such name"),
    (["data", "export", "karate", "--edges", "e.csv", "--nodes", "nodes.csv"], "nodes.csv: it exists"),
    (["data", "check", *FILES, "--label", "sort"], "it has no column 'sort'"),
    (["data", "convert", *FILES, "--label", "sort", "--out", "store"], "it has no column 'sort'"),
    # The last: polars is imported for the names of the columns.
    (["train", *FILES[:2], "--nodes", "n.parquet", "--label", "sort"], "n.parquet: it has no column 'sort'"),
]


def test_what_needs_no_torch_does_not_wait_for_it(tmp_path: Path):
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    (tmp_path / "names.csv").write_text("one,other,both\n1,2,3\n")
    (tmp_path / "wrong.toml").write_text("[settings]\nepochs = true\n")
    np.savez(tmp_path / "nodes.npz", id=np.arange(2), kind=np.arange(2))
    polars.DataFrame({"id": [1, 2], "kind": ["a", "b"]}).write_parquet(tmp_path / "n.parquet")
    (tmp_path / "nodes.csv").write_text("id,kind,height\n1,a,2\n2,b,3\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    code = f"""
import contextlib, io, os, sys
os.chdir({str(tmp_path)!r})
from node2seq import environment
from node2seq.cli.commands import make_app
environment.has_gpu_driver = lambda: False
for arguments, words in {NO_TORCH!r}:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        make_app()(arguments)
    assert words in said.getvalue(), (arguments, said.getvalue())
    late = {{"torch", "torch_geometric", "polars", "numba", "optuna"}} & set(sys.modules)
    late -= {{"polars"}} if "n.parquet" in arguments else set()
    assert not late, (arguments, late)
print("all")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "all\n", done.stderr


def test_names_of_flags_are_those_of_the_modules_that_define_them():
    assert ops.BACKEND_NAMES[1:] == names.BACKENDS
    assert (*MODELS,) == names.MODELS
    assert (*METRIC_TITLES,) == names.METRICS
    assert names.DRAWS == DRAWS
    assert sorted(names.STAGES) == sorted(["all", "plan", "pack", "choose", "render", *STAGES])
    assert ("1", *TABLES) == names.TABLES


def test_python_m_works():
    done = subprocess.run([sys.executable, "-m", "node2seq", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "Usage: node2seq" in done.stdout


@pytest.mark.parametrize("module", ["node2seq.cli.commands", "typer", "node2seq.cli.info"])
def test_ctrl_c_while_modules_are_imported_is_one_line(module: str):
    code = f"""
import importlib.abc, sys

class Stop(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Stop())
sys.argv = ["node2seq", "info"]
from node2seq.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


def test_ctrl_c_while_the_command_line_is_read_is_one_line():
    code = """
import sys
import typer.core

def stop(*_, **__):
    raise KeyboardInterrupt

typer.core.TyperGroup.parse_args = stop
sys.argv = ["node2seq", "info"]
from node2seq.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Stopped.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["data", "list"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "node2seq", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "Error: the output cannot be written: the disk is full. Free some space.\n"


def test_a_reader_that_leaves_early_is_no_error():
    command = [sys.executable, "-m", "node2seq", "train", "--help"]
    done = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.stdout is not None
    done.stdout.close()
    assert done.stderr is not None
    assert done.stderr.read() == ""
    done.stderr.close()
    done.wait()


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
