"""``node2seq evaluate``: a run folder → its figures, measured anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

EPILOG = "Example: node2seq evaluate runs/cora-r-node2seq-s0"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.", show_default=False)],
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Measure a trained model: accuracy, macro-F1, ROC-AUC, and each class."""
    from rich.console import Console

    from node2seq.cli import show
    from node2seq.cli.progress import step_teller
    from node2seq.runs.folder import RunFolder
    from node2seq.runs.inference import evaluate_run

    console = Console(quiet=as_json)
    measured = evaluate_run(run, device=device, say=step_teller(as_json))
    if as_json:
        typer.echo(json.dumps({part: found.to_dict() for part, found in measured.items()}))
    else:
        show.metrics(console, measured, RunFolder(run).config["graph"]["class_names"])
