"""Graph convolutions over sorted neighbours: score, rank, convolve, read out.

The public names are imported when they are first asked for, so that the command line answers `--help` without
waiting for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node2seq.errors import Node2SeqError
    from node2seq.nn.conv.gcn import GCNConv
    from node2seq.nn.conv.node2seq import Node2SeqConv, Trace
    from node2seq.nn.models import MODELS, Node2Seq, Node2SeqPlus

__version__ = "0.1.0"

_HOME = {
    "MODELS": "node2seq.nn.models",
    "GCNConv": "node2seq.nn.conv.gcn",
    "Node2Seq": "node2seq.nn.models",
    "Node2SeqConv": "node2seq.nn.conv.node2seq",
    "Node2SeqError": "node2seq.errors",
    "Node2SeqPlus": "node2seq.nn.models",
    "Trace": "node2seq.nn.conv.node2seq",
}

__all__ = ["MODELS", "GCNConv", "Node2Seq", "Node2SeqConv", "Node2SeqError", "Node2SeqPlus", "Trace"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
