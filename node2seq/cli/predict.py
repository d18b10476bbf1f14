"""``node2seq predict``: a run folder and a graph → a table of classes and probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

node2seq predict runs/karate-node2seq-s0 --out predictions.csv

node2seq predict runs/nodes-node2seq-s0 --edges new_edges.csv --nodes new_nodes.csv --out new.parquet
"""


def predict(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option(
            help="Table to write, .csv or .parquet: id, label, one probability per class.", show_default=False
        ),
    ],
    edges: Annotated[
        Path | None, typer.Option(help="Edges of a new graph.", show_default="the graph of the run")
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Nodes of a new graph.", show_default="the graph of the run")
    ] = None,
    embeddings: Annotated[
        Path | None,
        typer.Option(help="Also write the nodes' embeddings, .csv or .parquet.", show_default="none"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Predict the class of every node: of the graph that a run was trained on, or of a new one."""
    from node2seq.cli.progress import step_teller
    from node2seq.cli.tables import check_table_name, write_embeddings, write_predictions
    from node2seq.runs.inference import predict_run

    for table in (out, embeddings):
        if table is not None:
            check_table_name(table)  # before the work, not after it
    prediction = predict_run(
        run,
        edges=None if edges is None else str(edges),
        nodes=None if nodes is None else str(nodes),
        embeddings=embeddings is not None,
        device=device,
        say=step_teller(as_json),
    )
    write_predictions(out, prediction)
    if embeddings is not None:
        write_embeddings(embeddings, prediction)
    if as_json:
        written = {"out": str(out), "embeddings": None if embeddings is None else str(embeddings)}
        typer.echo(json.dumps({"nodes": len(prediction.node_ids), **written}))
    else:
        typer.echo(f"{len(prediction.node_ids)} nodes predicted: {out}")
