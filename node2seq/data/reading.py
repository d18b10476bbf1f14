"""Read a graph from tables of edges and nodes, with its node ids, class names and schema."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from node2seq.data.encoding import plain_numbers
from node2seq.data.graph import ReadReport, clean_valued_edges
from node2seq.data.labels import Labels, read_labels, read_split
from node2seq.data.schema import (
    NodeTable,
    ReadOptions,
    as_in_training,
    check_schema,
    describe_columns,
    id_column,
    if_there,
    make_schema,
    node_columns,
    node_ids,
    read_features,
    read_nodes,
)
from node2seq.data.sources import Say
from node2seq.data.splits import CLASSIFICATION
from node2seq.data.tabular import (
    LazyTable,
    as_text,
    check_cells,
    check_delimiter,
    find_column,
    first_few,
    missing_column,
    open_table,
    pl,
    subject,
    table_format,
    table_of,
    text_columns,
    unread,
    usual_column,
    weight_column,
)
from node2seq.data.times import Times, check_future, describe_order, read_times, split_by_time
from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError
from node2seq.options import check_rules, number_or_word

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data
else:
    torch = LazyModule("torch")

# Arrays are read to learn the names of their columns: below this many bytes, once more than needed.
_MOST_READ_TWICE = 2**26


@dataclass(frozen=True)
class Source:
    """Where a graph comes from: the name of a data set, or the user's own files.

    Args:
        name: What ``node2seq.data.load`` takes.
        root: Folder with data sets in PyTorch Geometric's layout.
        edges: File of edges.
        nodes: File of nodes.
        label: Column of ``nodes`` to predict.
        reading: Further arguments of :func:`read_graph`.
        store: Folder of a graph on disk, which ``node2seq data convert`` made.
    """

    name: str | None = None
    root: str | None = None
    edges: str | None = None
    nodes: str | None = None
    label: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    store: str | None = None

    @property
    def title(self) -> str:
        """A short name for folders and headings."""
        return self.name or Path(self.nodes or self.edges or self.store or "graph").name.split(".")[0]

    @property
    def carried(self) -> list[str]:
        """What its edges carry, as networks name it."""
        names = {"edge_weight": "edge_weight", "edge_features": "edge_attr", "order_by": "edge_order"}
        return [name for key, name in names.items() if self.reading.get(key)]

    @property
    def files(self) -> list[Path]:
        """The user's own files."""
        return [Path(file) for file in (self.edges, self.nodes) if file is not None]


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
        raise _no_edges()
    edge_table = open_table(edges, delimiter)
    node_table = None if nodes is None else open_table(nodes, delimiter)
    check_delimiter(delimiter, [table.separator for table in (edge_table, node_table) if table is not None])
    return build_graph(edge_table, node_table, _options(label, options), say)


def check_columns(source: Source) -> None:
    """Refuse files whose columns have other names than :func:`read_graph` would need.

    Of text, only the header lines are read; torch is not imported.
    """
    if source.edges is None:
        raise _no_edges()
    reading = dict(source.reading)
    delimiter = reading.pop("delimiter", None)
    options = _options(source.label, reading)
    edges, nodes = (_named_table(path, delimiter) for path in (source.edges, source.nodes))
    if edges is not None and nodes is not None:
        check_delimiter(delimiter, [edges.separator, nodes.separator])
    if source.nodes is None:
        _check_without_nodes(options, None)
    if edges is not None:
        _edge_columns(edges, options, {}, [])
    if nodes is not None:
        node_columns(nodes, options, None, [])


def _named_table(path: str | os.PathLike[str] | None, delimiter: str | None) -> LazyTable | None:
    """A file's columns, of text by name alone; None for large arrays, or for no file."""
    if path is None:
        return None
    kind = table_format(Path(path))
    if kind == "NPZ" and Path(path).stat().st_size > _MOST_READ_TWICE:
        return None
    if kind not in ("CSV", "TSV"):
        return open_table(path)
    names, separator = text_columns(Path(path), delimiter)
    return LazyTable(str(path), names, unread, separator)


def _no_edges() -> Node2SeqError:
    return Node2SeqError("no file of edges", "a graph needs one", "Give it with edges=FILE (--edges FILE)")


def from_frames(edges: Any, nodes: Any = None, label: str | None = None, **options: Any) -> Data:
    """Make a graph from polars or pandas DataFrames or dicts of columns; options as in :func:`read_graph`."""
    node_table = None if nodes is None else table_of(nodes, "the nodes frame")
    say: Say | None = options.pop("say", None)
    return build_graph(table_of(edges, "the edges frame"), node_table, _options(label, options), say)


def _options(label: str | None, given: dict[str, Any]) -> ReadOptions:
    known = [field.name for field in fields(ReadOptions)]
    if unknown := sorted(set(given) - set(known)):
        raise Node2SeqError(f"option {unknown[0]!r}", "no such option", f"Take one of {', '.join(known)}")
    return ReadOptions(label, **given)


def build_graph(
    edges: LazyTable, nodes: LazyTable | None, options: ReadOptions, say: Say | None = None
) -> Data:
    """Check the columns' names first, then read nodes and edges."""
    say = say or (lambda _: None)
    schema = None if options.schema is None else check_schema(options.schema)
    if nodes is None:
        _check_without_nodes(options, schema)
    if schema is not None:
        options = as_in_training(options, schema)
    known: dict[str, Any] = schema or {"columns": {}, "class_names": []}
    notes: list[str] = []
    source, target, *carried = _edge_columns(edges, options, known["columns"], notes)
    notes += _unused_columns(edges, (source, target, *carried))
    warnings: list[str] = []
    read = None
    if nodes is not None:
        say(f"reading the nodes of {nodes.title}")
        read = read_nodes(nodes, options, schema, notes)
    say(f"reading the edges of {edges.title}")
    numbers, ids = _edge_numbers(edges, source, target, read)
    say("merging duplicate edges")
    if carried:
        notes.append(f"edges carry {_in_words(options)}")
    order = times = None
    if options.order_by is not None:
        kind, column = known.get("edges", {}).get("order_kind"), edges.read([options.order_by]).to_series()
        order = read_times(column, edges.title, kind, complete=True)
        notes += order.notes
    directed, values = bool(options.directed), _edge_values(edges, options, order)
    edge_index, values, counts = clean_valued_edges(numbers, values, len(ids), directed=directed)
    from torch_geometric.data import Data

    data = Data(edge_index=edge_index, num_nodes=len(ids), **values)
    if order is not None:
        describe_order(data, options.order_by, notes, warnings)
    if read is not None and read.time is not None:
        times = read_times(read.frame[read.time], read.title, known.get("split_by", {}).get("kind"))
        notes += times.notes
    if order is not None and times is not None:
        check_future(data, order.kind, times, notes, warnings, drop=options.no_future_edges)
    labels = None if read is None else _add_labels(data, read, times, options, notes)
    say("encoding the features")
    assert data.edge_index is not None
    data.x, encoding = read_features(read, data.edge_index, len(ids), options, schema, notes)
    data.node_ids = ids.to_numpy()
    data.class_names = known["class_names"] if labels is None else labels.names
    if schema is None:
        own_id, label = (None, "") if read is None else (read.id, ",".join(read.labels))
        columns = {"source": source, "target": target, "id": own_id, "label": label or None}
        schema = make_schema(columns, encoding, data.class_names, directed=directed)
        schema |= _parts_of_schema(labels, order, times, options)
    data.schema = schema
    described = {} if read is None else describe_columns(read, encoding, nodes, labels)
    data.report = ReadReport(counts, notes, warnings, described)
    return data


def _edge_columns(
    edges: LazyTable, options: ReadOptions, trained: dict[str, Any], notes: list[str]
) -> list[str]:
    """The columns of the edges' two ends, and of what edges carry."""
    source = options.source or if_there(trained.get("source"), edges)
    target = options.target or if_there(trained.get("target"), edges)
    found = edge_ends(edges, source, target, notes)
    return [*found, *_carried_columns(edges, found, options)]


def edge_ends(edges: LazyTable, source: str | None, target: str | None, notes: list[str]) -> tuple[str, str]:
    """The columns of the edges' two ends: those given, those with usual names, or the only two there are."""
    given = {"source": source, "target": target}
    found = {end: name or usual_column(edges, end) for end, name in given.items()}
    others = [name for name in edges.names if name not in found.values()]
    if len(edges.names) == 2 and len(others) == [*found.values()].count(None) and _may_be_ends(edges):
        found |= zip([end for end, name in found.items() if name is None], others, strict=True)
        if others:
            one, other = (repr(found[end]) for end in given)
            words = f"{edges.title} has two columns: {one} is taken as the source and {other} as the target"
            notes.append(f"{words} of each edge; --source and --target say otherwise")
    chosen = find_column(edges, "source", found["source"]), find_column(edges, "target", found["target"])
    if chosen[0] == chosen[1]:
        raise Node2SeqError(
            edges.title, f"{chosen[0]!r} is named as source and as target", "Name two columns"
        )
    return chosen


def _may_be_ends(edges: LazyTable) -> bool:
    """Whether two columns of any names may be the ends: no weights, row numbers or first edge."""
    has_names = all(name.strip() and isinstance(number_or_word(name), str) for name in edges.names)
    return has_names and weight_column(edges) is None


def _unused_columns(edges: LazyTable, used: Sequence[str]) -> list[str]:
    """What to say of the edges' columns that are not used."""
    notes = []
    weight = weight_column(edges)
    if weight is not None and weight not in used:
        notes.append(f"column {weight!r} of {edges.title} is ignored; to use it, give --edge-weight {weight}")
    others = [name for name in edges.names if name not in (weight, *used)]
    if others:
        notes.append(f"columns of {edges.title} that are not used: {first_few(others)}")
    return notes


def _check_without_nodes(options: ReadOptions, schema: dict[str, Any] | None) -> None:
    """Raise an error if something is asked for that only a table of nodes has."""
    check_rules(
        (
            options.label is None or schema is not None,
            f"label {options.label!r}",
            "labels come from a table of nodes",
            "Give one with nodes (--nodes FILE)",
        ),
        (
            options.split_by is None,
            f"split_by={options.split_by}",
            "it is a column of the nodes",
            "Give a table of nodes (--nodes FILE)",
        ),
        (
            schema is None or not schema["features"],
            "no table of nodes",
            "the model was trained with the nodes' features",
            "Give one (--nodes FILE)",
        ),
    )


def _add_labels(
    data: Data, read: NodeTable, times: Times | None, options: ReadOptions, notes: list[str]
) -> Labels | None:
    """Give a graph what is predicted, and the split that the nodes name, if they name any."""
    if not read.labels:
        return None
    splits_by_time = read.time is not None and options.schema is None
    labels = read_labels(
        read.frame.select(read.labels),
        read.title,
        None if options.schema is None else options.schema["class_names"],
        notes,
        needs_pairs=read.split is None and not splits_by_time,
        task=options.task,
        separator=options.label_separator,
    )
    data.y = torch.from_numpy(labels.y)
    masks: dict[str, np.ndarray] = {}
    if read.split is not None:
        masks = read_split(read.frame[read.split], labels.known, read.title, notes)
    elif splits_by_time:
        assert times is not None
        assert read.time is not None
        masks = split_by_time(times, labels.known, read.title, read.time)
    for part, mask in masks.items():
        data[f"{part}_mask"] = torch.from_numpy(mask)
    return labels


def _parts_of_schema(
    labels: Labels | None, order: Times | None, times: Times | None, options: ReadOptions
) -> dict[str, Any]:
    """What the schema keeps of graphs that have more than classes, features and edges."""
    parts: dict[str, Any] = {}
    if labels is not None and labels.target["kind"] != CLASSIFICATION:
        parts["target"] = labels.target
    if options.edge_weight or options.edge_features or order is not None:
        features = list(dict.fromkeys(options.edge_features))
        parts["edges"] = {"weight": options.edge_weight, "features": features}
    if order is not None:
        parts["edges"] |= {"order": options.order_by, "order_kind": order.kind}
    if times is not None:
        no_future = options.no_future_edges
        parts["split_by"] = {"column": options.split_by, "kind": times.kind, "no_future_edges": no_future}
    return parts


def _carried_columns(edges: LazyTable, ends: tuple[str, str], options: ReadOptions) -> list[str]:
    """The columns of what edges carry, each once."""
    roles = {options.order_by: "order_by", options.edge_weight: "edge_weight"}
    columns = dict.fromkeys([options.edge_weight, *options.edge_features, options.order_by])
    carried = [name for name in columns if name is not None]
    for name in carried:
        if name not in edges.names and options.schema is not None:
            raise Node2SeqError(
                edges.title, f"the column {name!r} is missing", "Give the columns used in training"
            )
        if name not in edges.names:
            raise missing_column(edges, roles.get(name, "edge_features"), name)
        if name in ends:
            raise Node2SeqError(
                f"{edges.title}: column {name!r}", "it holds an end of each edge", "Name another column"
            )
    return carried


def _in_words(options: ReadOptions) -> str:
    """What edges carry."""
    parts = {
        "weight": options.edge_weight and repr(options.edge_weight),
        "features": first_few(list(dict.fromkeys(options.edge_features))),
        "order": options.order_by and repr(options.order_by),
    }
    return " and ".join(f"{columns} as {role}" for role, columns in parts.items() if columns)


def _edge_values(edges: LazyTable, options: ReadOptions, order: Times | None) -> dict[str, Tensor]:
    """What the edges carry, as a graph has it; the order was read before."""
    weight, features = options.edge_weight, list(dict.fromkeys(options.edge_features))
    names = list(dict.fromkeys(name for name in (weight, *features) if name is not None))
    found = {}
    if names:
        values = torch.from_numpy(_read_numbers(edges.read(names), edges.title))
        if weight is not None:
            found["edge_weight"] = values[:, 0]
        if features:
            found["edge_attr"] = values[:, [names.index(name) for name in features]]
    if order is not None:  # in 32 bits, times within two minutes of each other would be equal
        found["edge_order"] = torch.from_numpy(order.values)
    return found


def _read_numbers(frame: pl.DataFrame, title: str) -> np.ndarray:
    """Columns of finite numbers, without any missing, [rows, columns], float32."""
    out = np.empty((frame.height, frame.width), dtype=np.float32)
    for place, column in enumerate(frame):
        is_number = column.dtype == pl.Boolean or column.dtype.is_numeric()
        text = column if is_number else as_text(column, title)
        plain = text if is_number else plain_numbers(text)
        values = plain.cast(pl.Float64, strict=False).fill_null(math.nan).to_numpy()
        with np.errstate(over="ignore"):
            out[:, place] = values
        check_cells(
            np.isfinite(out[:, place]),
            title,
            column.name,
            lambda row, text=text: "an empty cell" if text[row] is None else repr(text[row]),
            "is not a finite 32-bit number",
            "Correct it, remove the row, or leave the column out",
        )
    return out


def _edge_numbers(
    edges: LazyTable, source: str, target: str, nodes: NodeTable | None
) -> tuple[Tensor, pl.Series]:
    """The edges as node numbers [2, E], and the nodes' ids."""
    ids = None if nodes is None else node_ids(nodes)
    frame = edges.read([source, target])
    if frame.height == 0 and ids is None:
        raise Node2SeqError(edges.title, "it has no rows", "Give at least one edge, or a table of nodes")
    cure = "Complete the row, or remove it"
    ends = [id_column(frame[name], edges.title, cure) for name in (source, target)]
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
    return torch.from_numpy(numbers), ids


def _unknown_ids(edges: LazyTable, ends: list[pl.Series], ids: pl.Series, where: str) -> Node2SeqError:
    unknown = [end.filter(~end.is_in(ids.implode())) for end in ends]
    names = pl.concat(unknown).unique(maintain_order=True).to_list()
    which = subject(names, "id {} is", "{} ids ({}) are")
    # Other tools make 7.0 of 7 where a column has gaps, and 7 of 007.
    numbers = {number_or_word(name): name for name in ids}
    other = numbers.get(number_or_word(names[0]))
    if other is not None:
        return Node2SeqError(
            edges.title,
            f"{which} not in {where}, where {names[0]!r} is written {other!r}",
            "Write the ids alike in both files",
        )
    return Node2SeqError(edges.title, f"{which} not in {where}", "Add these nodes, or remove their edges")
