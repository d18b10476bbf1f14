"""The fused kernels on a GPU: are they right, how fast is the layer beside PyG's, where does the time go?

    PYTHONPATH=. python benchmarks/bench_ops.py       # checks, layers, steps, block sizes: under five minutes
    python benchmarks/bench_ops.py --graphs tiny --parts layers      # Cora's and Squirrel's size: two minutes
    python benchmarks/bench_ops.py --parts steps      # single operations only
    python benchmarks/bench_ops.py --graphs large --parts variants    # block sizes of the max: under a minute
    python benchmarks/bench_ops.py --graphs large --parts variants --kernels sort short widths

Every backend is compared with the reference first, and nothing is timed if one differs (but for block sizes,
which are only compared with each other); ``python -m pytest tests/ops/triton`` tests each kernel by itself.
Times are medians over CUDA events of a forward + backward pass in exact float32, but for “bfloat16”, which is
autocast; ratios are to GATConv with one head on the same graph in float32, eager and under torch.compile;
lower is better. On the graphs of Cora's and Squirrel's size the layers take turns, so that a busy moment of
the machine hits them alike; figures are over all turns. Running out of memory is a result. The gather bound
is the time that it takes to copy as many bytes as an operation has to gather, every entry from memory once.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from script import Report, argument_parser, copy_bandwidth
from torch import Tensor

from node2seq import ops
from node2seq.benchmarking.layers import (
    BFLOAT16,
    CHANNELS,
    COMPILED,
    PLAN_ANEW,
    BenchmarkInTurns,
    LayerBenchmark,
    Size,
    measure,
    power_law,
)
from node2seq.benchmarking.rows import BenchmarkRow, device_title
from node2seq.benchmarking.short import verify_backends
from node2seq.ops import triton as fused
from node2seq.ops.sequences import Layout
from node2seq.ops.triton import (
    fused_window_sum,
    launch,
    plan,
    ranks,
    scores,
    short_rows,
    sorting,
    window_max,
    window_sum,
)
from node2seq.ops.triton.aggregate import segment_sum

DEVICE = torch.device("cuda")
SUMS = fused_window_sum.Sums(is_mean=False, with_own=False)
CASES = [("max", 3), ("max", 10), ("mean", 3), ("mean", 10), ("ranks", 3)]


def graph_size(nodes: int, edges: int) -> Size:
    """A size that is named after its numbers."""
    return Size(f"{nodes / 1e3:,.0f}k nodes, {edges / 1e6:,.1f}M edges", nodes, edges)


# How often a step is repeated on each graph.
GRAPHS = {
    "tiny": {graph_size(2_700, 10_600): 30, graph_size(5_000, 400_000): 30},
    "small": {graph_size(100_000, 1_100_000): 30},
    "large": {graph_size(1_000_000, 21_000_000): 10, graph_size(2_400_000, 126_000_000): 5},
}
# How often each layer has its turn on the graphs where they take turns.
ROUNDS = 20
# Our layer is compiled too where starting kernels takes longer than running them.
MOST_EDGES_COMPILED = 1_000_000
# Steps whose work grows with the kernel size.
BY_TAPS = {
    "project",
    "window_max",
    "window_max_grad",
    "window_sum",
    "scored_window_sum",
    "window_sum_grad",
    "project_sums",
    "weight_grad",
    "soft_ranks",
    "soft_ranks_grad",
    "rank_sum",
    "rank_grad",
    "rank_sum_by_source",
}
# Block sizes and warps that are tried for each kernel.
VARIANTS = [(2, 1), (4, 1), (4, 2), (8, 1), (16, 1), (8, 2), (16, 2), (32, 2), (16, 4), (32, 4)]
SORT_VARIANTS = [(256, 1), (512, 2), (512, 4), (1024, 2), (1024, 4), (1024, 8), (2048, 8)]
# Kernels whose variants are measured unless others are asked for: what the largest window takes.
VARIED = ["score", "window_max", "grad"]
GRAD_VARIANTS = [(2, 2), (4, 1), (4, 2), (8, 1), (8, 2)]
SHORT_VARIANTS = [512, 1024, 2048, 4096]
WIDTHS = [(16, 32, 64), (16, 32), (32, 64), (8, 16, 32, 64), (16, 32, 64, 128)]


def median_ms(step: Callable[[], Any], repeats: int) -> float:
    """The median time of a step."""
    found = measure(step, DEVICE, seconds=0, least=repeats)
    assert found is not None
    return found.p50_ms


def layers(report: Report, size: Size, edge_index: Tensor, bandwidth: float) -> None:
    """The table of whole layers; on graphs whose steps take a millisecond they take turns."""
    report.header(f"{size.name}: layer, forward + backward", "GATConv")
    if size.edges < MOST_EDGES_COMPILED:
        taking_turns = BenchmarkInTurns("layer", size, edge_index)
        for measure_layer in each_layer(taking_turns):
            measure_layer()
        for row in taking_turns.rows(rounds=ROUNDS, least=5):
            report.add(row)
        return
    for measure_layer in each_layer(LayerBenchmark("layer", size, edge_index, bandwidth)):
        report.add(measure_layer())
        torch.cuda.empty_cache()


def each_layer(benchmark: LayerBenchmark) -> Iterator[Callable[[], BenchmarkRow]]:
    """What measures GATConv, eager and compiled, and ours."""
    yield benchmark.gat
    yield benchmark.compiled_gat
    for readout, kernel_size in CASES:
        variants = ["", BFLOAT16, PLAN_ANEW] if kernel_size == 3 else [""]
        if kernel_size == 3 and benchmark.size.edges < MOST_EDGES_COMPILED:
            variants.append(COMPILED)
        for variant in variants:
            yield partial(benchmark.node2seq, readout, kernel_size, "triton", variant)


class Steps:
    """The operations of the layer on one graph, one by one, with the bytes that each has to gather."""

    def __init__(self, size: Size, edge_index: Tensor) -> None:
        graph = ops.GraphNumbers(1, size.nodes, size.nodes, add_self_loops=1, merge_duplicates=1)
        self.sequences = graph.find(edge_index)
        self.plan = plan.plan_of(self.sequences)
        self.key = torch.randn(size.nodes, CHANNELS, device="cuda")
        self.scores = scores.score(self.key, self.key, self.sequences)
        self.ties = sorting.precedence(scores.own_score(self.key))
        self.ranked = sorting.sort_rows(self.scores, self.ties, self.plan)
        self.row_bytes = self.sequences.rows.num_entries * CHANNELS * 4

    def arrange(self) -> Layout:
        """Scores, precedence and the whole order."""
        return fused.score_and_rank(self.key, self.key, self.sequences).layout

    def named(self, kernel_size: int) -> dict[str, tuple[Callable[[], Any], float]]:
        """Each step with the bytes that it gathers at least."""
        rows, entries = self.row_bytes, self.sequences.rows.num_entries
        weight = torch.randn(CHANNELS, kernel_size * CHANNELS, device="cuda")
        table = (self.key @ weight).view(-1, kernel_size, CHANNELS)
        grad = torch.randn_like(self.key)
        largest = partial(window_max.window_max, table, self.ranked, kernel_size)
        _, winner, short = largest()
        add = partial(fused_window_sum.scored_window_sum, self.key, self.key, self.plan, kernel_size, SUMS)
        summed, under = add()
        summed = summed.flatten(1)
        ones = torch.ones(entries, device="cuda")
        listed, values = ranks.entries_of(self.sequences), self.scores.clone().requires_grad_()
        soft = fused.soft_ranks(values, self.sequences, kernel_size)
        shares = soft.detach().t()  # [E, K]
        return {
            "score": (lambda: scores.score(self.key, self.key, self.sequences), rows),
            "precedence": (lambda: sorting.precedence(scores.own_score(self.key)), self.key.nbytes),
            "rank": (lambda: sorting.sort_rows(self.scores, self.ties, self.plan), entries * 20),
            "score_and_rank": (self.arrange, rows + entries * 12),
            "project": (lambda: self.key @ weight, self.key.nbytes + table.nbytes),
            "window_max": (largest, rows * kernel_size),
            "window_max_grad": (
                lambda: window_max.window_max_grad(
                    grad, winner, short, self.ranked.place, self.plan, table.shape, kernel_size
                ),
                rows + rows // 4,
            ),
            "window_sum": (lambda: window_sum.window_sum(self.key, self.ranked, kernel_size, SUMS), rows),
            "scored_window_sum": (add, rows + entries * 5 + table.nbytes),
            "window_sum_grad": (
                lambda: window_sum.window_sum_grad(table, under, self.plan, kernel_size, SUMS),
                rows,
            ),
            "project_sums": (lambda: summed @ weight.view(-1, CHANNELS), table.nbytes + self.key.nbytes),
            "weight_grad": (lambda: summed.t() @ grad, table.nbytes + self.key.nbytes),
            "soft_ranks": (
                lambda: fused.soft_ranks(self.scores, self.sequences, kernel_size),
                entries * 4 + shares.nbytes,
            ),
            "soft_ranks_grad": (
                lambda: torch.autograd.grad(soft, values, shares.t(), retain_graph=True),
                entries * 4 + 2 * shares.nbytes,
            ),
            "rank_sum": (
                lambda: ranks.rank_sums(self.key, shares, listed, is_transposed=False),
                rows + shares.nbytes,
            ),
            "rank_grad": (lambda: ranks.rank_grad(table, self.key, listed), rows + shares.nbytes),
            "rank_sum_by_source": (
                lambda: ranks.rank_sums(grad, shares, listed, is_transposed=True),
                rows + shares.nbytes,
            ),
            "segment_sum": (
                lambda: segment_sum(self.key, self.plan.index, ones, self.plan.work, None),
                rows,
            ),
        }


def steps(report: Report, size: Size, edge_index: Tensor, bandwidth: float, repeats: int) -> None:
    """The table of single operations."""
    found = Steps(size, edge_index)
    longest, work = int(found.sequences.rows.length().max()), found.plan.work
    report.header(f"{size.name}: longest sequence {longest}, {work.hubs} hubs in {work.parts} parts")
    for kernel_size in (3, 10):
        for name, (step, gathered) in found.named(kernel_size).items():
            if kernel_size == 3 or name in BY_TAPS:
                measured = measure(step, DEVICE, seconds=0, least=max(repeats // 2, 3))
                assert measured is not None
                share = gathered / bandwidth * 1e3 / measured.p50_ms
                about = {"kernel_size": kernel_size, "backend": "triton", "bound_share": share}
                report.add(BenchmarkRow("ops", *size, name, **about, **vars(measured)))
    _plan_steps(size, edge_index, found)


def _plan_steps(size: Size, edge_index: Tensor, found: Steps) -> None:
    def build() -> ops.Sequences:
        return ops.build_sequences(
            edge_index[0],
            edge_index[1],
            size.nodes,
            size.nodes,
            add_self_loops=True,
            merge_duplicates=True,
        )

    sort = median_ms(build, 3)
    forward = median_ms(lambda: plan.GpuPlan(found.sequences), 3)
    both = median_ms(lambda: plan.GpuPlan(found.sequences).transposed, 3)
    print(f"plan: sequences {sort:.2f}, work {forward:.2f}, transposed {both - forward:.2f}", flush=True)


def variants(size: Size, edge_index: Tensor, kernels: list[str]) -> None:
    """The time of each kernel by block size and warps; the one in use is starred."""
    print(f"\n{size.name}: block×warps → ms, best first (* in use)")
    found = Steps(size, edge_index)
    for name, (step, _) in found.named(3).items():
        if name in kernels:
            tiles = [launch.Tile(*each) for each in VARIANTS]
            compare(name, step, tile_variants(launch.TILES, [name], tiles, launch.TILES[name]))
    for name, part in (
        ("grad", _grad_variants),
        ("sort", _sort_variants),
        ("short", _short_variants),
        ("widths", _width_variants),
    ):
        if name in kernels:
            part(found)


def compare(
    title: str, step: Callable[[], Any], variants: Mapping[str, Any], most: int | None = None
) -> None:
    """Print the time of a step with each variant in force, best first; values are context managers."""
    timed = []
    for what, in_force in variants.items():
        with in_force:
            timed.append((median_ms(step, 3), what))
    print(f"{title}: " + ", ".join(f"{what} {ms:.3f}" for ms, what in sorted(timed)[:most]), flush=True)


def tile_variants(
    table: dict[Any, launch.Tile], keys: Sequence[Any], tiles: Sequence[launch.Tile], used: launch.Tile | None
) -> dict[str, Any]:
    """What puts each tile in force for some entries of a table, by its title; the one in use is starred."""
    form = "{}×{}/{}" if len({tile.stages for tile in tiles}) > 1 else "{}×{}"
    return {
        form.format(*tile) + ("*" if tile == used else ""): mock.patch.dict(table, dict.fromkeys(keys, tile))
        for tile in tiles
    }


def _grad_variants(found: Steps) -> None:
    """The backward pass of the largest window with several blocks, warps and stages."""
    tiles = [launch.Tile(*tile, stages) for tile, stages in itertools.product(GRAD_VARIANTS, (1, 2, 3))]
    for kernel_size in (3, 10):
        step, used = (
            found.named(kernel_size)["window_max_grad"][0],
            window_max.grad_tile(kernel_size, found.plan),
        )
        tried = tile_variants(window_max.GRAD_TILES, list(window_max.GRAD_TILES), tiles, used)
        compare(f"window_max_grad k={kernel_size}, block×warps/stages", step, tried, most=9)


def _short_variants(found: Steps) -> None:
    """Rows that fit into registers, with several numbers of features per warp."""
    out = [torch.empty_like(found.plan.index) for _ in range(2)]
    taps = torch.empty(found.plan.rows.num_rows, 3, CHANNELS, device="cuda")
    under, used = torch.empty_like(out[0], dtype=torch.uint8), short_rows.PER_WARP
    for bucket in found.plan.work.short_buckets:
        rank = partial(
            short_rows.rank_short_rows, None, found.key, found.key, found.ties, found.plan, bucket, *out
        )
        add = partial(
            fused_window_sum.sum_short_rows, found.key, found.key, found.plan, bucket, 3, SUMS, taps, under
        )
        for name, step in (("rank", rank), ("sum", add)):
            tried = {
                f"{number}{'*' if number == used else ''}": mock.patch.object(short_rows, "PER_WARP", number)
                for number in SHORT_VARIANTS
            }
            compare(f"{name} of {bucket.count} short rows, width {bucket.width}", step, tried)


def _width_variants(found: Steps) -> None:
    """Which rows count as short."""
    for short in WIDTHS:
        sort = tuple(width for width in (64, 128, 256, 512, 1024) if width > short[-1])
        with mock.patch.multiple(plan, SHORT_WIDTHS=short, SORT_WIDTHS=sort):
            found.plan = plan.GpuPlan(found.sequences)
            found.sequences.plans["triton"] = found.plan
            rank = median_ms(found.arrange, 3)
            add = median_ms(
                lambda: fused_window_sum.scored_window_sum(found.key, found.key, found.plan, 3, SUMS), 3
            )
        print(f"short rows of {short}: score_and_rank {rank:.3f}, scored_window_sum {add:.3f}", flush=True)


def _sort_variants(found: Steps) -> None:
    """Each sort width with several numbers of keys per program and of warps."""
    out = [torch.empty_like(found.plan.index) for _ in range(2)]
    for bucket in found.plan.work.sort_buckets:
        tiles = [launch.Tile(*each) for each in SORT_VARIANTS if each[0] >= bucket.width]
        step = partial(sorting.sort_bucket, found.scores, found.ties, found.plan, bucket, *out)
        title = f"sort of {bucket.count} rows, width {bucket.width}, keys×warps"
        compare(title, step, tile_variants(sorting.SORT_TILES, [bucket.width], tiles, None), most=5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Checks first, then the tables."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parts = ["layers", "steps", "variants"]
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    kernels = [*launch.TILES, "grad", "sort", "short", "widths"]
    parser.add_argument("--kernels", nargs="+", choices=kernels, default=VARIED, help="of the variants")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    report = Report(options)
    print(f"{device_title(report.machine)}, {CHANNELS} → {CHANNELS} channels, float32")
    if options.parts != ["variants"]:
        backends = ", ".join(verify_backends(DEVICE))
        print(f"{backends} agree after {time.perf_counter() - start:.0f} s", flush=True)
    bandwidth = copy_bandwidth(DEVICE)
    print(f"copy: {bandwidth / 1e12:.2f} TB/s, read and written", flush=True)
    graphs = {size: repeats for name in options.graphs for size, repeats in GRAPHS[name].items()}
    last = list(graphs)[-1]
    for size, repeats in graphs.items():
        if options.parts == ["variants"] and size != last:
            continue
        edge_index = power_law(size.nodes, size.edges, DEVICE)
        if "layers" in options.parts:
            layers(report, size, edge_index, bandwidth)
        if "steps" in options.parts:
            steps(report, size, edge_index, bandwidth, repeats)
        if "variants" in options.parts and size == last:
            variants(size, edge_index, options.kernels)
        del edge_index
        torch.cuda.empty_cache()
        print(f"({time.perf_counter() - start:.0f} s so far)", flush=True)


if __name__ == "__main__":
    main()
