"""The graphs of the columns: from the data sets, or from one packed file that travels to another machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from node2seq.data import load
from node2seq.data.encoding import standardize
from node2seq.errors import Node2SeqError

_UNIQUE = "-unique"
_MASKS = ("train_mask", "val_mask", "test_mask")


def read_graph_of(column: str, root: str | Path | None = None, *, directed: bool = False) -> Data:
    """The graph of a column; ``chameleon-unique`` is Chameleon without its duplicates."""
    data = load(column.removesuffix(_UNIQUE), root=root, directed=directed)
    return without_duplicates(data) if column.endswith(_UNIQUE) else data


def without_duplicates(data: Data) -> Data:
    """The graph with the first of all nodes that have the same neighbours and the same label."""
    assert data.x is not None
    assert data.edge_index is not None
    assert isinstance(data.y, torch.Tensor)
    neighbours: list[list[int]] = [[] for _ in range(data.x.size(0))]
    for source, target in data.edge_index.t().tolist():
        neighbours[target].append(source)
    first: dict[tuple[int, frozenset[int]], int] = {}
    for node, (label, own) in enumerate(zip(data.y.tolist(), neighbours, strict=True)):
        first.setdefault((label, frozenset(own)), node)
    kept = torch.tensor(sorted(first.values()))
    edge_index, _ = subgraph(kept, data.edge_index, relabel_nodes=True, num_nodes=data.x.size(0))
    return Data(x=data.x[kept], edge_index=edge_index, y=data.y[kept], split_rule=data["split_rule"])


def standardized(data: Data) -> Data:
    """The graph with each feature at mean 0 and variance 1, as the default network takes it."""
    assert data.x is not None
    copied = data.clone()
    copied.x = torch.from_numpy(standardize(data.x.cpu().numpy())).to(data.x)
    return copied


def pack(path: Path, columns: Iterable[str], root: str | Path | None = None) -> None:
    """Write the graphs of columns into one file; features without their zeros."""
    arrays: dict[str, np.ndarray] = {}
    for column in columns:
        data = read_graph_of(column, root)
        assert data.x is not None
        assert data.edge_index is not None
        assert isinstance(data.y, torch.Tensor)
        x = data.x.numpy()
        row, place = np.nonzero(x)
        parts = {
            "shape": np.array(x.shape),
            "row": row.astype(np.int32),
            "place": place.astype(np.int32),
            "value": x[row, place],
            "edge_index": data.edge_index.numpy().astype(np.int32),
            "y": data.y.numpy(),
            "rule": np.array(data["split_rule"]),
        }
        parts |= {name: data[name].numpy() for name in _MASKS if name in data}
        arrays |= {f"{column}/{name}": values for name, values in parts.items()}
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]


def unpack(path: Path, column: str) -> Data:
    """The graph of a column as it was packed."""
    with np.load(path) as arrays:
        if f"{column}/y" not in arrays.files:
            raise Node2SeqError(f"{path}: {column}", "it holds no such graph", "Write it again with `pack`")
        part = {
            name.removeprefix(f"{column}/"): arrays[name] for name in arrays.files if _is_of(name, column)
        }
    x = np.zeros(part["shape"], dtype=np.float32)
    x[part["row"], part["place"]] = part["value"]
    edges = torch.from_numpy(part["edge_index"]).long()
    data = Data(x=torch.from_numpy(x), edge_index=edges, y=torch.from_numpy(part["y"]).long())
    data.split_rule = str(part["rule"])
    for name in _MASKS:
        if name in part:
            data[name] = torch.from_numpy(part[name])
    return data


def _is_of(name: str, column: str) -> bool:
    return name.rpartition("/")[0] == column
