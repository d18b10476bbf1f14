"""How tables are read: by options the first time, by the schema that is kept for new graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_geometric.data import Data

from node2seq.data.encoding import Encoding
from node2seq.data.splits import CLASSIFICATION, MULTI_LABEL, TASKS
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice

_SCHEMA_FORMAT = 1


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
