"""Checks of the fused kernels against the plain twin, without pytest: tests and benchmarks run the same ones.

    TRITON_INTERPRET=1 python tests/ops/triton/kernel_checks.py     # on a CPU, through Triton's interpreter
    python tests/ops/triton/kernel_checks.py                        # on a GPU

Fresh memory is filled with NaN and the largest integers, so that what a kernel leaves out is seen. In the
interpreter, every address is looked at too: no kernel may leave the bounds of its tensors.
"""

import itertools
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from kernel_bounds import watched
from torch import Tensor

from node2seq import Node2SeqConv, Node2SeqError, ops
from node2seq.nn.conv.lgcl import LGCL
from node2seq.ops import reference, sparse
from node2seq.ops import triton as fused
from node2seq.ops.triton import dropout, fused_window_sum, plan
from node2seq.ops.triton.launch import LAUNCHES, READY, launch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# With items of 8, short rows of up to 4 and sorts of 8 and 16: lengths around every block up to two and one
# more, and a hub.
LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 0, 33, 40]
SOURCES = 44
KERNEL_SIZES = (1, 2, 3, 5, 10, 20)


@contextmanager
def blocks(item: int, short: tuple[int, ...], widths: tuple[int, ...]) -> Iterator[None]:
    """Plans built here cut rows at ``item``; ``short`` are the widths of short rows, ``widths`` of sorts."""
    before = plan.ITEM, plan.SHORT_WIDTHS, plan.SORT_WIDTHS
    plan.ITEM, plan.SHORT_WIDTHS, plan.SORT_WIDTHS = item, short, widths
    try:
        yield
    finally:
        plan.ITEM, plan.SHORT_WIDTHS, plan.SORT_WIDTHS = before


@contextmanager
def filled_memory() -> Iterator[None]:
    """Fresh memory holds NaN or the largest integer."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # pyright: ignore[reportAttributeAccessIssue]
    try:
        assert torch.empty(2).isnan().all()
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def bounded() -> AbstractContextManager[object]:
    """Where kernels are interpreted, an address outside of every tensor is an error."""
    return watched() if DEVICE == "cpu" else nullcontext()


def ragged(lengths: list[int], num_sources: int) -> ops.Sequences:
    """Sequences of the given lengths with distinct random sources; source 0 stands in all of them."""
    chosen = [torch.randperm(num_sources - 1)[: max(length - 1, 0)] + 1 for length in lengths]
    index = [
        torch.cat([torch.zeros(1).long(), c])[:length].sort().values
        for c, length in zip(chosen, lengths, strict=True)
    ]
    rows = ops.Rows.from_lengths(torch.tensor(lengths, device=DEVICE))
    return ops.Sequences(rows, torch.cat(index).to(DEVICE), num_sources)


def integers(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Small whole numbers: every sum of them is exact, in any order."""
    return torch.randint(-3, 4, shape, device=DEVICE).to(dtype)


def normal(*shape: int) -> Tensor:
    """What features look like."""
    return torch.randn(*shape, dtype=torch.float64).to(DEVICE)


def gradients(
    function: Callable[..., Any], inputs: list[Tensor], direction: Tensor, dtype: torch.dtype
) -> list[Tensor]:
    """The output of a function in some precision and the gradients of its inputs."""
    inputs = [value.to(dtype).requires_grad_() for value in inputs]
    out = function(*inputs)
    extra = list(out[1:]) if isinstance(out, tuple) else []
    out = out[0] if isinstance(out, tuple) else out
    return [out, *torch.autograd.grad((out * direction.to(dtype)).sum(), inputs), *extra]


def assert_exact(run: Callable[..., Any], inputs: list[Tensor], direction: Tensor) -> None:
    """Whole numbers in, the same numbers out: results, gradients, winners."""
    found = gradients(partial(run, fused), inputs, direction, torch.float32)
    truth = gradients(partial(run, reference), inputs, direction, torch.float64)
    for place, (a, b) in enumerate(zip(found, truth, strict=True)):
        assert torch.equal(a.double(), b.double()), f"result {place} differs by {(a - b).abs().max()}"


def assert_close(run: Callable[..., Any], inputs: list[Tensor], direction: Tensor) -> None:
    """The error against float64 is at most twice that of plain PyTorch in float32.

    Both plain backends count: they cut the same products differently, and products have errors of their own.
    """
    truth = gradients(partial(run, reference), inputs, direction, torch.float64)
    found, *twins = (
        gradients(partial(run, backend), inputs, direction, torch.float32)
        for backend in (fused, reference, ops.eager)
    )
    for place in range(1 + len(inputs)):
        error, *plain = ((result[place] - truth[place]).norm() for result in (found, *twins))
        assert error <= 2 * max(plain), f"result {place}: {error:.3e} > 2 × {max(plain):.3e}"


def convolution(readout: str, sequences: ops.Sequences) -> Callable[..., Any]:
    """A convolution over given sequences, by backend."""

    def run(backend: Any, x: Tensor, weight: Tensor) -> Any:
        return getattr(backend, f"convolve_{readout}")(x, weight, sequences)

    return run


def check_plan(all_lengths: list[int]) -> None:
    """Items, parts of hubs, chunks, buckets and the transposed graph, as counted without kernels."""
    sequences = ragged(all_lengths, SOURCES)
    graph = plan.plan_of(sequences)
    ptr, index = sequences.rows.ptr.tolist(), sequences.index.tolist()
    sizes = [2**power for power in range(1, 10)]
    for work, lengths in (
        (graph.work, all_lengths),
        (graph.transposed.work, [index.count(source) for source in range(SOURCES)]),
    ):
        starts = [sum(lengths[:row]) for row in range(len(lengths) + 1)]
        rows = sorted(range(len(lengths)), key=lambda row: -sum(lengths[row] > size for size in sizes))
        assert work.ptr.tolist() == starts
        assert work.rows.tolist() == rows
        hubs = [row for row in rows if lengths[row] > 8]
        parts = [(row, first) for row in hubs for first in range(starts[row], starts[row + 1], 8)]
        whole = [(row, starts[row]) for row in rows if lengths[row] <= 8]
        assert list(zip(work.item_row.tolist(), work.item_first.tolist(), strict=True)) == parts + whole
        assert (work.hubs, work.parts, work.items) == (len(hubs), len(parts), len(parts + whole))
        assert work.long_items == len(parts) + sum(4 < length <= 8 for length in lengths)
        assert work.part_ptr.tolist() == [0, *itertools.accumulate(-(-lengths[row] // 8) for row in hubs)]
        longest = [row for row in hubs if lengths[row] > 16]
        chunks = [(row, first) for row in longest for first in range(starts[row], starts[row + 1], 16)]
        assert list(zip(work.chunks.row.tolist(), work.chunks.first.tolist(), strict=True)) == chunks
        for bucket in (*work.short_buckets, *work.sort_buckets):
            shortest = {2: -1, 4: 2, 8: 4, 16: 8}[bucket.width]
            inside = [row for row in rows if shortest < lengths[row] <= bucket.width]
            assert rows[bucket.first : bucket.first + bucket.count] == inside
    entries = sorted(range(len(index)), key=lambda entry: index[entry])
    assert graph.transposed.entry.tolist() == entries
    rows_of = [row for row, (first, last) in enumerate(itertools.pairwise(ptr)) for _ in range(first, last)]
    assert graph.transposed.target.tolist() == [rows_of[entry] for entry in entries]


def check_building(nodes: int, edges: int) -> None:
    """Sequences and plans of new graphs: duplicates, loops, empty rows, ids that do not exist."""
    for num_sources, num_targets in ((nodes, nodes), (nodes, nodes // 2), (nodes // 2, nodes)):
        sizes = (num_sources, num_targets)
        source = torch.randint(0, num_sources, (edges,), device=DEVICE)
        target = torch.randint(0, num_targets, (edges,), device=DEVICE) // 2 * 2
        target[: edges // 3] = 0  # a hub
        for loops, merge, backward in itertools.product((True, False), repeat=3):
            how: Any = {"add_self_loops": loops, "merge_duplicates": merge}
            found = fused.build(source, target, *sizes, **how, expect_backward=backward)
            truth = ops.build_sequences(source.cpu(), target.cpu(), *sizes, **how)
            assert found is not None
            for ours, plain in (
                (found.rows.ptr, truth.rows.ptr),
                (found.rows.target, truth.rows.target),
                (found.index, truth.index),
            ):
                assert ours.dtype == plain.dtype
                assert torch.equal(ours.cpu(), plain), f"{sizes} {how}"
            built, alone = plan.plan_of(found), plan.GpuPlan(found)
            assert ("transposed" in vars(built)) == backward
            assert torch.equal(built.index, alone.index)
            _assert_same_work(built.work, alone.work)
            assert torch.equal(built.transposed.target, alone.transposed.target)
            assert torch.equal(built.transposed.entry, alone.transposed.entry)
            _assert_same_work(built.transposed.work, alone.transposed.work)
            for wrong in (-1, num_sources) if edges else ():
                bad = source.clone()
                bad[edges // 2] = wrong
                assert fused.build(bad, target, *sizes, **how, expect_backward=backward) is None


def _assert_same_work(ours: plan.Work, theirs: plan.Work) -> None:
    for name, value in vars(theirs).items():
        other = getattr(ours, name)
        if isinstance(value, plan.Chunks):
            assert torch.equal(other.row, value.row)
            assert torch.equal(other.first, value.first)
        else:
            same = torch.equal(other, value) if isinstance(value, Tensor) else other == value
            assert same, name


def check_rank() -> None:
    """Exact integers: infinities, subnormal numbers, both zeros, many ties, hubs that are merged."""
    sequences = ragged(LENGTHS, SOURCES)
    levels = torch.tensor([-torch.inf, -1e30, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 3e38, torch.inf])
    scores = levels[torch.randint(0, levels.numel(), (sequences.index.numel(),))]
    precedence = torch.randperm(SOURCES)
    order = fused.rank(scores.to(DEVICE), precedence.to(DEVICE), sequences)
    index, expected = sequences.index.cpu(), []
    for first, last in itertools.pairwise(sequences.rows.ptr.tolist()):
        keys = [(-float(scores[e]), int(precedence[index[e]]), e) for e in range(first, last)]
        expected += [e for _, _, e in sorted(keys)]
    assert order.tolist() == expected
    assert LAUNCHES["merge_chunks_kernel"], "the hubs were not merged"
    own = torch.tensor([1.0, 3.0, 1.0, 0.0, 3.0, -0.0], device=DEVICE)
    assert fused.precedence(own).tolist() == [2, 0, 3, 4, 1, 5]


def check_score() -> None:
    """Inner products: exact on whole numbers, in one block of channels and in several."""
    sequences = ragged(LENGTHS, SOURCES)
    for channels in (1, 7, 64, 200):
        query, key = integers(len(LENGTHS), channels), integers(SOURCES, channels)
        expected = reference.score(query, key, sequences)
        assert torch.equal(fused.score(query.float(), key.float(), sequences).double(), expected)
        found = fused.score_and_rank(query.float(), key.float(), sequences)
        truth = ops.rank(query, key, sequences, backend=reference)
        for ours, plain in zip(found, truth, strict=True):
            assert torch.equal(ours.double(), plain.double())
    query, key = normal(len(LENGTHS), 64), normal(SOURCES, 64)
    truth = reference.score(query, key, sequences)
    error = (fused.score(query.float(), key.float(), sequences) - truth).norm()
    assert error <= 2 * (reference.score(query.float(), key.float(), sequences) - truth).norm()


def check_convolution(readout: str, kernel_size: int) -> None:
    """Results, winners and gradients of one readout, order given."""
    sequences = ragged(LENGTHS, SOURCES)
    run = convolution(readout, sequences)
    for channels, width in ((3, 5), (16, 16)):
        inputs = [integers(SOURCES, channels), integers(kernel_size, channels, width)]
        assert_exact(run, inputs, integers(len(LENGTHS), width))
    inputs = [normal(SOURCES, 16), normal(kernel_size, 16, 16)]
    assert_close(run, inputs, normal(len(LENGTHS), 16))
    kernels = {
        "max": ("window_max", "max_parts", "window_max_grad"),
        "sum": ("window_sum", "window_sum_grad"),
    }
    for kernel in (*kernels[readout], "sum_parts"):
        assert LAUNCHES[f"{kernel}_kernel"], f"{kernel} did not run"


def scored_sum(query: Tensor, sequences: ops.Sequences) -> Callable[..., Any]:
    """Scores, order and sum over windows in one, by backend; the order comes from whole numbers."""

    def run(backend: Any, x: Tensor, weight: Tensor) -> Tensor:
        follows = ops.Convolution(weight.size(-3), "sum")
        ranking = ops.rank(query.to(x.dtype), x, sequences, then=follows, backend=backend)
        return backend.convolve_sum(x, weight, ranking.layout)

    return run


def check_scored_sum() -> None:
    """Sums whose order is known at both ends only: short rows, long ones, hubs; many ties."""
    for lengths, sources, kernel_sizes, item, short in (
        (LENGTHS, SOURCES, (1, 2, 3), 8, (2, 4)),
        ([0, 1, 17, 31, 33, 64, 65, 128, 129, 257], 300, (16,), 128, (64,)),
    ):
        with blocks(item, short, (512,)):
            sequences = ragged(lengths, sources)
            for kernel_size, channels in zip(kernel_sizes, (5, 1, 5), strict=False):
                LAUNCHES.clear()
                run = scored_sum(integers(len(lengths), channels), sequences)
                inputs = [integers(sources, channels), integers(kernel_size, channels, 3)]
                assert_exact(run, inputs, integers(len(lengths), 3))
                for kernel in ("sum_short", "sum_long", "sum_hub", "window_sum_grad"):
                    assert LAUNCHES[f"{kernel}_kernel"], f"{kernel} did not run"
                assert not LAUNCHES["window_sum_kernel"]
                assert not LAUNCHES["rank_kernel"]
            run = scored_sum(normal(len(lengths), 16), sequences)
            assert_close(run, [normal(sources, 16), normal(3, 16, 16)], normal(len(lengths), 16))


def whole_layer(readout: str, sequences: ops.Sequences, is_learned: bool) -> Callable[..., Any]:
    """Convolution, readout, own rows and bias, by backend: in one step, or one after the other.

    The order is that of the rows' products, or as given.
    """

    def run(backend: Any, x: Tensor, weight: Tensor, root: Tensor, bias: Tensor) -> Any:
        ranked = sequences
        if is_learned:
            follows = ops.Convolution(weight.size(-3), readout, with_root=True)
            ranked = ops.rank(x, x, sequences, then=follows, backend=backend).layout
        if backend is fused:
            out, winner = fused.convolve_with_root(x, weight, root, bias, ranked, readout)
        else:
            step = backend.convolve_max if readout == "max" else backend.convolve_sum
            out = step(x, weight, ranked)
            out, winner = out if readout == "max" else (out, None)
            if readout == "mean":
                out = out / sequences.rows.windows(weight.size(-3))[:, None]
            out = out + reference.project(x, root.transpose(-2, -1))
            out = (out.view(*root.shape[:-2], -1, out.size(-1)) + bias.unsqueeze(-2)).flatten(0, -2)
        return out if winner is None else (out, winner)

    return run


def check_own_rows(kernel_sizes: tuple[int, ...], is_learned: bool, runs: int) -> None:
    """Own rows and bias in the same step: hubs, empty rows, rows of no sequence, several runs."""
    lengths = [*LENGTHS, *[2] * (SOURCES - len(LENGTHS))]
    union = ragged(lengths, SOURCES).copies(runs)
    lead = (runs,) if runs > 1 else ()

    def inputs(draw: Callable[..., Tensor], kernel_size: int) -> list[Tensor]:
        shapes = [(kernel_size, 6, 6), (6, 6), (6,)]
        return [draw(runs * SOURCES, 6), *(draw(*lead, *shape) for shape in shapes)]

    for kernel_size in kernel_sizes:
        for readout in ("max", "sum"):
            run = whole_layer(readout, union, is_learned)
            assert_exact(run, inputs(integers, kernel_size), integers(runs * SOURCES, 6))
        run = whole_layer("mean", union, is_learned)  # quotients are not exact
        assert_close(run, inputs(normal, kernel_size), normal(runs * SOURCES, 6))
    kernels = ("window_max", "max_parts", "window_max_grad", "window_sum_grad", "sum_parts")
    for kernel in (*kernels, *(("sum_short", "sum_long", "sum_hub") if is_learned else ("window_sum",))):
        assert LAUNCHES[f"{kernel}_kernel"], f"{kernel} did not run"


def check_many_channels() -> None:
    """More channels than one program takes."""
    sequences = ragged([3, 0, 20, 1], 24)
    for readout in ("max", "sum"):
        run = convolution(readout, sequences)
        assert_exact(run, [integers(24, 130), integers(2, 130, 130)], integers(4, 130))


def check_aggregate() -> None:
    """Weighted sums with gradients of both the features and the weights."""
    sequences = ragged(LENGTHS, SOURCES)

    def run(backend: Any, x: Tensor, weight: Tensor) -> Tensor:
        return backend.aggregate(x, sequences, weight)

    for channels in (1, 5, 130):
        inputs = [integers(SOURCES, channels), integers(sequences.index.numel())]
        direction = integers(len(LENGTHS), channels)
        assert_exact(run, inputs, direction)
    inputs = [normal(SOURCES, 16), normal(sequences.index.numel())]
    assert_close(run, inputs, normal(len(LENGTHS), 16))


def weights_of(sequences: ops.Sequences, slope: float) -> Callable[..., Any]:
    """Attention over given sequences, by backend."""

    def run(backend: Any, source: Tensor, target: Tensor) -> Tensor:
        return backend.attention(source, target, sequences, slope)

    return run


def check_attention() -> None:
    """Rows that share a program and hubs, each in one block and in several; what is lost; nothing at all."""
    even = [0, 1, 2, 4, 8, 8, 0, 16, 32]
    for item, lengths in ((8, even), (64, [*even, *even, 64]), (8, [2048]), (8, [2] * 1100)):
        with blocks(item, (2, 4), (item, 2 * item)):
            sequences = ragged(lengths, max(lengths) + 1)
            entries = sequences.index.numel()
            # Equal terms in a row of 2^n: every weight and every product is exact, sums around zero too.
            inputs = [integers(1).expand(sequences.num_sources), integers(len(lengths))]
            assert_exact(weights_of(sequences, 0.5), inputs, integers(entries))
            for climb in (0, 1000):  # up to a row's last entry; too much unless the largest is taken off
                rising = torch.linspace(0, climb, sequences.num_sources, device=DEVICE)
                inputs = [2 * normal(sequences.num_sources) + rising, 2 * normal(len(lengths))]
                assert_close(weights_of(sequences, 0.2), inputs, normal(entries))
    for kernel in ("attention", "attention_grad", "entry_sum"):
        assert LAUNCHES[f"{kernel}_kernel"], f"{kernel} did not run"

    sequences = ragged(LENGTHS, SOURCES)
    source, target, direction = normal(SOURCES), normal(len(LENGTHS)), normal(sequences.index.numel())
    run = weights_of(sequences, 0.2)
    found = gradients(partial(run, fused), [source, target], direction, torch.float32)
    union = gradients(
        partial(weights_of(sequences.copies(5), 0.2), fused),
        [source.repeat(5), target.repeat(5)],
        direction.repeat(5),
        torch.float32,
    )
    for alone, together in zip(found, union, strict=True):
        assert torch.equal(together, alone.repeat(5)), "a row's bits depend on the rows beside it"
    for lost in (torch.nan, torch.inf, -torch.inf):
        source[sequences.index[-1]] = target[3] = lost
        for place, (ours, plain) in enumerate(
            zip(
                *(
                    gradients(partial(run, backend), [source, target], direction, torch.float32)
                    for backend in (fused, ops.eager)
                ),
                strict=True,
            )
        ):
            torch.testing.assert_close(ours, plain, equal_nan=True, msg=f"{lost}: result {place} differs")
    for lengths, num_sources in (([], 0), ([], 3), ([0, 0], 3)):
        rows = ops.Rows.from_lengths(torch.tensor(lengths, dtype=torch.int64, device=DEVICE))
        empty = weights_of(ops.Sequences(rows, rows.ptr.new_zeros(0), num_sources), 0.2)
        assert_exact(empty, [integers(num_sources), integers(len(lengths))], integers(0))


def check_attention_blocks() -> None:
    """On a GPU: hubs of 100,000 of both directions and lengths around every block, at the real sizes."""
    lengths = [0, 1, 7, 8, 9, 255, 256, 257, 1023, 1024, 1025, 2049, 100_000, *[3] * 100_000]
    rows = ops.Rows.from_lengths(torch.tensor(lengths, device=DEVICE))
    index = torch.randint(0, 1000, (rows.num_entries,), device=DEVICE)
    index[rows.ptr[:-1][rows.length() > 0]] = 0
    sequences = ops.Sequences(rows, index, 1001)
    inputs = [2 * normal(sequences.num_sources), 2 * normal(len(lengths))]
    assert_close(weights_of(sequences, 0.2), inputs, normal(sequences.index.numel()))


def keep_largest(sequences: ops.Sequences, weight: Tensor, count: int) -> Callable[..., Any]:
    """The largest weighted values over given sequences, by backend; flat, as directions are."""

    def run(backend: Any, x: Tensor) -> Tensor:
        return backend.largest(x, sequences, weight.to(x.dtype), count).flatten(1)

    return run


def check_largest() -> None:
    """The largest values and their gradients: ties, rows shorter than the list, hubs, sources met twice."""
    all_lengths, some = ragged(LENGTHS, SOURCES), ragged([0, 1, 3, 7, 8, 9, 20], 24)
    for sequences, count, channels in ((all_lengths, 8, 3), (some, 1, 130), (some, 5, 1), (some, 32, 2)):
        rows, entries = sequences.rows.num_rows, sequences.rows.num_entries
        run = keep_largest(sequences, integers(entries), count)
        assert_exact(run, [integers(sequences.num_sources, channels)], integers(rows, count * channels))
    assert_exact(
        keep_largest(some, torch.ones(48, device=DEVICE), 8),
        [torch.ones(24, 2, device=DEVICE)],
        integers(7, 16),
    )
    for kernel in ("largest", "largest_parts", "largest_grad", "sum_parts"):
        assert LAUNCHES[f"{kernel}_kernel"], f"{kernel} did not run"
    twice, without_hubs = ops.Sequences(some.rows, some.index // 5, 5), ragged([0, 3, 8, 1], 9)
    for sequences in (some, twice, without_hubs):
        rows, entries = sequences.rows.num_rows, sequences.rows.num_entries
        run = keep_largest(sequences, normal(entries), 4)
        assert_close(run, [normal(sequences.num_sources, 40)], normal(rows, 4 * 40))
    # What is lost is seen wherever it stands, and stays in its rows; NaN passes no gradient on.
    met = torch.zeros(7, dtype=torch.bool, device=DEVICE)
    source = some.index[-1]
    met[some.rows.target[some.index == source]] = True
    for lost in (torch.nan, -torch.nan, torch.inf):
        x = torch.ones(24, 3, device=DEVICE)
        x[source] = lost
        x.requires_grad_()
        out = fused.largest(x, some, torch.ones(48, device=DEVICE), 2)
        assert torch.equal(out[:, 0].isfinite().all(1), ~met)
        assert out[:, 1].isfinite().all()
        grad = torch.autograd.grad(out.sum(), x)[0]
        assert grad[source].eq(met.sum() if lost == torch.inf else 0).all()
        assert grad.isfinite().all()
    for lengths, num_sources in (([], 0), ([], 3), ([0, 0], 3), ([0], 0)):
        rows = ops.Rows.from_lengths(torch.tensor(lengths, dtype=torch.int64, device=DEVICE))
        x = torch.ones(num_sources, 2, device=DEVICE, requires_grad=True)
        out = fused.largest(x, ops.Sequences(rows, rows.ptr.new_zeros(0), num_sources), x.new_zeros(0), 8)
        assert torch.equal(out, torch.zeros(len(lengths), 8, 2, device=DEVICE))
        assert torch.autograd.grad(out.sum(), x)[0].eq(0).all()


def check_sparse_rows() -> None:
    """Features without their zeros: dropped bit by bit as the whole, multiplied by the same kernels."""
    dense = integers(30, 60, dtype=torch.float32) * (torch.rand(30, 60, device=DEVICE) < 0.08)
    x = sparse.find_sparse_rows(dense)
    assert x is not None
    rate, seed, step = (
        torch.tensor(values, device=DEVICE) for values in ([0.5, 0.0, 0.75], [1, 2, 3], [4, 5, 5])
    )
    element = x.sequences.rows.target * 60 + x.sequences.index
    values = dropout.drop(x.values[:, None], rate.double(), seed, step, 1, element, False)
    dropped = sparse.SparseRows(x.sequences, values.squeeze(-1))
    expected = torch.where(
        dropout.drop(torch.ones_like(dense), rate.double(), seed, step, 1, None, False) != 0,
        dense * (1 / (1 - rate)).view(3, 1, 1),
        0.0,
    )
    assert torch.equal(dropped.to_dense(), expected)
    union, weight = x.sequences.copies(3), integers(3 * 60, 5, dtype=torch.float32).requires_grad_()
    out = fused.aggregate(weight, union, dropped.values.reshape(-1))
    assert torch.equal(out, (expected @ weight.view(3, 60, 5)).flatten(0, 1))
    direction = integers(90, 5, dtype=torch.float32)
    gradient = torch.autograd.grad(out, weight, direction)[0]
    assert torch.equal(gradient, (expected.mT @ direction.view(3, 30, 5)).flatten(0, 1))


def check_order_kept() -> None:
    """A reordered graph: gradients find the entries where they stand now."""
    sequences = ragged(LENGTHS, SOURCES)
    scores, ties = torch.rand(sequences.index.numel(), device=DEVICE), torch.arange(SOURCES, device=DEVICE)
    moved = sequences.reorder(reference.rank(scores, ties, sequences))
    for readout in ("max", "sum"):
        run = convolution(readout, moved)
        assert_exact(run, [integers(SOURCES, 4), integers(3, 4, 4)], integers(len(LENGTHS), 4))


def check_runs() -> None:
    """Several runs as one disjoint union, each with weights of its own."""
    both = ragged([5, 0, 9, 20], 20).copies(2)
    x, weight = integers(40, 4), integers(2, 3, 4, 4)
    for readout in ("max", "sum"):
        run = convolution(readout, both)
        assert_exact(run, [x, weight], integers(8, 4))


def check_nan_and_ties() -> None:
    """NaN is read out, wherever it stands; the first of equal windows wins, across parts of a hub too."""
    sequences = ragged([9, 60], 60)
    winner = fused.convolve_max(
        torch.ones(60, 4, device=DEVICE), torch.ones(3, 4, 4, device=DEVICE), sequences
    )[1]
    assert winner.eq(0).all()
    for row in range(0, 60, 7):
        x = torch.randn(60, 3, device=DEVICE)
        x[sequences.index[9 + row]] = torch.nan
        out, _ = fused.convolve_max(x, torch.randn(2, 3, 3, device=DEVICE), sequences)
        assert out[1].isnan().all()
    # The NaN that a GPU writes, all bits set: no entry is taken for padding.
    lost = torch.full((60, 3), 0x7FFFFFFF, dtype=torch.int32, device=DEVICE).view(torch.float32)
    some = ragged([0, 3, 7, 9, 60], 60)
    scored = fused.score_and_rank(lost[:5], lost, some, ops.Convolution(3, "sum")).layout
    sums = fused_window_sum.Sums(is_mean=False, with_own=False)
    summed, under = fused_window_sum.scored_window_sum(lost[:5], lost, plan.plan_of(some), 3, sums)
    assert summed[1:].isnan().all()
    codes = [row.sort().values.tolist() for row in under[3:].split([7, 9, 60])]
    assert codes == [[0, 1, *[2] * (length - 4), 5, 8] for length in (7, 9, 60)]
    out = fused.convolve_sum(lost, torch.ones(3, 3, 2, device=DEVICE), scored)
    assert torch.equal(out.isnan().all(1).cpu(), torch.tensor([False, True, True, True, True]))
    lowest = torch.full((60, 1), -torch.inf, device=DEVICE)
    out, winner = fused.convolve_max(lowest, torch.ones(1, 1, 1, device=DEVICE), sequences)
    assert out.eq(-torch.inf).all()
    assert winner.eq(0).all()


# Around every width of the real block sizes, some of them several times: rows that share a program.
REAL_LENGTHS = [0, 1, 7, 16, 17, 32, 33, 40, 64, 64, 65, 70, 90, 128, 129, 169, 169, 256, 257, 300, 1100]


def check_diverged(lengths: list[int], sources: int) -> None:
    """A run whose features are lost leaves the runs beside it as they are."""
    rows, channels = len(lengths), 7
    union = ragged(lengths, sources).copies(3)
    query, x = integers(3, rows, channels), integers(3, sources, channels)
    weight, direction = integers(3, 3, channels, channels), integers(3, rows, channels)

    for readout, lost in (("max", 0x7F800000), ("sum", 0x7FFFFFFF)):  # infinity, NaN

        def run(backend: Any, x: Tensor, weight: Tensor, readout: str = readout) -> Tensor:
            asked, x = query.to(x.dtype).flatten(0, 1), x.flatten(0, 1)
            follows = ops.Convolution(weight.size(-3), readout)
            ranked = ops.rank(asked, x, union, then=follows, backend=backend).layout
            out = getattr(backend, f"convolve_{readout}")(x, weight, ranked)
            return (out[0] if readout == "max" else out).view(3, rows, channels)

        truth = gradients(partial(run, reference), [x, weight], direction, torch.float64)
        bad = x.float()
        bad[1] = torch.full_like(bad[1], lost, dtype=torch.int32).view(torch.float32)
        found = gradients(partial(run, fused), [bad, weight], direction, torch.float32)
        for place, (a, b) in enumerate(zip(found, truth, strict=True)):
            for number in (0, 2):
                assert torch.equal(a[number].double(), b[number]), f"{readout}: result {place} differs"
        assert not found[0][1].isfinite().all()


def check_equal_scores(lengths: list[int], sources: int) -> None:
    """Sources that are alike score alike, rounding and all: every entry has a position of its own.

    Threads that hold the same sum must hold the same bits of it. They do not where a product is fused into
    the first addition: each thread leaves its own product unrounded, and entries count each other as before
    them.
    """
    sequences = ragged(lengths, sources)
    expected = torch.arange(sequences.index.numel(), device=DEVICE)
    for channels in (3, 5, 7, 8, 16, 64):
        query = torch.randn(len(lengths), channels, device=DEVICE)
        key = torch.randn(1, channels, device=DEVICE).repeat(sources, 1)
        place = (
            fused.score_and_rank(query, key, sequences).layout.place.long()
            + sequences.rows.ptr[sequences.rows.target]
        )
        assert torch.equal(place.sort().values, expected), f"{channels} channels: positions met twice"
        assert torch.equal(place, expected), f"{channels} channels: ties in another order"
        ones = torch.eye(channels, device=DEVICE).repeat(3, 1, 1)
        summed = fused.score_and_rank(query, key, sequences, ops.Convolution(3, "sum")).layout
        out = fused.convolve_sum(key, ones, summed)
        length = sequences.rows.length()
        met = torch.where(length < 3, length, 3 * (length - 2))
        torch.testing.assert_close(out, met[:, None] * key[0], rtol=1e-4, atol=1e-4)


@triton.jit
def reach_kernel(x, out, last):
    """Reads an element, which may lie behind the last."""
    tl.store(out, tl.load(x + last))


def check_bounds() -> None:
    """In the interpreter, an address behind the last element or before the first is noticed."""
    x, out = torch.arange(8.0), torch.zeros(1)
    for last in (7, 8, -1, 2**28) if DEVICE == "cpu" else ():
        noticed = ""
        try:
            launch(reach_kernel, (1,), x[:8], out, last)
        except Exception as error:
            noticed = str(error)
        assert ("outside of every tensor" in noticed) == (last != 7), noticed or last
    assert out.item() == (7.0 if DEVICE == "cpu" else 0.0)


@triton.jit(do_not_specialize=["count"])
def copy_kernel(x, out, count, stride, BLOCK: tl.constexpr):
    """Copies every so many-th element."""
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place * stride, mask=place < count, other=0), mask=place < count)


def check_launch() -> None:
    """Kernels that were started before, with what Triton compiles them anew for, and on another stream."""
    stream = torch.cuda.Stream() if DEVICE == "cuda" else None
    numbers = torch.arange(600, device=DEVICE)
    for _ in range(2):
        for dtype, first, count, stride, block in itertools.product(
            (torch.float32, torch.int32, torch.uint8), (0, 1), (1, 16, 5), (1, 16, 3), (16, 32)
        ):
            x = numbers.to(dtype)[first:]
            out = torch.zeros(32, dtype=dtype, device=DEVICE)
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                launch(copy_kernel, (1,), x, out, count, stride, BLOCK=block)
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
            assert torch.equal(out[:count], x[::stride][:count]), f"{dtype} {first} {count} {stride} {block}"
            assert out[count:].eq(0).all()
    kept = {name: value for name, value in READY.items() if copy_kernel.fn in name}
    # By type, alignment, the stride's three kinds and the block; the count makes no difference.
    assert len(kept) == (3 * 2 * 3 * 2 if DEVICE == "cuda" else 0)


def check_empty() -> None:
    """No nodes, no targets, no entries."""
    for lengths, num_sources in (([], 0), ([], 3), ([0, 0], 3), ([0], 0)):
        rows = ops.Rows.from_lengths(torch.tensor(lengths, dtype=torch.int64, device=DEVICE))
        sequences = ops.Sequences(rows, rows.ptr.new_zeros(0), num_sources)
        for readout in ("max", "sum"):
            x = torch.ones(num_sources, 2, device=DEVICE, requires_grad=True)
            weight = torch.ones(3, 2, 2, device=DEVICE, requires_grad=True)
            out = getattr(fused, f"convolve_{readout}")(x, weight, sequences)
            out = out[0] if readout == "max" else out
            assert torch.equal(out, torch.zeros(len(lengths), 2, device=DEVICE))
            for grad in torch.autograd.grad(out.sum(), [x, weight]):
                assert grad.eq(0).all()
        ranking = fused.score_and_rank(torch.ones(len(lengths), 2, device=DEVICE), x.detach(), sequences)
        assert [values.numel() for values in ranking] == [0, 0, 0]


def _layer_step(backend: str, dtype: torch.dtype, **options: Any) -> list[Tensor]:
    """The output, the trace and every gradient of a layer on whole numbers, where all backends agree."""
    torch.manual_seed(3)
    edge_index = torch.randint(0, 40, (2, 300))
    edge_index[1, :80] = 7  # a hub
    conv = Node2SeqConv(4, 4, backend=backend, **options)
    for parameter in conv.parameters():
        parameter.data = torch.randint(-2, 3, parameter.shape).float()
    conv = conv.to(DEVICE, dtype)
    x = torch.randint(-2, 3, (40, 4)).to(DEVICE, dtype).requires_grad_()
    out, trace = conv(x, edge_index.to(DEVICE), return_trace=True)
    direction = torch.randint(-2, 3, out.shape).to(DEVICE, dtype)
    grads = torch.autograd.grad((out * direction).sum(), [x, *conv.parameters()])
    return [out, *grads, *(value for value in trace if value is not None)]


def check_layer() -> None:
    """The whole layer: every output, trace and gradient, local and non-local, in every order."""
    for options in (
        {"readout": "max"},
        {"readout": "sum", "kernel_size": 4},
        {"readout": "max", "hops": 2},
        {"readout": "sum", "hops": 2, "nonlocal_order": "local-first"},
        {"readout": "max", "order": "degree"},
    ):
        found = _layer_step("triton", torch.float32, **options)
        truth = _layer_step("reference", torch.float64, **options)
        for place, (a, b) in enumerate(zip(found, truth, strict=True)):
            assert torch.equal(a.double(), b.double()), f"{options}: value {place} differs"


def check_compiled() -> None:
    """A compiled layer runs the same kernels, and gives the same bits in both directions."""
    edge_index = torch.randint(0, 16, (2, 60), device=DEVICE)
    x = integers(16, 4, dtype=torch.float32).requires_grad_()
    for readout in ("max", "sum"):
        conv = Node2SeqConv(4, 4, readout=readout, backend="triton").to(DEVICE)
        for parameter in conv.parameters():
            parameter.data = integers(*parameter.shape, dtype=torch.float32)
        found = []
        # The first one builds the plan.
        for call in (conv, conv, torch.compile(conv, fullgraph=True, backend="aot_eager")):
            LAUNCHES.clear()
            out = call(x, edge_index)
            grads = torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])
            found.append((dict(LAUNCHES), [out, *grads]))
        _, (launches, expected), (compiled_launches, values) = found
        assert compiled_launches == launches, readout
        assert all(torch.equal(a, b) for a, b in zip(values, expected, strict=True)), readout


def check_determinism() -> None:
    """The same bits twice."""
    sequences = ragged(LENGTHS, SOURCES)
    x, weight, direction = normal(SOURCES, 8), normal(3, 8, 8), normal(len(LENGTHS), 8)
    for readout in ("max", "sum"):
        run = partial(convolution(readout, sequences), fused)
        first, second = (gradients(run, [x, weight], direction, torch.float32) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def check_choice() -> None:
    """Asked for where it cannot run: an error; float64 takes another backend by itself."""
    double = torch.ones(2, 2, dtype=torch.float64, device=DEVICE)
    assert ops.choose_backend("auto", double) is ops.eager
    text = ""
    try:
        ops.choose_backend("triton", double)
    except Node2SeqError as error:
        text = str(error)
    assert "float32" in text
    assert ops.choose_backend("triton", double.float()) is fused
    assert ops.choose_backend("auto", double.float()) is (fused if DEVICE == "cuda" else ops.eager)


def check_large_hub() -> None:
    """On a GPU: hubs of 100,000 at the real block sizes, and lengths around every one of them."""
    lengths = [0, 1, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2048, 2049, 100_000]
    sequences = ragged(lengths, 120_000)
    query, key = integers(len(lengths), 8), integers(120_000, 8)
    found = fused.score_and_rank(query.float(), key.float(), sequences)
    for a, b in zip(found, ops.rank(query, key, sequences, backend=reference), strict=True):
        assert torch.equal(a.double(), b.double())
    # Winners that stand anywhere in a hub: places beyond 16 bits.
    distinct = torch.stack([torch.randperm(120_000, device=DEVICE) for _ in range(40)], dim=1).double()
    run = keep_largest(sequences, torch.ones(sequences.index.numel(), device=DEVICE), 8)
    assert_exact(run, [distinct], integers(len(lengths), 8 * 40))
    for readout in ("max", "sum"):
        run = convolution(readout, sequences)
        for kernel_size in (3, 10):
            assert_exact(run, [key[:, :4], integers(kernel_size, 4, 4)], integers(len(lengths), 4))
            scored = scored_sum(query, sequences)
            assert_exact(scored, [key, integers(kernel_size, 8, 4)], integers(len(lengths), 4))
            inputs = [normal(120_000, 64), normal(kernel_size, 64, 64)]
            assert_close(run, inputs, normal(len(lengths), 64))


def check_capture() -> None:
    """On a GPU: a forward and backward pass of a layer, captured and replayed, gives the same bits."""
    edge_index = torch.randint(0, 500, (2, 9000), device=DEVICE)
    x = torch.randn(500, 32, device=DEVICE)
    for layer in (Node2SeqConv(32, 32, readout="max"), Node2SeqConv(32, 32, readout="mean"), LGCL(32, 8)):
        conv = layer.to(DEVICE)

        def step(conv: torch.nn.Module = conv) -> list[Tensor]:
            out = conv(x, edge_index)
            return [out, *torch.autograd.grad(out.square().sum(), list(conv.parameters()))]

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            expected = [value.clone() for value in step()]
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()
        graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))


def check_large_offsets() -> None:
    """On a GPU: tables beyond 2^31 elements."""
    nodes = 2**24 + 3
    rows = ops.Rows.from_lengths(torch.tensor([5, 0, 3], device=DEVICE))
    index = torch.tensor([0, 1, nodes - 3, nodes - 2, nodes - 1, 5, nodes - 4, nodes - 1], device=DEVICE)
    sequences = ops.Sequences(rows, index, nodes)
    small = ops.Sequences(rows, torch.arange(8, device=DEVICE), 8)
    x = torch.zeros(nodes, 32, device=DEVICE)
    x[index] = integers(8, 32, dtype=torch.float32)
    weight = integers(5, 32, 32, dtype=torch.float32)
    for readout in ("max", "sum"):
        large = x.clone().requires_grad_()
        out = getattr(fused, f"convolve_{readout}")(large, weight, sequences)
        out = out[0] if readout == "max" else out
        expected = getattr(reference, f"convolve_{readout}")(x[index], weight, small)
        assert torch.equal(out, expected[0] if readout == "max" else expected)
        grad = torch.autograd.grad(out.sum(), large)[0]
        assert grad.isfinite().all()
        assert grad.abs().sum(1).nonzero().numel() <= 7
    del large, out, grad
    lengths = torch.zeros(2**23 + 3, dtype=torch.int64, device=DEVICE)
    lengths[-1] = 8
    last = ops.Sequences(ops.Rows.from_lengths(lengths), torch.arange(8, device=DEVICE), 8)
    small = ops.Sequences(ops.Rows.from_lengths(lengths[-1:]), last.index, 8)
    weight, direction = torch.ones(8, device=DEVICE), integers(1, 8, 32, dtype=torch.float32)
    results = []
    for backend, sequences in ((fused, last), (reference, small)):
        features = x[index].requires_grad_()
        out = backend.largest(features, sequences, weight, 8)
        results.append((out[-1:], torch.autograd.grad((out[-1:] * direction).sum(), features)[0]))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


SMALL: dict[str, Callable[[], None]] = {
    "plan": partial(check_plan, LENGTHS),
    "plan of many rows": partial(check_plan, LENGTHS * 40),
    "building": partial(check_building, 30, 90),
    "building of nothing": partial(check_building, 2, 0),
    "rank": check_rank,
    "score": check_score,
    **{
        f"{readout} k={kernel_size}": partial(check_convolution, readout, kernel_size)
        for readout in ("max", "sum")
        for kernel_size in KERNEL_SIZES
    },
    "scored sum": check_scored_sum,
    "own rows": partial(check_own_rows, (1, 3), is_learned=True, runs=1),
    "own rows, order given": partial(check_own_rows, (20,), is_learned=False, runs=1),
    "own rows of runs": partial(check_own_rows, (3,), is_learned=True, runs=2),
    "many channels": check_many_channels,
    "aggregate": check_aggregate,
    "attention": check_attention,
    "largest": check_largest,
    "sparse rows": check_sparse_rows,
    "order kept": check_order_kept,
    "runs": check_runs,
    "nan and ties": check_nan_and_ties,
    "diverged": partial(check_diverged, [0, 1, 3, 4, 5, 8, 17], 20),
    "equal scores": partial(check_equal_scores, [0, 1, 2, 3, 4, 5, 8, 17], 20),
    "bounds": check_bounds,
    "launch": check_launch,
    "empty": check_empty,
    "layer": check_layer,
    "compiled": check_compiled,
    "determinism": check_determinism,
    "choice": check_choice,
}
LARGE: dict[str, Callable[[], None]] = {
    "building, real blocks": partial(check_building, 20_000, 100_000),
    "large hub": check_large_hub,
    "attention, real blocks": check_attention_blocks,
    "diverged, real blocks": partial(check_diverged, REAL_LENGTHS, 1200),
    "equal scores, real blocks": partial(check_equal_scores, REAL_LENGTHS, 1200),
    "capture": check_capture,
    "large offsets": check_large_offsets,
}


def run_checks() -> dict[str, str]:
    """Every check by name, and the error that it ended in, or nothing."""
    results = {}
    for name, check in {**SMALL, **(LARGE if DEVICE == "cuda" else {})}.items():
        torch.manual_seed(0)
        LAUNCHES.clear()
        start = time.perf_counter()
        try:
            if name in SMALL:
                with filled_memory(), bounded(), blocks(8, (2, 4), (8, 16)):
                    check()
            else:
                check()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
        seconds = time.perf_counter() - start
        sys.stderr.write(f"{name}: {results[name] or 'ok'} ({seconds:.1f} s)\n")
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_checks()))
