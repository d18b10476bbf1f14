"""Two processes train as one does: the same losses in float64, dropout included, and the same results."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import in_ranks
import pytest
from stored_graphs import write_files

from node2seq import Node2SeqError
from node2seq.data.convert import Request, convert
from node2seq.environment import Processes, is_launched
from node2seq.train.processes import join


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The folder of a graph on disk; none where it cannot be made."""
    if find_spec("duckdb") is None:
        return []
    folder = tmp_path_factory.mktemp("store")
    edges, nodes = write_files(folder)
    convert(Request(str(edges), str(nodes), "kind"), folder / "store")
    return [str(folder / "store")]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, store: list[str]) -> list[dict]:
    """What each of two gloo processes found."""
    file, script = tmp_path_factory.mktemp("ranks") / "found", Path(in_ranks.__file__)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(script), str(file), *store]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(file.with_name(f"found.{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("name", in_ranks.CASES)
def test_two_processes_are_one(ranks, name):
    one, (first, second) = in_ranks.run_case(name), (rank[name] for rank in ranks)
    assert 5 < len(one["loss"]) < 30  # one case stops early
    for curve in ("loss", "val_loss", "val_score", "weights"):
        assert first[curve] == pytest.approx(one[curve], rel=1e-9, abs=1e-9)
    assert (first["best"], first["accuracies"]) == (one["best"], one["accuracies"])
    assert first == second  # bit for bit: every decision is the same


@pytest.mark.slow
def test_processes_that_draw_for_their_own_nodes(ranks):
    """Where all neighbours are taken nothing depends on it; otherwise others are drawn, and all agree."""
    one, first = in_ranks.run_case("all neighbours, early stopping"), ranks[0]
    assert first["own draws"]["loss"] == pytest.approx(one["loss"], rel=1e-9)
    assert first["other draws"] == ranks[1]["other draws"]
    assert first["other draws"]["loss"] != pytest.approx(first["as it is"]["loss"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("duckdb") is None, reason="a store needs duckdb to be made")
def test_a_graph_on_disk_is_measured_in_parts(ranks, store):
    one = in_ranks.run_store(*store)
    assert len(one) == 6
    assert ranks[0]["store"] == pytest.approx(one, rel=1e-5)
    assert ranks[0]["store"] == ranks[1]["store"]


@pytest.mark.slow
def test_errors_reach_all_processes_and_name_the_rank(ranks):
    first, second = (rank["refused"] for rank in ranks)
    assert first == second
    assert first["normalised"].startswith("GIN with 2 processes: it normalises over the nodes of a batch")
    assert first["full batch"].startswith("the full batch with 2 processes: it is one step")
    assert first["first"] == "file-0.csv: there is no such file. Check the path."
    assert first["second"] == "rank 1: file-1.csv: there is no such file. Check the path."
    assert first["both"] == "file-0.csv: there is no such file. Check the path."
    words = "rank 1: other settings than those of rank 0 (settings): all processes train the same run."
    assert [rank["settings"].startswith(words) for rank in ranks] == [True, True]
    assert [rank["shared"] for rank in ranks] == ["from 0", "from 0"]


def launched_as(monkeypatch: pytest.MonkeyPatch, rank: int, size: int = 2) -> int:
    """The environment of one of several processes, and the port where they meet, which nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    names = {"RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in names.items():
        monkeypatch.setenv(name, str(value))
    return port


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_reach_the_others_says_so(monkeypatch: pytest.MonkeyPatch, rank, capfd):
    port = launched_as(monkeypatch, rank)
    words = f"rank {rank} of 2: it did not reach the others through 127.0.0.1, port {port}, within 1 s"
    with pytest.raises(Node2SeqError, match=words), join(1):
        pass
    capfd.readouterr()  # torch's own complaints


def test_one_process_is_alone(monkeypatch: pytest.MonkeyPatch):
    for size in (None, 1):
        if size:
            launched_as(monkeypatch, 0, size)
        with join() as processes:
            assert type(processes) is Processes
            assert (processes.rank, processes.size, processes.restarted) == (0, 1, False)
    assert not is_launched({"WORLD_SIZE": "2"})  # as some clusters set it for every program
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with join() as processes:
        assert processes.restarted
