"""The adaptive selection over all pairs of nodes: for formats that cannot call into this package, as ONNX.

Takes memory for N² numbers, in shapes that depend on shapes alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from node2seq.ops import reference
from node2seq.ops.sequences import Rows, Sequences


def select_dense(
    query: Tensor,
    key: Tensor,
    ptr: Tensor,
    target: Tensor,
    index: Tensor,
    hops: int,
    threshold: float | Tensor,
    joint: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`node2seq.ops.selection.select` finds: the node, the score and the entry at each position.

    Args:
        query (torch.Tensor): The targets' projections, [N, D].
        key (torch.Tensor): The sources' projections, [N, D].
        ptr (torch.Tensor): Where each sequence starts, [N + 1].
        target (torch.Tensor): The row of each entry, [E]; N for what duplicates left over.
        index (torch.Tensor): The source of each entry, [E].
        hops (int): How far away the chosen may be.
        threshold (float or torch.Tensor): A local neighbour stays if its score is larger; one for all
            targets, or one for each, [N].
        joint (bool): Whether to rank the chosen as a whole, or locals before non-locals.
    """
    nodes, entries, device = key.size(0), index.numel(), index.device
    pair, ids = target * nodes + index, torch.arange(entries, device=device)
    # One more row than there are takes what is left over.
    is_local = ids.new_zeros((nodes + 1) * nodes).scatter(0, pair, torch.ones_like(ids))[: nodes * nodes]
    entry = ids.new_zeros((nodes + 1) * nodes).scatter(0, pair, ids)[: nodes * nodes]
    is_candidate = _reach(is_local.view(nodes, nodes), hops).view(-1) - is_local

    pairs = torch.arange(nodes * nodes, device=device)
    row = pairs // max(nodes, 1)
    every = Rows(torch.arange(nodes + 1, device=device) * nodes, row)
    everyone = Sequences(every, pairs - row * nodes, nodes)
    score = (query @ key.t()).view(-1)
    order = reference.rank(score, reference.precedence((key * key).sum(-1)), everyone)

    # From here on each row holds all nodes, best first.
    local, candidate = (marks[order].view(nodes, nodes) for marks in (is_local, is_candidate))
    limit = threshold[:, None] if isinstance(threshold, Tensor) else threshold
    stays = local * (score[order].view(nodes, nodes) > limit).long()
    dropped = local - stays
    wanted = dropped.sum(1, keepdim=True)
    taken = candidate * (candidate.cumsum(1) <= wanted).long()
    # Where candidates are too few, the best of the dropped come back.
    back = dropped * (dropped.cumsum(1) <= wanted - taken.sum(1, keepdim=True)).long()
    near = stays + back
    if joint:
        place = (near + taken).cumsum(1)
    else:
        place = torch.where(taken > 0, near.sum(1, keepdim=True) + taken.cumsum(1), near.cumsum(1))
    at = torch.where(near + taken > 0, ptr[:-1, None] + place - 1, entries).view(-1)

    def placed(values: Tensor) -> Tensor:
        return values.new_zeros(entries + 1).scatter(0, at, values)[:entries]

    chosen_entry = torch.where(is_local > 0, entry, -1)
    return placed(everyone.index[order]), placed(score[order]), placed(chosen_entry[order])


def _reach(adjacency: Tensor, hops: int) -> Tensor:
    """Which nodes have a path of at most ``hops`` edges to each other node, [N, N]; ones and zeros."""
    nodes = adjacency.size(0)
    own = torch.eye(nodes, dtype=torch.float32, device=adjacency.device)
    power = torch.maximum(adjacency.float(), own)
    reach = own
    while hops:  # as powers are taken: by squares
        if hops % 2:
            reach = ((reach @ power) > 0).float()
        power, hops = ((power @ power) > 0).float(), hops // 2
    is_other = (own < 0.5).long()
    return torch.maximum(reach.long() * is_other, adjacency)
