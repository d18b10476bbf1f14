"""How much memory a run takes: how many are trained together, and whether the full batch fits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq.environment import free_on_gpu, memory_of
from node2seq.nn.models.network import Network
from node2seq.ops import SparseRows
from node2seq.train.batches import hops_of_network
from node2seq.train.inputs import PEAK_OVER_KEPT, carried_by, edge_values, features_for

# Of each entry of a graph that is copied for a run: its two nodes, weights, and plans to walk over them.
_BYTES_PER_ENTRY = 64
_SHARE_OF_FREE = 0.8
_CPU_BYTES = 2**31
# Entries are counted in 32 bits.
_MOST_ENTRIES = 2**30


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
    each = PEAK_OVER_KEPT * views * _kept_bytes(call, x, graph.edge_index)
    each += _BYTES_PER_ENTRY * entries
    if max_bytes is None:
        max_bytes = _CPU_BYTES
        if graph.x.is_cuda:
            max_bytes = int(_SHARE_OF_FREE * free_on_gpu(graph.x.device))
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


# A pass over so many nodes tells what one over all of them keeps.
_TRIAL_NODES = 1024
# What a step takes at its peak, over what its forward pass keeps. Measured on a CPU: 1.7 to 2.3 for four
# networks. GCN's 3.7 is mostly entries, which are counted apart.
_PEAK_OF_STEP = 2
# Numbers kept for each hidden channel of a node and each layer: up to 20 in five networks with defaults.
_MOST_KEPT = 64


def full_batch_bytes(model: Network, data: Data, views: int = 1) -> float:
    """About what a training step takes on the full batch.

    Args:
        model: What is trained; it stays as it is.
        data: The graph.
        views: Forward passes per step.
    """
    assert data.x is not None
    nodes, features, edges = data.x.size(0), data.x.size(1), data.num_edges
    fixed = 4 * nodes * features + _BYTES_PER_ENTRY * (nodes + edges)
    width = _MOST_KEPT * max(hops_of_network(model), 1) * model.hidden_channels + 4 * features
    most = fixed + _PEAK_OF_STEP * views * 4 * nodes * width
    device = next(model.parameters()).device
    if most <= (memory_of(device) or math.inf):
        return most  # no need to know better
    count = min(nodes, _TRIAL_NODES)
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(count, (2, edges * count // nodes), generator=generator)
    values = {name: tensor[: edge_index.size(1)].to(device) for name, tensor in carried_by(data).items()}
    with torch.random.fork_rng(devices=[]):
        trial = copy.deepcopy(model).train()
        x = features_for(trial, data.x[:count].to(device))
        kept = _kept_bytes(partial(trial, **values), x, edge_index.to(device))
    return fixed + _PEAK_OF_STEP * views * kept * nodes / count
