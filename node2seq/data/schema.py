"""How a graph was encoded, as a JSON-ready dict: with it, another graph is read alike."""

from __future__ import annotations

from typing import Any

from node2seq.data.features import Plan
from node2seq.errors import Node2SeqError

_FORMAT = 1


def make_schema(
    parts: dict[str, str | None], plan: Plan, class_names: list[str], *, directed: bool
) -> dict[str, Any]:
    """Put a schema together. An empty plan means structural features."""
    return {
        "format": _FORMAT,
        "columns": parts,
        "directed": directed,
        "features": plan,
        "class_names": list(class_names),
    }


def schema_of_matrix(num_features: int, num_classes: int, *, directed: bool) -> dict[str, Any]:
    """The schema of a graph that came as tensors: features f0, f1, …, classes 0, 1, … as written to files."""
    parts: dict[str, str | None] = {"source": "source", "target": "target", "id": "id", "label": "label"}
    plan: Plan = [{"kind": "block", "name": "f", "count": num_features, "fill": None}] if num_features else []
    return make_schema(parts, plan, [str(number) for number in range(num_classes)], directed=directed)


def check_schema(schema: Any) -> dict[str, Any]:
    """Return the schema if it is one; it may come out of a file that somebody edited."""
    if not isinstance(schema, dict) or schema.get("format") != _FORMAT:
        found = schema.get("format") if isinstance(schema, dict) else type(schema).__name__
        raise Node2SeqError(
            f"schema of format {found!r}",
            f"this version reads format {_FORMAT}",
            "Take a graph's data.schema",
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
        raise Node2SeqError("the schema", "parts of it are missing or wrong", "Take data.schema of a graph")
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
