"""The compiled loops: what no other backend has. Their results are checked beside the others' elsewhere."""

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
from torch import Tensor

from node2seq import Node2SeqConv, Node2SeqError, ops
from node2seq.data import load
from node2seq.ops import reference

pool = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")
native: ModuleType = ops.choose_backend("native", torch.ones(1))


def hub_graph(nodes: int, edges: int, hub: int, seed: int = 0) -> ops.Sequences:
    """Random edges; node 0 hears from, and is heard by, many."""
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(0, nodes, (2, edges), generator=generator)
    others = torch.arange(1, hub)
    zeros = torch.zeros_like(others)
    return ops.build_sequences(
        torch.cat([source, others, zeros]),
        torch.cat([target, zeros, others]),
        nodes,
        nodes,
        add_self_loops=True,
        merge_duplicates=True,
    )


def whole_numbers(rows: int, channels: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    """Products and sums of these are exact, and tie often."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, 2, (rows, channels), generator=generator).to(dtype)


def assert_same_ranking(found: ops.Ranking | ops.Positions, expected: ops.Ranking | ops.Positions) -> None:
    for name, a, b in zip(("node", "score", "entry"), found, expected, strict=True):
        assert torch.equal(a, b), name


def step(sequences: ops.Sequences, x: Tensor, weight: Tensor, readout: str) -> list[Tensor]:
    """Ranks, convolves, and goes back: everything that the layer asks of the backend."""
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    ranking = native.score_and_rank(x.detach(), x.detach(), sequences)
    out = getattr(native, f"convolve_{readout}")(x, weight, ranking.layout)
    out = out[0] if readout == "max" else out
    return [*ranking, out.detach(), *torch.autograd.grad(out.square().sum(), [x, weight])]


def test_the_layer_chooses_it_for_graphs_worth_it(monkeypatch):
    """And it gives what the reference gives: whole numbers, so to the last bit."""
    monkeypatch.setattr("node2seq.ops.dispatch._FEWEST_ENTRIES", 200)
    edges = literal.random_graph(0, undirected=True, num_nodes=60)
    edges = torch.cat([edges, torch.stack([torch.zeros(59, dtype=torch.int64), torch.arange(1, 60)])], dim=1)
    x = whole_numbers(60, 4)

    def run(backend: str) -> list[Tensor]:
        conv = Node2SeqConv(4, 4, backend=backend)
        with torch.no_grad():
            for number, parameter in enumerate(conv.parameters()):
                parameter.copy_(
                    whole_numbers(parameter[..., 0].numel(), parameter.size(-1), seed=number).view_as(
                        parameter
                    )
                )
        out, trace = conv(x, edges, return_trace=True)
        return [
            out,
            trace.index,
            trace.scores,
            *torch.autograd.grad(out.square().sum(), list(conv.parameters())),
        ]

    before = pool.RUNS.copy()
    found = run("auto")
    assert {name for name, count in (pool.RUNS - before).items() if count} == {
        "sort_numbers",
        "own_keys",
        "arrange",
        "window_max",
        "window_max_gather",
        "transpose",
    }
    for a, b in zip(found, run("reference"), strict=True):
        assert torch.equal(a, b)


def test_chosen_for_what_it_can_work_on_only():
    many = 2**20
    assert ops.choose_backend("auto", torch.ones(1), many) is native
    assert ops.choose_backend("auto", torch.ones(1).double(), many) is native
    assert ops.choose_backend("auto", torch.ones(1), 100) is ops.eager
    assert ops.choose_backend("auto", torch.ones(1).half(), many) is ops.eager
    with pytest.raises(Node2SeqError, match=r"backend='native' with torch.float16.*Use backend='auto'"):
        ops.choose_backend("native", torch.ones(1).half())
    with pytest.raises(Node2SeqError, match=r"backend='native' with torch.float32 features on meta"):
        ops.choose_backend("native", torch.ones(1, device="meta"))


@pytest.mark.slow
def test_without_numba_it_is_left_out_or_an_error():
    """In a process in which numba cannot be imported."""
    code = """
import sys
sys.modules["numba"] = None
import torch
from node2seq import Node2SeqError, ops
assert ops.choose_backend("auto", torch.ones(1), 2**20) is ops.eager
try:
    ops.choose_backend("native", torch.ones(1))
except Node2SeqError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == (
        "backend='native': numba is not installed. Use backend='auto', or pip install 'node2seq[native]'."
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_ties_on_rows_of_every_length(dtype, seed):
    """Few different scores: rows up to and beyond where the kind of sort changes, and a hub."""
    sequences = hub_graph(400, 1500 + 4000 * seed, 380, seed)
    length = sequences.rows.length()
    assert int(length.max()) > 300
    assert bool((length < 90).any())
    x = whole_numbers(400, 3, dtype, seed)
    assert_same_ranking(native.score_and_rank(x, x, sequences), ops.rank(x, x, sequences, backend=reference))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_at_the_edge_of_the_numbers(dtype):
    """Infinity, −0.0, subnormal numbers; NaN goes first, whatever its sign."""
    levels = torch.tensor(
        [-torch.inf, -3e38, -1.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, 3e38, torch.inf], dtype=dtype
    )
    for count in (40, 300):
        generator = torch.Generator().manual_seed(count)
        key = levels[torch.randint(0, levels.numel(), (count, 1), generator=generator)]
        sequences = ops.Sequences(ops.Rows.from_lengths(torch.tensor([count])), torch.arange(count), count)
        query = torch.ones(1, 1, dtype=dtype)
        found = native.score_and_rank(query, key, sequences)
        assert_same_ranking(found, ops.rank(query, key, sequences, backend=reference))
        key[3], key[count // 2] = torch.nan, -torch.tensor(torch.nan, dtype=dtype)
        found = native.score_and_rank(query, key, sequences)
        assert found.node[:2].tolist() == [3, count // 2]
        assert found.score[2:].isfinite().any()
        assert not found.score[2:].isnan().any()


@pytest.mark.slow
def test_same_bits_whatever_the_number_of_threads():
    """Every loop by itself: PyTorch's products between them are another matter."""
    sequences = hub_graph(600, 60_000, 500)
    plan = native.plan.plan_of(sequences)
    by_source = plan.transposed
    assert len(plan.cuts) > 5
    assert len(by_source.cuts) > 5
    generator = torch.Generator().manual_seed(0)
    x, table = torch.randn(600, 40, generator=generator), torch.randn(600, 3, 40, generator=generator)
    kernels = native.kernels

    def run() -> list[Tensor]:
        ranking = native.score_and_rank(x, x, sequences)
        ranked = ranking.layout
        out, winner = torch.empty(600, 40), torch.empty(600, 40, dtype=torch.int32)
        pool.run(kernels.window_max, plan.cuts, table, plan.ptr, ranked.index, out, winner)
        scattered, gathered = torch.zeros(600, 3, 40), torch.empty(600, 3, 40)
        pool.run(kernels.window_max_scatter, range(4), x, winner, plan.ptr, ranked.index, 16, scattered)
        walk = (by_source.ptr, by_source.target, by_source.entry, ranked.place)
        pool.run(kernels.window_max_gather, by_source.cuts, x, winner, plan.ptr, *walk, gathered)
        summed, summed_back = torch.empty(600, 3, 40), torch.empty(600, 3, 40)
        pool.run(kernels.window_sum, plan.cuts, x, plan.ptr, ranked.index, summed)
        pool.run(kernels.window_sum_gather, by_source.cuts, x, plan.ptr, *walk, summed_back)
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


@pytest.mark.slow
@pytest.mark.parametrize(("edges", "backward"), [(600, "gather"), (60_000, "scatter")])
def test_both_backwards_of_the_maximum_equal_the_reference(edges, backward):
    sequences = hub_graph(600, edges, 500)
    x, weight = whole_numbers(600, 20), whole_numbers(60, 20).view(3, 20, 20)
    before = pool.RUNS.copy()
    *_, grad_x, grad_weight = step(sequences, x, weight, "max")
    assert (pool.RUNS - before)[f"window_max_{backward}"] == 1
    x, weight = x.requires_grad_(), weight.requires_grad_()
    order = ops.rank(x.detach(), x.detach(), sequences, backend=reference).entry
    out, _ = reference.convolve_max(x, weight, sequences.reorder(order))
    for a, b in zip((grad_x, grad_weight), torch.autograd.grad(out.square().sum(), [x, weight]), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("hops", [2, 3])
def test_the_selection_is_that_of_the_plain_one(joint, hops, listed, monkeypatch):
    """On whole numbers, so with ties everywhere; a threshold for each target too."""
    if not listed:
        monkeypatch.setattr("node2seq.ops.candidates._KEPT_ENTRIES", 10)
    before = pool.RUNS.copy()
    for seed in range(4):
        sequences = hub_graph(150, 100 + 200 * seed, (1, 2, 20, 140)[seed], seed)
        x = whole_numbers(150, 3, seed=seed)
        thresholds = torch.randint(-2, 3, (150,), generator=torch.Generator().manual_seed(seed)).float()
        candidates = ops.Candidates(sequences, hops)
        for threshold in (-9.0, 0.0, 1e9, thresholds):
            found = native.select(x, x, sequences, candidates, threshold, joint)
            expected = ops.rank(
                x,
                x,
                sequences,
                hops=hops,
                threshold=threshold,
                joint=joint,
                backend=reference,
            )
            assert_same_ranking(found, expected)
    assert (pool.RUNS - before)["best_listed" if listed else "best_walked"] == 16


@pytest.mark.slow
def test_the_selection_on_a_real_graph(real_data):
    data = real_data("chameleon", load)
    source, target = data.edge_index
    nodes = data.num_nodes
    sequences = ops.build_sequences(source, target, nodes, nodes, add_self_loops=True, merge_duplicates=True)
    x = whole_numbers(nodes, 8)
    before = pool.RUNS["best_listed"]
    found = ops.rank(x, x, sequences, hops=2, backend=native)
    assert pool.RUNS["best_listed"] == before + 1
    assert bool((found.entry < 0).any())
    assert_same_ranking(found, ops.rank(x, x, sequences, hops=2, backend=ops.eager))


@pytest.mark.slow
def test_the_selection_takes_what_is_no_number_first():
    """Neighbours or not: it has to be seen in the output."""
    sequences = hub_graph(150, 300, 140)
    x = whole_numbers(150, 8)
    x[3], x[110] = torch.nan, -torch.tensor(torch.nan)
    for threshold in (0.0, 1e9):
        found = native.select(x, x, sequences, ops.Candidates(sequences, 2), threshold, True)
        wrong = found.score.isnan()
        assert set(found.node[wrong].tolist()) >= {3, 110}
        assert bool((wrong & (found.entry < 0)).any())
        per_row = torch.zeros(150, dtype=torch.int64).index_add_(0, sequences.rows.target, wrong.long())
        first = ops.Rows.from_lengths(per_row).position()
        assert torch.equal(sequences.rows.position()[wrong], first)


@pytest.mark.slow
def test_copies_of_a_graph_select_by_the_lists_of_one():
    sequences = hub_graph(150, 300, 100)
    candidates, before = ops.Candidates(sequences, 2), pool.RUNS.copy()
    x = whole_numbers(450, 3)
    found = native.select(x, x, sequences.copies(3), candidates.copies(3), 0.0, True)
    assert (pool.RUNS - before)["list_candidates"] == 1
    parts = [native.select(part, part, sequences, candidates, 0.0, True) for part in x.split(150)]
    assert (pool.RUNS - before)["list_candidates"] == 1
    entries = sequences.rows.num_entries
    for copy, part in enumerate(parts):
        node, score, entry = (values[copy * entries : (copy + 1) * entries] for values in found)
        moved = torch.where(part.entry < 0, -1, part.entry + copy * entries)
        expected = ops.Positions(part.node + copy * 150, part.score, moved)
        assert_same_ranking(ops.Positions(node, score, entry), expected)


@pytest.mark.slow
@pytest.mark.parametrize("hops", [2, 3, 5])
def test_candidates_are_those_of_the_plain_search(hops, monkeypatch):
    """More nodes than a group of marks has, some far apart; a hub; nodes that nobody reaches."""
    sequences = hub_graph(9000, 6000, 200)

    def candidates() -> ops.Sequences:
        found = ops.Candidates(sequences, hops).listed()
        assert found is not None
        return found

    before = pool.RUNS["list_candidates"]
    found = candidates()
    assert pool.RUNS["list_candidates"] == before + 1
    assert bool((found.index > 2**12).any())
    monkeypatch.setattr("node2seq.ops.dispatch._FEWEST_ENTRIES", 10**9)
    expected = candidates()
    assert pool.RUNS["list_candidates"] == before + 1
    assert torch.equal(found.rows.ptr, expected.rows.ptr)
    assert torch.equal(found.rows.target, expected.rows.target)
    assert torch.equal(found.index, expected.index)


@pytest.mark.slow
def test_too_many_candidates_are_not_listed():
    sequences = hub_graph(3000, 60_000, 100)
    before = pool.RUNS.copy()
    assert native.find_lists(sequences, 2, 10_000) is None
    ran = pool.RUNS - before
    assert ran["list_candidates"] == 0
    assert ran["count_candidates"] == 1, "the first part is enough to see it"


@pytest.mark.slow
@pytest.mark.parametrize("end", [1, 2, 2**11, 2**11 + 1, 10**7, 2**40])
def test_numbers_are_sorted(end):
    """As edges are when a graph is new: an even and an odd number of passes, one, and none."""
    numbers = torch.randint(0, end, (10_000,), generator=torch.Generator().manual_seed(0))
    numbers[7] = end - 1
    given, before = numbers.clone(), pool.RUNS["sort_numbers"]
    assert torch.equal(native.sort_numbers(numbers, end), numbers.sort().values)
    assert torch.equal(numbers, given)
    source, target = torch.randint(0, 300, (2, 10_000), generator=torch.Generator().manual_seed(1))
    sequences = ops.build_sequences(source, target, 300, 300, add_self_loops=True, merge_duplicates=True)
    assert pool.RUNS["sort_numbers"] == before + 2
    pairs = sorted({*zip(target.tolist(), source.tolist(), strict=True), *((i, i) for i in range(300))})
    assert list(zip(sequences.rows.target.tolist(), sequences.index.tolist(), strict=True)) == pairs


def test_tables_hand_on_their_memory(monkeypatch):
    tables = native.runtime
    monkeypatch.setattr(tables, "_kept", {})
    monkeypatch.setattr(tables, "_MOST_BYTES", 100)
    first, second = tables.Scratch((2, 5), torch.float64), tables.Scratch((5,), torch.float32)
    places = [table.tensor.data_ptr() for table in (first, second)]
    assert places[0] != places[1]
    del first, second
    small, large = tables.Scratch((3,), torch.int32), tables.Scratch((20,), torch.float32)
    assert (small.tensor.shape, small.tensor.dtype) == ((3,), torch.int32)
    assert [table.tensor.data_ptr() for table in (large, small)] == places
    del small, large
    assert [memory.numel() for memory in tables._kept.values()] == [20, 80]
    too_large = tables.Scratch((101,), torch.uint8)
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
    expected = step(sequences, x, weight, "max")
    wrong: list[str] = []
    threads = torch.get_num_threads()

    def work() -> None:
        torch.set_num_threads(3)
        for _ in range(5):
            for a, b in zip(expected, step(sequences, x, weight, "max"), strict=True):
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
def test_graphs_too_large_for_32_bits(monkeypatch):
    """The same loops with 64 bits, as if a graph had that many entries."""
    x, weight = whole_numbers(300, 4), whole_numbers(12, 4).view(3, 4, 4)
    expected = step(hub_graph(300, 3000, 200), x, weight, "max")
    monkeypatch.setattr(native.plan, "_LARGEST_INT32", 100)
    sequences = hub_graph(300, 3000, 200)
    found = step(sequences, x, weight, "max")
    assert native.plan.plan_of(sequences).index.dtype == torch.int64
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


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
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("order", ["degree", "random"])
@pytest.mark.parametrize("readout", ["max", "mean"])
def test_other_orders_equal_the_reference(order, readout, hops):
    edges = literal.random_graph(3, undirected=True)
    x = torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    outputs = []
    for backend in ("native", "reference"):
        torch.manual_seed(2)
        conv = Node2SeqConv(5, 4, order=order, readout=readout, hops=hops, backend=backend).double()
        outputs.append(conv(x, edges))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
