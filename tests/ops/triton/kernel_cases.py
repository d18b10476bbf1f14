"""Graphs, numbers and comparisons of the kernels' tests: whole numbers, whose sums are exact in any order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="the kernels need Triton: pip install triton")

from node2seq import ops
from node2seq.ops import reference, selection
from node2seq.ops import triton as fused
from node2seq.ops.triton import plan
from node2seq.ops.triton.launch import LAUNCHES

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

# With items of 8, short rows of up to 4 and sorts of 8 and 16: lengths around every block up to two and one
# more, and a hub.
LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 0, 33, 40]
SOURCES = 44
KERNEL_SIZES = (1, 2, 3, 5, 10, 20)
# Around every width of the real block sizes, some of them several times: rows that share a program.
REAL_LENGTHS = [0, 1, 7, 16, 17, 32, 33, 40, 64, 64, 65, 70, 90, 128, 129, 169, 169, 256, 257, 300, 1100]
# Around every block of the real sizes, and a hub of 100,000.
HUB_LENGTHS = [0, 1, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2048, 2049, 100_000]
HUB_SOURCES = 120_000
# Of the graphs of selections.
NODES = 64


@contextmanager
def blocks(item: int, short: tuple[int, ...], widths: tuple[int, ...]) -> Iterator[None]:
    """Plans built here cut rows at ``item``; ``short`` are the widths of short rows, ``widths`` of sorts.

    No graph counts as small: every width is worked on by itself.
    """
    found = {"ITEM": item, "SHORT_WIDTHS": short, "SORT_WIDTHS": widths, "MOST_PADDED": 0, "MOST_COMPARED": 0}
    with patch.multiple(plan, **found):
        yield


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


def assert_ran(*kernels: str) -> None:
    """Each of these kernels was started."""
    missing = [kernel for kernel in kernels if not LAUNCHES[f"{kernel}_kernel"]]
    assert not missing, f"{missing} did not run"


def convolution(readout: str, sequences: ops.Sequences) -> Callable[..., Any]:
    """A convolution over given sequences, by backend."""

    def run(backend: Any, x: Tensor, weight: Tensor) -> Any:
        return getattr(backend, f"convolve_{readout}")(x, weight, sequences)

    return run


def assert_convolves(readout: str, kernel_size: int) -> None:
    """Results, winners and gradients of one readout, order given."""
    sequences = ragged(LENGTHS, SOURCES)
    run = convolution(readout, sequences)
    for channels, width in ((3, 5), (16, 16)):
        inputs = [integers(SOURCES, channels), integers(kernel_size, channels, width)]
        assert_exact(run, inputs, integers(len(LENGTHS), width))
    inputs = [normal(SOURCES, 16), normal(kernel_size, 16, 16)]
    assert_close(run, inputs, normal(len(LENGTHS), 16))


def scored_sum(query: Tensor, sequences: ops.Sequences) -> Callable[..., Any]:
    """Scores, order and sum over windows in one, by backend; the order comes from whole numbers."""

    def run(backend: Any, x: Tensor, weight: Tensor) -> Tensor:
        follows = ops.Convolution(weight.size(-3), "sum")
        ranking = ops.rank(query.to(x.dtype), x, sequences, then=follows, backend=backend)
        return backend.convolve_sum(x, weight, ranking.layout)

    return run


def keep_largest(sequences: ops.Sequences, weight: Tensor, count: int) -> Callable[..., Any]:
    """The largest weighted values over given sequences, by backend; flat, as directions are."""

    def run(backend: Any, x: Tensor) -> Tensor:
        return backend.largest(x, sequences, weight.to(x.dtype), count).flatten(1)

    return run


def graph(nodes: int = NODES, edges: int = 130, hub: int = 30) -> ops.Sequences:
    """A random directed graph with a hub on either side, nodes without neighbours and some out of reach."""
    source, target = torch.randint(0, nodes - 4, (2, edges))
    source[:hub], target[hub : 2 * hub] = 3, 7
    loops = torch.arange(nodes // 2)
    source, target = torch.cat([source, loops]).to(DEVICE), torch.cat([target, loops]).to(DEVICE)
    return ops.build_sequences(source, target, nodes, nodes, add_self_loops=False, merge_duplicates=True)


def plainly(key: Tensor, sequences: ops.Sequences, hops: int, threshold: Any, joint: bool) -> ops.Ranking:
    """The selection by the plain twin, in float64."""
    reach = ops.Candidates(sequences, hops)
    return selection.select(reference, key, key, sequences, reach, threshold, joint)


def assert_same(found: Any, truth: ops.Ranking | ops.Positions) -> None:
    """Nodes and entries as exact integers, scores of whole numbers too."""
    for name, ours, plain in zip(("node", "score", "entry"), found, truth, strict=True):
        assert torch.equal(ours.double(), plain.double()), f"another {name}"
