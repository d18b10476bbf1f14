"""Draw mini-batches: compiled and plain on one thread, and with one and two workers that also read features.

    python benchmarks/bench_sampler.py          # 200,000 nodes, 4M edges, batches of 1,024, fanout 10 × 10

A step of the first two cases is 20 batches. The cases with workers are an epoch of 500 batches with 64
features for each node, by workers that are warm. Both samplers have to draw the same before they are timed.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from script import Report, argument_parser
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from node2seq.benchmarking.layers import Size, measured
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.data.sampler import NeighbourSampler, SeedBatches, batch_loader
from node2seq.data.shared_memory import take_rows
from node2seq.errors import Node2SeqError

FANOUT, BATCH_SIZE, CHANNELS = (10, 10), 1024, 64
BATCHES, EPOCH = 20, 500


class Features:
    """Reads the features of a batch.

    Args:
        nodes: How many nodes there are.
    """

    def __init__(self, nodes: int) -> None:
        self.x = torch.randn(nodes, CHANNELS, generator=torch.Generator().manual_seed(0))

    def __call__(self, batch: Data) -> Data:
        """The batch with them."""
        batch.x = take_rows(self.x, batch.n_id)  # a worker writes them to shared memory at once
        return batch


def verify(samplers: Sequence[NeighbourSampler], seeds: torch.Tensor) -> None:
    """Raise an error unless all draw the same neighbours."""
    found = [sampler.sample_from_nodes(NodeSamplerInput(None, seeds)) for sampler in samplers]
    names = ("node", "row", "col", "edge")
    if not all(torch.equal(getattr(one, name), getattr(found[0], name)) for one in found for name in names):
        raise Node2SeqError(
            "the compiled sampler", "it draws other neighbours than the plain one", "Run the tests"
        )


def epoch_seconds(sampler: NeighbourSampler, features: Features, batches: int, workers: int) -> float:
    """The seconds that an epoch takes with so many workers, after a short one that starts them."""
    seeds = torch.arange(batches * BATCH_SIZE) % sampler.num_nodes
    order = SeedBatches(seeds, BATCH_SIZE, shuffle=False)  # a node may stand in several batches
    loader = batch_loader(sampler, order, features, workers=workers)
    order.nodes = seeds[: 4 * workers * BATCH_SIZE]
    for _ in loader:
        pass
    order.nodes, sampler.epoch, order.epoch = seeds, 1, 1
    start = time.perf_counter()
    for _ in loader:
        pass
    seconds = time.perf_counter() - start
    loader._iterator = None  # ends the workers
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each case."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--edges", type=int, default=4_000_000)
    parser.add_argument("--batches", type=int, default=EPOCH, help="batches of an epoch with workers")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to repeat a step")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    report = Report(options)
    size = Size(f"{BATCHES} batches", options.nodes, options.edges)
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(size.nodes, (2, size.edges), generator=generator)
    compiled, plain = (
        NeighbourSampler.from_edges(edge_index, size.nodes, FANOUT, backend=backend)
        for backend in ("auto", "plain")
    )
    seeds = torch.randperm(size.nodes, generator=generator)[: BATCHES * BATCH_SIZE].split(BATCH_SIZE)
    verify([compiled, plain], seeds[0])

    def step(sampler: NeighbourSampler) -> None:
        for nodes in seeds:
            sampler.sample_from_nodes(NodeSamplerInput(None, nodes))

    report.header(
        f"{size.nodes:,} nodes, {size.edges:,} edges: {BATCHES} batches of {BATCH_SIZE:,} seed nodes"
    )
    row = BenchmarkRow("sampler", *size, "NeighbourSampler")
    for variant, sampler in (("compiled", compiled), ("plain", plain)):
        own = replace(row, variant=variant)
        report.add(measured(own, partial(step, sampler), report.device, seconds=options.seconds))
    name = f"{options.batches} batches with features"
    report.header(name, "one worker")
    features = Features(size.nodes)
    for workers, words in ((1, "one worker"), (2, "two workers")):
        seconds = epoch_seconds(compiled, features, options.batches, workers)
        report.add(replace(row, graph=name, case=words, p50_ms=1000 * seconds))


if __name__ == "__main__":
    main()
