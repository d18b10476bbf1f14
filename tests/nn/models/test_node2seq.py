"""The paper's network: activations, and the options that it does not have."""

from dataclasses import fields
from typing import get_args, get_type_hints

import literal
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq import Node2Seq, Node2SeqPlus
from node2seq.errors import Node2SeqError
from node2seq.nn.conv.inputs import CHOICES
from node2seq.nn.models import GCNStar
from node2seq.nn.models.node2seq import ACTIVATIONS


@pytest.fixture
def graph() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(30, 6, dtype=torch.float64, generator=generator)
    return x, literal.random_graph(1, undirected=False)


@pytest.mark.parametrize(
    ("activation", "function"),
    [("relu", F.relu), ("elu", F.elu), ("none", lambda x: x)],
    ids=["relu", "elu", "none"],
)
def test_each_activation_follows_the_first_two_layers(graph, activation, function):
    x, edge_index = graph
    model = Node2Seq(6, 8, 3, activation=activation).double().eval()
    first, second, third = model.convs
    hidden = function(first(x, edge_index))
    hidden = hidden + function(second(hidden, edge_index))
    torch.testing.assert_close(model(x, edge_index), third(hidden, edge_index))


def test_the_choices_are_those_of_the_layer():
    types = get_type_hints(Node2Seq.Options)
    for name, choices in CHOICES.items():
        assert get_args(types[name]) == choices, name
    assert get_args(types["activation"]) == tuple(ACTIVATIONS)


def test_options_that_only_the_other_network_has_name_it():
    paper, plus = ({option.name for option in fields(cls.Options)} for cls in (Node2Seq, Node2SeqPlus))
    assert set(Node2Seq.Options.elsewhere) == plus - paper
    assert paper < plus
    for name in plus - paper:
        with pytest.raises(Node2SeqError, match=rf"options of Node2Seq: {name}: .* Use Node2SeqPlus"):
            Node2Seq(6, 8, 3, **{name: getattr(Node2SeqPlus(6, 8, 3), name)})


@pytest.mark.parametrize("network", [Node2Seq, GCNStar])
def test_weights_of_earlier_versions_have_a_dropout_of_nodes(network):
    model = network(6, 8, 3)
    state = model.state_dict()
    former = {"node_drop.seed": torch.tensor(5), "node_drop.step": torch.tensor(0)}
    model.load_state_dict({**state, **former})
    torch.nn.ModuleList([model]).load_state_dict({f"0.{key}": v for key, v in {**state, **former}.items()})
    with pytest.raises(RuntimeError, match="other_drop"):
        model.load_state_dict({**state, "other_drop.seed": torch.tensor(5)})
    with pytest.raises(RuntimeError, match=r"Missing.*node_drop\.seed"):
        Node2SeqPlus(6, 8, 3).load_state_dict(Node2Seq(6, 8, 3).state_dict())
