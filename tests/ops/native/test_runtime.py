"""Threads, forks, scratch memory and the cache of compiled loops."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import literal
import numpy as np
import pytest
import torch
from native_graphs import hub_graph, native_step
from torch import Tensor

from node2seq import Node2SeqConv, ops

pool = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")
native: ModuleType = ops.choose_backend("native", torch.ones(1))


def in_a_fork(work: Callable[[], None]) -> int:
    """The exit status of a forked process that does some work."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_tables_hand_on_their_memory(monkeypatch):
    tables = native.runtime
    monkeypatch.setattr(tables, "_kept", {})
    monkeypatch.setattr(tables, "_MOST_BYTES", 200)
    wide, narrow = torch.empty(0, dtype=torch.float64), torch.empty(0)
    first, second = tables.Scratch((2, 5), wide), tables.Scratch((5,), narrow)
    places = [table.tensor.data_ptr() for table in (first, second)]
    assert places[0] != places[1]
    del first, second
    small, large = tables.Scratch((3,), narrow), tables.Scratch((10,), wide)
    assert (small.tensor.shape, small.tensor.dtype) == ((3,), torch.float32)
    assert [table.tensor.data_ptr() for table in (large, small)] == places
    del small, large
    assert [len(memory) for memory in tables._kept.values()] == [64, 128]
    too_large = tables.Scratch((51,), narrow)
    del too_large
    assert not tables._kept


@pytest.mark.slow
@pytest.mark.parametrize("readout", ["max", "mean"])
def test_passes_that_overlap_do_not_share_tables(readout):
    """The first pass of two layers before the second of either; one of them in inference mode before."""
    edges = literal.random_graph(2, undirected=True, num_nodes=60)
    torch.manual_seed(0)
    x = torch.randn(60, 8)
    layers = [Node2SeqConv(8, 8, readout=readout, backend="native") for _ in range(2)]

    def gradients(out: Tensor, layer: Node2SeqConv) -> list[Tensor]:
        return list(torch.autograd.grad(out.square().sum(), list(layer.parameters()), retain_graph=True))

    with torch.inference_mode():
        layers[0](x, edges)
    alone = [gradients(layer(x, edges), layer) for layer in layers]
    outputs = [layer(x, edges) for layer in layers]
    for _ in range(2):
        for layer, out, expected in zip(layers, outputs, alone, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(gradients(out, layer), expected, strict=True))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_forked_after_a_parallel_kernel_works_on():
    sequences = hub_graph(3000, 60_000, 100)
    x = torch.randn(3000, 8)
    threads = torch.get_num_threads()

    def order() -> np.ndarray:
        # As an array: PyTorch's own threads do not outlive a fork, and it would wait for them.
        return native.score_and_rank(x, x, sequences).layout.index.numpy()

    def work() -> None:
        assert pool._helpers is None
        assert np.array_equal(order(), expected)
        assert pool._helpers is not None

    try:
        torch.set_num_threads(3)
        expected = order()
        assert pool._helpers is not None
        assert in_a_fork(work) == 0
        assert in_a_fork(lambda: os._exit(3)) == 3
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_many_threads_at_once():
    sequences = hub_graph(3000, 60_000, 100)
    x, weight = torch.randn(3000, 8), torch.randn(3, 8, 8)
    expected = native_step(sequences, x, weight, "max")
    wrong: list[str] = []
    threads = torch.get_num_threads()

    def work() -> None:
        torch.set_num_threads(3)
        for _ in range(5):
            for a, b in zip(expected, native_step(sequences, x, weight, "max"), strict=True):
                if not torch.allclose(a, b, rtol=1e-4, atol=1e-2):
                    wrong.append(f"{a} {b}")

    try:
        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        torch.set_num_threads(threads)
    assert not wrong


def test_what_goes_wrong_in_a_helper_is_raised():
    def broken(first: int, _last: int) -> None:
        if first:
            raise ZeroDivisionError

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(ZeroDivisionError):
            pool.run(broken, range(9))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_nothing_can_be_kept_on_disk():
    """A package and a home that cannot be written to: compiled anew, not an error."""
    code = """
import numba.core.caching as caching
caching.CacheImpl._locator_classes = []
import torch
from node2seq import ops
native = ops.choose_backend("native", torch.ones(1))
source, target = torch.tensor([[0], [1]])
sequences = ops.build_sequences(source, target, 2, 2, add_self_loops=True, merge_duplicates=True)
x = torch.tensor([[1.0], [2.0]])
print(native.score_and_rank(x, x, sequences).node.tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout.strip() == "[0, 1, 0]"


@pytest.mark.slow
def test_same_bits_whatever_the_number_of_threads():
    """Every loop by itself: PyTorch's products between them are another matter."""
    sequences = hub_graph(600, 60_000, 500)
    plan = native.runtime.plan_of(sequences)
    by_source = plan.transposed
    assert len(plan.cuts) > 5
    assert len(by_source.cuts) > 5
    generator = torch.Generator().manual_seed(0)
    x, table = torch.randn(600, 40, generator=generator), torch.randn(600, 4, 40, generator=generator)
    taps, root = torch.randn(1, 3, 40, 40, generator=generator), torch.randn(1, 40, 40, generator=generator)
    kernels = native.kernels

    def run() -> list[Tensor]:
        ranking = native.score_and_rank(x, x, sequences)
        ranked = ranking.layout
        out, winner = torch.empty(600, 40), torch.empty(600, 40, dtype=torch.int32)
        pool.run(kernels.window_max, plan.cuts, 3, table, x[:1], plan.ptr, ranked.index, out, winner)
        scattered, gathered = torch.zeros(600, 4, 40), torch.empty(600, 4, 40)
        pool.run(kernels.window_max_scatter, range(4), 3, x, winner, plan.ptr, ranked.index, 16, scattered)
        walk = (by_source.ptr, by_source.target, by_source.entry, ranked.place)
        pool.run(kernels.window_max_gather, by_source.cuts, 3, x, winner, plan.ptr, *walk, gathered)
        summed, summed_back = torch.empty(600, 40), torch.empty(600, 4, 40)
        matrices = taps.numpy(), root.numpy()
        pool.run(kernels.window_sum, plan.cuts, 3, True, x, plan.ptr, ranked.index, *matrices, summed)
        pool.run(kernels.window_sum_gather, by_source.cuts, 3, True, x, plan.ptr, *walk, summed_back)
        chosen = native.select(x, x, sequences, ops.Candidates(sequences, 2), 0.0, True)
        return [*ranking, out, winner, scattered, gathered, summed, summed_back, *chosen]

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = run()
        torch.testing.assert_close(expected[5], expected[6])  # two ways to the same gradient
        for count in (2, 3, 7):
            torch.set_num_threads(count)
            for a, b in zip(expected, run(), strict=True):
                assert torch.equal(a, b)
    finally:
        torch.set_num_threads(threads)
