"""``node2seq info``: what is installed here, what a model can be told, what a run is."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from node2seq.cli.commands import echo
from node2seq.cli.flags import InfoFlags
from node2seq.cli.names import BACKENDS, MODELS
from node2seq.environment import (
    PACKAGES,
    describe,
    has_gpu_driver,
    package_versions,
    pick_device,
    source_commit,
)
from node2seq.errors import Node2SeqError
from node2seq.options import argument_texts


def info(flags: InfoFlags) -> None:
    """Show versions and devices, the options of a model, or what a run is."""
    if flags.model is not None and flags.run is not None:
        given = f"--model {flags.model} with the run {flags.run}"
        raise Node2SeqError(given, "these are two questions", "Ask one of them")
    if flags.model is not None:
        found = _model(flags.model)
    elif flags.run is not None:
        found = _run(flags.run)
    else:
        found = _installation()
    if flags.as_json:
        echo(json.dumps(found))
    else:
        meanings = {key: text for texts in found.pop("meanings", {}).values() for key, text in texts.items()}
        _show(found, meanings)


def _installation() -> dict[str, Any]:
    if has_gpu_driver():
        import torch

        found = describe(pick_device("auto"))
        found["cuda devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    else:
        found = {**package_versions(PACKAGES), "platform": platform.platform(), "device": "cpu"}
        found |= {"commit": source_commit(), "cuda devices": []}
    return {**found, "cores": os.cpu_count(), "backends": list(BACKENDS), "models": list(MODELS)}


def _model(name: str) -> dict[str, Any]:
    from node2seq.nn.models import MODELS as NETWORKS
    from node2seq.train.settings import TrainSettings, option_defaults, option_types

    defaults = option_defaults(name)
    found = {
        "options": {key: defaults.get(key) for key in option_types(name)},
        "training": asdict(TrainSettings()),
    }
    texts = {"options": argument_texts(NETWORKS[name]), "training": argument_texts(TrainSettings)}
    return {**found, "meanings": {part: {key: texts[part][key] for key in found[part]} for part in found}}


def _run(path: Path) -> dict[str, Any]:
    from node2seq.runs.folder import RunFolder

    folder = RunFolder(path)
    config, run = folder.config, folder.run
    found: dict[str, Any] = {
        "state": "finished" if folder.finished else "failed" if folder.failure else "unfinished",
        "data": run.source.title,
        "nodes": config["graph"].get("summary", {}).get("nodes"),
        "classes": config["graph"].get("class_names"),
        "model": config["model"],
        "settings": config["run"]["settings"],
        "split": folder.split.sizes,
        "split_rule": folder.split.rule,
        "seed": run.seed,
        "environment": config["environment"],
    }
    if folder.finished:
        found["best_epoch"] = folder.result.best_epoch
        metrics = folder.result.metrics
        for name in metrics["val"].figures[:1]:
            found[name] = {part: measured.value(name) for part, measured in metrics.items()}
    return found


def _show(found: dict[str, Any], meanings: dict[str, str]) -> None:
    table = Table(show_header=False, box=None)
    for key, value in _flat(found):
        meaning = meanings.get(key.rpartition(".")[2], "")
        table.add_row(Text(key, style="bold"), Text(value), *([Text(meaning)] if meanings else []))
    Console().print(table)


def _flat(found: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in found.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            rows.append((prefix + key, ", ".join(map(str, value)) or "none"))
        else:
            rows.append((prefix + key, "none" if value is None else str(value)))
    return rows
