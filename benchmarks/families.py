"""Graphs drawn at random, each family with one trait that graphs of one's own may have.

The defaults for any graph are chosen on them and on the benchmark sets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from node2seq.data.graph import structural_features
from node2seq.options import check_choice


def draw_graph(family: str, nodes: int = 2_000, seed: int = 0) -> Data:
    """A graph of a family, with ``x``, ``edge_index`` (undirected) and ``y``.

    Args:
        family (str): A key of :data:`FAMILIES`.
        nodes (int): How many nodes; of a grid, at least as many.
        seed (int): Which graph.
    """
    check_choice("family", family, FAMILIES)
    return FAMILIES[family](nodes, torch.Generator().manual_seed(seed))


def _grid(nodes: int, generator: torch.Generator) -> Data:
    """Every fifth cell of a grid is a mine; half of the cells show how many mines are around them."""
    side = int((nodes - 1) ** 0.5) + 1
    place = torch.arange(side * side).view(side, side)
    pairs = [
        torch.stack([place[a:b, c:d].flatten(), place[e:f, g:h].flatten()])
        for a, b, c, d, e, f, g, h in (
            (0, side, 0, side - 1, 0, side, 1, side),
            (0, side - 1, 0, side, 1, side, 0, side),
            (0, side - 1, 0, side - 1, 1, side, 1, side),
            (0, side - 1, 1, side, 1, side, 0, side - 1),
        )
    ]
    edge_index = to_undirected(torch.cat(pairs, dim=1))
    y = (torch.rand(side * side, generator=generator) < 0.2).long()
    around = torch.zeros(side * side, dtype=torch.int64).index_add_(0, edge_index[1], y[edge_index[0]])
    shown = torch.rand(side * side, generator=generator) < 0.5
    counts = F.one_hot(around, 9).float() * shown[:, None]
    return Data(x=torch.cat([counts, ~shown[:, None]], dim=1).float(), edge_index=edge_index, y=y)


def _blocks(
    nodes: int,
    generator: torch.Generator,
    *,
    classes: int = 5,
    degree: float = 6.0,
    alike: float = 0.8,
    preferred: int = 0,
    hubs: int = 0,
    shares: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Edges and labels: a share ``alike`` of a node's edges leads to the class ``preferred`` steps on."""
    weights = torch.ones(classes) if shares is None else shares
    y = torch.multinomial(weights, nodes, replacement=True, generator=generator)
    number = int(nodes * degree / 2)
    source = torch.randint(nodes, (number,), generator=generator)
    other = torch.randint(nodes, (number,), generator=generator)
    by_class = y.argsort(stable=True)
    counts = torch.bincount(y, minlength=classes)
    starts = counts.cumsum(0) - counts
    wanted = (y[source] + preferred) % classes
    drawn = (torch.rand(number, generator=generator) * counts[wanted]).long()
    same = by_class[(starts[wanted] + drawn).clamp(max=nodes - 1)]
    is_alike = torch.rand(number, generator=generator) < alike
    edge_index = torch.stack([source, torch.where(is_alike, same, other)])
    if hubs:
        spokes = torch.randint(nodes, (hubs, nodes // 10), generator=generator)
        centre = torch.arange(hubs)[:, None].expand_as(spokes)
        edge_index = torch.cat([edge_index, torch.stack([centre.flatten(), spokes.flatten()])], dim=1)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return to_undirected(edge_index, num_nodes=nodes), y


def _signal(y: Tensor, generator: torch.Generator, channels: int, strength: float) -> Tensor:
    """Noise around a centre of each class."""
    centres = torch.randn(int(y.max()) + 1, channels, generator=generator)
    return strength * centres[y] + torch.randn(y.numel(), channels, generator=generator)


def _heterophilous(nodes: int, generator: torch.Generator) -> Data:
    """Neighbours are of the next class; a node's own features say little."""
    edge_index, y = _blocks(nodes, generator, alike=0.7, preferred=1)
    return Data(x=_signal(y, generator, 16, 0.3), edge_index=edge_index, y=y)


def _hubs(nodes: int, generator: torch.Generator) -> Data:
    """A few nodes are connected to a tenth of all others, whatever their class."""
    edge_index, y = _blocks(nodes, generator, hubs=max(nodes // 200, 3))
    return Data(x=_signal(y, generator, 16, 0.3), edge_index=edge_index, y=y)


def _words(nodes: int, generator: torch.Generator) -> Data:
    """Bags of words, in which the words of a node's class are a little more frequent."""
    edge_index, y = _blocks(nodes, generator, classes=6, degree=4.0)
    vocabulary = 600
    usual = torch.rand(vocabulary, generator=generator).pow(3) * 0.08
    lift = torch.where(torch.rand(6, vocabulary, generator=generator) < 0.1, 2.5, 1.0)
    chance = (usual * lift)[y].clamp(max=0.9)
    x = (torch.rand(nodes, vocabulary, generator=generator) < chance).float()
    return Data(x=x, edge_index=edge_index, y=y)


def _bags(
    y: Tensor, generator: torch.Generator, words: float, lift: float, vocabulary: int = 1_000
) -> Tensor:
    """Bags of words, some of which are more frequent in each class.

    Args:
        y: The classes.
        generator: What is drawn from.
        words: About how many of each node.
        lift: How much more frequent a tenth of the words is in each class.
        vocabulary: How many there are.
    """
    usual = torch.rand(vocabulary, generator=generator).pow(3)
    usual *= words / usual.sum()
    is_typical = torch.rand(int(y.max()) + 1, vocabulary, generator=generator) < 0.1
    chance = (usual * torch.where(is_typical, lift, 1.0))[y].clamp(max=0.9)
    return (torch.rand(y.numel(), vocabulary, generator=generator) < chance).float()


def _posts(nodes: int, generator: torch.Generator) -> Data:
    """Users with many friends, of whom few more than by chance are alike; their words say a lot."""
    edge_index, y = _blocks(nodes, generator, classes=6, degree=40.0, alike=0.25)
    return Data(x=_bags(y, generator, words=40, lift=2.7), edge_index=edge_index, y=y)


def _replies(nodes: int, generator: torch.Generator) -> Data:
    """Bags of words whose neighbours are of the next class."""
    edge_index, y = _blocks(nodes, generator, classes=5, alike=0.6, preferred=1)
    return Data(x=_bags(y, generator, words=30, lift=2.5), edge_index=edge_index, y=y)


def _articles(nodes: int, generator: torch.Generator) -> Data:
    """Bags of words, links between articles of one class, and more labels than smoothing is for."""
    edge_index, y = _blocks(2 * nodes, generator, classes=8, degree=5.0, alike=0.5)
    return Data(x=_bags(y, generator, words=30, lift=2.5), edge_index=edge_index, y=y)


def _embeddings(of: Tensor, generator: torch.Generator, channels: int = 300) -> Tensor:
    """Dense rows as language models give them: centres that are mixed, a few common directions, noise.

    Args:
        of: The share that each of several centres has in each row, [rows, centres].
        generator: What is drawn from.
        channels: The size of each row.
    """
    centres = torch.randn(of.size(1), channels, generator=generator)
    common = torch.randn(of.size(0), 16, generator=generator) @ torch.randn(16, channels, generator=generator)
    return of @ centres + common / 4 + torch.randn(of.size(0), channels, generator=generator)


def _text(nodes: int, generator: torch.Generator) -> Data:
    """Words in a row, each joined to the next, some to the third; most words can be of two classes, and the
    class of the word before tells which."""
    classes, types = 10, nodes // 4
    follow = (2.5 * torch.randn(classes, classes, generator=generator)).softmax(dim=1).cumsum(dim=1)
    drawn, y = torch.rand(nodes, generator=generator), torch.zeros(nodes, dtype=torch.int64)
    for i in range(1, nodes):
        y[i] = torch.searchsorted(follow[y[i - 1]], drawn[i]).clamp(max=classes - 1)
    usual = torch.randint(classes, (types, 2), generator=generator)
    usual[:classes, 0] = torch.arange(classes)  # each class has a word
    word = torch.empty(nodes, dtype=torch.int64)
    for c in range(classes):
        known = (usual == c).any(dim=1).nonzero().flatten()
        places = (y == c).nonzero().flatten()
        word[places] = known[torch.randint(known.numel(), (places.numel(),), generator=generator)]
    next_to = torch.arange(nodes - 1)
    third = torch.arange(nodes - 3)[torch.rand(nodes - 3, generator=generator) < 0.4]
    edge_index = torch.cat([torch.stack([next_to, next_to + 1]), torch.stack([third, third + 3])], dim=1)
    x = _embeddings(0.3 * F.one_hot(usual, classes).sum(dim=1).float(), generator)[word]
    return Data(x=x, edge_index=to_undirected(edge_index, num_nodes=nodes), y=y)


def _topics(nodes: int, generator: torch.Generator) -> Data:
    """Documents with embeddings; half of a node's edges lead to its own topic."""
    edge_index, y = _blocks(nodes, generator, classes=8, alike=0.4)
    return Data(x=_embeddings(0.2 * F.one_hot(y, 8).float(), generator), edge_index=edge_index, y=y)


def _many_classes(nodes: int, generator: torch.Generator) -> Data:
    """Forty classes of unequal sizes."""
    edge_index, y = _blocks(nodes, generator, classes=40, alike=0.7, shares=0.95 ** torch.arange(40.0))
    return Data(x=_signal(y, generator, 32, 0.5), edge_index=edge_index, y=y)


def _no_features(nodes: int, generator: torch.Generator) -> Data:
    """The class is a node's role: hubs with leaves, rings, or random edges; features from the edges alone."""
    edge_index, _ = _blocks(nodes, generator, alike=0.0, degree=3.0)
    third = nodes // 3
    stars = torch.arange(third)
    centre = torch.randint(max(third // 12, 1), (third,), generator=generator)
    ring = third + torch.arange(third)
    edge_index = torch.cat(
        [
            edge_index[:, (edge_index >= 2 * third).all(0)],
            torch.stack([stars, centre]),
            torch.stack([ring, third + (ring - third + 1) % third]),
            torch.randint(nodes, (2, nodes // 4), generator=generator),
        ],
        dim=1,
    )
    edge_index = to_undirected(edge_index[:, edge_index[0] != edge_index[1]], num_nodes=nodes)
    y = (torch.arange(nodes) // third).clamp(max=2)
    return Data(x=structural_features(edge_index, nodes), edge_index=edge_index, y=y)


def _noisy(nodes: int, generator: torch.Generator) -> Data:
    """Four informative columns among a hundred, and neighbours of which half are of any class."""
    edge_index, y = _blocks(nodes, generator, classes=3, alike=0.5)
    noise = torch.randn(nodes, 96, generator=generator)
    return Data(x=torch.cat([_signal(y, generator, 4, 0.8), noise], dim=1), edge_index=edge_index, y=y)


def _unscaled(nodes: int, generator: torch.Generator) -> Data:
    """Columns as in a table of people: of sizes from one to a hundred thousand, around large means."""
    edge_index, y = _blocks(nodes, generator, classes=3, alike=0.6, shares=torch.tensor([0.5, 0.3, 0.2]))
    scale = torch.tensor([12.0, 30_000.0, 1.0, 250.0, 0.01, 5.0])
    mean = torch.tensor([45.0, 50_000.0, 3.0, -800.0, 0.5, 1000.0])
    return Data(x=_signal(y, generator, 6, 0.7) * scale + mean, edge_index=edge_index, y=y)


def _unequal(nodes: int, generator: torch.Generator) -> Data:
    """Two classes, one to nine; the rare nodes have many neighbours that are not alike."""
    edge_index, y = _blocks(nodes, generator, classes=2, alike=0.4, shares=torch.tensor([0.9, 0.1]))
    return Data(x=_signal(y, generator, 10, 0.3), edge_index=edge_index, y=y)


#: The families by name.
FAMILIES: dict[str, Callable[[int, torch.Generator], Data]] = {
    "grid": _grid,
    "heterophilous": _heterophilous,
    "hubs": _hubs,
    "words": _words,
    "text": _text,
    "topics": _topics,
    "many-classes": _many_classes,
    "no-features": _no_features,
    "noisy": _noisy,
    "unscaled": _unscaled,
    "unequal": _unequal,
    "posts": _posts,
    "replies": _replies,
    "articles": _articles,
}
