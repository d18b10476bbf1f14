"""Networks and their options by name, and what earlier versions called them."""

import pytest
import torch
from former_options import FORMER

from node2seq import Node2Seq, Node2SeqPlus
from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.train.settings import complete, current, make_network, options_of, plainest


def test_the_registry_holds_fifteen_models():
    names = ["node2seq", "node2seq-plus", "gcn", "gat", "cheby", "sgc", "lgcn", "gcn*", "mlp", "gin"]
    names += [f"residual-{layer}" for layer in ("node2seq", "gcn", "gat", "sage", "pna")]
    assert list(MODELS) == names


def test_an_unknown_model_is_named():
    with pytest.raises(Node2SeqError, match="model 'node3seq': there is no such model"):
        options_of("node3seq")


def test_former_defaults_are_dropped():
    assert current("node2seq", {"hops": 2, **FORMER}) == ("node2seq", {"hops": 2})
    assert set(FORMER) == set(Node2Seq.Options.elsewhere)


@pytest.mark.parametrize(
    "other",
    [
        {"node_dropout": 0.1},
        {"norm": "layer"},
        {"own": "apart"},
        {"smoothing": 2},
        {"teleport": 0.2},
        {"smoothed": "first"},
        {"directed": True},
        {"targets_share": 1.0},
        {"self_loops": False},
        {"layer": "gcn"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_another_value_makes_it_the_other_network(other):
    given = {"hops": 2, **FORMER, **other}
    assert current("node2seq", given) == ("node2seq-plus", given)
    assert current("node2seq", other) == ("node2seq-plus", other)
    assert type(make_network("node2seq", 6, 3, {"hidden_channels": 8, **other})) is Node2SeqPlus
    assert plainest("node2seq-plus", given) == ("node2seq-plus", given)


def test_other_models_stay_as_they_are():
    assert current("gcn", {"own": "apart"}) == ("gcn", {"own": "apart"})
    assert current("node2seq-plus", FORMER) == ("node2seq-plus", FORMER)
    assert plainest("node2seq-plus", {"hops": 2, **FORMER}) == ("node2seq", {"hops": 2})


def test_all_options_are_there():
    name, options = complete("node2seq", {"hidden_channels": 8, **FORMER}, "a file")
    assert (name, options) == ("node2seq", Node2Seq.Options(8))
    with pytest.raises(Node2SeqError, match="a file: hidden_channels: it is missing"):
        complete("node2seq", {}, "a file")


def test_weights_are_those_of_the_seed():
    torch.manual_seed(1)
    made = make_network("node2seq", 6, 3, {"hidden_channels": 8, **FORMER})
    torch.manual_seed(1)
    for a, b in zip(made.parameters(), Node2Seq(6, 8, 3).parameters(), strict=True):
        assert torch.equal(a, b)
