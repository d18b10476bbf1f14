"""Read a graph from tables of edges and nodes, with its node ids, class names and schema."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data.edges import CarriedColumns, EdgeCounts, clean_edges, clean_valued_edges
from node2seq.data.encoding import (
    Encoding,
    Labels,
    choose_encoding,
    described_columns,
    encode,
    encoded_columns,
    read_labels,
    read_numbers,
    read_split,
)
from node2seq.data.sources import Say
from node2seq.data.splits import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASKS
from node2seq.data.structural import STRUCTURAL, structural_features
from node2seq.data.tabular import (
    LazyTable,
    as_text,
    find_column,
    first_few,
    missing_column,
    normalized_name,
    open_table,
    quoted,
    subject,
    table_of,
    weight_column,
)
from node2seq.data.temporal import newer_edges, read_order, split_by_time, tied_edges, without_edges
from node2seq.data.times import Kind, Times, read_times
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice

if TYPE_CHECKING:
    import polars as pl

_SCHEMA_FORMAT = 1
# Where more columns are not used, they are described together.
_MOST_UNUSED = 24


@dataclass(frozen=True)
class ReadReport:
    """What reading changed: the edges dropped or merged, and notes and warnings for the user.

    ``columns`` says how each column of the nodes was read.
    """

    edges: EdgeCounts
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _NodeTable:
    """The nodes table as read: its columns, and which of them hold the id, label, split and time."""

    title: str
    frame: pl.DataFrame
    id: str
    labels: list[str]
    split: str | None
    time: str | None

    @property
    def roles(self) -> list[str]:
        """The columns that are no features."""
        return [name for name in (self.id, *self.labels, self.split, self.time) if name is not None]


@dataclass(frozen=True)
class ReadOptions:
    """How the tables are read.

    Args:
        label (str, optional): The column of ``nodes`` to predict; empty cells are unlabelled nodes, ``y`` =
            −1.
        source (str, optional): Column of the edges' sources. If not given, it is found by its usual names, as
            are ``target`` and, in the nodes file, ``id``.
        target (str, optional): Column of the edges' targets.
        id (str, optional): Column of the nodes' ids.
        split (str, optional): Column of the nodes with ``train``, ``val``, ``test`` or nothing.
        directed (bool, optional): Keep the direction of the edges. (default: False, or the schema's)
        fill (str or float, optional): The value for missing numbers: ``"mean"`` or a number. A missing
            category is then all zero. If not given, a missing value is an error.
        features (list of str, optional): The feature columns; all but id, label and split if not given.
        categorical (list of str): Feature columns that hold categories although they look like numbers.
        ignore (list of str): Columns to leave out.
        schema (dict, optional): ``data.schema`` of another graph: encode this one in the same way. It sets
            the features, classes, fill values and scales. ``fill`` is for columns that it does not fill, and
            ``split`` is not used.
        standardize (bool): Bring columns of numbers to mean 0 and standard deviation 1. Zeros and ones stay
            as they are; columns of which half of the cells are zero are divided by their largest size. The
            schema keeps the scales of this graph for others. (default: False)
        edge_weight (str, optional): Column of ``edges`` with a weight for each edge.
        edge_features (list of str): Columns of ``edges`` with numbers that describe each edge.
        order_by (str, optional): Column of ``edges`` with the date, timestamp or number by which the edges of
            a node are ordered, largest first. An edge that is repeated over time stays repeated.
        split_by (str, optional): Column of ``nodes`` with a date, a timestamp or a number: the first 60 % of
            the labelled nodes train, the next 20 % validate, the last 20 % test. It is no feature.
        no_future_edges (bool): With ``order_by`` and ``split_by``, drop edges that are newer than the node at
            which they end. (default: False)
        task (str, optional): ``"classification"``: a class for each node; ``"regression"``: the number
            itself; ``"multi-label"``: several labels. If not given, a label column of many different numbers
            is one of numbers, and several label columns are several labels.
        label_separator (str, optional): What separates several labels in a cell of the label column.
    """

    label: str | None = None
    source: str | None = None
    target: str | None = None
    id: str | None = None
    split: str | None = None
    directed: bool | None = None
    fill: str | float | None = None
    features: Sequence[str] | None = None
    categorical: Sequence[str] = ()
    ignore: Sequence[str] = ()
    schema: dict[str, Any] | None = None
    standardize: bool = False
    edge_weight: str | None = None
    edge_features: Sequence[str] = ()
    order_by: str | None = None
    split_by: str | None = None
    no_future_edges: bool = False
    task: str | None = None
    label_separator: str | None = None

    def __post_init__(self) -> None:
        if self.task is not None:
            check_choice("task", self.task, TASKS)
        if self.label_separator is not None and self.task not in (None, MULTI_LABEL):
            raise Node2SeqError(
                f"task={self.task} and label_separator={self.label_separator!r}",
                "a separator is for several labels",
                "Leave one of them out",
            )
        if self.split is not None and self.split_by is not None:
            raise Node2SeqError(
                f"split={self.split} and split_by={self.split_by}", "these are two splits", "Give one of them"
            )
        if self.no_future_edges and (self.order_by is None or self.split_by is None):
            raise Node2SeqError(
                "no_future_edges",
                "it compares the times of edges and nodes",
                "Name their columns with order_by and split_by (--order-by, --split-by), or leave it out",
            )


def read_graph(
    edges: str | os.PathLike[str] | None,
    nodes: str | os.PathLike[str] | None = None,
    label: str | None = None,
    *,
    delimiter: str | None = None,
    say: Say | None = None,
    **options: Any,
) -> Data:
    """Read a graph from a file of edges and an optional file of nodes.

    Formats: CSV, TSV, Parquet and NPZ, also gzipped. Ids are text or whole numbers of any size. The nodes
    keep the order of the nodes file; without one, the order in which they first appear in the edges.
    Duplicate edges are merged and self loops are dropped. Where edges carry a weight, features or an order,
    parallel edges stay what they are; in an undirected graph both directions of an edge carry the same. A
    graph without feature columns gets structural features.

    Args:
        edges (path): The file of edges.
        nodes (path, optional): The file of nodes.
        label (str, optional): The column of ``nodes`` to predict; empty cells are unlabelled nodes, ``y`` =
            −1. Several columns of zeros and ones, separated by commas, are several labels for each node.
        delimiter (str, optional): What separates the cells of a CSV or TSV file.
        say (callable, optional): Called with a line before each step that may take a while.
        **options: Other fields of :class:`ReadOptions`: ``source``, ``target``, ``id``, ``split``,
            ``directed``, ``fill``, ``features``, ``categorical``, ``ignore``, ``schema``, ``standardize``,
            ``edge_weight``, ``edge_features``, ``order_by``, ``split_by``, ``no_future_edges``, ``task``
            and ``label_separator``.

    Returns:
        Data: ``x``, ``edge_index`` and, with a label, ``y`` as :func:`load` gives them, numbers to predict
        as float64, NaN where there is none, or several labels [N, labels] of zeros and ones; ``node_ids``
        (array of str), ``class_names`` (list of str), ``schema`` (JSON-ready dict), ``report``
        (:class:`ReadReport`), ``train_mask``, ``val_mask``, ``test_mask`` with a split column or
        ``split_by``, and ``edge_weight`` [E], ``edge_attr`` [E, F] and ``edge_order`` [E] (float64) where
        edges carry them.
    """
    if edges is None:
        raise Node2SeqError("no file of edges", "a graph needs one", "Give it with edges=FILE (--edges FILE)")
    edge_table = open_table(edges, delimiter)
    node_table = None if nodes is None else open_table(nodes, delimiter)
    return build_graph(edge_table, node_table, _options(label, options), say or _silent)


def from_frames(edges: Any, nodes: Any = None, label: str | None = None, **options: Any) -> Data:
    """Make a graph from polars or pandas DataFrames or dicts of columns; options as in :func:`read_graph`."""
    node_table = None if nodes is None else table_of(nodes, "the nodes frame")
    say: Say = options.pop("say", None) or _silent
    return build_graph(table_of(edges, "the edges frame"), node_table, _options(label, options), say)


def _options(label: str | None, given: dict[str, Any]) -> ReadOptions:
    known = [field.name for field in fields(ReadOptions)]
    if unknown := sorted(set(given) - set(known)):
        raise Node2SeqError(f"option {unknown[0]!r}", "no such option", f"Take one of {', '.join(known)}")
    return ReadOptions(label, **given)


def _silent(line: str) -> None:
    """Ignore the line."""


def build_graph(edges: LazyTable, nodes: LazyTable | None, options: ReadOptions, say: Say) -> Data:
    """Check the columns' names first, then read nodes and edges."""
    schema = None if options.schema is None else check_schema(options.schema)
    own = {} if schema is None else schema["columns"]
    directed = options.directed if options.directed is not None else bool(schema and schema["directed"])
    source = find_column(edges, "source", options.source or _if_there(own.get("source"), edges))
    target = find_column(edges, "target", options.target or _if_there(own.get("target"), edges))
    if source == target:
        raise Node2SeqError(edges.title, f"{source!r} is named as source and as target", "Name two columns")
    notes: list[str] = []
    warnings: list[str] = []
    carried = _carried_columns(edges, (source, target), options, schema)
    weight = weight_column(edges)
    if weight is not None and weight not in (source, target, *carried.names):
        notes.append(f"column {weight!r} of {edges.title} is ignored; to use it, give --edge-weight {weight}")
    others = [name for name in edges.names if name not in (source, target, weight, *carried.names)]
    if others:
        notes.append(f"columns of {edges.title} that are not used: {first_few(others)}")
    if nodes is None and options.label is not None and schema is None:
        raise Node2SeqError(
            f"label {options.label!r}",
            "labels come from a table of nodes",
            "Give one with nodes (--nodes FILE)",
        )
    if nodes is None and options.split_by is not None:
        raise Node2SeqError(
            f"split_by={options.split_by}",
            "it is a column of the nodes",
            "Give a table of nodes (--nodes FILE)",
        )
    if nodes is None and schema is not None and schema["features"]:
        raise Node2SeqError(
            "no table of nodes", "the model was trained with the nodes' features", "Give one (--nodes FILE)"
        )
    read = None
    if nodes is not None:
        say(f"reading the nodes of {nodes.title}")
        read = _read_nodes(nodes, options, schema, notes)
    say(f"reading the edges of {edges.title}")
    numbers, node_ids = _edge_numbers(edges, source, target, read)
    say("merging duplicate edges")
    if carried.names:
        notes.append(f"edges carry {carried}")
    order = None
    if carried.order is not None:
        kind = None if schema is None else schema["edges"].get("order_kind")
        order = read_order(edges.read([carried.order])[carried.order], edges.title, kind)
        notes += order.notes
    data, counts = _clean(torch.from_numpy(numbers), edges, carried, order, len(node_ids), directed)
    if order is not None:
        _describe_order(data, carried.order, notes, warnings)
    times = None
    if read is not None and read.time is not None:
        kind = None if schema is None else schema["split_by"]["kind"]
        times = read_times(read.frame[read.time], read.title, kind)
        notes += times.notes
    if order is not None and times is not None:
        drop = options.no_future_edges if schema is None else schema["split_by"]["no_future_edges"]
        _check_future(data, order.kind, times, notes, warnings, drop=drop)
    class_names = [] if schema is None else schema["class_names"]
    labels: Labels | None = None
    if read is not None and read.labels:
        known = None if schema is None else class_names
        is_split = read.split is not None or (read.time is not None and schema is None)
        task = options.task if schema is None else target_kind(schema)
        separator = options.label_separator if schema is None else label_separator(schema)
        labels = read_labels(
            read.frame.select(read.labels),
            read.title,
            known,
            notes,
            needs_pairs=not is_split,
            task=task,
            separator=separator,
        )
        data.y, class_names = torch.from_numpy(labels.y), labels.names
        masks: dict[str, np.ndarray] = {}
        if read.split is not None:
            masks = read_split(read.frame[read.split], labels.known, read.title, notes)
        elif read.time is not None and schema is None:
            assert times is not None
            masks = split_by_time(times, labels.known, read.title, read.time)
        for part, mask in masks.items():
            data[f"{part}_mask"] = torch.from_numpy(mask)
    say("encoding the features")
    assert data.edge_index is not None
    data.x, encoding = _features(read, data.edge_index, len(node_ids), options, schema, notes)
    data.node_ids = node_ids.to_numpy()
    data.class_names = class_names
    columns = {
        "source": source,
        "target": target,
        "id": read and read.id,
        "label": read and (",".join(read.labels) or None),
    }
    data.schema = schema or make_schema(columns, encoding, class_names, directed=directed)
    if schema is None and labels is not None and labels.target["kind"] != CLASSIFICATION:
        data.schema["target"] = labels.target
    if schema is None and carried.names:
        data.schema["edges"] = {"weight": carried.weight, "features": carried.features}
    if schema is None and order is not None:
        data.schema["edges"] |= {"order": carried.order, "order_kind": order.kind}
    if schema is None and read is not None and times is not None:
        data.schema["split_by"] = {
            "column": read.time,
            "kind": times.kind,
            "no_future_edges": options.no_future_edges,
        }
    described = {} if read is None else _described_nodes(read, encoding, nodes, labels)
    data.report = ReadReport(counts, notes, warnings, described)
    return data


def _clean(
    edge_index: Tensor,
    edges: LazyTable,
    carried: CarriedColumns,
    order: Times | None,
    num_nodes: int,
    directed: bool,
) -> tuple[Data, EdgeCounts]:
    """A graph of the edges, cleaned, with what they carry, and what cleaning took away."""
    if not carried.names:
        edge_index, counts = clean_edges(edge_index, num_nodes, directed=directed)
        return Data(edge_index=edge_index, num_nodes=num_nodes), counts
    if carried.numbers:
        values = torch.from_numpy(read_numbers(edges.read(carried.numbers), edges.title))
    else:
        values = torch.empty(edge_index.size(1), 0)
    if order is not None:  # in 32 bits, times within two minutes of each other would be equal
        values = torch.cat([values, torch.from_numpy(order.values)[:, None]], dim=1)
    edge_index, values, counts = clean_valued_edges(edge_index, values, num_nodes, directed=directed)
    return Data(edge_index=edge_index, num_nodes=num_nodes, **carried.apart(values)), counts


def _describe_order(data: Data, name: str | None, notes: list[str], warnings: list[str]) -> None:
    """Say how many edges the order leaves open."""
    assert data.edge_index is not None
    if data.num_edges and bool((data.edge_order == data.edge_order[0]).all()):
        warnings.append(f"all edges have the same {name!r}: it gives no order")
    elif tied := tied_edges(data.edge_index, data.edge_order):
        notes.append(
            f"{tied} of {data.num_edges} edges have the same {name!r} as another edge of their node; "
            "the neighbours' own scores decide among them, then their ids"
        )


def _check_future(
    data: Data, kind: Kind, times: Times, notes: list[str], warnings: list[str], *, drop: bool
) -> None:
    """Drop the edges that are newer than the node at which they end, or warn of them."""
    newer = newer_edges(data, kind, times)
    if newer is None:
        words = "the edges' times and the nodes' cannot be compared: dates and numbers that are no Unix times"
        if drop:
            raise Node2SeqError("no_future_edges", words, "Write both as dates")
        notes.append(f"{words}; whether edges are newer than their nodes is not known")
        return
    if not (count := int(newer.sum())):
        return
    which = f"{count} of {data.num_edges} edges are newer than the node that they inform"
    if drop:
        without_edges(data, newer)
        notes.append(f"{which}: dropped")
    else:
        warnings.append(f"{which}, which may leak the future; --no-future-edges drops them")


def _carried_columns(
    edges: LazyTable, ends: tuple[str, str], options: ReadOptions, schema: dict[str, Any] | None
) -> CarriedColumns:
    if schema is None:
        features = list(dict.fromkeys(options.edge_features))
        carried = CarriedColumns(options.edge_weight, features, options.order_by)
    else:
        own = schema.get("edges", {"weight": None, "features": []})
        carried = CarriedColumns(own["weight"], own["features"], own.get("order"))
    for name in carried.names:
        if name not in edges.names and schema is not None:
            raise Node2SeqError(
                edges.title, f"the column {name!r} is missing", "Give the columns used in training"
            )
        if name not in edges.names:
            roles = {carried.order: "order_by", carried.weight: "edge_weight"}
            raise missing_column(edges, roles.get(name, "edge_features"), name)
        if name in ends:
            raise Node2SeqError(
                f"{edges.title}: column {name!r}", "it holds an end of each edge", "Name another column"
            )
    return carried


def _if_there(name: str | None, table: LazyTable) -> str | None:
    return name if name in table.names else None


def _read_nodes(
    table: LazyTable, options: ReadOptions, schema: dict[str, Any] | None, notes: list[str]
) -> _NodeTable:
    own = {} if schema is None else schema["columns"]
    node_id = find_column(table, "id", options.id or _if_there(own.get("id"), table))
    labels = _label_columns(table, options, schema)
    split = options.split if schema is None else None
    time = options.split_by if schema is None else _time_of_training(table, schema)
    for part, name in (*(("label", label) for label in labels), ("split", split), ("split_by", time)):
        if name is not None and name not in table.names:
            raise missing_column(table, part, name)
    roles = [name for name in (node_id, *labels, split, time) if name is not None]
    if len(set(roles)) < len(roles):
        raise Node2SeqError(table.title, f"one column cannot be two of {quoted(roles)}", "Name others")
    if schema is None:
        features = _feature_names(table, options, roles, notes)
    else:
        features = encoded_columns(schema["features"])
        there = set(table.names)
        for name in features:
            if name not in there:
                raise Node2SeqError(
                    table.title,
                    f"the feature column {name!r} is missing",
                    "Give the columns used in training",
                )
        unused = sorted(there - {*features, *roles})
        if unused:
            notes.append(f"columns of {table.title} not used in training are ignored: {first_few(unused)}")
    frame = table.read([*roles, *features])
    if frame.height == 0:
        raise Node2SeqError(table.title, "it has no rows", "Give at least one node")
    return _NodeTable(table.title, frame, node_id, labels, split, time)


def _label_columns(table: LazyTable, options: ReadOptions, schema: dict[str, Any] | None) -> list[str]:
    """The columns to predict: one, or several that are named with commas between them."""
    if options.label is None:
        own = (schema or {}).get("columns", {}).get("label")
        kept = ((schema or {}).get("target") or {}).get("columns") or ([] if own is None else [own])
        return kept if all(name in table.names for name in kept) else []
    names = [options.label]
    if options.label not in table.names and "," in options.label:
        names = [name.strip() for name in options.label.split(",")]
    if schema is None and len(names) > 1:
        for given, value in (("task", options.task), ("label_separator", options.label_separator)):
            if value not in (None, MULTI_LABEL):
                raise Node2SeqError(
                    f"{given}={value} with {len(names)} label columns",
                    "several columns are several labels",
                    "Leave it out, or name one column",
                )
    if schema is None and len(names) == 1 and options.task == MULTI_LABEL and not options.label_separator:
        raise Node2SeqError(
            f"task={MULTI_LABEL} with the label column {names[0]!r}",
            "it is not said what separates the labels in a cell",
            "Say it (--label-separator ';'), or name several columns (--label a,b,c)",
        )
    return names


def _described_nodes(
    read: _NodeTable, encoding: Encoding, table: LazyTable | None, labels: Labels | None
) -> dict[str, str]:
    """How each column of the nodes was read."""
    found = {read.id: "id of the node"}
    if labels is not None:
        words = {CLASSIFICATION: "a class", REGRESSION: "a number", MULTI_LABEL: "several labels"}
        for name in read.labels:
            found[name] = f"to predict, as {words[labels.target['kind']]}"
    if read.split is not None:
        found[read.split] = "split"
    if read.time is not None:
        found[read.time] = "time, for the split"
    found |= described_columns(encoding)
    used = {*read.roles, *encoded_columns(encoding)}
    unused = [name for name in (table.names if table is not None else []) if name not in used]
    if len(unused) > _MOST_UNUSED:
        return found | {f"{unused[0]} … {unused[-1]}": f"{len(unused)} columns: not used"}
    return found | dict.fromkeys(unused, "not used")


def _time_of_training(table: LazyTable, schema: dict[str, Any]) -> str | None:
    """The column of the nodes' times; a new graph needs it only where edges may be dropped by it."""
    if "split_by" not in schema:
        return None
    name = schema["split_by"]["column"]
    if name not in table.names and schema["split_by"]["no_future_edges"]:
        raise Node2SeqError(
            table.title, f"the column {name!r} is missing", "Give the nodes' times, as in training"
        )
    return _if_there(name, table)


def _feature_names(table: LazyTable, options: ReadOptions, roles: list[str], notes: list[str]) -> list[str]:
    for part in ("features", "categorical", "ignore"):
        for name in getattr(options, part) or ():
            if name not in table.names:
                raise missing_column(table, part, name)
            if name in roles:
                raise Node2SeqError(
                    f"{part}={name}", "it is the column of the id, the label or the split", "Leave it out"
                )
    left_out = {*roles, *options.ignore}
    chosen = table.names if options.features is None else list(dict.fromkeys(options.features))
    features = [name for name in chosen if name not in left_out]
    if options.label is None:
        for name in features:
            if normalized_name(name) in ("label", "class", "y"):
                notes.append(f"column {name!r} is read as a feature; to predict it, give --label {name}")
    return features


def _id_column(column: pl.Series, title: str, cure: str) -> pl.Series:
    """The ids of a column as text; none may be missing."""
    ids = as_text(column, title)
    if ids.null_count():
        row = int(ids.is_null().arg_max() or 0) + 1
        raise Node2SeqError(title, f"row {row} has no id in column {column.name!r}", cure)
    return ids


def _node_ids(nodes: _NodeTable) -> pl.Series:
    ids = _id_column(nodes.frame[nodes.id], nodes.title, "Give every node an id")
    if ids.n_unique() < len(ids):
        twice = ids.filter(ids.is_duplicated()).unique(maintain_order=True).to_list()
        which = subject(twice, "id {} occurs", "{} ids ({}) occur")
        raise Node2SeqError(nodes.title, f"{which} more than once", "Keep one row for each node")
    return ids


def _edge_numbers(
    edges: LazyTable, source: str, target: str, nodes: _NodeTable | None
) -> tuple[np.ndarray, pl.Series]:
    """The edges as node numbers [2, E], and the nodes' ids."""
    import polars as pl

    ids = None if nodes is None else _node_ids(nodes)
    frame = edges.read([source, target])
    if frame.height == 0 and ids is None:
        raise Node2SeqError(edges.title, "it has no rows", "Give at least one edge, or a table of nodes")
    cure = "Complete the row, or remove it"
    ends = [_id_column(frame[name], edges.title, cure) for name in (source, target)]
    del frame
    if ids is None:
        # Every edge's source, then its target: the order of first appearance.
        both = pl.DataFrame(ends).select(pl.concat_list(source, target))
        ids = both.to_series().explode().unique(maintain_order=True).alias("id")
    # An Enum stores each text as its position among the categories; this looks up both columns at once.
    places = pl.DataFrame(ends).select(pl.all().cast(pl.Enum(ids), strict=False).to_physical())
    if sum(places.null_count().row(0)):
        raise _unknown_ids(edges, ends, ids, "the nodes" if nodes is None else nodes.title)
    numbers = np.empty((2, places.height), dtype=np.int64)
    for row, column in enumerate(places):
        numbers[row] = column.to_numpy()
    return numbers, ids


def _unknown_ids(edges: LazyTable, ends: list[pl.Series], ids: pl.Series, where: str) -> Node2SeqError:
    import polars as pl

    unknown = [end.filter(~end.is_in(ids.implode())) for end in ends]
    names = pl.concat(unknown).unique(maintain_order=True).to_list()
    which = subject(names, "id {} is", "{} ids ({}) are")
    # Other tools make 7.0 of 7 where a column has gaps.
    other = names[0].removesuffix(".0") if names[0].endswith(".0") else f"{names[0]}.0"
    if other in ids:
        return Node2SeqError(
            edges.title,
            f"{which} not in {where}, where {names[0]!r} is written {other!r}",
            "Write the ids alike in both files",
        )
    return Node2SeqError(edges.title, f"{which} not in {where}", "Add these nodes, or remove their edges")


def _features(
    nodes: _NodeTable | None,
    edge_index: Tensor,
    num_nodes: int,
    options: ReadOptions,
    schema: dict[str, Any] | None,
    notes: list[str],
) -> tuple[Tensor, Encoding]:
    """The feature matrix, and the encoding by which it was made, which is empty for structural features."""
    encoding: Encoding = [] if schema is None else schema["features"]
    if nodes is not None and schema is None:
        columns = nodes.frame.drop(nodes.roles)
        encoding = choose_encoding(
            columns,
            nodes.title,
            options.categorical,
            options.fill,
            standardize=options.standardize,
            wanted=options.features or (),
            notes=notes,
        )
    if nodes is None or not encoding:
        notes.append(f"no feature columns: the nodes get {STRUCTURAL}")
        return structural_features(edge_index, num_nodes), []
    # Its own encoding knows what to fill in.
    fill = None if schema is None else options.fill
    x, said = encode(nodes.frame, nodes.title, encoding, fill=fill, trained=schema is not None)
    notes += said
    return torch.from_numpy(x), encoding


def make_schema(
    columns: dict[str, str | None], encoding: Encoding, class_names: list[str], *, directed: bool
) -> dict[str, Any]:
    """Make a schema. An empty encoding means structural features."""
    return {
        "format": _SCHEMA_FORMAT,
        "columns": columns,
        "directed": directed,
        "features": encoding,
        "class_names": list(class_names),
    }


def schema_of_matrix(num_features: int, num_classes: int, *, directed: bool) -> dict[str, Any]:
    """The schema of a graph that came as tensors: features f0, f1, …, classes 0, 1, … as written to files."""
    columns: dict[str, str | None] = {name: name for name in ("source", "target", "id", "label")}
    block = {"kind": "block", "name": "f", "count": num_features, "fill": None}
    encoding = [block] if num_features else []
    return make_schema(columns, encoding, [str(number) for number in range(num_classes)], directed=directed)


def target_kind(schema: dict[str, Any] | None) -> str:
    """What a schema says is predicted."""
    return ((schema or {}).get("target") or {}).get("kind", CLASSIFICATION)


def label_separator(schema: dict[str, Any]) -> str | None:
    """What separates several labels in a cell, where they are not in columns of their own."""
    target = schema.get("target") or {}
    return None if target.get("columns") else target.get("separator")


def is_directed(data: Data) -> bool:
    """Whether the graph is directed: by its schema if it has one, otherwise by its edges.

    An undirected graph is directed once edges from the future were dropped: they may be so for one end alone.
    """
    schema = data.to_dict().get("schema")
    if schema is None:
        return data.is_directed()
    return bool(schema["directed"] or schema.get("split_by", {}).get("no_future_edges"))


def check_schema(schema: Any) -> dict[str, Any]:
    """Return the schema if it is valid: it may come from an edited file."""
    if not isinstance(schema, dict) or schema.get("format") != _SCHEMA_FORMAT:
        found = schema.get("format") if isinstance(schema, dict) else type(schema).__name__
        raise Node2SeqError(
            f"schema of format {found!r}",
            f"this version reads format {_SCHEMA_FORMAT}",
            "Give data.schema of a graph",
        )
    ok = (
        isinstance(schema.get("columns"), dict)
        and all(isinstance(name, str | None) for name in schema["columns"].values())
        and isinstance(schema.get("directed"), bool)
        and isinstance(schema.get("class_names"), list)
        and all(isinstance(name, str) for name in schema["class_names"])
        and isinstance(schema.get("features"), list)
        and all(_is_column(column) for column in schema["features"])
        and ("edges" not in schema or _is_carried(schema["edges"]))
        and ("split_by" not in schema or _is_split_by(schema["split_by"]))
        and ("target" not in schema or _is_target(schema["target"]))
    )
    if not ok:
        raise Node2SeqError("the schema", "parts of it are missing or wrong", "Give data.schema of a graph")
    return schema


def _is_carried(edges: Any) -> bool:
    """Whether these are the columns of what edges carry."""
    return (
        isinstance(edges, dict)
        and isinstance(edges.get("weight"), str | None)
        and isinstance(edges.get("features"), list)
        and all(isinstance(name, str) for name in edges["features"])
        and isinstance(edges.get("order"), str | None)
        and edges.get("order_kind") in (None, "date", "number")
    )


def _is_split_by(split: Any) -> bool:
    """Whether this is the column of the nodes' times, and what is done with it."""
    return (
        isinstance(split, dict)
        and isinstance(split.get("column"), str)
        and split.get("kind") in ("date", "number")
        and isinstance(split.get("no_future_edges"), bool)
    )


def _is_target(target: Any) -> bool:
    """Whether this says what is predicted; a run's own has the scale of its training nodes."""
    if not isinstance(target, dict) or target.get("kind") not in TASKS:
        return False
    numbers = [target[name] for name in ("shift", "scale") if name in target]
    finite = all(isinstance(number, int | float) and math.isfinite(number) for number in numbers)
    columns = target.get("columns", [])
    is_text = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
    is_text = is_text and isinstance(target.get("separator", ";"), str)
    return finite and is_text and target.get("scale", 1.0) > 0


def _is_column(column: Any) -> bool:
    if not isinstance(column, dict) or not isinstance(column.get("name"), str):
        return False
    fill = column.get("fill")
    if column.get("kind") == "category":
        categories = column.get("categories")
        return isinstance(categories, list) and all(isinstance(name, str) for name in categories)
    number = fill is None or (isinstance(fill, int | float) and not isinstance(fill, bool))
    if column.get("kind") == "block":
        return number and isinstance(column.get("count"), int) and 0 < column["count"] < 10**7
    shift, scale = column.get("shift", 0.0), column.get("scale", 1.0)
    scaled = all(isinstance(value, int | float) and math.isfinite(value) for value in (shift, scale))
    return number and scaled and scale > 0 and column.get("kind") in ("number", "time") and "fill" in column
