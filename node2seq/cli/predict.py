"""``node2seq predict``: a run folder and a graph → a table of classes and probabilities."""

from __future__ import annotations

import json
from pathlib import Path

from node2seq.cli.commands import echo, step_teller
from node2seq.cli.flags import PredictFlags
from node2seq.cli.tables import check_table_name, write_embeddings, write_predictions
from node2seq.runs.inference import predict_run


def predict(flags: PredictFlags) -> None:
    """Predict every node and write the tables."""
    for table in (flags.out, flags.embeddings):
        if table is not None:
            check_table_name(table)  # before the work, not after it
    prediction = predict_run(
        flags.run,
        edges=_text(flags.edges),
        nodes=_text(flags.nodes),
        embeddings=flags.embeddings is not None,
        device=flags.device,
        say=step_teller(flags.as_json),
    )
    write_predictions(flags.out, prediction)
    if flags.embeddings is not None:
        write_embeddings(flags.embeddings, prediction)
    if flags.as_json:
        written = {"out": str(flags.out), "embeddings": _text(flags.embeddings)}
        echo(json.dumps({"nodes": len(prediction.node_ids), **written}))
    else:
        echo(f"{len(prediction.node_ids)} nodes predicted: {flags.out}")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
