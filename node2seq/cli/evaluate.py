"""``node2seq evaluate``: a run folder → its figures, measured anew."""

from __future__ import annotations

import json

from rich.console import Console

from node2seq.cli import show
from node2seq.cli.commands import echo, step_teller
from node2seq.cli.flags import EvaluateFlags
from node2seq.runs.folder import RunFolder
from node2seq.runs.inference import evaluate_run


def evaluate(flags: EvaluateFlags) -> None:
    """Measure a trained model and show it."""
    measured = evaluate_run(flags.run, device=flags.device, say=step_teller(flags.as_json))
    if flags.as_json:
        echo(json.dumps({part: found.to_dict() for part, found in measured.items()}))
    else:
        show.metrics(Console(), measured, RunFolder(flags.run).config["graph"]["class_names"])
