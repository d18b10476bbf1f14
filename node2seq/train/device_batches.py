"""A graph on the GPU that trains: batches are drawn there, and features need not be copied."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.device_sampler import DeviceLoader, DeviceSampler
from node2seq.data.graph import tensors_of
from node2seq.data.sampler import SeedBatches, compressed
from node2seq.environment import memory_of
from node2seq.nn.models.network import Network, hops_of_network
from node2seq.ops.sampling import Array
from node2seq.train.batches import BatchGraph, whole_of
from node2seq.train.inputs import edge_values

# Of the memory that is free: batches and what is trained take the rest.
_SHARE = 0.5
# An edge while edges are sorted, and a node's place, start and degrees.
_BYTES_PER_EDGE, _BYTES_PER_NODE = 48, 40


class DeviceGraph(BatchGraph):
    """A graph whose arrays are tensors on the device of a network. Its batches are those of the base."""

    @property
    def device(self) -> torch.device:
        """Where batches are drawn and features are read."""
        return self.colptr.device

    @classmethod
    def of(cls, model: Network, data: Data) -> Self:
        """A graph in memory, with what a network reads of its edges."""
        device = next(model.parameters()).device
        (x, edge_index), values = tensors_of(data), edge_values(model, data)
        nodes, time, weight = x.size(0), values.get("edge_order"), values.get("edge_weight")
        colptr, row, edge_id = compressed(edge_index.to(device), nodes, time)
        # On a GPU, sums of weights would be added up in any order.
        whole = whole_of(model, edge_index.cpu(), nodes, None if weight is None else weight.cpu())
        return cls(
            colptr,
            row.int(),
            partial(_rows, x.to(device)),
            {name: partial(_rows, tensor[edge_id]) for name, tensor in values.items()},
            whole.to(device),
            time,
        )

    def sampler(self, fanout: tuple[int, ...], seed: int = 0) -> DeviceSampler:
        """Draws neighbours at random; where edges have an order, the first by it."""
        return DeviceSampler(self.colptr, self.row, fanout, self.edge_time is not None, seed)

    def loader(
        self, sampler: Any, order: SeedBatches, read: Callable[[Any], Any], workers: int
    ) -> DeviceLoader:
        """The batches of one epoch after the other, without any worker."""
        del workers
        return DeviceLoader(sampler, order, read)

    def starts(self) -> Array:
        """Where the edges into each node start, in main memory."""
        return self.colptr.cpu().numpy()


def _rows(values: Tensor, index: Tensor) -> Tensor:
    return values[index]


def fits_on(device: torch.device, model: Network, data: Data) -> bool:
    """Whether a graph fits on a device beside the batches, with a table for each layer of an exact pass."""
    assert data.x is not None
    tables = (hops_of_network(model) + 2) * model.hidden_channels
    each = _BYTES_PER_NODE + data.x.size(1) * data.x.element_size() + 4 * tables
    needed = data.x.size(0) * each + data.num_edges * _BYTES_PER_EDGE
    most = memory_of(device)
    return most is not None and needed <= _SHARE * most
