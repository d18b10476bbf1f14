"""Real graphs made of files that package indexes hold: Debian's packages, WordNet, PubMed.

No recipe was made for them, unlike the benchmark sets: they are what graphs of one's own look like.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.utils import to_undirected

from node2seq.data.graph import structural_features

# A class with fewer nodes has no label.
_SMALLEST_CLASS = 60
# Of a hub, so many neighbours are visited when a part of a graph is taken.
_VISITED = 10


def public_graphs(packages: Path, wordnet: Path, planetoid: Path) -> Iterator[tuple[str, Data]]:
    """The graphs by name.

    Args:
        packages: Debian's index ``Packages`` of a release, such as bookworm's main for amd64.
        wordnet: The folder with WordNet's ``data.noun`` and ``data.verb``, from Debian's ``wordnet-base``.
        planetoid: A folder with ``PubMed/raw``, as PyTorch Geometric's ``Planetoid`` reads it.
    """
    index = _Packages(packages)
    yield "package sections by words", index.sections(6000, seed=1, words=1500)
    yield "package sections by links alone", index.sections(4000, seed=7, words=0)
    yield "package architectures", index.architectures(6000, seed=6)
    yield "programs among packages", index.programs(8000, seed=3)
    yield "verbs by words", _synsets(wordnet / "data.verb")
    yield "nouns by embeddings", _synsets(wordnet / "data.noun", nodes=12_000, channels=100)
    pubmed: Any = Planetoid(str(planetoid), "PubMed")[0]
    yield "pubmed", _graph(pubmed.x, pubmed.edge_index, pubmed.y)


def _graph(x: Tensor, edge_index: Tensor, y: Tensor) -> Data:
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return Data(x=x, edge_index=to_undirected(edge_index, num_nodes=y.numel()), y=y)


class _Packages:
    """The packages of a release: an edge from each package to those that need it."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8", errors="replace")
        fields = re.compile(r"^([A-Za-z0-9-]+): ?(.*(?:\n .*)*)", re.MULTILINE)
        self._fields = [dict(fields.findall(part)) for part in text.split("\n\n") if part.strip()]
        number = {fields["Package"]: i for i, fields in enumerate(self._fields)}
        pairs = [
            (number[name], i)
            for i, fields in enumerate(self._fields)
            for name in _needed(fields)
            if name in number
        ]
        self._edge_index = torch.tensor(pairs).T
        self._words = [_words(fields.get("Description", "")) for fields in self._fields]

    def sections(self, nodes: int, seed: int, words: int) -> Data:
        """The section of each package, from frequent words of its description or from links alone."""
        taken, edge_index = _snowball(self._edge_index, len(self._fields), nodes, seed)
        y = _labels([self._fields[i]["Section"].rpartition("/")[2] for i in taken])
        x = structural_features(to_undirected(edge_index, num_nodes=nodes), nodes)
        return _graph(_bags([self._words[i] for i in taken], words) if words else x, edge_index, y)

    def architectures(self, nodes: int, seed: int) -> Data:
        """Whether a package is compiled for an architecture, from words of its description."""
        taken, edge_index = _snowball(self._edge_index, len(self._fields), nodes, seed)
        y = torch.tensor([self._fields[i]["Architecture"] != "all" for i in taken]).long()
        return _graph(_bags([self._words[i] for i in taken], 1000), edge_index, y)

    def programs(self, nodes: int, seed: int) -> Data:
        """Whether a package is tagged as a program, from sizes and lengths; many have no tag."""
        taken, edge_index = _snowball(self._edge_index, len(self._fields), nodes, seed)
        tags = [self._fields[i].get("Tag") for i in taken]
        y = torch.tensor([-1 if tag is None else int("role::program" in tag) for tag in tags])
        return _graph(torch.tensor([self._numbers(i) for i in taken]), edge_index, y)

    def _numbers(self, i: int) -> list[float]:
        fields, name, version = self._fields[i], self._fields[i]["Package"], self._fields[i]["Version"]
        sizes = [float(np.log1p(float(fields.get(key, 0)))) for key in ("Installed-Size", "Size")]
        flags = [fields["Architecture"] == "all", ":" in version, "Homepage" in fields]
        counts = [len(name), name.count("-"), len(version), len(self._words[i])]
        return [*sizes, *map(float, counts), *map(float, flags)]


def _needed(fields: dict[str, str]) -> Iterator[str]:
    """The names of the packages that a package needs; of alternatives, the first."""
    for key in ("Depends", "Pre-Depends", "Recommends"):
        for part in filter(None, fields.get(key, "").split(",")):
            yield part.split("|")[0].strip().split(" ")[0].split(":")[0]


def _synsets(path: Path, nodes: int | None = None, channels: int | None = None) -> Data:
    """The meanings of a part of speech, each with its lexicographer file as class and the words of its gloss
    as features, or an embedding of them; linked to others of the same part of speech."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(" ")]
    glosses, links, files, number = [], [], [], {}
    for line in lines:
        head, _, gloss = line.partition("|")
        parts = head.split()
        pointers = 4 + 2 * int(parts[3], 16)
        ends = range(pointers + 1, pointers + 1 + 4 * int(parts[pointers]), 4)
        number[parts[0]] = len(number)
        files.append(parts[1])
        glosses.append(_words(gloss))
        links += [(parts[k + 1], parts[0]) for k in ends if parts[k + 2] == path.suffix[1]]
    edge_index = torch.tensor([(number[a], number[b]) for a, b in links]).T
    taken = list(range(len(lines)))
    if nodes is not None:
        taken, edge_index = _snowball(edge_index, len(lines), nodes, seed=3)
    x = _bags([glosses[i] for i in taken], 2000 if channels is None else 5000)
    if channels is not None:
        x = _embedded(x, channels)
    return _graph(x, edge_index, _labels([files[i] for i in taken]))


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{2,}", text.lower()))


def _bags(documents: Sequence[set[str]], size: int) -> Tensor:
    """Whether each of the most frequent words stands in each document."""
    frequent = Counter(word for words in documents for word in sorted(words)).most_common(size)
    column = {word: i for i, (word, _) in enumerate(frequent)}
    x = torch.zeros(len(documents), len(column))
    for row, words in enumerate(documents):
        x[row, [column[word] for word in words if word in column]] = 1.0
    return x


def _embedded(bags: Tensor, channels: int) -> Tensor:
    """The first singular directions of bags of words weighted by how rare each word is."""
    weighted = bags * (len(bags) / bags.sum(0)).log()
    weighted = torch.nn.functional.normalize(weighted, dim=1)
    torch.manual_seed(0)
    left, values, _ = torch.svd_lowrank(weighted, channels, niter=4)
    return left * values


def _labels(names: Sequence[str]) -> Tensor:
    """A number for each name that is frequent enough, and -1 for the others."""
    counted = [name for name, count in Counter(names).most_common() if count >= _SMALLEST_CLASS]
    number = {name: i for i, name in enumerate(counted)}
    return torch.tensor([number.get(name, -1) for name in names])


def _snowball(edge_index: Tensor, total: int, nodes: int, seed: int) -> tuple[list[int], Tensor]:
    """Nodes found outwards from one that is drawn, and the edges among them."""
    generator = np.random.default_rng(seed)
    both = to_undirected(edge_index, num_nodes=total).numpy()
    ends = np.searchsorted(both[0], np.arange(total + 1))
    taken: set[int] = set()
    waiting: list[int] = []
    while len(taken) < nodes:
        node = waiting.pop(0) if waiting else int(generator.integers(total))
        if node not in taken:
            taken.add(node)
            around = both[1, ends[node] : ends[node + 1]]
            waiting.extend(generator.permutation(around)[:_VISITED].tolist())
    order = sorted(taken)
    number = torch.full((total,), -1)
    number[torch.tensor(order)] = torch.arange(nodes)
    edge_index = number[edge_index]
    return order, edge_index[:, (edge_index >= 0).all(0)]
