"""Networks by name, the names and options of earlier versions included."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.nn.models.baselines import GAT, GCN, GIN, LGCN, MLP, SGC, Cheby, GCNStar
from node2seq.nn.models.network import Network
from node2seq.nn.models.node2seq import Node2Seq
from node2seq.nn.models.node2seq_plus import Node2SeqPlus
from node2seq.nn.models.residual import (
    ResidualGAT,
    ResidualGCN,
    ResidualNode2Seq,
    ResidualPNA,
    ResidualSAGE,
)
from node2seq.options import build, suggestion

MODELS: dict[str, type[Network]] = {
    "node2seq": Node2Seq,
    "node2seq-plus": Node2SeqPlus,
    "gcn": GCN,
    "gat": GAT,
    "cheby": Cheby,
    "sgc": SGC,
    "lgcn": LGCN,
    "gcn*": GCNStar,
    "mlp": MLP,
    "gin": GIN,
    "residual-node2seq": ResidualNode2Seq,
    "residual-gcn": ResidualGCN,
    "residual-gat": ResidualGAT,
    "residual-sage": ResidualSAGE,
    "residual-pna": ResidualPNA,
}


def options_of(name: str) -> type:
    """The dataclass of a network's options."""
    if name not in MODELS:
        raise Node2SeqError(f"model {name!r}", "there is no such model", suggestion(name, MODELS))
    return MODELS[name].Options


def check_carried(name: str, carried: Iterable[str]) -> None:
    """Raises an error if a network does not take one of ``edge_weight``, ``edge_attr`` and ``edge_order``."""
    words_for = {
        "edge_weight": "edge weights",
        "edge_attr": "edge features",
        "edge_order": "orders given by edges",
    }
    for value in carried:
        if value not in MODELS[name].carried:
            words = words_for[value]
            others = ", ".join(sorted(key for key, network in MODELS.items() if value in network.carried))
            raise Node2SeqError(
                f"{words} with the model {name}",
                "it does not read them",
                f"Leave them out, or use one of {others}",
            )


def current(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What earlier versions called a network → its name and options today.

    All options were those of one network, "node2seq". Those that only "node2seq-plus" has today are dropped
    if they have their defaults, and make it that network if they have not.
    """
    options = dict(options)
    if name != "node2seq":
        return name, options
    moved = {
        field.name: field.default
        for field in fields(Node2SeqPlus.Options)
        if field.name in Node2Seq.Options.elsewhere
    }
    if any(options.get(key, default) != default for key, default in moved.items()):
        return "node2seq-plus", options
    return name, {key: value for key, value in options.items() if key not in moved}


def plainest(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """As :func:`current`, but a "node2seq-plus" without any option of its own is "node2seq" too.

    Two descriptions of one training are equal in this form.
    """
    return current("node2seq" if name == "node2seq-plus" else name, options)


def complete(name: str, options: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """The name today, and the network's ``Options``: those given, checked, and the defaults of the others."""
    name, options = current(name, options)
    return name, build(options_of(name), options, where)


def make_network(
    name: str, in_channels: int, out_channels: int, options: Mapping[str, Any], edge_dim: int | None = None
) -> Network:
    """Make a network from its name, of today or before, and its options."""
    name, options = current(name, options)
    options_of(name)
    return MODELS[name](in_channels, out_channels=out_channels, edge_dim=edge_dim, **options)
