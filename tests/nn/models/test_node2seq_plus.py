"""The options that the paper's network does not have: what each of them computes."""

from typing import Any

import literal
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq import Node2Seq, Node2SeqPlus
from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import Smoothing


@pytest.fixture
def graph() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(30, 6, dtype=torch.float64, generator=generator)
    return x, literal.random_graph(1, undirected=False)


def network(**options: Any) -> Node2SeqPlus:
    torch.manual_seed(5)
    return Node2SeqPlus(6, 8, 3, **options).double()


def test_with_the_defaults_it_is_the_network_of_the_paper(graph):
    plus = network(position=1, readout="mean", conv_scale=0.3)
    torch.manual_seed(5)
    paper = Node2Seq(6, 8, 3, position=1, readout="mean", conv_scale=0.3).double()
    state = plus.state_dict()
    assert {key for key in state if key not in paper.state_dict()} == {"node_drop.seed", "node_drop.step"}
    for key, value in paper.state_dict().items():
        assert torch.equal(value, state[key]), key
    assert torch.equal(plus(*graph), paper(*graph))  # while training: the same dropout, too
    assert torch.equal(plus.embed(*graph), paper.embed(*graph))


def test_smoothing_spreads_the_logits(graph):
    x, edge_index = graph
    plain, smooth = network().eval(), network(smoothing=4, teleport=0.3).eval()
    torch.testing.assert_close(smooth(x, edge_index), Smoothing(4, 0.3)(plain(x, edge_index), edge_index))


def test_smoothing_after_the_first_layer_spreads_what_goes_into_its_activation(graph):
    x, edge_index = graph
    model = network(smoothing=3, teleport=0.3, smoothed="first").eval()
    first, second, third = model.convs
    hidden = F.relu(Smoothing(3, 0.3)(first(x, edge_index), edge_index))
    hidden = hidden + F.relu(second(hidden, edge_index))
    torch.testing.assert_close(model(x, edge_index), third(hidden, edge_index))


def test_own_features_apart_add_what_two_dense_layers_say(graph):
    x, edge_index = graph
    plain, apart = network().eval(), network(own="apart").eval()
    first, second = apart.own_layers  # pyright: ignore[reportGeneralTypeIssues]
    expected = plain(x, edge_index) + second(F.relu(first(x)))
    torch.testing.assert_close(apart(x, edge_index), expected)


def test_node_dropout_drops_whole_nodes_of_the_input_only(graph):
    x, edge_index = graph
    model = network(node_dropout=0.5, input_dropout=0.0, dropout=0.0)
    seen = []
    model.convs[0].register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    model(x, edge_index)
    dropped = (seen[0] == 0).all(1)
    assert 5 < int(dropped.sum()) < 25
    torch.testing.assert_close(seen[0][~dropped], 2 * x[~dropped])
    model.eval()(x, edge_index)
    assert torch.equal(seen[1], x)


def test_layer_norm_makes_hidden_features_independent_of_their_scale(graph):
    x, edge_index = graph
    model = network(norm="layer", position=2).eval()
    for convs in (model.convs[0], model.convs[1]):
        torch.nn.init.zeros_(convs.bias)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(
        model.embed(x, edge_index), model.embed(10 * x, edge_index), atol=1e-3, rtol=1e-3
    )


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_a_directed_network_adds_up_both_directions(graph, share):
    x, edge_index = graph
    model = network(directed=True, targets_share=share).eval()
    back = edge_index.flip(0)
    assert model.reversed_convs is not None

    def both(number: int, h: Tensor) -> Tensor:
        forward, backward = model.convs[number], model.reversed_convs[number]  # pyright: ignore[reportOptionalSubscript]
        torch.manual_seed(0)
        twin = type(backward)(backward.in_channels, backward.out_channels).double()  # pyright: ignore[reportCallIssue,reportArgumentType]
        twin.load_state_dict(backward.state_dict())
        return (1 - share) * forward(h, edge_index) + share * twin(h, back)

    first = both(0, x).relu()
    expected = both(2, first + both(1, first).relu())
    torch.testing.assert_close(model(x, edge_index), expected)
    # Turning every edge round swaps the roles of the pair: another output.
    assert not torch.allclose(model(x, back), expected)
    groups = model.parameter_groups()
    assert len(groups["node2seq"]) == 2 * len(list(model.convs[1].parameters()))


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_direction_without_a_share_has_no_layers(graph, share):
    x, edge_index = graph
    model, plain = network(directed=True, targets_share=share).eval(), network().eval()
    assert model.reversed_convs is None
    expected = plain(x, edge_index if share == 0 else edge_index.flip(0))
    torch.testing.assert_close(model(x, edge_index), expected)


def test_without_self_loops_a_node_sees_its_neighbours_alone(graph):
    x, edge_index = graph
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    model = network(self_loops=False, position=3).eval()
    moved = x.clone()
    moved[0] += 1.0
    seen: list[Any] = []
    model.convs[0].register_forward_hook(lambda _module, _inputs, out: seen.append(out))
    model(x, edge_index)
    model(moved, edge_index)
    changed = (seen[0] != seen[1]).any(1).nonzero().view(-1)
    assert torch.equal(changed, edge_index[1][edge_index[0] == 0].unique())
    assert not model.convs[2].add_self_loops


def test_reset_draws_the_additional_layers_anew(graph):
    model = network(own="apart", directed=True, node_dropout=0.3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5 + 1)
    model.reset_parameters()
    for name in ("own_layers.0.weight", "reversed_convs.1.lin.weight", "node_drop.seed", "own_drop.seed"):
        assert not torch.equal(before[name], model.state_dict()[name]), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"taps": "few"}, "taps='few'"),
        ({"own": "alone"}, "own"),
        ({"norm": "batch"}, "norm"),
        ({"smoothing": -1}, "smoothing=-1"),
        ({"teleport": 1.5}, "teleport=1.5"),
        ({"smoothed": "second"}, "smoothed"),
        ({"targets_share": 1.5}, "targets_share=1.5"),
        ({"node_dropout": 1.0}, "dropout 1.0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(Node2SeqError, match=message):
        network(**options)


def test_own_features_apart_take_their_size_from_the_first_input():
    torch.manual_seed(0)
    lazy = Node2SeqPlus(-1, 8, 3, own="apart").eval()
    x, edge_index = torch.randn(10, 5), torch.randint(10, (2, 30))
    out = lazy(x, edge_index)
    sized = Node2SeqPlus(5, 8, 3, own="apart").eval()
    sized.load_state_dict(lazy.state_dict())
    assert torch.equal(sized(x, edge_index), out)
