"""A graph larger than memory: files → a store → an epoch of mini-batches → a sample predicted.

    python benchmarks/bench_store.py --folder /data/bench              # 20M nodes, 200M edges: 30 GB of disk
    python benchmarks/bench_store.py --folder /tmp/bench --scale 100   # a hundredth of it

A power-law graph with 64 float16 features as Parquet files, and a tenth of it as CSV files with string ids.
One node in a hundred is trained on. Every conversion is killed twice (``--kills``) and continued. Memory is
the largest anonymous resident memory of a process and its children, disk what lies in the folder at most.
With ``--check``, an undisturbed conversion has to give the same bytes. What was made before is not made
again: remove the folder to start anew.
"""

import itertools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
from script import Report, argument_parser

from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.data.store import StoredGraph
from node2seq.environment import repeating
from node2seq.errors import Node2SeqError

NODES, EDGES, FEATURES, CLASSES = 20_000_000, 200_000_000, 64, 10
TENTH = 10
EXPONENT = 0.6  # ends are drawn with probability ∝ rank^−exponent
NODES_A_PART, EDGES_A_PART = 500_000, 5_000_000
PREDICTED = 1_000
# Where conversions are killed: when a line tells that this step begins, and so many seconds later.
KILLED_AT = ("encoding the features", "sorting the edges")
NETWORK = ("--set", "num_layers=2", "--batch-size", "1024", "--fanout", "10,5")
_PRIME = 2_654_435_761


@dataclass(frozen=True)
class Files:
    """A graph as files.

    Args:
        name: In rows and as the name of its folder.
        nodes: How many nodes it has.
        edges: How many edges are listed.
        as_text: Whether it is CSV with string ids, not Parquet.
    """

    name: str
    nodes: int
    edges: int
    as_text: bool

    def write(self, folder: Path) -> None:
        """Write what is not there yet, part by part."""
        for kind, count, part, make in (
            ("nodes", self.nodes, NODES_A_PART, self._nodes),
            ("edges", self.edges, EDGES_A_PART, self._edges),
        ):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            for number, start in enumerate(range(0, count, part)):
                path = folder / kind / f"{number:04d}.{'csv' if self.as_text else 'parquet'}"
                if path.exists():
                    continue
                frame, temporary = make(start, min(part, count - start)), path.with_suffix(".part")
                if self.as_text:
                    frame.write_csv(temporary, float_precision=3)
                else:
                    frame.write_parquet(temporary, row_group_size=2**17)
                temporary.rename(path)
                print(f"{self.name}: {path} written", flush=True)

    def _nodes(self, start: int, count: int) -> pl.DataFrame:
        random = np.random.default_rng([1, start])
        number = np.arange(start, start + count)
        label = number * _PRIME % 2**32 % CLASSES
        x = random.standard_normal((count, FEATURES), dtype=np.float32)
        x[np.arange(count), label] += 1.5
        x = x.astype(np.float16)
        draw = random.random(count)
        split = np.select([draw < 0.01, draw < 0.011, draw < 0.012], ["train", "val", "test"], "")
        names = np.array([f"class {name}" for name in range(CLASSES)])
        frame = pl.DataFrame({"id": self._ids(number), "split": split, "label": names[label]})
        if not self.as_text:
            return frame.with_columns(pl.Series("x", x, dtype=pl.Array(pl.Float16, FEATURES)))
        columns = [f"x{column}" for column in range(FEATURES)]
        return pl.concat([frame, pl.DataFrame(x.astype(np.float32), schema=columns)], how="horizontal")

    def _edges(self, start: int, count: int) -> pl.DataFrame:
        random = np.random.default_rng([2, start])
        ranks = (random.random((2, count)) ** (1 / (1 - EXPONENT)) * self.nodes).astype(np.int64)
        source, target = np.minimum(ranks, self.nodes - 1) * _PRIME % self.nodes
        return pl.DataFrame({"source": self._ids(source), "target": self._ids(target)})

    def _ids(self, number: np.ndarray) -> pl.Series:
        ids = pl.Series(number)
        return ids.cast(pl.String).str.pad_start(9, "0").str.replace("^", "user-") if self.as_text else ids


@dataclass
class Usage:
    """What a command took.

    Args:
        seconds: All starts of it together.
        memory: Anonymous resident bytes, at most.
        kills: How often it was killed.
    """

    seconds: float = 0.0
    memory: int = 0
    kills: int = 0


def anonymous(pid: int) -> int:
    """The anonymous resident bytes of a process and its children."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                total = int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended
        return total
    return total + sum(anonymous(int(child)) for child in children)


class Watch:
    """Looks now and then at the memory of a process and at the disk that a folder takes.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.disk = folder, 0

    @contextmanager
    def of(self, pid: int, usage: Usage) -> Iterator[None]:
        """Watch a process while it runs."""
        looks = itertools.count()

        def look() -> float:
            usage.memory = max(usage.memory, anonymous(pid))
            if next(looks) % 40 == 0:
                self.look_at_disk()
            return 0.05

        try:
            with repeating(look, 0.05):
                yield
        finally:
            self.look_at_disk()

    def look_at_disk(self) -> None:
        """Take in what lies in the folder now."""
        total = 0
        for path in self.folder.rglob("*"):
            try:
                total += path.stat().st_blocks * 512
            except OSError:  # it was removed meanwhile
                continue
        self.disk = max(self.disk, total)


def run(arguments: Sequence[object], watch: Watch, kill_at: Sequence[str] = ()) -> Usage:
    """Run a command of node2seq; kill it each time a line says one of these words, and start it again."""
    command = [sys.executable, "-m", "node2seq", *map(str, arguments)]
    usage, waiting, begun = Usage(), list(kill_at), time.monotonic()
    while True:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        with watch.of(process.pid, usage):
            for line in process.stdout:
                print(f"  {line.rstrip()}", flush=True)
                if waiting and waiting[0] in line:
                    waiting.pop(0)
                    process.kill()
                    usage.kills += 1
            status = process.wait()
        if status == 0:
            usage.seconds = time.monotonic() - begun
            return usage
        if status > 0 or not usage.kills:
            raise Node2SeqError(" ".join(command[2:5]), f"it ended with status {status}", "Look above")


def measure(files: Files, folder: Path, kills: int, check: bool) -> Iterator[tuple[str, Usage]]:
    """Each command and what it took."""
    files.write(folder)
    watch, store = Watch(folder), folder / "graph.store"
    given = ("--edges", folder / "edges", "--nodes", folder / "nodes", "--label", "label", "--split", "split")
    memory = ("--memory", "4GB")
    yield "convert", run(["data", "convert", *given, "--out", store, *memory], watch, KILLED_AT[:kills])
    if check:
        run(["data", "convert", *given, "--out", folder / "again.store", *memory], Watch(folder))
        names = sorted(path.name for path in store.iterdir())
        same = all(
            (store / name).read_bytes() == (folder / "again.store" / name).read_bytes() for name in names
        )
        if not same or "manifest.json" not in names:
            raise Node2SeqError(
                str(store), "an undisturbed conversion gives other bytes", "Look for the cause"
            )
        shutil.rmtree(folder / "again.store")
    out = folder / "run"
    epoch = ["train", "--store", store, *NETWORK, "--epochs", "1", "--out", out, "--resume"]
    yield "train one epoch", run(epoch, watch)
    sample = ["predict", out, "--sample", PREDICTED, "--out", folder / "predicted.csv", "--force"]
    yield f"predict {PREDICTED} nodes", run(sample, watch)
    yield "disk", Usage(memory=watch.disk)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each command."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--folder", type=Path, required=True, help="where files, stores and runs are made")
    parser.add_argument("--scale", type=int, default=1, help="divide all sizes by this")
    parser.add_argument("--kills", type=int, default=len(KILLED_AT), choices=range(len(KILLED_AT) + 1))
    parser.add_argument("--check", action="store_true", help="compare with an undisturbed conversion")
    options = parser.parse_args(arguments)
    report = Report(options)
    nodes, edges = NODES // options.scale, EDGES // options.scale
    for files in (
        Files("parquet", nodes, edges, as_text=False),
        Files("csv", nodes // TENTH, edges // TENTH, as_text=True),
    ):
        folder = options.folder / files.name
        found = list(measure(files, folder, options.kills, options.check))
        graph = StoredGraph(folder / "graph.store")
        report.header(f"{files.name}: {files.nodes:,} nodes, {files.edges:,} edges")
        row = BenchmarkRow("store", files.name, graph.num_nodes, graph.num_edges, "")
        for case, usage in found:
            milliseconds = None if case == "disk" else 1000 * usage.seconds
            variant = f"killed {usage.kills} times" if usage.kills else ""
            report.add(replace(row, case=case, variant=variant, p50_ms=milliseconds, peak_bytes=usage.memory))


if __name__ == "__main__":
    main()
