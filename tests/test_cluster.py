"""docs/cluster.md is true: its launch lines parse, the one for this machine runs, its costs are the rows'."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import cost_model
import pytest
import yaml
from torch.distributed.run import get_args_parser

from node2seq.cli.definitions import read
from node2seq.cli.flags import TrainFlags
from node2seq.data import load, write_graph

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cluster.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def launches() -> list[list[str]]:
    """What is given to each torchrun, with a shell's variables as they stand."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if "torchrun " in line]
    return [shlex.split(line.partition("torchrun ")[2]) for line in lines]


def test_every_torchrun_line_is_read_by_its_own_parser():
    found = launches()
    assert len(found) == 3
    for arguments in found:
        asked = get_args_parser().parse_args([word.replace("$SLURM_NNODES", "2") for word in arguments])
        assert (asked.module, asked.training_script, asked.max_restarts) == (True, "node2seq", 3)
        verb, *flags = asked.training_script_args
        train = read(TrainFlags, flags, "node2seq train")
        assert verb == "train"
        assert train.batch_size is not None
        assert train.batch_size % int(asked.nproc_per_node) == 0
        assert train.out is not None


def test_scripts_are_valid_bash():
    for block in blocks("bash"):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert blocks("bash")[-1].startswith("#!/bin/bash\n#SBATCH ")


def test_the_job_for_kubernetes_has_what_the_operator_needs():
    (text,) = blocks("yaml")
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert re.fullmatch(r"[a-z][-a-z0-9]*", job["metadata"]["name"])
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert replicas.keys() == {"Master", "Worker"}
    assert replicas["Master"]["replicas"] == 1
    for spec in replicas.values():
        assert spec["restartPolicy"] in {"Always", "OnFailure", "Never", "ExitCode"}
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == "pytorch"  # the only name that the operator takes
        assert container["image"]
        program, verb, *flags = container["command"]
        assert (program, verb) == ("node2seq", "train")
        train = read(TrainFlags, flags, "node2seq train")
        assert train.resume
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
        assert str(train.out).startswith(mounted["data"])


@pytest.mark.slow
def test_the_worker_for_ray_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With stand-ins for Ray's classes that take the arguments of the real ones and call the worker."""
    (code,) = blocks("python")

    def trainer(worker, *, scaling_config, run_config):
        assert scaling_config.num_workers == 2
        assert run_config.failure_config.max_failures == 3
        return SimpleNamespace(fit=worker)

    ray, inner, torch_part = (ModuleType(name) for name in ("ray", "ray.train", "ray.train.torch"))
    for name, fields in {
        "FailureConfig": {"max_failures"},
        "RunConfig": {"failure_config"},
        "ScalingConfig": {"num_workers", "use_gpu"},
    }.items():

        def make(fields=fields, **given):
            assert given.keys() <= fields
            return SimpleNamespace(**given)

        setattr(inner, name, make)
    torch_part.TorchTrainer = trainer  # pyright: ignore[reportAttributeAccessIssue]
    for module in (ray, inner, torch_part):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "cluster.md", "exec"), {})
    assert (tmp_path / "runs" / "ray" / "model.safetensors").exists()


@pytest.mark.slow
def test_the_line_for_one_machine_runs_as_it_stands(tmp_path: Path):
    write_graph(load("karate"), tmp_path / "edges.csv", tmp_path / "nodes.csv")
    header, rows = (tmp_path / "nodes.csv").read_text().split("\n", 1)
    (tmp_path / "nodes.csv").write_text(header.replace("label", "kind") + "\n" + rows)
    command = [sys.executable, "-m", "torch.distributed.run", *launches()[0], "--epochs", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "divided among 2 processes" in done.stdout
    assert (tmp_path / "runs" / "mine" / "report.html").exists()


def test_costs_are_those_of_the_rows(tmp_path: Path):
    page = tmp_path / "cluster.md"
    page.write_text(PAGE)
    cost_model.main(["--page", str(page)])
    assert page.read_text() == PAGE, "run benchmarks/cost_model.py"
    for name in ("cluster-memory.svg", "cluster-time.svg"):
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / name).read_bytes()
    rows = cost_model.read_rows(ROOT / "benchmarks" / "rows.jsonl")
    model, largest = cost_model.fit(rows), cost_model.full_batch(rows)[-1]
    assert largest.edges >= 500_000_000
    assert model.milliseconds[largest.readout or ""] * largest.edges == pytest.approx(largest.p50_ms)
    assert model.batch_milliseconds > model.ready_milliseconds
