"""How much memory a run takes: whether a model can be trained at all, and how many are trained together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import Network
from node2seq.ops import SparseRows
from node2seq.train.inputs import edge_values, features_for

# The most that a run takes, over what a forward pass keeps for the backward: gradients, and what operations
# take in between.
_PEAK_OVER_KEPT = 4
# Of each entry of a graph that is copied for a run: its two nodes, weights, and plans to walk over them.
_BYTES_PER_ENTRY = 64
_SHARE_OF_FREE = 0.8
_CPU_BYTES = 2**31
# Entries are counted in 32 bits.
_MOST_ENTRIES = 2**30
# Each weight, its gradient, the optimizer's two moments, and the copy of the best epoch.
_COPIES_OF_WEIGHTS = 5


def check_model_size(
    network: type[Network],
    options: Any,
    channels: tuple[int, int],
    edge_dim: int | None,
    nodes: int,
    device: torch.device,
) -> None:
    """Refuse a model that is too large for the graph or for the memory, before it is built.

    Args:
        network: The class of the model.
        options: Its ``Options``.
        channels: Features and classes.
        edge_dim: Size of each edge's attributes.
        nodes: Of the graph.
        device: Where it would be trained.
    """
    kernel = getattr(options, "kernel_size", 1)
    if kernel > nodes:
        raise Node2SeqError(
            f"kernel_size={kernel}",
            f"the graph has {nodes} nodes, so no node has that many neighbours",
            "Give a small number, such as 3",
        )
    most = _memory_of(device)
    needed = _training_bytes(network, options, channels, edge_dim, nodes)
    if most is not None and needed > most:
        amount = f"about {needed / 2**30:,.0f} GiB" if math.isfinite(needed) else "too much memory"
        sizes = [name for name in ("hidden_channels", "kernel_size") if hasattr(options, name)]
        raise Node2SeqError(
            ", ".join(f"{name}={getattr(options, name)}" for name in sizes),
            f"training this model takes {amount}; there are {most / 2**30:,.0f} GiB",
            "Give smaller numbers",
        )


def _training_bytes(
    network: type[Network], options: Any, channels: tuple[int, int], edge_dim: int | None, nodes: int
) -> float:
    """What weights and hidden features take in training; infinite if a size cannot even be counted."""
    try:
        with torch.device("meta"):  # sizes without memory
            model = network.with_options(*channels, options, edge_dim)
    except (RuntimeError, TypeError) as error:
        if "overflow" not in str(error).lower():
            raise
        return math.inf
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return _COPIES_OF_WEIGHTS * weights + _PEAK_OVER_KEPT * 4 * nodes * model.hidden_channels


def _memory_of(device: torch.device) -> int | None:
    """All that a process can have, in bytes: what is free on a GPU, else what the machine has if it says."""
    if device.type == "cuda":
        return _free_on_gpu(device)
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_on_gpu(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def runs_that_fit(model: nn.Module, graph: Data, views: int = 1, max_bytes: int | None = None) -> int:
    """How many runs of such a model fit into memory together.

    Args:
        model: One of them, on the graph's device. Its dropout is counted on by one pass.
        graph: What it is trained on.
        views: Forward passes per step.
        max_bytes: The memory; a part of what is free if left out.
    """
    assert graph.x is not None
    assert graph.edge_index is not None
    x = features_for(model, graph.x)
    entries = graph.edge_index.size(1) + graph.x.size(0)
    if isinstance(x, SparseRows):  # copied for each run as edges are
        entries += x.sequences.rows.num_entries
    call = partial(model.train(), **edge_values(model, graph))
    each = _PEAK_OVER_KEPT * views * _kept_bytes(call, x, graph.edge_index)
    each += _BYTES_PER_ENTRY * entries
    if max_bytes is None:
        max_bytes = _CPU_BYTES
        if graph.x.is_cuda:
            max_bytes = int(_SHARE_OF_FREE * _free_on_gpu(graph.x.device))
    return max(1, min(max_bytes // each, _MOST_ENTRIES // entries))


def _kept_bytes(call: Callable[..., Tensor], x: Tensor | SparseRows, edge_index: Tensor) -> int:
    """What a forward pass keeps for its backward, beside what all runs share."""
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _ = call(x, edge_index)
    inputs = (x.values if isinstance(x, SparseRows) else x, edge_index)
    shared = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in shared)
