"""A graph on disk: a folder of arrays that are mapped to memory and read part by part.

==================  =========================================================================
``manifest.json``   sizes, types and checksums of the arrays, the schema; written last
``colptr.bin``      where the edges into each node start, int64, [N + 1]
``row.bin``         the source of each edge, by target, then source, int32, [E]
``x.bin``           features, float16 or float32, [N, F]
``y.bin``           class numbers, int64, −1: unlabelled; or numbers, float64, NaN: unlabelled, [N]
``split.bin``       1 train, 2 val, 3 test, 0 none, uint8, [N]; only with a split column
``out_degree.bin``  edges that leave each node, int32, [N]; only of directed graphs
``id_text.bin``     the nodes' ids, one behind the other, UTF-8
``id_ptr.bin``      where each of them starts, int64, [N + 1]
``id_order.bin``    the nodes in the order of their ids, int32, [N]
==================  =========================================================================

:func:`node2seq.data.convert.convert` makes such a folder.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.loader.utils import index_select

from node2seq.data.graph import Summary
from node2seq.data.sampler import NeighbourSampler
from node2seq.data.splits import PARTS
from node2seq.data.tabular import subject
from node2seq.errors import Node2SeqError
from node2seq.storage import read_json, replacing, sha256_file, write_json

FORMAT = 1
MANIFEST, JOURNAL = "manifest.json", "convert.json"
Array = NDArray[Any]


class StoredGraph(FeatureStore, GraphStore):
    """A graph that stays on disk; what is read of it is read from there.

    It is a feature store and a graph store of PyTorch Geometric:
    ``NodeLoader((graph, graph), graph.sampler([10, 10]), (None, nodes))`` draws batches from it.

    Args:
        path: The folder that ``node2seq data convert`` made.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.path = Path(path)
        self.manifest = _read_manifest(self.path)

    @property
    def num_nodes(self) -> int:
        """How many nodes there are."""
        return int(self.manifest["nodes"])

    @property
    def num_edges(self) -> int:
        """How many edges there are; those of an undirected graph count twice, once for each direction."""
        return int(self.manifest["edges"])

    @property
    def num_features(self) -> int:
        """How many features a node has."""
        return int(self.manifest["arrays"]["x"]["shape"][1])

    @property
    def class_names(self) -> list[str]:
        """The classes by their numbers; none where numbers are predicted."""
        return list(self.manifest["schema"]["class_names"])

    @property
    def sha256(self) -> str:
        """A digest of the graph: of the checksums of its arrays."""
        return str(self.manifest["sha256"])

    @property
    def has_labels(self) -> bool:
        """Whether there is something to predict."""
        return self.manifest["schema"]["columns"]["label"] is not None

    @cached_property
    def summary(self) -> Summary:
        """Sizes and shape."""
        return Summary(**self.manifest["summary"])

    @cached_property
    def colptr(self) -> Array:
        """Where the edges into each node start, [N + 1]."""
        return self._map("colptr")

    @cached_property
    def row(self) -> Array:
        """The source of each edge."""
        return self._map("row")

    @cached_property
    def y(self) -> Tensor:
        """What is predicted of each node, mapped from disk."""
        return torch.from_numpy(self._map("y"))

    @cached_property
    def x(self) -> Tensor:
        """The features as they are stored, mapped from disk; :meth:`features` reads some of them."""
        return torch.from_numpy(self._map("x"))

    def features(self, nodes: Tensor) -> Tensor:
        """The features of some nodes, float32."""
        return index_select(self.x, nodes).float()

    def degrees(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """How many edges end at some nodes, and how many leave them, float64."""
        places = nodes.numpy()
        into = self.colptr[places + 1] - self.colptr[places]
        out = self._map("out_degree")[places] if "out_degree" in self.manifest["arrays"] else into
        return torch.from_numpy(into).double(), torch.from_numpy(out).double()

    def sampler(self, fanout: Sequence[int], **options: Any) -> NeighbourSampler:
        """Draws neighbours from the disk; options as in :class:`~node2seq.data.sampler.NeighbourSampler`."""
        return NeighbourSampler(self.colptr, self.row, fanout, **options)

    def masks(self) -> dict[str, Tensor]:
        """Which nodes are in each part of the split column; nothing without one."""
        if "split" not in self.manifest["arrays"]:
            return {}
        parts = self._map("split")
        return {f"{part}_mask": torch.from_numpy(parts == i) for i, part in enumerate(PARTS, start=1)}

    def data(self) -> Data:
        """Labels, features and split as :func:`node2seq.data.read_graph` gives them, mapped; no edges."""
        kept = {"schema": self.manifest["schema"], "class_names": self.class_names, **self.masks()}
        return Data(x=self.x, y=self.y if self.has_labels else None, num_nodes=self.num_nodes, **kept)

    def ids(self, nodes: Tensor) -> list[str]:
        """The ids of some nodes as the user's files have them."""
        return [self._id(node).decode() for node in nodes.tolist()]

    def find(self, ids: Sequence[str]) -> Tensor:
        """The nodes with these ids."""
        found = [self._node(str(name).strip()) for name in ids]
        unknown = [str(name) for name, node in zip(ids, found, strict=True) if node is None]
        if unknown:
            which = subject(unknown, "id {} is", "{} ids ({}) are")
            raise Node2SeqError(str(self.path), f"{which} not in this graph", "Give ids of its nodes")
        return torch.tensor(found, dtype=torch.int64)

    def _id(self, node: int) -> bytes:
        text, ptr, _ = self._ids
        start, end = ptr[node : node + 2].tolist()
        return text[start:end].tobytes()

    def _node(self, name: str) -> int | None:
        """The node of an id, by halving the range of the ids in order: a few reads of the disk."""
        wanted, nodes = name.encode(), self._ids[2]
        place = bisect_left(nodes, wanted, key=lambda node: self._id(int(node)))
        found = int(nodes[place]) if place < len(nodes) else None
        return found if found is not None and self._id(found) == wanted else None

    def check(self) -> None:
        """Compare every array with its checksum. Opening a store compares sizes alone."""
        for entry in self.manifest["arrays"].values():
            if sha256_file(self.path / entry["file"]) != entry["sha256"]:
                raise _damaged(self.path / entry["file"], "its checksum does not match its content")

    @cached_property
    def _ids(self) -> tuple[Array, Array, Array]:
        return self._map("id_text"), self._map("id_ptr"), self._map("id_order")

    def _map(self, name: str) -> Array:
        return map_array(self.path, self.manifest["arrays"][name])

    def __getstate__(self) -> dict[str, Any]:
        # A process that is spawned maps the arrays by itself.
        kept = ("path", "manifest", "_tensor_attr_cls", "_edge_attr_cls")  # the latter two are PyG's own
        return {name: vars(self)[name] for name in kept}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        vars(self).update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, nodes={self.num_nodes}, edges={self.num_edges})"

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """What a batch gets of each node."""
        names = ["x", "y"] if self.has_labels else ["x"]
        return [TensorAttr(None, name) for name in names]

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        if attr.attr_name not in ("x", "y"):
            return None
        values, index = getattr(self, str(attr.attr_name)), attr.index
        if isinstance(index, list | np.ndarray):
            index = torch.as_tensor(index)
        taken = values if index is None else values[index]
        return taken.float() if attr.attr_name == "x" else taken

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        entry = self.manifest["arrays"].get(str(attr.attr_name))
        return None if entry is None else tuple(entry["shape"])

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The one kind of edges."""
        size = (self.num_nodes, self.num_nodes)
        kind: Any = None  # there is one kind alone, without a name
        return [EdgeAttr(kind, layout=EdgeLayout.CSC, is_sorted=True, size=size)]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout != EdgeLayout.CSC:
            return None
        return torch.from_numpy(self.row), torch.from_numpy(self.colptr)

    def _read_only(self, *_: Any, **__: Any) -> bool:
        raise Node2SeqError(str(self.path), "a store is read only", "Convert other files into another store")

    _put_tensor = _remove_tensor = _put_edge_index = _remove_edge_index = _read_only


def map_array(folder: Path, entry: Mapping[str, Any]) -> Array:
    """An array of a store, mapped from disk, by what the manifest says of it."""
    shape = tuple(entry["shape"])
    if 0 in shape:  # nothing can be mapped of an empty file
        return np.empty(shape, dtype=entry["dtype"])
    # Copy on write: torch takes no array that is read only. Nothing is written, so nothing is copied.
    return np.asarray(np.memmap(folder / entry["file"], dtype=entry["dtype"], mode="c", shape=shape))


def write_array(
    folder: Path, name: str, dtype: str, chunks: Iterable[Array], width: int | None = None
) -> dict[str, Any]:
    """Write an array chunk by chunk, whole or not at all; returns what the manifest says of it.

    Args:
        folder: The store.
        name: Of the array.
        dtype: Of its entries.
        chunks: Its rows in order.
        width: How many entries a row has; None: the array has one dimension.
    """
    file_name, digest, rows = f"{name}.bin", hashlib.sha256(), 0
    with replacing(folder / file_name) as file:
        for chunk in chunks:
            plain = np.ascontiguousarray(chunk, dtype=dtype)
            file.write(plain.data)
            digest.update(plain.data)
            rows += plain.shape[0]
    shape = [rows] if width is None else [rows, width]
    return {"file": file_name, "dtype": dtype, "shape": shape, "sha256": digest.hexdigest()}


def write_manifest(folder: Path, arrays: Mapping[str, Mapping[str, Any]], about: Mapping[str, Any]) -> None:
    """Make a store of a folder whose arrays are written."""
    digest = hashlib.sha256(json.dumps([arrays, about["schema"]], sort_keys=True).encode()).hexdigest()
    write_json(folder / MANIFEST, {"format": FORMAT, **about, "arrays": arrays, "sha256": digest})


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise Node2SeqError(str(path), "there is no such store", "Check the path")
    if not (path / MANIFEST).is_file():
        if (path / JOURNAL).is_file():
            raise Node2SeqError(
                str(path),
                "the store is half written: its conversion was interrupted",
                "Run the same `node2seq data convert` again, which resumes it",
            )
        raise Node2SeqError(
            str(path),
            f"it has no {MANIFEST}, so it is not a store",
            "Give a folder that `node2seq data convert` made",
        )
    manifest = read_json(path / MANIFEST)
    number = manifest.get("format")
    if not isinstance(number, int) or number > FORMAT:
        raise Node2SeqError(
            f"{path / MANIFEST}: format={number!r}",
            f"this version of node2seq reads formats up to {FORMAT}",
            "Update with `pip install --upgrade node2seq`, or convert the files again",
        )
    try:
        sizes = {
            path / entry["file"]: np.dtype(entry["dtype"]).itemsize * int(np.prod(entry["shape"]))
            for entry in manifest["arrays"].values()
        }
        _ = manifest["nodes"], manifest["edges"], manifest["sha256"], manifest["schema"]["columns"]["label"]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise Node2SeqError(
            str(path / MANIFEST), f"parts of it are missing or wrong ({error})", "Convert the files again"
        ) from error
    for file, size in sizes.items():
        if not file.is_file():
            raise _damaged(file, "the file is missing")
        if (found := file.stat().st_size) != size:
            raise _damaged(file, f"it has {found} bytes, and the manifest of the store says {size}")
    return manifest


def _damaged(path: Path, reason: str) -> Node2SeqError:
    return Node2SeqError(str(path), reason, "Restore it from a copy, or convert the files again")
