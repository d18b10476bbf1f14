"""The compiled loops: what no other backend has. Their results are checked beside the others' elsewhere."""

import subprocess
import sys
from types import ModuleType

import literal
import pytest
import torch
from native_graphs import assert_same_ranking, hub_graph, native_step, whole_numbers
from torch import Tensor

from node2seq import Node2SeqConv, Node2SeqError, ops
from node2seq.ops import reference

pool = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")
native: ModuleType = ops.choose_backend("native", torch.ones(1))


@pytest.mark.parametrize("readout", ["max", "mean", "sum"])
def test_the_layer_chooses_it(readout: str):
    """And it gives what the reference gives: whole numbers, so to the last bit, but for means."""
    edges = literal.random_graph(0, undirected=True, num_nodes=60)
    edges = torch.cat([edges, torch.stack([torch.zeros(59, dtype=torch.int64), torch.arange(1, 60)])], dim=1)
    x = whole_numbers(60, 4)

    def run(backend: str) -> list[Tensor]:
        conv = Node2SeqConv(4, 4, readout=readout, backend=backend)
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
        "sort_edges",
        "arrange",
        *(("window_max", "window_max_gather") if readout == "max" else ("window_sum", "window_sum_gather")),
        "transpose",
        "multiply",
        "multiply_transposed",
        "sum_parts",
    }
    error = 1e-5 if readout == "mean" else 0
    for a, b in zip(found, run("reference"), strict=True):
        torch.testing.assert_close(a, b, rtol=error, atol=error)


def test_chosen_for_what_it_can_work_on_only():
    assert ops.choose_backend("auto", torch.ones(1)) is native
    assert ops.choose_backend("auto", torch.ones(1).double()) is native
    assert ops.choose_backend("auto", torch.ones(1).half()) is ops.eager
    with pytest.raises(Node2SeqError, match=r"backend='native' with torch.float16.*Use backend='auto'"):
        ops.choose_backend("native", torch.ones(1).half())
    with pytest.raises(Node2SeqError, match=r"backend='native' with torch.float32 features on meta"):
        ops.choose_backend("native", torch.ones(1, device="meta"))


@pytest.mark.slow
def test_without_numba_it_is_left_out_or_an_error():
    """In a process in which numba cannot be imported."""
    code = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None  # which numba brings along
import torch
from node2seq import Node2SeqError, ops
assert ops.choose_backend("auto", torch.ones(1)) is ops.eager
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
@pytest.mark.parametrize(("edges", "backward"), [(600, "gather"), (60_000, "scatter")])
def test_both_backwards_of_the_maximum_equal_the_reference(edges, backward):
    sequences = hub_graph(600, edges, 500)
    x, weight = whole_numbers(600, 20), whole_numbers(60, 20).view(3, 20, 20)
    before = pool.RUNS.copy()
    *_, grad_x, grad_weight = native_step(sequences, x, weight, "max")
    assert (pool.RUNS - before)[f"window_max_{backward}"] == 1
    x, weight = x.requires_grad_(), weight.requires_grad_()
    order = ops.rank(x.detach(), x.detach(), sequences, backend=reference).entry
    out, _ = reference.convolve_max(x, weight, sequences.reorder(order))
    for a, b in zip((grad_x, grad_weight), torch.autograd.grad(out.square().sum(), [x, weight]), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("merge_duplicates", [True, False])
@pytest.mark.parametrize("add_self_loops", [True, False])
@pytest.mark.parametrize(
    ("sources", "targets", "edges"),
    [(300, 300, 10_000), (20, 50, 400), (50, 20, 400), (4, 4, 0), (0, 3, 0), (3, 0, 0)],
)
def test_a_new_graph_is_built_as_by_the_others(sources, targets, edges, add_self_loops, merge_duplicates):
    """Duplicates, self loops, nodes without edges, sides of different sizes, nothing at all."""
    draw = torch.Generator().manual_seed(1)
    source = torch.randint(0, max(sources, 1), (edges,), generator=draw)
    target = torch.randint(0, max(targets - 1, 1), (edges,), generator=draw)
    before = pool.RUNS["sort_edges"]
    found, expected = (
        ops.build_sequences(
            source,
            target,
            sources,
            targets,
            add_self_loops=add_self_loops,
            merge_duplicates=merge_duplicates,
            backend=backend,
        )
        for backend in ("auto", "eager")
    )
    assert pool.RUNS["sort_edges"] == before + 1
    assert torch.equal(found.rows.ptr, expected.rows.ptr)
    assert torch.equal(found.rows.target, expected.rows.target)
    assert torch.equal(found.index, expected.index)
    assert found.num_sources == sources


@pytest.mark.parametrize(("source", "target"), [(-1, 0), (3, 0), (0, -1), (0, 3), (2**40, 0)])
def test_ids_that_do_not_exist_are_found_while_counting(source: int, target: int):
    sources, targets = torch.tensor([[0, source], [1, target]])
    assert native.build(sources, targets, 3, 3, add_self_loops=True, merge_duplicates=True) is None
    with pytest.raises(Node2SeqError, match=r"edge_index holds the (source|target) id"):
        ops.build_sequences(sources, targets, 3, 3, add_self_loops=True, merge_duplicates=True)


@pytest.mark.slow
def test_graphs_too_large_for_32_bits(monkeypatch):
    """The same loops with 64 bits, as if a graph had that many entries."""
    x, weight = whole_numbers(300, 4), whole_numbers(12, 4).view(3, 4, 4)
    expected = native_step(hub_graph(300, 3000, 200), x, weight, "max")
    monkeypatch.setattr(native.runtime, "LARGEST_INT32", 100)
    sequences = hub_graph(300, 3000, 200)
    found = native_step(sequences, x, weight, "max")
    assert native.runtime.plan_of(sequences).index.dtype == torch.int64
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


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


@pytest.mark.parametrize("readout", ["max", "mean"])
def test_weights_that_change_before_the_backward_pass_are_noticed(readout: str):
    conv = Node2SeqConv(4, 4, readout=readout, backend="native")
    out = conv(torch.randn(3, 4), torch.tensor([[0, 1, 2], [1, 2, 0]]))
    with torch.no_grad():
        conv.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
