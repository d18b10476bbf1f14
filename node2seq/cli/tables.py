"""Predictions and embeddings → CSV or Parquet files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from node2seq.errors import Node2SeqError
from node2seq.storage import write_bytes

if TYPE_CHECKING:
    import polars

    from node2seq.runs.inference import Prediction

SUFFIXES = (".csv", ".parquet")


def check_table_name(path: Path) -> None:
    """Refuse a file that could not be written in the end."""
    if path.suffix.lower() not in SUFFIXES:
        raise Node2SeqError(
            str(path), f"a table is written as {' or '.join(SUFFIXES)}", f"Name it {path.stem}.csv"
        )
    if not path.absolute().parent.is_dir():
        raise Node2SeqError(str(path), "its folder does not exist", "Create it first")


def write_predictions(path: Path, prediction: Prediction) -> None:
    """Write ``id``, ``label`` and one probability column per class."""
    import polars

    columns: dict[str, list[object]] = {"id": prediction.node_ids, "label": list(prediction.labels)}
    for name, values in zip(prediction.class_names, prediction.probabilities.T.tolist(), strict=True):
        # A class may be called "id" or "label" itself.
        columns[name if name not in columns else f"{name} (probability)"] = values
    _write(path, polars.DataFrame(columns))


def write_embeddings(path: Path, prediction: Prediction) -> None:
    """Write ``id`` and one column per dimension of the embedding."""
    import polars

    assert prediction.embeddings is not None
    columns: dict[str, list[object]] = {"id": prediction.node_ids}
    columns |= {f"e{i}": values for i, values in enumerate(prediction.embeddings.T.tolist())}
    _write(path, polars.DataFrame(columns))


def _write(path: Path, frame: polars.DataFrame) -> None:
    buffer = io.BytesIO()
    if path.suffix.lower() == ".csv":
        frame.write_csv(buffer)
    else:
        frame.write_parquet(buffer)
    write_bytes(path, buffer.getvalue())
