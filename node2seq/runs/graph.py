"""A run's source → the graph it is trained on, and new graphs encoded as that one was."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data import (
    ReadReport,
    Split,
    Summary,
    load,
    make_split,
    normalize_features,
    read_graph,
    summarise,
)
from node2seq.data.encoding import encoded_columns, is_read_otherwise
from node2seq.data.graph import bare, carried_by, report_of, tensors_of
from node2seq.data.reading import Source
from node2seq.data.sources import Say
from node2seq.data.splits import CLASSIFICATION, kind_of_labels, labelled
from node2seq.data.store import StoredGraph
from node2seq.errors import Node2SeqError
from node2seq.runs.folder import RunConfig, RunFolder
from node2seq.storage import sha256_file, sha256_tensors
from node2seq.train.task import Task


@dataclass(frozen=True)
class RunGraph:
    """A graph ready for a model.

    Args:
        data: With features normalised if the run says so.
        class_names: By class id; none where numbers are predicted.
        sha256: Digest of features, edges and labels as they were read; a run is bound to it.
    """

    data: Data
    class_names: list[str]
    sha256: str
    store: StoredGraph | None = None
    """Where it lies, if it stays on disk; ``data`` has no edges then."""

    @property
    def num_edges(self) -> int:
        """How many edges there are."""
        return self.data.num_edges if self.store is None else self.store.num_edges

    def split(self, rule: str | None, seed: int) -> Split:
        """The nodes of a run; of a graph on disk, labelled nodes in no part are not counted."""
        split = make_split(self.data, rule, seed)
        return split if self.store is None else replace(split, test_rest=split.test)

    @property
    def node_ids(self) -> list[Any]:
        """The nodes' names in the user's files, or their numbers."""
        ids = self.data.get("node_ids")
        return list(range(self.data.x.size(0))) if ids is None else list(ids)  # pyright: ignore[reportOptionalMemberAccess]

    @property
    def report(self) -> ReadReport:
        """What reading it has to tell, and what should be known before anything is trained on it."""
        return report_of(self.data)

    @property
    def unlabelled(self) -> list[Any]:
        """The names of the nodes without a label."""
        known = labelled(_parts(self.data)[2]).tolist()
        return [name for name, is_known in zip(self.node_ids, known, strict=True) if not is_known]

    @cached_property
    def summary(self) -> Summary:
        """Sizes, shape, and what was dropped or merged when it was read."""
        return summarise(self.data) if self.store is None else self.store.summary

    def on(self, device: torch.device) -> Data:
        """What a model reads of it, on a device."""
        return bare(self.data).to(str(device))

    def describe(self, source: Source, task: Task) -> dict[str, Any]:
        """Return what config.json says of the graph, the scale of the training nodes included."""
        schema = self.data.get("schema")
        if task.described is not None:
            schema = {**(schema or {}), "target": task.described}
        return {
            "summary": self.summary.as_dict(),
            "class_names": self.class_names,
            "sha256": self.sha256,
            "files": {str(file): sha256_file(file) for file in source.files},
            "schema": schema,
        }


def open_graph(
    source: Source, row_normalize: bool = False, say: Say | None = None, data: Data | None = None
) -> RunGraph:
    """Read the graph that a run is trained on, unless ``data`` is what was read already."""
    if source.store is not None:
        store = StoredGraph(source.store)
        return RunGraph(store.data(), store.class_names, store.sha256, store)
    return _ready(read_source(source, say) if data is None else copy.copy(data), row_normalize)


def read_source(source: Source, say: Say | None = None) -> Data:
    """Read a graph by name or from files; of one on disk, its labels."""
    if source.store is not None:
        store = StoredGraph(source.store)
        if not store.has_labels:
            raise Node2SeqError(
                source.store,
                "it was converted without a label",
                "Convert the files again with --label COLUMN",
            )
        return store.data()
    if source.name is not None:
        return load(source.name, root=source.root, say=say, **source.reading)
    return read_graph(source.edges, source.nodes, source.label, say=say, **source.reading)


def open_again(folder: RunFolder, say: Say | None = None, *, whole: bool = True) -> RunGraph:
    """Read the graph of an existing run, and make sure that it is still the same.

    Args:
        folder: The run.
        say: Called with a line before anything that takes a while.
        whole: Whether it is needed in memory, which a graph on disk is not.
    """
    if whole and folder.run.source.store is not None:
        raise Node2SeqError(
            str(folder.path),
            "its graph is a store on disk, and this reads the whole graph",
            "Train on the files of a graph that fits into memory",
        )
    graph = open_graph(source_as_read(folder), folder.run.row_normalize, say)
    check_same_graph(folder, graph)
    return graph


def source_as_read(folder: RunFolder) -> Source:
    """The source of a run with what was found out about its label column when it was first read."""
    source = folder.run.source
    if not source.files or source.label is None:
        return source
    reading = {**source.reading, "task": folder.task.kind}
    # What was a category then, such as a word for a missing cell, is one now; what was left out stays out.
    features = (folder.config["graph"].get("schema") or {}).get("features", [])
    reading["features"] = encoded_columns(features)
    named = [column["name"] for column in features if is_read_otherwise(column.get("categories", []))]
    if named:
        reading["categorical"] = list(dict.fromkeys([*source.reading.get("categorical", []), *named]))
    return replace(source, reading=reading)


def check_has_edges(graph: RunGraph, source: Source) -> None:
    """Refuse to train on nodes alone."""
    if graph.num_edges == 0:
        raise Node2SeqError(
            f"the graph {source.title}",
            "it has no edges between different nodes",
            "Give some, or train a model for tables instead",
        )


def check_same_graph(folder: RunFolder, graph: RunGraph) -> None:
    """Refuse a graph that is not the one that a run was started with."""
    known = folder.config["graph"]
    if graph.sha256 == known["sha256"]:
        return
    for file, digest in known.get("files", {}).items():
        if sha256_file(Path(file)) != digest:
            raise Node2SeqError(
                file,
                f"it has changed since the run in {folder.path} was started",
                "Restore the file, or start a new run",
            )
    raise Node2SeqError(
        f"the graph {folder.run.source.title}",
        f"it is not the one that the run in {folder.path} was started with",
        "Give the same data, or start a new run",
    )


def check_same_for_all(folder: RunFolder, graph: RunGraph, source: Source, config: RunConfig) -> None:
    """Refuse a graph or settings that are not those of the first of several processes."""
    known = folder.config["graph"]
    if graph.sha256 != known["sha256"]:
        differing = [str(file) for file in source.files if sha256_file(file) not in known["files"].values()]
        raise Node2SeqError(
            ", ".join(differing) or source.store or f"the graph {source.title}",
            "it differs from what rank 0 reads, and all processes train on the same graph",
            "Copy the files of rank 0 to this machine, or keep them in a folder that all machines share",
        )
    if changed := folder.run.differences(config):
        raise Node2SeqError(
            f"other settings than those of rank 0 ({', '.join(changed)})",
            "all processes train the same run",
            "Start them with the same command",
        )


def open_new(
    folder: RunFolder,
    edges: str | Path | None,
    nodes: str | Path | None,
    reading: Mapping[str, Any],
    say: Say | None = None,
) -> RunGraph:
    """Read another graph with the columns and categories of the run's own."""
    config = folder.run
    schema = folder.config["graph"].get("schema")
    data = read_graph(edges, nodes, schema=schema, say=say, **reading)
    graph = _ready(data, config.row_normalize)
    width = folder.config["model"]["in_channels"]
    if (found := graph.data.num_node_features) != width:
        raise Node2SeqError(
            f"{nodes or edges}: {found} features",
            f"the model was trained on {width}",
            "Give the same columns as in training",
        )
    return graph


def _ready(data: Data, row_normalize: bool) -> RunGraph:
    x, edge_index, y = _parts(data)
    digest = sha256_tensors({"x": x, "edge_index": edge_index, "y": y, **carried_by(data)})
    if row_normalize:
        data.x = normalize_features(x)
    names = data.get("class_names")
    if names is None:
        has_classes = y.numel() and kind_of_labels(y) == CLASSIFICATION
        names = map(str, range(int(y.max()) + 1 if has_classes else 0))
    return RunGraph(data, [str(name) for name in names], digest)


def _parts(data: Data) -> tuple[Tensor, Tensor, Tensor]:
    x, edge_index = tensors_of(data)
    return x, edge_index, data.y if isinstance(data.y, Tensor) else torch.full((x.size(0),), -1)
