"""What every network takes from its options: signature, attributes, errors."""

import inspect
import pydoc
from dataclasses import MISSING, fields

import pytest

from node2seq.errors import Node2SeqError
from node2seq.nn.models import GCN, MODELS


@pytest.mark.parametrize("name", MODELS)
def test_help_names_every_option_with_its_default(name):
    network = MODELS[name]
    parameters = inspect.signature(network).parameters
    assert list(parameters)[:3] == ["in_channels", "hidden_channels", "out_channels"]
    assert fields(network.Options)[0].name == "hidden_channels"
    text, described = pydoc.render_doc(network), str(inspect.getdoc(network))
    if name == "node2seq-plus":  # which says of them that they are the same
        described += str(inspect.getdoc(MODELS["node2seq"]))
    for option in fields(network.Options)[1:]:
        assert option.default is not MISSING
        assert parameters[option.name].default == option.default
        assert parameters[option.name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"{option.name}:" in text
        assert f"{option.name} (" in described


@pytest.mark.parametrize("name", MODELS)
def test_every_option_is_an_attribute(name):
    model = MODELS[name](6, 8, 3)
    assert (model.in_channels, model.hidden_channels, model.out_channels) == (6, 8, 3)
    for option in fields(model.Options)[1:]:
        assert getattr(model, option.name) == option.default


def test_a_subclass_with_a_constructor_of_its_own_shows_that():
    class Mine(GCN):
        def __init__(self, size: int) -> None:
            super().__init__(size, size, size, dropout=0.1)

    assert list(inspect.signature(Mine).parameters) == ["size"]
    assert Mine(4).dropout == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"droput": 0.1}, "options of GCN: droput: there is no such setting. Perhaps dropout was meant."),
        ({"dropout": "much"}, "options of GCN: dropout='much': it should be a number."),
        ({"dropout": 1.0}, "dropout 1.0: it is the probability of dropping an element."),
        ({"backend": "fast"}, "backend='fast'"),
    ],
)
def test_what_a_network_cannot_be_told_is_named(options, message):
    with pytest.raises(Node2SeqError) as error:
        GCN(6, 8, 3, **options)
    assert message in str(error.value)
