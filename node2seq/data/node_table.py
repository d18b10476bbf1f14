"""The table of nodes: which columns hold what, the nodes' ids and their features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from node2seq.data.encoding import Encoding, choose_encoding, described_columns, encode, encoded_columns
from node2seq.data.labels import Labels
from node2seq.data.schema import ReadOptions
from node2seq.data.splits import CLASSIFICATION, MULTI_LABEL, REGRESSION
from node2seq.data.structural import STRUCTURAL, structural_features
from node2seq.data.tabular import (
    LazyTable,
    as_text,
    find_column,
    first_few,
    missing_column,
    normalized_name,
    quoted,
    subject,
)
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import polars as pl

# Where more columns are not used, they are described together.
_MOST_UNUSED = 24


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


def read_nodes(
    table: LazyTable, options: ReadOptions, schema: dict[str, Any] | None, notes: list[str]
) -> NodeTable:
    """Check the names of the nodes' columns, and read those that are used."""
    own = {} if schema is None else schema["columns"]
    node_id = find_column(table, "id", options.id or if_there(own.get("id"), table))
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
    return NodeTable(table.title, frame, node_id, labels, split, time)


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
    return if_there(name, table)


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
