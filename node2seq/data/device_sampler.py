"""Mini-batches that are drawn where the graph lies: on a GPU, without workers and without copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from node2seq.data.sampler import SeedBatches, check_fanout
from node2seq.ops.eager.sampling import sample_hop
from node2seq.ops.sampling import hop_key


class DeviceSampler:
    """Draws what :class:`node2seq.data.sampler.NeighbourSampler` draws, on the device of the graph.

    Args:
        colptr: Where the edges into each node start, [N + 1].
        row: The source of each edge, [E].
        fanout: How many edges each node has at most, for each hop; −1: all of them.
        latest: Whether the last edges of each node are taken instead of random ones.
        seed: What the draws are a function of, besides the epoch, the node and the hop.
    """

    def __init__(self, colptr: Tensor, row: Tensor, fanout: Sequence[int], latest: bool, seed: int) -> None:
        self.colptr, self.row, self.fanout = colptr, row, check_fanout(fanout)
        self.latest, self.seed, self.epoch = latest, seed, 0

    @cached_property
    def _place(self) -> Tensor:
        """The number of each node in the batch that is being drawn, −1 before."""
        return self.colptr.new_full((self.colptr.numel() - 1,), -1)

    def sample_from_nodes(self, inputs: NodeSamplerInput) -> SamplerOutput:
        """The graph around some nodes, which come first in it."""
        place, seeds = self._place, inputs.node.to(self.colptr.device)
        nodes, hops, first = [seeds], [], 0
        place[seeds] = torch.arange(seeds.numel(), device=seeds.device)
        try:
            for number, fanout in enumerate(self.fanout):
                key = hop_key(self.seed, self.epoch, number)
                graph = self.colptr, self.row, nodes[-1]
                node, *edges = sample_hop(*graph, first, fanout, key, self.latest, place)
                first += nodes[-1].numel()
                nodes.append(node)
                hops.append(edges)
        finally:
            for part in nodes:
                place[part] = -1
        source, target, edge = (torch.cat(parts) for parts in zip(*hops, strict=True))
        return SamplerOutput(
            node=torch.cat(nodes),
            row=source,
            col=target,
            edge=edge,
            num_sampled_nodes=[part.numel() for part in nodes],
            num_sampled_edges=[edges[-1].numel() for edges in hops],
        )


@dataclass(frozen=True)
class DeviceBatch:
    """What of a batch of PyG's loader is read."""

    n_id: Tensor
    edge_index: Tensor
    e_id: Tensor | None
    batch_size: int


class DeviceLoader:
    """The batches of one epoch after the other, as :func:`node2seq.data.sampler.batch_loader` gives them.

    On a GPU a batch is drawn in a stream of its own, where the host waits for sizes while the GPU works on
    the step before.

    Args:
        sampler: Draws the neighbours.
        batches: The seed nodes.
        read: Makes of a batch what is trained on.
    """

    def __init__(self, sampler: DeviceSampler, batches: SeedBatches, read: Callable[[Any], Any]) -> None:
        self._sampler, self._batches, self._read = sampler, batches, read
        self._nodes = batches.nodes.to(sampler.colptr.device)
        self._stream = torch.cuda.Stream(self._nodes.device, priority=-1) if self._nodes.is_cuda else None

    def __iter__(self) -> Iterator[Any]:
        if self._stream is None:
            yield from map(self._draw, self._batches)
            return
        current = torch.cuda.current_stream(self._nodes.device)
        done = current.record_event()
        for places in self._batches:
            # The batch before the last has just been let go, and its memory may be used again here: when the
            # step on it has ended, which was queued before the last batch was drawn.
            self._stream.wait_event(done)
            done = current.record_event()
            with torch.cuda.stream(self._stream):
                batch = self._draw(places)
            current.wait_stream(self._stream)
            yield batch  # kept until the next one is drawn, whatever becomes of it

    def _draw(self, places: list[int]) -> Any:
        seeds = self._nodes[torch.tensor(places)]
        found = self._sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
        edge_index = torch.stack([found.row, found.col])
        return self._read(DeviceBatch(found.node, edge_index, found.edge, len(places)))
