"""Which columns hold what: by options the first time, by the schema that is kept for new graphs.

The table of nodes is read by either: its ids, labels and features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from node2seq.data.encoding import (
    UNITS,
    Encoding,
    choose_encoding,
    described_columns,
    encode,
    encoded_columns,
)
from node2seq.data.graph import STRUCTURAL, structural_features
from node2seq.data.labels import PART_OF, Labels
from node2seq.data.splits import CLASSIFICATION, MULTI_LABEL, REGRESSION, TASKS
from node2seq.data.tabular import (
    LazyTable,
    as_text,
    find_column,
    first_few,
    missing_column,
    normalized_name,
    pl,
    subject,
)
from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice, check_rules, listed

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = LazyModule("torch")

_SCHEMA_FORMAT = 1
# Where more columns are not used, they are described together.
_MOST_UNUSED = 24


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
        both = sorted({*(self.features or ())} & {*self.ignore})
        check_rules(
            (
                self.label_separator != "",
                "label_separator=''",
                "labels cannot be told apart by nothing",
                "Give what stands between them, such as ;",
            ),
            (
                not both,
                f"features and ignore: {first_few(both)}",
                "a column has one part",
                "Leave one of them out",
            ),
            (
                self.label_separator is None or self.task in (None, MULTI_LABEL),
                f"task={self.task} and label_separator={self.label_separator!r}",
                "a separator is for several labels",
                "Leave one of them out",
            ),
            (
                self.split is None or self.split_by is None,
                f"split={self.split} and split_by={self.split_by}",
                "these are two splits",
                "Give one of them",
            ),
            (
                not self.no_future_edges or None not in (self.order_by, self.split_by),
                "no_future_edges",
                "it compares the times of edges and nodes",
                "Name their columns with order_by and split_by (--order-by, --split-by), or leave it out",
            ),
        )


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


def as_in_training(options: ReadOptions, schema: dict[str, Any]) -> ReadOptions:
    """The options by which the graph of a schema was read, to read another one in the same way.

    What ``options`` say of the edges' ends, the ids, the label and missing values is the other graph's own.
    """
    edges, split, target = (schema.get(part, {}) for part in ("edges", "split_by", "target"))
    return replace(
        options,
        directed=schema["directed"] if options.directed is None else options.directed,
        features=encoded_columns(schema["features"]),
        edge_weight=edges.get("weight"),
        edge_features=edges.get("features", ()),
        order_by=edges.get("order"),
        split=None,
        split_by=split.get("column"),
        no_future_edges=split.get("no_future_edges", False),
        task=target.get("kind", CLASSIFICATION),
        label_separator=None if target.get("columns") else target.get("separator"),
    )


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
    if column.get("unit", "%") not in UNITS or column.get("first", "day") != "day":
        return False
    scaled = all(isinstance(value, int | float) and math.isfinite(value) for value in (shift, scale))
    return number and scaled and scale > 0 and column.get("kind") in ("number", "time") and "fill" in column


@dataclass(frozen=True)
class NodeTable:
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


def if_there(name: str | None, table: LazyTable) -> str | None:
    """The name of a column, or nothing where the table has none of that name."""
    return name if name in table.names else None


def check_roles(table: LazyTable, *roles: tuple[str, str | None]) -> list[str]:
    """The columns that are no features; refuses those that the table does not have, and one in two roles."""
    for role, name in roles:
        if name is not None and name not in table.names:
            raise missing_column(table, role, name)
    names = [name for _, name in roles if name is not None]
    if twice := [name for name in names if names.count(name) > 1]:
        words = listed([role for role, name in roles if name == twice[0]])
        raise Node2SeqError(table.title, f"column {twice[0]!r} is named as {words}", "Name different columns")
    return names


def feature_columns(
    table: LazyTable,
    roles: Sequence[str],
    features: Sequence[str] | None,
    categorical: Sequence[str],
    ignore: Sequence[str],
) -> list[str]:
    """The feature columns: those named, or all that have no other role and are not left out."""
    for part, names in (("features", features or ()), ("categorical", categorical), ("ignore", ignore)):
        for name in names:
            if name not in table.names:
                raise missing_column(table, part, name)
            if name in roles:
                raise Node2SeqError(
                    f"{part}={name}", "it is the column of the id, the label or the split", "Leave it out"
                )
    chosen = table.names if features is None else dict.fromkeys(features)
    return [name for name in chosen if name not in {*roles, *ignore}]


@dataclass(frozen=True)
class NodeColumns:
    """Which columns of a nodes table hold the id, label, split, time and features."""

    id: str
    labels: list[str]
    time: str | None
    roles: list[str]
    features: list[str]


def node_columns(
    table: LazyTable, options: ReadOptions, schema: dict[str, Any] | None, notes: list[str]
) -> NodeColumns:
    """Check the names of the nodes' columns; nothing is read."""
    own = {} if schema is None else schema["columns"]
    node_id = find_column(table, "id", options.id or if_there(own.get("id"), table))
    labels = _label_columns(table, options, schema)
    time = options.split_by
    if schema is not None and time not in table.names:
        if options.no_future_edges:
            raise Node2SeqError(
                table.title, f"the column {time!r} is missing", "Give the nodes' times, as in training"
            )
        time = None  # needed only where edges may be dropped by it
    named = (("id", node_id), *(("label", name) for name in labels))
    roles = check_roles(table, *named, ("split", options.split), ("split_by", time))
    if schema is None:
        features = feature_columns(table, roles, options.features, options.categorical, options.ignore)
        notes += [
            f"column {name!r} is read as a feature; to predict it, give --label {name}"
            for name in features
            if options.label is None and normalized_name(name) in ("label", "class", "y")
        ]
        notes += [
            f"column {name!r} is read as a feature; if it only numbers the rows, as a saved index does, give "
            f"--ignore {name!r}"
            for name in features
            if name.strip() in ("", "Unnamed: 0")
        ]
    else:
        features = list(options.features or ())
        there = set(table.names)
        if missing := [name for name in features if name not in there]:
            raise Node2SeqError(
                table.title,
                f"the feature column {missing[0]!r} is missing",
                "Give the columns used in training",
            )
        unused = sorted(there - {*features, *roles})
        if unused:
            notes.append(f"columns of {table.title} not used in training are ignored: {first_few(unused)}")
    return NodeColumns(node_id, labels, time, roles, features)


def read_nodes(
    table: LazyTable, options: ReadOptions, schema: dict[str, Any] | None, notes: list[str]
) -> NodeTable:
    """Read the columns of the nodes that are used."""
    chosen = node_columns(table, options, schema, notes)
    frame = table.read([*chosen.roles, *chosen.features])
    if frame.height == 0:
        raise Node2SeqError(table.title, "it has no rows", "Give at least one node")
    if schema is None and options.split is None and chosen.time is None:
        for name in filter(lambda name: _is_split(frame[name]), chosen.features):
            words, cure = f"column {name!r} holds the parts of a split", f"give --split {name}"
            if frame[name].has_nulls() and options.fill is None:  # of a feature, no cell may be missing
                raise Node2SeqError(table.title, words, f"To split by it, {cure}; else --ignore {name}")
            notes.append(f"{words} and is read as a feature; to split by it, {cure}")
    return NodeTable(table.title, frame, chosen.id, chosen.labels, options.split, chosen.time)


def _is_split(column: pl.Series) -> bool:
    """Whether a column names the parts of a split: at least train and another one, and nothing else."""
    if column.dtype != pl.String:
        return False
    words = set(column.drop_nulls().str.strip_chars().str.to_lowercase().unique()) - {""}
    parts = {PART_OF.get(word) for word in words}
    return None not in parts and "train" in parts and len(parts) > 1


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


def describe_columns(
    read: NodeTable, encoding: Encoding, table: LazyTable | None, labels: Labels | None
) -> dict[str, str]:
    """How each column of the nodes was read."""
    found = {read.id: "id of the node"}
    if labels is not None:
        words = {CLASSIFICATION: "a class", REGRESSION: "a number", MULTI_LABEL: "several labels"}
        found |= dict.fromkeys(read.labels, f"to predict, as {words[labels.target['kind']]}")
    others = {read.split: "split", read.time: "time, for the split"}
    found |= {name: about for name, about in others.items() if name is not None}
    found |= described_columns(encoding)
    used = {*read.roles, *encoded_columns(encoding)}
    unused = [name for name in (table.names if table is not None else []) if name not in used]
    if len(unused) > _MOST_UNUSED:
        return found | {f"{unused[0]} … {unused[-1]}": f"{len(unused)} columns: not used"}
    return found | dict.fromkeys(unused, "not used")


def id_column(column: pl.Series, title: str, cure: str) -> pl.Series:
    """The ids of a column as text; none may be missing."""
    ids = as_text(column, title)
    if ids.null_count():
        row = int(ids.is_null().arg_max() or 0) + 1
        raise Node2SeqError(title, f"row {row} has no id in column {column.name!r}", cure)
    return ids


def node_ids(nodes: NodeTable) -> pl.Series:
    """The nodes' ids as text; none may occur twice."""
    ids = id_column(nodes.frame[nodes.id], nodes.title, "Give every node an id")
    if ids.n_unique() < len(ids):
        twice = ids.filter(ids.is_duplicated()).unique(maintain_order=True).to_list()
        which = subject(twice, "id {} occurs", "{} ids ({}) occur")
        raise Node2SeqError(nodes.title, f"{which} more than once", "Keep one row for each node")
    return ids


def read_features(
    nodes: NodeTable | None,
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
