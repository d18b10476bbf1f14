"""Drawn tasks whose labels follow from the order of the neighbours: the labels are what a loop finds."""

from typing import Any

import order_tasks
import pytest
import torch
from order_tasks import TASKS

from node2seq.errors import Node2SeqError


def draw(*args: Any) -> Any:
    """Untyped, because the parts of a graph may be missing in general."""
    return order_tasks.draw_order_task(*args)


@pytest.mark.parametrize("task", TASKS)
def test_labels_are_what_a_loop_finds(task: str, monkeypatch: pytest.MonkeyPatch):
    kept: dict[str, torch.Tensor] = {}
    mix = torch.linalg.qr

    def remember(square: torch.Tensor) -> Any:
        kept["rotation"] = mix(square).Q
        return mix(square)

    monkeypatch.setattr(torch.linalg, "qr", remember)
    graph = draw(task, 120, 3)
    parts = graph.x @ kept["rotation"].t()  # unmixed: key, class, two vectors, noise
    key, label = parts[:, 0], parts[:, 1:5].argmax(1).tolist()
    assert torch.allclose(parts[:, 1:5].sum(1), torch.ones(120), atol=1e-5)
    order = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_order.tolist(), strict=True))
    assert len(order) == graph.num_edges
    for node in range(120):
        neighbours = [j for (j, i) in order if i == node]
        if task == "second-by-pair":
            scores = {j: float(parts[node, 5:9] @ parts[j, 9:13]) for j in neighbours}
        else:
            scores = {j: float(key[j]) for j in neighbours}
        assert all(abs(scores[j] - order[j, node]) < 1e-4 for j in neighbours)
        first, second = (label[j] for j in sorted(neighbours, key=lambda j: -order[j, node])[:2])
        assert graph.y[node] == {"first": first, "difference": (first - second) % 4}.get(task, second)


def test_in_degrees_are_many_and_between_three_and_sixty():
    graph = draw("first")
    degree = torch.bincount(graph.edge_index[1], minlength=4_000)
    assert (int(degree.min()), int(degree.max())) == (3, 60)
    assert 8 <= degree.median() <= 12 < degree.float().mean()
    assert graph.x.shape == (4_000, 16)
    assert not graph.has_self_loops()
    assert graph.edge_index.unique(dim=1).size(1) == graph.num_edges
    assert torch.bincount(graph.y).min() > 700


def test_a_seed_gives_one_graph():
    graph, again, other = draw("first", 50, 1), draw("second", 50, 1), draw("first", 50, 2)
    assert torch.equal(graph.x, again.x)
    assert torch.equal(graph.edge_index, again.edge_index)
    assert not torch.equal(graph.y, again.y)
    assert not torch.equal(graph.x, other.x)


def test_an_unknown_task_and_too_few_nodes_are_named():
    with pytest.raises(Node2SeqError, match="task='third'"):
        draw("third")
    with pytest.raises(Node2SeqError, match="nodes=3"):
        draw("first", 3)
