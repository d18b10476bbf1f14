"""Bitcoin OTC: who rated whom on a trading platform, and when. A task in which the order of time matters.

The nodes are ratings, and so are their neighbours, but a rating shows more of itself to later ones than it
may know of itself beforehand: a bipartite graph with two sets of features. The networks of this package take
one set, so it has a function of its own and no name for :func:`~node2seq.data.load` or ``node2seq train``. It
is there to study orders with layers, which take both sets.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque

import numpy as np
import torch
from torch_geometric.data import HeteroData

from node2seq.data.sources import Say, find
from node2seq.data.splits import PARTS, split_in_order

#: A rating is a node if its ratee has at least this many earlier ratings; and the most neighbours of a node.
FEWEST_EARLIER, MOST_EARLIER = 4, 20
_DAY = 86400.0
_LARGEST_RATING = 10.0


def load_bitcoin_otc(
    *,
    root: str | os.PathLike[str] | None = None,
    age: bool = False,
    offline: bool = False,
    say: Say | None = None,
) -> HeteroData:
    """Is a rating negative, given the earlier ratings of the same member?

    35,592 ratings among 5,881 members, from −10 to 10 (Kumar et al., *Edge Weight Prediction in Weighted
    Signed Networks*, ICDM 2016). A node is a rating whose ratee has at least four earlier ones; its
    neighbours are the latest 20 of these. The first 60 % of the nodes by time train, the next 20 % validate,
    the last 20 % test. Columns are standardised by what there was up to the last training node.

    The graph is bipartite and for the study of orders: ``load`` and ``node2seq train`` do not take it.

    Args:
        root (path, optional): A folder that holds ``bitcoin_otc/raw``; ``NODE2SEQ_DATA`` if not given. After
            it come the user's cache and the set's public home.
        age (bool): Also give ``edge_attr``, the log of each neighbour's age in days. (default: False)
        offline (bool): Look in folders only.
        say (callable, optional): Called with a line before anything that uses the network.

    Returns:
        HeteroData: ``data["rating"]``: ``x`` [N, 6] (of the rater: how many ratings given so far, their mean,
        how many received, their mean; how many the ratee received so far; the time), ``y`` (1: negative),
        ``train_mask``, ``val_mask``, ``test_mask``, and ``number``, its place among all ratings by time.
        ``data["earlier"]``: ``x`` [M, 7] of all ratings (value, sign, of the rater at that time as above, the
        time). ``data["earlier", "rating"]``: ``edge_index`` [2, E] and ``edge_order`` [E], the time of the
        earlier rating in seconds (float64): sorted by it, the latest comes first.
    """
    (content,) = find("bitcoin-otc", root=root, offline=offline, say=say).files.values()
    cells = np.array(content.decode("ascii").replace("\n", ",").split(",")[:-1], dtype=np.int64)
    value, when, rater, received, earlier = _history(cells)
    number = np.flatnonzero(received >= FEWEST_EARLIER)
    time = when[number]
    masks = split_in_order(time)
    assert masks is not None
    source, target = _edges([earlier[i] for i in number])

    rater[:, ::2] = np.log1p(rater[:, ::2])
    rater[:, 1::2] /= _LARGEST_RATING
    own = [rater, np.log1p(received), when]
    shown = [value / _LARGEST_RATING, np.sign(value), rater, when]
    seen = when <= time[masks[0]].max()
    data = HeteroData()
    data["rating"].x = _standardized(np.column_stack(own)[number], seen[number])
    data["rating"].y = torch.from_numpy((value[number] < 0).astype(np.int64))
    data["rating"].number = torch.from_numpy(number)
    for part, mask in zip(PARTS, masks, strict=True):
        data["rating"][f"{part}_mask"] = torch.from_numpy(mask)
    data["earlier"].x = _standardized(np.column_stack(shown), seen)
    edges = data["earlier", "informs", "rating"]
    edges.edge_index = torch.from_numpy(np.stack([source, target]))
    edges.edge_order = torch.from_numpy(when[source])
    if age:
        days = (time[target] - when[source]) / _DAY
        edges.edge_attr = torch.from_numpy(np.log1p(days).astype(np.float32))[:, None]
    return data


def _history(
    cells: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, list[list[int]]]:
    """Go through the ratings once, in the order of time, and keep what was known before each.

    Returns:
        The value of each rating [M], −10 to 10, never 0; its time [M], seconds since 1970; how many ratings
        the rater had given, their mean, how many received, their mean [M, 4]; how many the ratee had
        received [M]; the ratee's latest ratings before, as numbers.
    """
    table = cells.reshape(-1, 4)
    table = table[np.argsort(table[:, 3], kind="stable")]
    rater, received = np.zeros((len(table), 4)), np.zeros(len(table))
    earlier: list[list[int]] = []
    given: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # of a member: how many ratings, and their sum
    got: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    latest: dict[int, deque[int]] = defaultdict(lambda: deque(maxlen=MOST_EARLIER))
    for number, (one, other, value, _) in enumerate(table.tolist()):
        rater[number] = [*_count_and_mean(given[one]), *_count_and_mean(got[one])]
        received[number] = got[other][0]
        earlier.append(list(latest[other]))
        for sums in (given[one], got[other]):
            sums[0] += 1
            sums[1] += value
        latest[other].append(number)
    return table[:, 2], table[:, 3].astype(np.float64), rater, received, earlier


def _edges(neighbours: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """The source and the target of each edge, by source."""
    target = np.repeat(np.arange(len(neighbours)), [len(sources) for sources in neighbours])
    source = np.concatenate(neighbours)
    order = np.lexsort((target, source))
    return source[order], target[order]


def _count_and_mean(sums: list[int]) -> tuple[float, float]:
    count, total = sums
    return count, total / max(count, 1)


def _standardized(x: np.ndarray, seen: np.ndarray) -> torch.Tensor:
    """Columns with mean 0 and standard deviation 1 over the rows that training may see."""
    return torch.from_numpy(((x - x[seen].mean(0)) / x[seen].std(0)).astype(np.float32))
