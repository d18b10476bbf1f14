"""The schema of a graph: a JSON-ready dict that says how to encode another graph in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node2seq.data.features import Encoding
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    from torch_geometric.data import Data

_FORMAT = 1


def make_schema(
    columns: dict[str, str | None], encoding: Encoding, class_names: list[str], *, directed: bool
) -> dict[str, Any]:
    """Make a schema. An empty encoding means structural features."""
    return {
        "format": _FORMAT,
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


def is_directed(data: Data) -> bool:
    """Whether the graph is directed: by its schema if it has one, otherwise by its edges."""
    schema = data.to_dict().get("schema")
    return data.is_directed() if schema is None else bool(schema["directed"])


def check_schema(schema: Any) -> dict[str, Any]:
    """Return the schema if it is valid: it may come from an edited file."""
    if not isinstance(schema, dict) or schema.get("format") != _FORMAT:
        found = schema.get("format") if isinstance(schema, dict) else type(schema).__name__
        raise Node2SeqError(
            f"schema of format {found!r}",
            f"this version reads format {_FORMAT}",
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
    )
    if not ok:
        raise Node2SeqError("the schema", "parts of it are missing or wrong", "Give data.schema of a graph")
    return schema


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
    return number and column.get("kind") == "number" and "fill" in column
