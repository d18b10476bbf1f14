"""What times decide: the order of a node's edges, the split of the nodes, and which edges are too new."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.splits import split_in_order
from node2seq.data.tabular import pl
from node2seq.data.times import Kind, Times, check_complete, on_one_scale, read_times
from node2seq.errors import Node2SeqError


def read_order(column: pl.Series, title: str, kind: Kind | None) -> Times:
    """The number by which each edge is ordered; none may be missing.

    Args:
        column: Of the edges.
        title: What their table is called in an error.
        kind: What the column held in training.
    """
    times = read_times(column, title, kind)
    check_complete(times, title, column.name, "Complete the rows, or remove them")
    return times


def tied_edges(edge_index: Tensor, order: Tensor) -> int:
    """How many edges have the same number as another edge that ends at the same node."""
    by_node = np.lexsort((order.numpy(), edge_index[1].numpy()))
    target, numbers = edge_index[1].numpy()[by_node], order.numpy()[by_node]
    same = (target[1:] == target[:-1]) & (numbers[1:] == numbers[:-1])
    return int(np.count_nonzero(np.append(False, same) | np.append(same, False))) if target.size else 0


def split_by_time(times: Times, labelled: np.ndarray, title: str, name: str) -> dict[str, np.ndarray]:
    """The train, val and test masks: the labelled nodes by their time, 60/20/20, equal times together.

    Args:
        times: Of the nodes.
        labelled: Which of them have a label; the others are in no part.
        title: What their table is called in an error.
        name: The column.
    """
    if (without := times.missing & labelled).any():
        count, row = int(without.sum()), int(without.argmax()) + 1
        nodes = "1 labelled node has" if count == 1 else f"{count} labelled nodes have"
        raise Node2SeqError(
            title,
            f"column {name!r}: {nodes} no time, the first in row {row}",
            "Give the time, or clear the label",
        )
    masks = split_in_order(np.where(labelled, times.values, np.nan))
    if masks is None:
        count = np.unique(times.values[labelled]).size
        raise Node2SeqError(
            title,
            f"column {name!r}: the labelled nodes have {count} different time{'s' if count > 1 else ''}, and "
            "train, val and test need three at least",
            "Name another column, or give a split column (--split COLUMN)",
        )
    return dict(zip(("train", "val", "test"), masks, strict=True))


def newer_edges(data: Data, edge_kind: Kind, nodes: Times) -> np.ndarray | None:
    """Whether each edge is newer than the node at which it ends, [E]; None if their times do not compare.

    An unlabelled node without a time is to be predicted now: no edge is newer.

    Args:
        data: The graph, with ``edge_order``.
        edge_kind: Whether that holds dates or numbers.
        nodes: The nodes' times.
    """
    assert data.edge_index is not None
    both = on_one_scale(Times(data.edge_order.numpy(), edge_kind), nodes)
    if both is None:
        return None
    of_edges, of_nodes = both
    return of_edges > of_nodes[data.edge_index[1].numpy()]


def without_edges(data: Data, dropped: np.ndarray) -> None:
    """Drop edges, and what they carry, from a graph."""
    assert data.edge_index is not None
    kept = torch.from_numpy(~dropped)
    data.edge_index = data.edge_index[:, kept]
    for name in ("edge_weight", "edge_attr", "edge_order"):
        if name in data:
            data[name] = data[name][kept]


def describe_order(data: Data, name: str | None, notes: list[str], warnings: list[str]) -> None:
    """Say how many edges the order leaves open."""
    assert data.edge_index is not None
    if data.num_edges and bool((data.edge_order == data.edge_order[0]).all()):
        warnings.append(f"all edges have the same {name!r}: it gives no order")
    elif tied := tied_edges(data.edge_index, data.edge_order):
        notes.append(
            f"{tied} of {data.num_edges} edges have the same {name!r} as another edge of their node; "
            "the neighbours' own scores decide among them, then their ids"
        )


def check_future(
    data: Data, kind: Kind, times: Times, notes: list[str], warnings: list[str], *, drop: bool
) -> None:
    """Drop the edges that are newer than the node at which they end, or warn of them."""
    newer = newer_edges(data, kind, times)
    if newer is None:
        words = "the edges' times and the nodes' cannot be compared: dates and numbers that are no Unix times"
        if drop:
            raise Node2SeqError("no_future_edges", words, "Write both as dates")
        notes.append(f"{words}; whether edges are newer than their nodes is not known")
        return
    if not (count := int(newer.sum())):
        return
    which = f"{count} of {data.num_edges} edges are newer than the node that they inform"
    if drop:
        without_edges(data, newer)
        notes.append(f"{which}: dropped")
    else:
        warnings.append(f"{which}, which may leak the future; --no-future-edges drops them")
