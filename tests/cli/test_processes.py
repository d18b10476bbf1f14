"""``torchrun … -m node2seq train``: one run of two processes, killed and started again, and refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ARGUMENTS = ("train", "karate", "--epochs", "25", "--set", "hidden_channels=8")
BATCHES = ("--batch-size", "6", "--fanout", "4,3,2")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def process_of(rank: int, launcher: int) -> int:
    """The process of a rank, by what torchrun told it."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for child in children:
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError(f"no rank {rank} among {children}")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the process of a rank in /proc")
def test_a_rank_is_killed_and_the_run_ends_as_the_undisturbed_one(cli, tmp_path: Path):
    train = ("-m", "node2seq", *ARGUMENTS, *BATCHES, "--checkpoint-seconds", "0")
    said: dict[str, str] = {}
    for name, workers in (("whole", "0"), ("killed", "1")):
        command = [*TORCHRUN, "--max-restarts", "1", *train, "--workers", workers, "--out", name]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        metrics = tmp_path / name / "metrics.jsonl"
        while name == "killed" and (not metrics.exists() or metrics.read_text().count("\n") < 5):
            assert process.poll() is None, "it ended before a rank could be killed"
            time.sleep(0.02)
        if name == "killed":
            os.kill(process_of(1, process.pid), signal.SIGKILL)
        said[name], _ = process.communicate(timeout=200)
        assert process.returncode == 0, said[name]
    assert "divided among 2 processes" in said["whole"]
    assert said["whole"].count("node2seq: 25 epochs") == 1  # one process writes to the terminal
    assert "node2seq: resumes after epoch" in said["killed"]
    files = [tmp_path / name for name in ("whole", "killed")]
    weights = [(folder / "model.safetensors").read_bytes() for folder in files]
    assert weights[0] == weights[1]
    curves = [(folder / "metrics.jsonl").read_text().splitlines() for folder in files]
    assert len(curves[0]) == 26
    assert curves[0][:25] == curves[1][:25]
    assert cli(*ARGUMENTS, *BATCHES, "--out", "one").status == 0
    one = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    two = [json.loads(line) for line in curves[0]]
    losses = [[line["loss"] for line in lines[:10]] for lines in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)  # of float32, where rounding adds up
    evaluated = cli("evaluate", "whole", "--json").json
    assert evaluated["test"]["accuracy"] == two[-1]["metrics"]["test"]["accuracy"]


def start_ranks(folders: Sequence[Path], *arguments: str) -> list[subprocess.Popen[str]]:
    """Processes that no launcher watches, each in a folder of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launched = {"WORLD_SIZE": str(len(folders)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "node2seq", *arguments],
            cwd=folder,
            env=os.environ | launched | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, folder in enumerate(folders)
    ]


@pytest.mark.slow
def test_a_rank_whose_peer_was_killed_says_so(tmp_path: Path):
    """Without torchrun, which may end the other ranks before they can say anything."""
    arguments = (*ARGUMENTS[:2], "--epochs", "100000", *BATCHES, "--out", "run")
    first, second = start_ranks([tmp_path, tmp_path], *arguments)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < 2:
        assert first.poll() is None, first.communicate()
        time.sleep(0.02)
    second.kill()
    second.communicate()
    _, said = first.communicate(timeout=120)
    assert first.returncode == 2
    assert "Error: rank 0 of 2: another process ended" in said


@pytest.mark.slow
def test_ranks_with_different_files_are_refused_in_one_sentence(tmp_path: Path):
    """As two machines, each with files of its own under the same names."""
    nodes = "id,kind,size\n" + "".join(f"{i},{'ab'[i % 2]},{i}\n" for i in range(30))
    folders = [tmp_path / f"machine{rank}" for rank in (0, 1)]
    for rank, folder in enumerate(folders):
        folder.mkdir()
        (folder / "nodes.csv").write_text(nodes)
        edges = "".join(f"{i},{(i + 1 + rank) % 30}\n" for i in range(30))
        (folder / "edges.csv").write_text("source,target\n" + edges)
    files = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")
    processes = start_ranks(folders, "train", *files, "--batch-size", "4", "--epochs", "2", "--out", "run")
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [2, 2], said
    errors = [line for _, err in said for line in err.splitlines() if line.startswith("Error")]
    assert errors == [
        f"Error: rank 1: {tmp_path / 'machine1' / 'edges.csv'}: it differs from what rank 0 reads, and all "
        "processes train on the same graph. Copy the files of rank 0 to this machine, or keep them in a "
        "folder that all machines share."
    ]
    assert said[1] == ("", "")
    assert not list(tmp_path.rglob("run"))  # nothing is left that would have to be resumed
