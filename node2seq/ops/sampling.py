"""Neighbours drawn at random, as a function of (seed, epoch, hop, node), in plain numpy.

What is drawn for a node does not depend on the nodes beside it, on who draws, or in which order: the same
batches come out with any number of workers. The compiled loop (:mod:`node2seq.ops.native.sampling`) draws the
same neighbours in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from node2seq.ops.dispatch import compiled_loops

Array = NDArray[Any]

# Odd multipliers with well-mixed bits, and the step between the words of one node: products wrap around.
STEP = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
_MASK = 2**64 - 1


class Hop(NamedTuple):
    """What one hop adds to a batch; nodes are numbered as the batch lists them."""

    node: Array
    """The ids of the nodes that are new, in the order in which they were first drawn."""
    source: Array
    """Where each edge starts, [edges]."""
    target: Array
    """Where it ends."""
    edge: Array
    """Its position in the graph's ``row``."""


class SampleHop(Protocol):
    """The contract of both implementations."""

    def __call__(
        self,
        colptr: Array,
        row: Array,
        frontier: Array,
        first: int,
        fanout: int,
        key: int,
        latest: bool,
        place: Array,
    ) -> Hop:
        """Draw neighbours of some nodes.

        Args:
            colptr: Where the edges into each node start, [N + 1].
            row: The source of each edge.
            frontier: The ids of the nodes whose neighbours are drawn.
            first: The number of the first of them in the batch; the others follow it, and they are the last.
            fanout: How many edges a node has at most; −1: all.
            key: What :func:`hop_key` gives.
            latest: Whether to take the last edges of each node instead of random ones.
            place: The number of each node in the batch, or −1, [N]. New nodes are entered.
        """
        ...


def fastest_sampler(backend: str = "auto") -> SampleHop:
    """The compiled loop where numba is installed, else plain numpy; or the one asked for."""
    loops = None if backend == "plain" else compiled_loops()
    return sample_hop if loops is None else loops.sample_hop


def mix(word: int) -> int:
    """Scrambles a 64-bit word so that words next to each other have nothing in common."""
    word &= _MASK
    word = (word ^ (word >> 30)) * MIX_1 & _MASK
    word = (word ^ (word >> 27)) * MIX_2 & _MASK
    return word ^ (word >> 31)


def mix_words(word: Array) -> Array:
    """The same for an array of uint64."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(MIX_1)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(MIX_2)
    return word ^ (word >> np.uint64(31))


def hop_key(seed: int, epoch: int, hop: int) -> int:
    """What the words of all nodes of a hop are made from."""
    word = 0
    for number in (seed, epoch, hop):
        word = mix(word + number * STEP + 1)
    return word


def node_words(key: int, nodes: Array) -> Array:
    """A random word for each node."""
    return mix_words(np.uint64(key) + nodes.astype(np.uint64) * np.uint64(STEP))


def sample_hop(
    colptr: Array,
    row: Array,
    frontier: Array,
    first: int,
    fanout: int,
    key: int,
    latest: bool,
    place: Array,
) -> Hop:
    """Draw neighbours in plain numpy; see :class:`SampleHop`."""
    start = colptr[frontier]
    edge, count = draw(start, colptr[frontier + 1] - start, frontier, fanout, key, latest)
    drawn = row[edge]
    node = _first_of_each(drawn[place[drawn] < 0], place)
    place[node] = first + frontier.size + np.arange(node.size)
    target = np.repeat(np.arange(first, first + frontier.size), count)
    return Hop(node, place[drawn].astype(np.int64), target, edge)


def draw(
    start: Array, length: Array, node: Array, fanout: int, key: int, latest: bool
) -> tuple[Array, Array]:
    """The positions of the edges that are drawn, one node's behind the other's, and how many each has.

    Args:
        start: The position of the first edge that a node may take.
        length: How many it may take.
        node: Its id.
        fanout: How many it takes at most; −1: all.
        key: What :func:`hop_key` gives.
        latest: Whether to take the last ones.
    """
    count = length if fanout < 0 else np.minimum(length, fanout)
    ptr = np.cumsum(count) - count
    begin = start + length - count if latest else start
    edge = np.repeat(begin - ptr, count) + np.arange(int(count.sum()))
    if not latest and fanout >= 0 and (large := np.flatnonzero(length > fanout)).size:
        picks = _floyd(length[large], node_words(key, node[large]), fanout)
        edge[ptr[large] + np.arange(fanout)[:, None]] = start[large] + picks
    return edge, count


def _floyd(length: Array, word: Array, count: int) -> Array:
    """For each node, ``count`` different numbers below its length, every set as likely as any other.

    Floyd's algorithm: the i-th number is one of the first length − count + i + 1, or, if that one was taken
    already, the last of these.
    """
    picks = np.empty((count, length.size), dtype=np.int64)
    for i in range(count):
        last = length - count + i
        high = mix_words(word + np.uint64((i + 1) * STEP & _MASK)) >> np.uint64(32)
        pick = (high * (last + 1).astype(np.uint64) >> np.uint64(32)).astype(np.int64)
        picks[i] = np.where((picks[:i] == pick).any(0), last, pick)
    return picks


def _first_of_each(node: Array, place: Array) -> Array:
    """Different nodes in the order in which they come first. Writes to their entries of ``place``."""
    number = np.arange(node.size)
    place[node[::-1]] = number[::-1]  # of several values for one entry, the last stays
    return node[place[node] == number]
