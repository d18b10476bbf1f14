"""Neighbours drawn at random where the graph lies, in plain PyTorch: on a GPU without its main memory.

The same neighbours in the same order as :mod:`node2seq.ops.sampling` draws. A hop waits for the device twice:
for the number of its edges, and for that of its new nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops.sampling import MIX_1, MIX_2, STEP

_WORDS = 2**64


def sample_hop(
    colptr: Tensor,
    row: Tensor,
    frontier: Tensor,
    first: int,
    fanout: int,
    key: int,
    latest: bool,
    place: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What :func:`node2seq.ops.sampling.sample_hop` draws, bit for bit; see there for what is given.

    Returns:
        The new nodes; the source, the target and the place in ``row`` of each edge.
    """
    start = colptr[frontier]
    edge, number = _draw(start, colptr[frontier + 1] - start, frontier, fanout, key, latest)
    drawn = row[edge].long()
    ordered, order = drawn.sort(stable=True)
    is_first = place[ordered] < 0
    is_first[1:] &= ordered[1:] != ordered[:-1]
    node = drawn[order[is_first].sort().values]
    behind = first + frontier.numel()
    place[node] = torch.arange(behind, behind + node.numel(), device=node.device)
    return node, place[drawn], first + number, edge


def _draw(
    start: Tensor, length: Tensor, node: Tensor, fanout: int, key: int, latest: bool
) -> tuple[Tensor, Tensor]:
    """The edges that are drawn, one node's behind the other's, and the number of the node of each."""
    if fanout < 0:
        number = torch.repeat_interleave(length)
        position = torch.arange(number.numel(), device=number.device)
        return position + (start - length.cumsum(0) + length)[number], number
    place = torch.arange(fanout, device=node.device)[:, None]
    least = length - fanout  # of more edges than are drawn
    if latest:
        picks = place + least.clamp(min=0)
    else:
        picks = torch.where(least > 0, _floyd(length, _node_words(key, node), place), place)
    kept = (place < length).t().flatten().nonzero().view(-1)
    return (start + picks).t().flatten()[kept], kept // fanout


def _floyd(length: Tensor, word: Tensor, place: Tensor) -> Tensor:
    """For each node as many different numbers below its length as there are places, [places, nodes]."""
    last = length - place.numel() + place
    high = _shifted(_mix(word + (place + 1) * _signed(STEP)), 32)
    picks = high * (last + 1) >> 32
    for i in range(1, place.numel()):
        picks[i] = torch.where((picks[:i] == picks[i]).any(0), last[i], picks[i])
    return picks


def _node_words(key: int, node: Tensor) -> Tensor:
    return _mix(node * _signed(STEP) + _signed(key))


def _mix(word: Tensor) -> Tensor:
    """Words of 64 bits as signed numbers, whose sums and products wrap around."""
    word = (word ^ _shifted(word, 30)) * _signed(MIX_1)
    word = (word ^ _shifted(word, 27)) * _signed(MIX_2)
    return word ^ _shifted(word, 31)


def _shifted(word: Tensor, by: int) -> Tensor:
    """Without the copies of the sign bit that a shift of signed words brings in from the left."""
    return word >> by & (1 << 64 - by) - 1


def _signed(word: int) -> int:
    return word - _WORDS if word >= _WORDS // 2 else word
