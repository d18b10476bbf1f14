"""A training epoch of the whole network on large graphs: full batch, mini-batches, and non-local neighbours.

    python benchmarks/bench_large.py                         # up to 10M nodes, 500M edges; for a large GPU
    python benchmarks/bench_large.py --device cpu --shrink 1000
    python benchmarks/bench_large.py --parts minibatches nonlocal --limit 40

Random graphs with hubs, 64 features, eight classes, one node in a hundred for training; `Node2Seq` with 64
hidden channels and three layers. An epoch of the full batch is one step of forward, backward and Adam. One of
mini-batches is a step for each 1,024 training nodes with 10 neighbours of each, on the first graph, drawn
where the network is; the same steps on batches that lie ready, with and without their plans, are timed apart,
and a profiler tells how long the GPU works. With two hops each network is measured on a graph that is new to
it: its first epoch finds the candidates and compiles kernels, and its memory is that of the candidates too.
Running out of memory is a result, and so is a case that takes longer than its limit.
"""

import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from bench_epoch import HIDDEN, training_step
from script import Report, argument_parser, seconds_of
from torch import Tensor
from torch_geometric.data import Data

from node2seq import ops
from node2seq.benchmarking.layers import CHANNELS, OUT_OF_MEMORY, Size, measured, peak_bytes, power_law
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import verify_backends
from node2seq.environment import Processes
from node2seq.nn.models import Node2Seq
from node2seq.train.batches import BatchGraph, MiniBatches
from node2seq.train.device_batches import DeviceGraph
from node2seq.train.settings import BatchSettings

PARTS = ("full", "minibatches", "nonlocal")
FULL = (Size("2.4M nodes", 2_400_000, 124_000_000), Size("10M nodes", 10_000_000, 500_000_000))
NONLOCAL = (Size("170k nodes", 170_000, 1_200_000), Size("1M nodes", 1_000_000, 20_000_000))
SIZES = {"full": FULL, "minibatches": FULL[:1], "nonlocal": NONLOCAL}
READOUTS = ("max", "mean")
# All nodes within two hops, or the ends of so many random walks.
MAX_CANDIDATES = (None, 64)
CLASSES, TRAIN_SHARE = 8, 100
BATCH_SIZE, FANOUT = 1_024, (10, 10, 10)
BOUNDS = {"seconds": 5.0, "least": 3, "most": 10}


def make_graph(size: Size, device: torch.device) -> tuple[Data, Tensor]:
    """A graph and its training nodes."""
    edge_index = power_law(size.nodes, size.edges, device)
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn(size.nodes, CHANNELS, device=device, generator=generator)
    y = torch.randint(CLASSES, (size.nodes,), device=device, generator=generator)
    train = torch.randperm(size.nodes, device=device, generator=generator)[: size.nodes // TRAIN_SHARE]
    return Data(x=x, edge_index=edge_index, y=y), train.sort().values


def make_network(device: torch.device, readout: str, **options: Any) -> Node2Seq:
    """The network, with the same weights each time."""
    torch.manual_seed(0)
    return Node2Seq(CHANNELS, HIDDEN, CLASSES, readout=readout, **options).to(device).train()


def verify_batches(device: torch.device) -> None:
    """Batches drawn on the device are those drawn in main memory, and stay so while the device is behind."""
    network = make_network(device, "mean")
    data, train = make_graph(Size("", 20_000, 400_000), torch.device("cpu"))
    found: list[list[Tensor]] = [[], []]
    for kind, copies in zip((DeviceGraph, BatchGraph), found, strict=True):
        settings = BatchSettings(BATCH_SIZE // 64, FANOUT)
        batches: Any = MiniBatches(kind.of(network, data), train, settings, 0, Processes())
        for part, x in batches.of_epoch(0):
            busy = torch.ones(2048 if device.type == "cuda" else 1, 2048, device=device)
            for _ in range(8 if kind is DeviceGraph else 0):
                busy = busy @ busy.t() @ busy
            copies += [value.clone() for value in (part.n_id, part.edges.index, part.seeds, x)]
    assert all(torch.equal(one.cpu(), other) for one, other in zip(*found, strict=True)), "other batches"


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError when so many seconds are over; none for 0."""

    def stop(_number: int, _frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Large:
    """The cases on one graph.

    Args:
        report: Where rows go.
        size: The graph's name and size.
        limit: The seconds that a case may take.
    """

    def __init__(self, report: Report, size: Size, limit: float) -> None:
        self.report, self.device, self.limit = report, report.device, limit
        self.row = BenchmarkRow("large", *size, "Node2Seq")
        self.data, self.train = make_graph(size, self.device)

    def full_batch(self) -> None:
        """An epoch of the full batch."""
        for readout in READOUTS:
            self._add(replace(self.row, variant="full batch", readout=readout), self._step(readout))

    def nonlocal_neighbours(self) -> None:
        """An epoch of the full batch with two hops, and the first one; with all candidates and with some."""
        for most in MAX_CANDIDATES:
            case = "Node2Seq, 2 hops" + ("" if most is None else f", {most} walks")
            for readout in READOUTS:
                step = self._step(readout, hops=2, max_candidates=most)
                row = replace(self.row, case=case, readout=readout)
                if self._add(replace(row, variant="first epoch"), step, self._first).result is None:
                    self._add(replace(row, variant="full batch"), step)
                del step
                ops.PLANS.clear()

    def mini_batches(self, workers: int | None) -> None:
        """An epoch of mini-batches, and of the same batches when they lie ready."""
        self._in_batches(DeviceGraph, "mini-batches, drawn on the device", 0)
        if workers is not None:
            self._in_batches(BatchGraph, f"mini-batches, {workers} workers", workers)

    def _in_batches(self, kind: type[BatchGraph], variant: str, workers: int) -> None:
        network, y = make_network(self.device, "mean"), self.data.y
        assert isinstance(y, Tensor)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
        settings = BatchSettings(BATCH_SIZE, FANOUT, workers)
        batches = MiniBatches(kind.of(network, self.data), self.train.cpu(), settings, 0, Processes())
        row, epoch = replace(self.row, readout="mean"), 0

        def steps(parts: Any) -> None:
            for part, x in parts:
                part, x = part.to(self.device), x.to(self.device)
                optimizer.zero_grad(set_to_none=True)
                out = network(x, part.edges, n_id=part.n_id)[part.seeds]
                F.cross_entropy(out, y[part.n_id[part.seeds]]).backward()
                optimizer.step()

        def drawn() -> None:
            nonlocal epoch
            steps(batches.of_epoch(epoch))
            epoch += 1

        def anew() -> None:
            ops.PLANS.clear()
            steps(ready)

        try:
            loaded = self._add(replace(row, variant=variant), drawn)
            self._add_share(replace(row, variant=f"{variant}: the device works"), loaded, drawn)
            if not workers:  # the batches are the same
                ready = [(part.to(self.device), x.to(self.device)) for part, x in batches.of_epoch(0)]
                self._add(replace(row, variant="the same batches, ready, plans anew"), anew)
                self._add(replace(row, variant="the same batches, ready"), lambda: steps(ready))
        finally:
            # Left to the garbage collector, each worker would be waited for five seconds, in some later case.
            batches.close()

    def _add_share(self, row: BenchmarkRow, wall: BenchmarkRow, step: Callable[[], None]) -> None:
        """How much of the time of a step a GPU works."""
        if self.device.type != "cuda" or not wall.p50_ms:
            return
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            seconds_of(step, self.device)
        on_gpu = [event for event in profiler.events() or () if event.device_type.name == "CUDA"]
        busy, end = 0.0, 0.0
        for first, last in sorted((event.time_range.start, event.time_range.end) for event in on_gpu):
            busy += max(last - max(first, end), 0.0) / 1e3
            end = max(end, last)
        self.report.add(replace(row, result=f"{min(busy / wall.p50_ms, 1.0):.0%} of the time"))

    def _step(self, readout: str, **options: Any) -> Callable[[], None]:
        network = make_network(self.device, readout, **options)
        return training_step(network, self.data, self.train, self.device, False)

    def _add(
        self,
        row: BenchmarkRow,
        step: Callable[[], None],
        find: Callable[[BenchmarkRow, Callable[[], None]], BenchmarkRow] | None = None,
    ) -> BenchmarkRow:
        """A row of what is found of a step within the limit."""
        try:
            with at_most(self.limit):
                found = (find or self._repeated)(row, step)
        except TimeoutError:
            found = replace(row, result=f"more than {self.limit:g} s")
        gc.collect()
        torch.cuda.empty_cache()
        return self.report.add(found)

    def _repeated(self, row: BenchmarkRow, step: Callable[[], None]) -> BenchmarkRow:
        return measured(row, step, self.device, **BOUNDS)

    def _first(self, row: BenchmarkRow, step: Callable[[], None]) -> BenchmarkRow:
        took = 0.0

        def once() -> None:
            nonlocal took
            took = 1e3 * seconds_of(step, self.device)[0]

        try:
            peak = peak_bytes(once, self.device)
        except torch.OutOfMemoryError:
            return replace(row, result=OUT_OF_MEMORY)
        return replace(row, p20_ms=took, p50_ms=took, p80_ms=took, peak_bytes=peak)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each graph."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--shrink", type=int, default=1, help="divide nodes and edges, to try everything")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a case may take")
    parser.add_argument("--workers", type=int, help="also draw mini-batches in so many processes")
    options = parser.parse_args(arguments)
    report = Report(options)
    verify_backends(report.device)
    if "minibatches" in options.parts:
        verify_batches(report.device)
    for size in (*FULL, *NONLOCAL):
        wanted = [part for part in PARTS if part in options.parts and size in SIZES[part]]
        if not wanted:
            continue
        shrunk = Size(size.name, size.nodes // options.shrink, size.edges // options.shrink)
        report.header(f"{shrunk.name}, {shrunk.edges:,} edges: an epoch")
        large = Large(report, shrunk, options.limit)
        if "full" in wanted:
            large.full_batch()
        if "minibatches" in wanted:
            large.mini_batches(options.workers)
        if "nonlocal" in wanted:
            large.nonlocal_neighbours()
        del large
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
