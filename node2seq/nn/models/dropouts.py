"""A network's dropouts, numbered, so that no two of them drop the same elements."""

from torch import nn

from node2seq.errors import Node2SeqError
from node2seq.nn.dropout import Dropout


def make_dropouts(*probabilities: float) -> nn.ModuleList:
    """One counter-based dropout for each probability."""
    return nn.ModuleList(make_dropout(p, layer) for layer, p in enumerate(probabilities))


def make_dropout(p: float, layer: int, *, whole_rows: bool = False) -> Dropout:
    """The dropout number ``layer`` of a network, of elements or of whole nodes."""
    if not 0.0 <= p < 1.0:
        raise Node2SeqError(
            f"dropout {p!r}", "it is the probability of dropping an element", "Pass a number in [0, 1)"
        )
    return Dropout(p, layer, whole_rows=whole_rows)
