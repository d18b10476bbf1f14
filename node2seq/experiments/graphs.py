"""The graphs of the columns: from the data sets, or from one packed file that travels to another machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from node2seq.data import load
from node2seq.data.encoding import standardize
from node2seq.data.graph import tensors_of
from node2seq.errors import Node2SeqError

#: How the name of a column without duplicates ends.
UNIQUE = "-unique"
#: How many nodes such columns have.
UNIQUE_NODES = {"chameleon": 1229, "squirrel": 3314}


def read_graph_of(column: str, root: str | Path | None = None, *, directed: bool = False) -> Data:
    """The graph of a column; ``chameleon-unique`` is Chameleon without its duplicates."""
    data = load(column.removesuffix(UNIQUE), root=root, directed=directed)
    return without_duplicates(data) if column.endswith(UNIQUE) else data


def without_duplicates(data: Data) -> Data:
    """The graph with the first of all nodes that have the same neighbours and the same label."""
    x, edges = tensors_of(data)
    assert isinstance(data.y, torch.Tensor)
    neighbours: list[list[int]] = [[] for _ in range(x.size(0))]
    for source, target in edges.t().tolist():
        neighbours[target].append(source)
    first: dict[tuple[int, frozenset[int]], int] = {}
    for node, (label, own) in enumerate(zip(data.y.tolist(), neighbours, strict=True)):
        first.setdefault((label, frozenset(own)), node)
    kept = torch.tensor(sorted(first.values()))
    edge_index, _ = subgraph(kept, edges, relabel_nodes=True, num_nodes=x.size(0))
    return Data(x=x[kept], edge_index=edge_index, y=data.y[kept], split_rule=data["split_rule"])


def standardized(data: Data) -> Data:
    """The graph with each feature at mean 0 and variance 1, as the default network takes it."""
    assert data.x is not None
    copied = data.clone()
    copied.x = torch.from_numpy(standardize(data.x.cpu().numpy())).to(data.x)
    return copied


def pack(path: Path, graphs: Iterable[tuple[str, Data]]) -> None:
    """Write the tensors and split rules of graphs into one file by name; features without their zeros."""
    arrays: dict[str, np.ndarray] = {}
    for name, data in graphs:
        kept = {k: v for k, v in data.to_dict().items() if isinstance(v, torch.Tensor) or k == "split_rule"}
        parts = {key: np.asarray(value) for key, value in kept.items()}
        x = parts.pop("x")
        row, place = np.nonzero(x)
        parts["edge_index"] = parts["edge_index"].astype(np.int32)
        parts |= {"shape": np.array(x.shape), "value": x[row, place]}
        parts |= {"row": row.astype(np.int32), "place": place.astype(np.int32)}
        arrays |= {f"{name}/{key}": values for key, values in parts.items()}
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]


def packed_names(path: Path) -> list[str]:
    """The names of the graphs of a file."""
    with np.load(path) as arrays:
        return list(dict.fromkeys(key.rpartition("/")[0] for key in arrays.files))


def unpack(path: Path, name: str) -> Data:
    """A graph as it was packed."""
    with np.load(path) as arrays:
        parts = {
            key.rpartition("/")[2]: arrays[key] for key in arrays.files if key.rpartition("/")[0] == name
        }
    if not parts:
        raise Node2SeqError(f"{path}: {name}", "it holds no such graph", "Write it again with `pack`")
    x = np.zeros(parts.pop("shape"), dtype=np.float32)
    x[parts.pop("row"), parts.pop("place")] = parts.pop("value")
    edge_index = torch.from_numpy(parts.pop("edge_index")).long()
    rest: dict[str, Any] = {
        key: str(v) if v.dtype.kind == "U" else torch.from_numpy(v) for key, v in parts.items()
    }
    return Data(x=torch.from_numpy(x), edge_index=edge_index, **rest)
