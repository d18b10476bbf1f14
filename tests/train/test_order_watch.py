"""How layers order neighbours: what is counted of a trace, and what is seen while a network is trained."""

from __future__ import annotations

import pytest
import torch

from node2seq import Node2Seq, Node2SeqConv
from node2seq.data import load, make_split
from node2seq.nn.conv.ranks import Trace, learned_matrices
from node2seq.nn.models.residual import ResidualNode2Seq
from node2seq.train.metrics import FirstNeighbours, agreement, by_degree, reliability
from node2seq.train.progress import OrderWatch, details_of, matrices_of
from node2seq.train.settings import TrainSettings
from node2seq.train.trainer import Trainer


def trace_of(sequences: list[list[int]], distant: frozenset[int] = frozenset()) -> Trace:
    """A trace in which scores fall by one from place to place."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    index = torch.tensor([node for sequence in sequences for node in sequence])
    scores = torch.cat([-torch.arange(float(length)) for length in lengths])
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Trace(ptr, index, scores, torch.tensor([int(node) in distant for node in index]), None)


TRACE = trace_of([[0, 2, 1], [0, 1], [3, 2, 0, 1], [3]], distant=frozenset([3]))


def test_the_first_neighbours_leave_the_node_itself_out():
    first = FirstNeighbours.of(TRACE, 4, places=2)
    assert first.node.tolist() == [[2, 1], [0, -1], [3, 0], [-1, -1]]
    assert first.score.tolist() == [[-1, -2], [0, 0], [0, -2], [0, 0]]
    assert first.nonlocal_shares() == [1 / 3, 0.0]


def test_the_share_of_the_same_class_counts_labelled_pairs():
    first = FirstNeighbours.of(TRACE, 4, places=3)
    shares, counts = first.same_class(torch.tensor([0, 0, 1, -1]))
    # First place: 0 → 2 differs, 1 → 0 is the same, 2 → 3 is unlabelled. Second: 0 → 1 is, 2 → 0 differs.
    assert (shares, counts) == ([0.5, 0.5, 0.0], [2, 2, 1])


def test_agreement_of_orders():
    last = torch.tensor([[1, 2], [3, 4], [5, -1], [-1, -1]])
    assert agreement(last, last) == (1.0, 1.0)
    before = torch.tensor([[2, 1], [3, 9], [6, 7], [-1, -1]])
    assert agreement(before, last) == (1 / 3, 3 / 5)


def test_groups_of_degrees_and_of_confidence():
    right = torch.tensor([True, False, True, True])
    assert by_degree(right, torch.tensor([0, 1, 2, 3])) == [("0", 1.0, 1), ("1", 0.0, 1), ("2–3", 1.0, 2)]
    found = reliability(torch.tensor([0.95, 0.91, 0.2, 1.0]).double(), right)
    assert [count for *_, count in found] == [1, 3]
    assert found[1][:2] == pytest.approx(((0.95 + 0.91 + 1.0) / 3, 2 / 3))


def test_large_matrices_are_given_by_the_strongest_value_of_each_block():
    conv = Node2SeqConv(4, 4, kernel_size=2, readout="ranks")
    with torch.no_grad():
        conv.weight.zero_()
        conv.weight[1, 3, 0] = -7.0
    found = learned_matrices(conv, most=2)
    assert [title for title, _ in found] == ["rank 1", "rank 2", "mean of all"]
    assert [values for _, values in found][1] == [[0.0, 0.0], [-7.0, 0.0]]


@pytest.fixture
def trainer() -> Trainer:
    data = load("karate")
    torch.manual_seed(0)
    model = Node2Seq(data.num_features, 8, 4, kernel_size=3)
    return Trainer(model, data, [make_split(data, "karate", seed=0)], [TrainSettings(epochs=12, lr=0.05)])


def test_a_watch_sees_the_order_and_changes_nothing(trainer: Trainer):
    watch = OrderWatch(lambda: trainer.traces()[1], 34, 156)
    while trainer.active:
        trainer.advance()
        watch.after_epoch(trainer.epoch)
    assert [epoch for epoch, _ in watch.seen] == [0, 1, 2, 5, 10]
    trainer.finish()
    run = trainer.runs[0]
    model = trainer.model_of(0)
    (result,) = trainer.results()
    assert result is not None
    found = trainer.traces(model)
    test = run.nodes["test"]
    names = [f"member {number}" for number in range(34)]
    details = details_of(model, *found, trainer.y, trainer.edge_index, test, result.task, names, watch)
    ((name, layer),) = details["layers"].items()
    assert name in details["matrices"]
    assert [epoch for epoch, *_ in layer["agreement"]] == [0, 1, 2, 5, 10]
    assert layer["same_class"]["before"] != layer["same_class"]["after"]
    assert layer["same_class"]["nodes"][0] == 34
    assert not any(layer["nonlocal"])
    for example in details["examples"]:
        node = names.index(example["name"])
        trace = found[1][name]
        order = [int(j) for j in trace.index[trace.ptr[node] : trace.ptr[node + 1]] if int(j) != node]
        assert [other["name"] for other in example["neighbours"]] == [names[j] for j in order[:8]]
    assert sum(count for *_, count in details["by_degree"]) == test.numel()
    assert set(details["reliability"]) == {"as trained", "calibrated"}


def test_the_same_training_without_a_watch_ends_with_the_same_bits(trainer: Trainer):
    first = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    watch = OrderWatch(lambda: trainer.traces()[1], 34, 156)
    trainer.advance(2)
    watch.after_epoch(2)
    trainer.advance(2)
    watched = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    data = load("karate")
    model = Node2Seq(data.num_features, 8, 4, kernel_size=3)
    model.load_state_dict(first)
    settings = [TrainSettings(epochs=12, lr=0.05)]
    alone = Trainer(model, data, [make_split(data, "karate", seed=0)], settings)
    alone.advance(4)
    for name, tensor in alone.model.state_dict().items():
        assert torch.equal(tensor, watched[name]), name


def test_layers_in_which_the_order_plays_no_part_are_left_out(trainer: Trainer):
    torch.manual_seed(0)
    model = ResidualNode2Seq(34, 8, 4, readout="ranks", neighbour_max=True)
    settings = [TrainSettings(epochs=1)]
    data = load("karate")
    mixed = Trainer(model, data, [make_split(data, "karate", seed=0)], settings)
    assert [*mixed.traces()[1]] == ["blocks.0.conv", "blocks.1.conv"]
    assert [*matrices_of(model)] == ["blocks.0.conv", "blocks.0.pool", "blocks.1.conv", "blocks.1.pool"]
    for taps, hops, reads in ((1, 1, False), (1, 2, True), (2, 1, True)):
        assert Node2SeqConv(4, 4, taps, readout="mean", hops=hops).reads_order == reads
    (conv,) = trainer.traces()[1]
    assert trainer.model.get_submodule(conv).reads_order


def test_large_graphs_are_looked_at_before_and_after_alone(trainer: Trainer):
    watch = OrderWatch(lambda: trainer.traces()[1], 34, 3_000_000)
    watch.after_epoch(1)
    assert [epoch for epoch, _ in watch.seen] == [0]
