"""``node2seq evaluate`` and ``predict``: a finished run → its figures, measured again; its predictions."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from node2seq.cli import show
from node2seq.cli.commands import echo, step_teller
from node2seq.cli.flags import EvaluateFlags, PredictFlags
from node2seq.data.interop import write_tables
from node2seq.data.tabular import first_few, pl
from node2seq.errors import Node2SeqError
from node2seq.runs.folder import RunFolder
from node2seq.runs.inference import Prediction, evaluate_run, predict_run


def evaluate(flags: EvaluateFlags) -> None:
    """Measure a trained model and show it."""
    measured = evaluate_run(flags.run, device=flags.device, say=step_teller(flags.as_json))
    if flags.as_json:
        echo(json.dumps({part: found.to_dict() for part, found in measured.items()}))
    else:
        show.metrics(Console(), measured, RunFolder(flags.run).config["graph"]["class_names"])


def predict(flags: PredictFlags) -> None:
    """Predict every node and write the tables."""
    prediction = predict_run(
        flags.run,
        edges=flags.edges,
        nodes=flags.nodes,
        reading=_reading(flags),
        embeddings=flags.embeddings is not None,
        device=flags.device,
        say=step_teller(flags.as_json),
        sample=flags.sample,
    )
    tables = {flags.out: predictions_of(prediction)}
    if flags.embeddings is not None:
        tables[flags.embeddings] = embeddings_of(prediction)
    write_tables(tables.items())
    if flags.as_json:
        written = {"out": str(flags.out), "embeddings": flags.embeddings and str(flags.embeddings)}
        unlabelled = [str(name) for name in prediction.unlabelled]
        about = {"nodes": len(prediction.node_ids), **written, "unlabelled": unlabelled}
        more = {"notes": prediction.notes, "warnings": list(prediction.warnings)}
        echo(json.dumps(about | {name: texts for name, texts in more.items() if texts}))
    else:
        for note in prediction.notes:
            echo(f"note: {note}")
        for warning in prediction.warnings:
            echo(f"warning: {warning}", error=True)
        echo(f"{len(prediction.node_ids)} nodes predicted{_unlabelled(prediction)}: {flags.out}")


def _unlabelled(prediction: Prediction) -> str:
    """Which nodes had no label, if some had one."""
    names = [str(name) for name in prediction.unlabelled]
    if not names or len(names) == len(prediction.node_ids):
        return ""
    return f", {len(names)} of them unlabelled ({first_few(names)})"


def _reading(flags: PredictFlags) -> dict[str, Any]:
    """How to read the files of a new graph, as far as the flags say."""
    given = {name: getattr(flags, name) for name in ("source", "target", "id", "fill", "delimiter")}
    given = {name: value for name, value in given.items() if value is not None}
    if given and flags.edges is None and flags.nodes is None:
        raise Node2SeqError(
            f"--{next(iter(given))}", "it applies to a new graph only", "Give --edges and --nodes too"
        )
    return given


def predictions_of(prediction: Prediction) -> pl.DataFrame:
    """``id``, ``label``, one probability column per class (a number has none), and which are unlabelled."""
    columns: dict[str, list[object]] = {"id": prediction.node_ids, "label": list(prediction.labels)}
    for number, name in enumerate(prediction.class_names):
        values = prediction.probabilities[:, number].tolist()
        # A class may be called "id" or "label" itself.
        columns[name if name not in (*columns, "unlabelled") else f"{name} (probability)"] = values
    unlabelled = set(prediction.unlabelled)
    return pl.DataFrame({**columns, "unlabelled": [node in unlabelled for node in prediction.node_ids]})


def embeddings_of(prediction: Prediction) -> pl.DataFrame:
    """``id`` and one column per dimension of the embedding."""
    assert prediction.embeddings is not None
    columns: dict[str, list[object]] = {"id": prediction.node_ids}
    columns |= {f"e{i}": values for i, values in enumerate(prediction.embeddings.T.tolist())}
    return pl.DataFrame(columns)
