"""Load a data set by name: the same nodes in the same order, whichever source the files came from.

Raw files are parsed with numpy alone. Every reader takes ``{file name: bytes}`` and returns the graph as it
is in the files, with direction, self loops and duplicates. The SHA-256 of the bytes was checked before.
"""

from __future__ import annotations

import io
import os
import pickle
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask, subgraph

from node2seq.data.datasets import DATASETS, NAMES, check_name
from node2seq.data.graph import clean_edges, connected_components
from node2seq.data.schema import schema_of_matrix
from node2seq.data.sources import Say, find
from node2seq.data.splits import PARTS


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
    check_name(name)
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
            data[f"{part}_mask"] = index_to_mask(torch.from_numpy(nodes), x.size(0))
    return data


def normalize_features(x: Tensor) -> Tensor:
    """Divide each row by its sum, as the recipes for Cora and CiteSeer do. Rows of sum 0 are unchanged."""
    total = x.sum(dim=1, keepdim=True)
    return x / torch.where(total == 0, torch.ones_like(total), total)


def _largest_component(x: Tensor, edge_index: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    label = connected_components(edge_index, x.size(0))
    kept = label == torch.bincount(label).argmax()
    edges, _ = subgraph(kept, edge_index, relabel_nodes=True, num_nodes=x.size(0))
    return x[kept], edges, y[kept]


Files = dict[str, bytes]


@dataclass(frozen=True)
class RawGraph:
    """A graph as it is in its files.

    ``x`` [N, C] float32, ``edges`` [2, any] int64, ``y`` [N] int64; ``fixed`` holds the node numbers of the
    public train, val and test sets where the set has them.
    """

    x: np.ndarray
    edges: np.ndarray
    y: np.ndarray
    fixed: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


class _CsrMatrix:
    """Stands in for scipy's class while a Planetoid file is read: keeps the arrays and makes them dense."""

    _shape: tuple[int, int]
    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    def dense(self) -> np.ndarray:
        return _dense(self.indptr, self.indices, self.data, self._shape)


def _dense(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, shape: Any) -> np.ndarray:
    x = np.zeros(tuple(int(size) for size in shape), dtype=np.float32)
    x[np.repeat(np.arange(x.shape[0]), np.diff(indptr)), indices] = data
    return x


class _PlanetoidUnpickler(pickle.Unpickler):
    """Allows only the names that Planetoid's files use; any other name is an error."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {
            "scipy.sparse.csr.csr_matrix": _CsrMatrix,
            # Its home moved in numpy 2; the function did not.
            "numpy.core.multiarray._reconstruct": np.ndarray.__reduce__(np.empty(0))[0],
            "numpy.ndarray": np.ndarray,
            "numpy.dtype": np.dtype,
            "collections.defaultdict": defaultdict,
            "__builtin__.list": list,
            "builtins.list": list,
        }
        if f"{module}.{name}" not in allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a Planetoid file")
        return allowed[f"{module}.{name}"]


def _planetoid(files: Files) -> RawGraph:
    parts = {name.split(".", 2)[2]: content for name, content in files.items()}

    def read(part: str) -> Any:
        value = _PlanetoidUnpickler(io.BytesIO(parts[part]), encoding="latin1").load()
        return value.dense() if isinstance(value, _CsrMatrix) else value

    test = np.array(parts["test.index"].split(), dtype=np.int64)
    allx, ally, tx, ty = read("allx"), read("ally"), read("tx"), read("ty")
    known, n = allx.shape[0], int(test.max()) + 1
    # Row r of tx and ty belongs to node test[r]. CiteSeer's test numbers have 15 gaps: they stay zero.
    x = np.zeros((n, allx.shape[1]), dtype=np.float32)
    onehot = np.zeros((n, ally.shape[1]), dtype=np.float32)
    x[:known], onehot[:known] = allx, ally
    x[test], onehot[test] = tx, ty

    graph: dict[int, list[int]] = read("graph")
    source = np.repeat(np.array(list(graph)), [len(targets) for targets in graph.values()])
    target = np.concatenate([np.array(targets, dtype=np.int64) for targets in graph.values()])
    labelled = read("y").shape[0]
    fixed = (np.arange(labelled), np.arange(labelled, labelled + 500), np.sort(test))
    return RawGraph(x, np.stack([source, target]), onehot.argmax(axis=1), fixed)


def _cora_parquet(files: Files) -> RawGraph:
    """Cora as the graphdatascience package carries it, brought into Planetoid's order of nodes and classes.

    Its papers keep their public ids, but in another order than Planetoid's; ``cora_paper_ids.txt``
    lists the ids in Planetoid's. The two were matched by features, label and neighbourhood. 25 nodes have
    twins that nothing tells apart; any order among those gives the same graph.
    """
    import polars as pl  # an extra of the package: only this way to Cora needs a reader of Parquet

    nodes = pl.read_parquet(io.BytesIO(files["cora_nodes.parquet.gzip"]))
    cites = pl.read_parquet(io.BytesIO(files["cora_rels.parquet.gzip"]))
    ids = nodes["nodeId"].to_numpy()
    order = package_files("node2seq.data").joinpath("cora_paper_ids.txt").read_text("ascii")
    canonical = np.array(order.split(), dtype=np.int64)

    by_id = np.argsort(ids)
    row = by_id[np.searchsorted(ids[by_id], canonical)]
    place_of_id = np.argsort(canonical)
    edges = [
        place_of_id[np.searchsorted(canonical[place_of_id], cites[column].to_numpy())]
        for column in ("sourceNodeId", "targetNodeId")
    ]
    # The package numbers the seven subjects in another order.
    planetoid_class = np.array([3, 6, 1, 4, 0, 2, 5])
    x = np.array(nodes["features"].to_list(), dtype=np.float32)[row]
    fixed = (np.arange(140), np.arange(140, 640), np.arange(1708, 2708))
    # Planetoid's lists hold every citation both ways; so that the source makes no difference, so does this.
    both = np.concatenate([np.stack(edges), np.stack(edges[::-1])], axis=1)
    return RawGraph(x, both, planetoid_class[nodes["subject"].to_numpy()[row]], fixed)


def _amazon(files: Files) -> RawGraph:
    (content,) = files.values()
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        x = _dense(file["attr_indptr"], file["attr_indices"], file["attr_data"], file["attr_shape"])
        source = np.repeat(np.arange(len(file["adj_indptr"]) - 1), np.diff(file["adj_indptr"]))
        edges = np.stack([source, file["adj_indices"].astype(np.int64)])
        return RawGraph((x > 0).astype(np.float32), edges, file["labels"].astype(np.int64))


def _geom_gcn_tables(files: Files) -> tuple[list[list[str]], np.ndarray]:
    rows = [
        line.split("\t") for line in files["out1_node_feature_label.txt"].decode("ascii").splitlines()[1:]
    ]
    edges = np.array(files["out1_graph_edges.txt"].decode("ascii").split()[2:], dtype=np.int64).reshape(-1, 2)
    return rows, edges.T


def _geom_gcn(files: Files) -> RawGraph:
    rows, edges = _geom_gcn_tables(files)
    # Every feature of these files is a single 0 or 1, so every second character is one: 20 times faster than
    # reading numbers, and the pinned hash of the file says that it is so.
    ones = [
        np.frombuffer(features.encode("ascii"), dtype=np.uint8)[::2] == ord("1") for _, features, _ in rows
    ]
    x = np.stack(ones).astype(np.float32)
    return RawGraph(x, edges, np.array([int(label) for _, _, label in rows]))


def _geom_gcn_indices(files: Files) -> RawGraph:
    """As ``_geom_gcn``, but each node lists the numbers of its ones, and the rows are not in node order."""
    rows, edges = _geom_gcn_tables(files)
    ones = [np.array(features.split(","), dtype=np.int64) for _, features, _ in rows]
    x = np.zeros((len(rows), max(int(row.max()) for row in ones) + 1), dtype=np.float32)
    y = np.zeros(len(rows), dtype=np.int64)
    for (node, _, label), row in zip(rows, ones, strict=True):
        x[int(node), row] = 1.0
        y[int(node)] = int(label)
    return RawGraph(x, edges, y)


def _karate(files: Files) -> RawGraph:  # noqa: ARG001 - it lives in PyTorch Geometric's code, not in a file
    from torch_geometric.datasets import KarateClub

    data: Any = KarateClub()[0]
    return RawGraph(data.x.numpy(), data.edge_index.numpy(), data.y.numpy())


READERS: dict[str, Callable[[Files], RawGraph]] = {
    "planetoid": _planetoid,
    "cora_parquet": _cora_parquet,
    "amazon": _amazon,
    "geom_gcn": _geom_gcn,
    "geom_gcn_indices": _geom_gcn_indices,
    "karate": _karate,
}
