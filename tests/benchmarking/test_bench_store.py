"""The 1 : 100 twin of the benchmark of graphs larger than memory, killed on the way and continued."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Imports once, then forks: each child is a process of its own that is killed as any other, but need not spend
# seconds on importing torch. The parent reads nothing, so that it has no threads when it forks.
FORKING = """
import os, resource, signal, sys, threading
from pathlib import Path
import bench_store as bench
import duckdb, polars
from node2seq.cli.commands import COMMANDS
import node2seq.cli.data, node2seq.cli.predict, node2seq.cli.train
from node2seq.cli.flags import PredictFlags
from node2seq.data.convert import Request, convert
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.training import train_run
from node2seq.train.settings import BatchSettings, TrainSettings

home = Path(sys.argv[1])

def start(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def kill_in(title):
    begun = []
    def look(at):
        # Not at the start of the step but in its middle, where it reports for the second time.
        if at.title == title:
            begun.append(at)
            if len(begun) == 2:
                kill()
    return look

def contents(store):
    return {path.name: path.read_bytes() for path in store.iterdir() if path.name != ".lock"}

def trained(folder, epochs, kills):
    config = RunConfig(
        Source(store=str(folder / "graph.store")),
        model="residual-node2seq",
        options={"hidden_channels": 16, "num_layers": 2},
        settings=TrainSettings(epochs=epochs),
        batches=BatchSettings(256, (10, 5), workers=2),
    )
    def after(record):
        if kills and record.epoch == 1:
            threading.Timer(0.3, kill).start()
    name = "killed" if kills or (folder / "killed").exists() else "whole"
    train_run(config, folder / name, resume=True, on_epoch=after, checkpoint_seconds=0)

sizes = (bench.NODES // 100, bench.EDGES // 100)
tenth = tuple(size // bench.TENTH for size in sizes)
for files in (bench.Files("parquet", *sizes, as_text=False), bench.Files("csv", *tenth, as_text=True)):
    folder = home / files.name
    assert start(lambda: files.write(folder)) == 0
    request = Request(str(folder / "edges"), str(folder / "nodes"), "label", split="split")
    store = folder / "graph.store"
    for title in bench.KILLED_AT:
        assert start(lambda: convert(request, store, on_progress=kill_in(title))) == signal.SIGKILL, title
        assert (store / "convert.json").exists()
    assert start(lambda: convert(request, store)) == 0
    assert start(lambda: convert(request, folder / "whole.store")) == 0
    assert contents(store) == contents(folder / "whole.store")
    print(files.name, "converted", flush=True)
folder = home / "parquet"
assert start(lambda: trained(folder, 2, kills=False)) == 0
assert start(lambda: trained(folder, 2, kills=True)) == signal.SIGKILL
assert not (folder / "killed" / "model.safetensors").exists()
assert start(lambda: trained(folder, 2, kills=False)) == 0
weights = [(folder / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
assert weights[0] == weights[1]
flags = PredictFlags(run=folder / "killed", out=folder / "predicted.csv", sample=1000)
assert start(lambda: COMMANDS["predict"].execute(flags)) == 0
assert len((folder / "predicted.csv").read_text().splitlines()) == 1001
largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
assert largest < 2 * 2**30, largest
print("trained and predicted")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_hundredth_of_the_graph_is_killed_on_the_way_and_ends_with_the_same_bytes(tmp_path: Path):
    pytest.importorskip("duckdb")
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-c", FORKING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "trained and predicted"
