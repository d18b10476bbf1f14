"""What training takes, checked: the graph as the model reads it, its splits, and how much memory."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from node2seq import ops
from node2seq.data.encoding import LARGEST
from node2seq.data.graph import carried_by, tensors_of
from node2seq.data.splits import PARTS, labelled
from node2seq.environment import Processes, free_on_gpu, memory_of
from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import Network, hops_of_network

# The most that a run takes, over what a forward pass keeps for the backward: gradients, and what operations
# take in between.
_PEAK_OVER_KEPT = 4
# Each weight, its gradient, the optimizer's two moments, and the copy of the best epoch.
_COPIES_OF_WEIGHTS = 5
# Of each entry of a graph that is copied for a run: its two nodes, weights, and plans to walk over them.
_BYTES_PER_ENTRY = 64
_SHARE_OF_FREE = 0.8
_CPU_BYTES = 2**31
# Entries are counted in 32 bits.
_MOST_ENTRIES = 2**30
# A pass over this number of nodes is enough to estimate what a pass over all nodes keeps.
_TRIAL_NODES = 1024
# What a step takes at its peak, over what its forward pass keeps. Measured on a CPU: 1.7 to 2.3 for four
# networks. GCN's 3.7 is mostly entries, which are counted apart.
_PEAK_OF_STEP = 2
# Numbers kept for each hidden channel of a node and each layer: up to 20 in five networks with defaults.
_MOST_KEPT = 64


class SplitLike(Protocol):
    """Node indices for training, for choosing the epoch, and for the final figure."""

    @property
    def train(self) -> Tensor: ...  # noqa: D102
    @property
    def val(self) -> Tensor: ...  # noqa: D102
    @property
    def test(self) -> Tensor: ...  # noqa: D102


def graph_tensors(
    model: nn.Module, data: Data, needs_labels: bool = True, device: torch.device | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x, edge_index and y, checked, on a device: the model's by default."""
    if device is None:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
    x, edge_index, y = data.x, data.edge_index, data.y
    if x is None or edge_index is None:
        missing = "x" if x is None else "edge_index"
        raise Node2SeqError(
            f"data.{missing}=None", "the model needs features and edges", f"Set data.{missing}"
        )
    if not isinstance(y, Tensor):
        if needs_labels:
            raise Node2SeqError(
                "data.y=None", "training and measuring need labels", "Set data.y, with -1 for unlabelled"
            )
        y = torch.full((x.size(0),), -1)
    if y.dim() not in (1, 2) or y.size(0) != x.size(0):
        raise Node2SeqError(
            f"data.y of shape {list(y.shape)} and type {y.dtype}",
            f"each of the {x.size(0)} nodes needs one number, or a row of zeros and ones",
            "Give class ids from 0 and -1 for unlabelled, or numbers as floats and NaN for unlabelled",
        )
    return x.to(device), edge_index.to(device), y.to(device)


def edge_dim_of(data: Data) -> int | None:
    """How many attributes each edge has, or None without any."""
    attr = data.edge_attr
    return None if attr is None else 1 if attr.dim() == 1 else attr.size(-1)


def edge_values(model: nn.Module, data: Data) -> dict[str, Tensor]:
    """What the edges of a graph carry, by the names by which a model takes it, on the model's device.

    A network of this package refuses what it does not read. Any other model is given what it has arguments
    for. A network with another order than the edges' own is trained without it, for comparison.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    found = carried_by(data)
    if not hasattr(model, "carried"):
        arguments = inspect.signature(model.forward).parameters
        found = {name: values for name, values in found.items() if name in arguments}
    elif getattr(model, "order", "edge") != "edge":
        found.pop("edge_order", None)
    for name, values in found.items():
        if not values.isfinite().all():
            edge = int((~values.isfinite()).nonzero()[0, 0])
            raise Node2SeqError(
                f"data.{name}[{edge}]", "it is not a finite number", "Fill or drop such edges before training"
            )
    return {name: values.to(device) for name, values in found.items()}


def features_for(model: nn.Module, x: Tensor) -> Tensor | ops.SparseRows:
    """Features as a model is to read them: without their zeros, if it can and they are worth leaving out.

    A model can if it says ``reads_sparse_rows`` in its own class: one that is derived from it may do
    anything with its input, and so may hooks.
    """
    can = vars(type(model)).get("reads_sparse_rows", False)
    is_hooked = any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    found = ops.sparse_rows(x) if can and not is_hooked else None
    return x if found is None else found


def check_features(x: Tensor) -> None:
    """Refuse features that are NaN, infinite or too large, naming the first."""
    if not x.is_floating_point():
        return
    for fits, fault, cure in (
        (Tensor.isfinite, "not a finite number", "Fill or drop them before training"),
        (
            lambda x: x.abs() <= LARGEST,
            "too large to compute with in 32 bits",
            "Scale the column before training",
        ),
    ):
        if not (good := fits(x)).all():
            node, column = (~good).nonzero()[0].tolist()
            count = int((~good).sum())
            raise Node2SeqError(
                f"data.x[{node}, {column}]={x[node, column].item()}",
                f"{count} feature{'s are' if count > 1 else ' is'} {fault}",
                cure,
            )


def split_parts(split: SplitLike, device: torch.device) -> dict[str, Tensor]:
    """The training, validation and test nodes by the name of their part."""
    return {name: getattr(split, name).to(device) for name in PARTS}


def measured_parts(split: SplitLike, *, with_rest: bool) -> dict[str, Tensor]:
    """The parts of a split that have nodes.

    Args:
        split: Its nodes.
        with_rest: Whether ``test_rest`` is one of them, where the split has it and it differs from ``test``.
    """
    names: list[str] = list(PARTS)
    # The fixed splits count 1000 test nodes, the paper's text all that are left: both are kept.
    if with_rest and getattr(split, "test_rest", split.test).numel() != split.test.numel():
        names.append("test_rest")
    parts = {name: getattr(split, name) for name in names}
    return {name: index for name, index in parts.items() if index.numel()}


def check_split(split: Mapping[str, Tensor], y: Tensor) -> None:
    """Refuse parts that are empty (but for ``test``), overlap, leave the graph or hold unlabelled nodes."""
    used: Tensor | None = None
    for name, index in split.items():
        if index.dtype == torch.bool or index.is_floating_point() or index.dim() != 1:
            raise Node2SeqError(
                f"the {name} nodes of type {index.dtype} and shape {list(index.shape)}",
                "node indices are expected",
                "Turn a mask into indices with mask.nonzero().view(-1)",
            )
        if index.numel() == 0:
            if name == "test":
                continue
            raise Node2SeqError(
                f"0 {name} nodes",
                "there is nothing to train on" if name == "train" else "there is nothing to measure",
                "Give a split with at least one node in each part",
            )
        if int(index.min()) < 0 or int(index.max()) >= y.size(0):
            raise Node2SeqError(
                f"{name} node {int(index.min()) if int(index.min()) < 0 else int(index.max())}",
                f"the nodes are 0 to {y.size(0) - 1}",
                "Make the split for this graph",
            )
        unlabelled = index[~labelled(y[index])]
        if unlabelled.numel():
            raise Node2SeqError(
                f"{name} node {int(unlabelled[0])}",
                f"{unlabelled.numel()} of the {name} nodes have no label",
                "Leave unlabelled nodes out of the split",
            )
        used = index if used is None else torch.cat([used, index])
    if used is not None and used.unique().numel() != used.numel():
        nodes, counts = used.unique(return_counts=True)
        raise Node2SeqError(
            f"node {int(nodes[counts > 1][0])}",
            "it is in the split more than once, so the model would be tested on its own training nodes",
            "Give each node one part at most",
        )


def check_model_size(
    network: type[Network],
    options: Any,
    channels: tuple[int, int],
    edge_dim: int | None,
    nodes: int,
    device: torch.device,
) -> None:
    """Refuse a model that is too large for the graph, or its weights for the memory, before it is built.

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
    try:
        with torch.device("meta"):  # sizes without memory
            needed = _training_bytes(network.with_options(*channels, options, edge_dim))
    except (RuntimeError, TypeError) as error:
        if "overflow" not in str(error).lower():
            raise
        needed = math.inf  # a size cannot even be counted
    _check_memory(options, needed, device)


def check_full_batch(model: Network, options: Any, nodes: int, device: torch.device) -> None:
    """Refuse a model whose weights and hidden features of all nodes are too large for the memory.

    Args:
        model: What is trained.
        options: Its ``Options``.
        nodes: Of the graph.
        device: Where it is trained.
    """
    _check_memory(options, _training_bytes(model, nodes), device)


def check_divisible(processes: Processes | None) -> None:
    """Refuse the full batch to several processes."""
    if processes is not None and processes.size > 1:
        raise Node2SeqError(
            f"the full batch with {processes.size} processes",
            "it is one step on the whole graph, which cannot be divided",
            "Give --batch-size, or start one process",
        )


def _check_memory(options: Any, needed: float, device: torch.device) -> None:
    most = memory_of(device)
    if most is not None and needed > most:
        amount = f"about {needed / 2**30:,.0f} GiB" if math.isfinite(needed) else "too much memory"
        sizes = [name for name in ("hidden_channels", "kernel_size") if hasattr(options, name)]
        raise Node2SeqError(
            ", ".join(f"{name}={getattr(options, name)}" for name in sizes),
            f"training this model takes {amount}; there are {most / 2**30:,.0f} GiB",
            "Give smaller numbers",
        )


def _training_bytes(model: Network, nodes: int = 0) -> float:
    """What weights take in training, and the hidden features of so many nodes."""
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return _COPIES_OF_WEIGHTS * weights + _PEAK_OVER_KEPT * 4 * nodes * model.hidden_channels


def runs_that_fit(model: nn.Module, graph: Data, views: int = 1, max_bytes: int | None = None) -> int:
    """How many runs of such a model fit into memory together.

    Args:
        model: One of them, on the graph's device. Its dropout is counted on by one pass.
        graph: What it is trained on.
        views: Forward passes per step.
        max_bytes: The memory; a part of what is free if left out.
    """
    features, edge_index = tensors_of(graph)
    x = features_for(model, features)
    entries = edge_index.size(1) + features.size(0)
    if isinstance(x, ops.SparseRows):  # copied for each run as edges are
        entries += x.sequences.rows.num_entries
    call = partial(model.train(), **edge_values(model, graph))
    each = _PEAK_OVER_KEPT * views * _kept_bytes(call, x, edge_index)
    each += _BYTES_PER_ENTRY * entries
    if max_bytes is None:
        max_bytes = _CPU_BYTES
        if features.is_cuda:
            max_bytes = int(_SHARE_OF_FREE * free_on_gpu(features.device))
    return max(1, min(max_bytes // each, _MOST_ENTRIES // entries))


def _kept_bytes(call: Callable[..., Tensor], x: Tensor | ops.SparseRows, edge_index: Tensor) -> int:
    """What a forward pass keeps for its backward, beside what all runs share."""
    kept: dict[int, Tensor] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        _ = call(x, edge_index)
    inputs = (x.values if isinstance(x, ops.SparseRows) else x, edge_index)
    shared = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    return sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in shared)


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
