"""Convert graphs from and to data frames, files, networkx and PyTorch Geometric."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.graph import (
    STRUCTURAL,
    ReadReport,
    carried_by,
    clean_valued_edges,
    is_directed,
    structural_features,
    tensors_of,
)
from node2seq.data.reading import from_frames
from node2seq.data.schema import schema_of_matrix
from node2seq.data.splits import CLASSIFICATION, PARTS, REGRESSION, Split, kind_of_labels, labelled, masks_of
from node2seq.data.tabular import pl
from node2seq.errors import Node2SeqError
from node2seq.storage import check_tables, replacing

if TYPE_CHECKING:
    import networkx as nx


def from_pyg(data: Data, *, directed: bool = False) -> Data:
    """Prepare a graph of PyTorch Geometric: no self loops or duplicates, and undirected unless ``directed``.

    Takes ``edge_index``, ``x`` (structural features are made where there is none), ``y``, masks, and what
    edges carry: ``edge_weight``, ``edge_attr`` and ``edge_order`` (kept in 64 bits). Parallel edges that
    carry something stay what they are.
    """
    edge_index = data.edge_index
    if edge_index is None:
        raise Node2SeqError(
            "the graph", "it lacks `edge_index`", "Give a torch_geometric.data.Data that has it"
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or (data.x is not None and data.x.dim() != 2):
        shape = "no x" if data.x is None else f"x of shape {list(data.x.shape)}"
        raise Node2SeqError(
            f"{shape}, edge_index of shape {list(edge_index.shape)}",
            "they must be [N, C] and [2, E]",
            "Reshape them",
        )
    n = int(data.num_nodes or 0)
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n:
        raise Node2SeqError(
            f"edge_index from {int(edge_index.min())} to {int(edge_index.max())}",
            f"the graph has {n} nodes, numbered from 0",
            "Number the nodes by the rows of x",
        )
    carried = _checked(carried_by(data), edge_index.size(1))
    edges, carried, counts = clean_valued_edges(edge_index.long().cpu(), carried, n, directed=directed)
    report = ReadReport(counts)
    if data.x is None:
        x = structural_features(edges, n)
        report.notes.append(f"no features: the nodes get {STRUCTURAL}")
    else:
        x = data.x.float().cpu().contiguous()
    if not bool(torch.isfinite(x).all()):
        raise Node2SeqError("x", "it holds NaN or infinite values", "Replace them")
    prepared = Data(x=x, edge_index=edges, **carried)
    classes = 0
    if isinstance(data.y, Tensor):
        y = data.y.cpu()
        y = y if y.dim() == 2 and y.size(1) > 1 else y.view(-1)
        y = y.long() if kind_of_labels(y) != REGRESSION else y
        if y.size(0) != n:
            raise Node2SeqError(
                f"{y.size(0)} labels", f"the graph has {n} nodes", "Give one label per node, −1 for none"
            )
        prepared.y = y
        classes = int(y.max()) + 1 if y.numel() and kind_of_labels(y) == CLASSIFICATION else 0
    held = data.to_dict()
    kept = ("train_mask", "val_mask", "test_mask", "node_ids", "class_names", "name")
    prepared.update({name: held[name] for name in kept if held.get(name) is not None})
    features = 0 if data.x is None else x.size(1)
    prepared.schema = held.get("schema") or schema_of_matrix(features, classes, directed=directed)
    if isinstance(prepared.y, Tensor) and kind_of_labels(prepared.y) != CLASSIFICATION:
        prepared.schema = {**prepared.schema, "target": {"kind": kind_of_labels(prepared.y)}}
    prepared.report = report
    return prepared


def _checked(carried: dict[str, Tensor], num_edges: int) -> dict[str, Tensor]:
    """What edges carry on the CPU, times in 64 bits, the rest in 32; refuses what they cannot carry."""
    given = {
        name: (values.double() if name == "edge_order" else values.float()).cpu()
        for name, values in carried.items()
    }
    for name, values in given.items():
        most = 1 if name == "edge_order" else 2
        if not 1 <= values.dim() <= most or values.size(0) != num_edges:
            raise Node2SeqError(
                f"{name} of shape {list(values.shape)}",
                f"the graph has {num_edges} edges",
                "Give a row for each edge",
            )
        if not bool(values.isfinite().all()):
            raise Node2SeqError(name, "it holds NaN or infinite values", "Replace them")
    return given


def to_pyg(data: Data) -> Data:
    """The tensors alone, for tools that expect nothing else in a ``Data``."""
    return Data(**{name: value for name, value in data.to_dict().items() if isinstance(value, Tensor)})


def to_frames(data: Data, split: Split | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The graph as frames of edges and nodes, which :func:`from_frames` turns back into the same tensors.

    Edges: ``source``, ``target``; each edge of an undirected graph once; ``weight``, the features e0, e1, …
    and ``order`` where edges carry them. Nodes: ``id``, ``label`` (null where unlabelled), ``split`` if one
    is given or the graph has masks, and the features f0, f1, …
    """
    x, edge_index = tensors_of(data)
    held = data.to_dict()
    ids = held.get("node_ids")
    id_column = pl.Series("id", np.arange(x.size(0)) if ids is None else ids)
    source, target = edge_index.cpu()
    kept = torch.ones_like(source, dtype=torch.bool) if is_directed(data) else source < target
    ends = {"source": source[kept].numpy(), "target": target[kept].numpy()}
    edges = pl.DataFrame([id_column.gather(end).alias(name) for name, end in ends.items()])
    for name, values in carried_by(data).items():
        table = values.cpu()[kept]
        table = table[:, None] if table.dim() == 1 else table
        titles = {"edge_weight": ["weight"], "edge_order": ["order"]}.get(
            name, [f"e{i}" for i in range(table.size(1))]
        )
        edges = edges.hstack(pl.DataFrame(table.numpy(), schema=titles))
    columns = [id_column]
    if isinstance(data.y, Tensor):
        names = held.get("class_names")
        several = data.y.dim() == 2
        own = list(data.y.cpu().T) if several else [data.y.cpu()]
        titles = names or [f"label{i}" for i in range(len(own))]
        for number, values in enumerate(own):
            labels = pl.Series("label", values.numpy())
            labels = labels.set(pl.Series(~labelled(data.y.cpu()).numpy()), None)
            if names and not several:
                labels = labels.replace_strict(
                    range(len(names)), list(names), return_dtype=pl.String, default=None
                )
            columns.append(labels.alias(str(titles[number]) if several else "label"))
    if (parts := _parts(data, split)) is not None:
        columns.append(pl.Series("split", parts, dtype=pl.String))
    features = pl.DataFrame(x.cpu().numpy(), schema=[f"f{number}" for number in range(x.size(1))])
    return edges, pl.DataFrame(columns).hstack(features)


def _parts(data: Data, split: Split | None) -> list[str | None] | None:
    """``"train"``, ``"val"``, ``"test"`` or None for each node; None alone if there is no split."""
    if split is not None:
        members = [getattr(split, part).cpu().numpy() for part in PARTS]
    elif (masks := masks_of(data)) is not None:
        members = [np.flatnonzero(mask) for mask in masks]
    else:
        return None
    parts = np.full(int(data.num_nodes or 0), None, dtype=object)
    for name, nodes in zip(PARTS, members, strict=True):
        parts[nodes] = name
    return parts.tolist()


def write_graph(
    data: Data,
    edges: str | os.PathLike[str],
    nodes: str | os.PathLike[str],
    *,
    split: Split | None = None,
) -> None:
    """Write a graph into a file of edges and one of nodes, as CSV, TSV or Parquet by their names' endings."""
    paths = (Path(edges), Path(nodes))
    check_tables(paths, force=True)
    write_tables(zip(paths, to_frames(data, split), strict=True))


def write_tables(tables: Iterable[tuple[Path, pl.DataFrame]]) -> None:
    """Write frames as CSV, TSV or Parquet by the endings of their names: all of them, or none.

    :func:`check_tables` has seen the names.
    """
    with ExitStack() as written:
        for path, frame in tables:
            content = io.BytesIO()  # what the disk refuses reaches us through polars without its number
            if path.suffix.lower() == ".parquet":
                frame.write_parquet(content)
            else:
                frame.write_csv(content, separator="\t" if path.suffix.lower() == ".tsv" else ",")
            file = written.enter_context(replacing(path))
            file.write(content.getvalue())
            file.flush()


def from_networkx(
    graph: nx.Graph, label: str | None = None, *, features: Sequence[str] | None = None, **options: Any
) -> Data:
    """Make a graph of a networkx graph; node attributes are the columns, its own direction is kept.

    Args:
        graph (networkx.Graph): Parallel edges are merged, weights ignored.
        label (str, optional): The node attribute to predict; nodes without it are unlabelled.
        features (list of str, optional): The node attributes to learn from; all but the label if not given.
        options: See :func:`read_graph`.
    """
    if graph.number_of_nodes() == 0:
        raise Node2SeqError("the networkx graph", "it has no nodes", "Add some")
    attributes = dict.fromkeys(key for _, held in graph.nodes(data=True) for key in held)
    nodes = {"node id": [str(node) for node in graph.nodes]}
    nodes |= {str(key): [held.get(key) for _, held in graph.nodes(data=True)] for key in attributes}
    edges = {
        "source": [str(edge[0]) for edge in graph.edges],
        "target": [str(edge[1]) for edge in graph.edges],
    }
    options.setdefault("directed", graph.is_directed())
    return from_frames(edges, nodes, label, id="node id", features=features, **options)


def to_networkx(data: Data) -> nx.Graph:
    """The graph as networkx holds it: nodes by id, with ``x`` (list) and ``label`` (None if unlabelled)."""
    import networkx as nx

    assert data.edge_index is not None
    held = data.to_dict()
    ids = held.get("node_ids")
    ids = list(range(int(data.num_nodes or 0))) if ids is None else list(ids)
    graph = nx.DiGraph() if is_directed(data) else nx.Graph()
    names = held.get("class_names")
    for number, node in enumerate(ids):
        graph.add_node(node)
        if data.x is not None:
            graph.nodes[node]["x"] = data.x[number].tolist()
        if isinstance(data.y, Tensor):
            label: Any = data.y[number].tolist() if bool(labelled(data.y[number : number + 1])) else None
            graph.nodes[node]["label"] = names[label] if names and isinstance(label, int) else label
    graph.add_edges_from((ids[a], ids[b]) for a, b in data.edge_index.t().tolist())
    return graph
