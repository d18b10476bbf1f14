"""The layer as the paper's text has it, node by node: sorted lists, ``conv1d``, a readout."""

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import Tensor

from node2seq import Node2SeqConv


def neighbour_sets(edge_index: Tensor, num_nodes: int, self_loops: bool = True) -> list[set[int]]:
    """The distinct sources of each node's incoming edges, and the node itself."""
    neighbours: list[set[int]] = [{node} if self_loops else set() for node in range(num_nodes)]
    for source, target in edge_index.t().tolist():
        neighbours[target].add(source)
    return neighbours


def within_hops(neighbours: list[set[int]], node: int, hops: int) -> set[int]:
    """The nodes with a path of at most ``hops`` edges to ``node``."""
    reached = frontier = {node}
    for _ in range(hops):
        frontier = set().union(*(neighbours[j] for j in frontier)) - reached
        reached = reached | frontier
    return reached


def order_of(
    conv: Node2SeqConv, x_bar: Tensor, neighbours: list[set[int]], node: int
) -> list[tuple[int, bool]]:
    """Node ``node``'s sequence: pairs of a source and whether it is non-local."""

    def by_rank(nodes: set[int]) -> list[int]:
        score = {j: float((x_bar[node] * x_bar[j]).sum()) for j in nodes}
        own = {j: float((x_bar[j] * x_bar[j]).sum()) for j in nodes}
        return sorted(nodes, key=lambda j: (-score[j], -own[j], j))

    local = neighbours[node]
    if conv.hops == 1:
        return [(j, False) for j in by_rank(local)]
    kept = {j for j in local if float((x_bar[node] * x_bar[j]).sum()) > conv.threshold}
    room = len(local) - len(kept)
    beyond = within_hops(neighbours, node, conv.hops) - within_hops(neighbours, node, 1)
    chosen = set(by_rank(beyond)[:room])
    returned = set(by_rank(local - kept)[: room - len(chosen)])
    if conv.nonlocal_order == "joint":
        return [(j, j in chosen) for j in by_rank(kept | returned | chosen)]
    return [(j, False) for j in by_rank(kept | returned)] + [(j, True) for j in by_rank(chosen)]


def convolve(rows: Tensor, weight: Tensor, readout: str) -> Tensor:
    """One sequence [k_i, D] → one row [D], by ``conv1d`` and a readout."""
    kernel_size = weight.size(0)
    padded = F.pad(rows.t(), (0, max(kernel_size - rows.size(0), 0)))
    windows = F.conv1d(padded[None], weight.permute(2, 1, 0))[0]  # [D, o_i]
    if readout == "max":
        return windows.max(dim=1).values
    return windows.mean(dim=1) if readout == "mean" else windows.sum(dim=1)


def soft_shares(score: Tensor, count: int) -> Tensor:
    """The soft ranks of one sequence, [count, k_i]: each softmax takes what those before it left."""
    shares, value = [], score
    for rank in range(count):
        share = value.softmax(0) if rank < score.numel() else torch.zeros_like(score)
        shares.append(share)
        others = [torch.cat([share[:entry], share[entry + 1 :]]) for entry in range(score.numel())]
        left = torch.stack([part.sum() for part in others]) if others else share
        value = value + left.clamp(min=1e-30).log()  # log(1 − p), whose digits a subtraction would lose
    return torch.stack(shares)


def convolve_ranks(rows: Tensor, shares: Tensor, weight: Tensor) -> Tensor:
    """One sequence [k_i, D] and its shares [K, k_i] → one row [D]: a matrix for each rank and the mean."""
    out = rows.new_zeros(weight.size(-1))
    if not rows.size(0):
        return out
    for share, matrix in zip(shares, weight[:-1], strict=True):
        for row, part in zip(rows, share, strict=True):
            out = out + part * (row @ matrix)
    return out + rows.mean(0) @ weight[-1]


def layer(conv: Node2SeqConv, x: Tensor, edge_index: Tensor) -> tuple[Tensor, list[list[tuple[int, bool]]]]:
    """The output of the layer and the sequence of each node."""
    x_bar = F.linear(x, conv.lin.weight)
    neighbours = neighbour_sets(edge_index, x.size(0), conv.add_self_loops)
    orders = [order_of(conv, x_bar.detach(), neighbours, node) for node in range(x.size(0))]
    rows = [
        convolve(x_bar[[j for j, _ in order]], conv.weight, conv.readout)
        if order
        else x_bar.new_zeros(x_bar.size(1))
        for order in orders
    ]
    out = torch.stack(rows) + F.linear(x_bar if conv.root == "projected" else x, conv.lin_root.weight)
    return (out if conv.bias is None else out + conv.bias), orders


def layer_with_edge_values(
    conv: Node2SeqConv,
    x: Tensor | tuple[Tensor, Tensor],
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_attr: Tensor | None,
) -> tuple[Tensor, list[list[tuple[int, int]]]]:
    """The layer where edges carry something: its output, and the source and the edge of each node's entries.

    Self entries and non-local nodes have the edge −1. Orders by attention and by degree.
    """
    x_src, x_dst = x if isinstance(x, tuple) else (x, x)
    x_bar = F.linear(x_src, conv.lin.weight)
    query = F.linear(x_dst, (conv.lin_dst or conv.lin).weight)
    carried = None
    if conv.lin_edge is not None and edge_attr is not None:
        carried = F.linear(edge_attr, conv.lin_edge.weight)

    entries: list[list[tuple[int, int]]] = [[] for _ in range(x_dst.size(0))]
    for edge, (source, target) in enumerate(edge_index.t().tolist()):
        if not (conv.add_self_loops and source == target):
            entries[target].append((source, edge))
    if conv.add_self_loops:
        for node in range(min(x_src.size(0), x_dst.size(0))):
            entries[node].append((node, -1))
    neighbours = [{source for source, _ in mine} for mine in entries]

    def score(node: int, entry: tuple[int, int]) -> float:
        source, edge = entry
        value = float((query[node] * x_bar[source]).sum())
        return value + (
            float((query[node] * carried[edge]).sum()) if carried is not None and edge >= 0 else 0.0
        )

    def degree(source: int) -> tuple[int, int]:
        lengths = [len(mine) for mine in entries for j, _ in mine if j == source]
        return len(lengths), sum(lengths)

    def ranked(node: int, chosen: list[tuple[int, int]]) -> list[tuple[int, int]]:
        own = {j: float((x_bar[j] * x_bar[j]).sum()) for j, _ in chosen}
        return sorted(chosen, key=lambda entry: (-score(node, entry), -own[entry[0]], *entry))

    def order(node: int) -> list[tuple[int, int]]:
        local = entries[node]
        if conv.hops == 1:
            chosen = ranked(node, local)
        else:
            kept = [entry for entry in local if score(node, entry) > conv.threshold]
            room = len(local) - len(kept)
            beyond = within_hops(neighbours, node, conv.hops) - within_hops(neighbours, node, 1)
            far = ranked(node, [(j, -1) for j in beyond])[:room]
            dropped = ranked(node, [entry for entry in local if entry not in kept])
            kept = kept + dropped[: room - len(far)]
            joint = conv.nonlocal_order == "joint"
            chosen = ranked(node, kept + far) if joint else ranked(node, kept) + ranked(node, far)
        if conv.order == "degree":
            chosen = sorted(chosen, key=lambda entry: (*(-number for number in degree(entry[0])), *entry))
        return chosen

    def row(entry: tuple[int, int]) -> Tensor:
        source, edge = entry
        value = x_bar[source]
        if edge >= 0 and carried is not None:
            value = value + carried[edge]
        return value if edge < 0 or edge_weight is None else edge_weight[edge] * value

    orders = [order(node) for node in range(x_dst.size(0))]
    read = [
        convolve(torch.stack([row(entry) for entry in mine]), conv.weight, conv.readout)
        if mine
        else x_bar.new_zeros(x_bar.size(1))
        for mine in orders
    ]
    out = torch.stack(read) + F.linear(query if conv.root == "projected" else x_dst, conv.lin_root.weight)
    return (out if conv.bias is None else out + conv.bias), orders


def random_graph(seed: int, *, undirected: bool, num_nodes: int = 30) -> Tensor:
    """Edges with self loops, duplicates, isolated nodes (the last three) and a hub by in-degree (node 0)."""
    generator = torch.Generator().manual_seed(seed)
    inner = num_nodes - 3
    edges = torch.randint(0, inner, (2, 2 * inner), generator=generator)
    hub = torch.stack([torch.arange(inner), torch.zeros(inner, dtype=torch.int64)])[:, ::2]
    loops = torch.arange(0, inner, 5).repeat(2, 1)
    edges = torch.cat([edges, hub, loops, edges[:, :10], loops], dim=1)
    return torch.cat([edges, edges.flip(0)], dim=1) if undirected else edges


def orders_of_trace(ptr: Tensor, index: Tensor, is_nonlocal: Tensor) -> list[list[tuple[int, bool]]]:
    """A trace as the lists that :func:`layer` returns."""
    found: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for node in range(ptr.numel() - 1):
        for entry in range(int(ptr[node]), int(ptr[node + 1])):
            found[node].append((int(index[entry]), bool(is_nonlocal[entry])))
    return [found[node] for node in range(ptr.numel() - 1)]
