"""The orders that are not learned."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from node2seq import Node2Seq, Node2SeqConv, Node2SeqError


def some_graph() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(30, (2, 80), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    return torch.randn(30, 5, generator=generator), torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)


def rows(trace) -> list[list[int]]:
    return [part.tolist() for part in trace.index.tensor_split(trace.ptr[1:-1])]


@pytest.mark.parametrize("hops", [1, 2])
def test_degree_sorts_by_degree_then_neighbours_degrees_then_id(hops: int) -> None:
    x, edge_index = some_graph()
    layer = Node2SeqConv(5, 4, order="degree", hops=hops)
    _, trace = layer(x, edge_index, return_trace=True)
    neighbours = [{i, *edge_index[0, edge_index[1] == i].tolist()} for i in range(30)]
    size = [len(n) for n in neighbours]

    def key(j: int) -> tuple[int, int, int]:
        return (-size[j], -sum(size[i] for i in neighbours[j]), j)

    found = rows(trace)
    assert found == [sorted(row, key=key) for row in found]
    _, learned = Node2SeqConv(5, 4, hops=hops)(x, edge_index, return_trace=True)
    assert [len(row) for row in found] == [len(row) for row in rows(learned)] == size
    if hops == 1:
        assert [set(row) for row in found] == neighbours


def test_the_same_nodes_are_chosen_whatever_the_order() -> None:
    x, edge_index = some_graph()
    traces = []
    for order in ("attention", "degree", "random"):
        torch.manual_seed(0)
        layer = Node2SeqConv(5, 4, hops=2, threshold=0.1, order=order)
        traces.append(layer(x, edge_index, return_trace=True)[1])
    assert traces[0].is_nonlocal.any()
    chosen = [[sorted(row) for row in rows(trace)] for trace in traces]
    assert chosen[0] == chosen[1] == chosen[2]
    assert rows(traces[0]) != rows(traces[1]) != rows(traces[2])
    for trace in traces:  # scores and marks travel with their nodes
        scored = dict(zip(traces[0].index[:8].tolist(), traces[0].scores[:8].tolist(), strict=True))
        first = int(trace.ptr[1])
        for node, score in zip(trace.index[:first].tolist(), trace.scores[:first].tolist(), strict=True):
            assert scored.get(node, score) == score


def test_random_is_drawn_once_and_kept_with_the_weights() -> None:
    x, edge_index = some_graph()
    torch.manual_seed(0)
    layer = Node2SeqConv(5, 4, order="random")
    _, trace = layer(x, edge_index, return_trace=True)
    assert rows(layer(x + 1, edge_index, return_trace=True)[1]) == rows(trace)
    other = Node2SeqConv(5, 4, order="random")
    assert rows(other(x, edge_index, return_trace=True)[1]) != rows(trace)
    other.load_state_dict(layer.state_dict())
    assert rows(other(x, edge_index, return_trace=True)[1]) == rows(trace)


def test_random_favours_no_position() -> None:
    nodes = 200
    edge_index = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).t()
    layer = Node2SeqConv(5, 4, order="random")
    _, trace = layer(torch.randn(nodes, 5), edge_index, return_trace=True)
    place = trace.index.view(nodes, nodes).argsort(dim=1).double()
    assert (place.mean(dim=0) - (nodes - 1) / 2).abs().max() < 5 * nodes / 12**0.5 / nodes**0.5


@pytest.mark.parametrize("order", ["degree", "random"])
def test_both_paths_and_backends_agree(order: str) -> None:
    x, edge_index = some_graph()
    outputs = []
    for backend in ("eager", "reference"):
        torch.manual_seed(0)
        layer = Node2SeqConv(5, 4, order=order, backend=backend)
        outputs.append(layer(x, edge_index))
    layer.register_message_forward_hook(lambda *_: None)
    outputs.append(layer(x, edge_index))
    for out in outputs[1:]:
        torch.testing.assert_close(out, outputs[0])


def test_the_network_passes_its_order_on() -> None:
    model = Node2Seq(5, 4, 3, order="random")
    assert model.convs[1].order == "random"
    with pytest.raises(Node2SeqError, match="order='alphabet'"):
        Node2Seq(5, 4, 3, order="alphabet")
