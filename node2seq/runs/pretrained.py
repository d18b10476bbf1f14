"""Models as folders: ``config.json`` and ``model.safetensors``, the layout that the Hugging Face hub keeps.

A run folder is such a folder too, so :func:`from_pretrained` opens both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.runs.folder import FORMAT, check_format
from node2seq.storage import make_folder, read_json, read_tensors, write_json, write_tensors
from node2seq.train.settings import complete, option_types

_CHANNELS = ("in_channels", "out_channels")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def save_pretrained(
    model: nn.Module, folder: str | Path, *, class_names: Sequence[str] | None = None
) -> None:
    """Write ``model`` into ``folder``, so that ``huggingface_hub`` can push it as it is.

    Args:
        model: A model of this package; its constructor's arguments are read from its attributes.
        folder: Created if needed; files of the same names are replaced.
        class_names: What the classes are called.
    """
    name = next((key for key, cls in MODELS.items() if type(model) is cls), None)
    if name is None:
        raise Node2SeqError(
            f"the model {type(model).__name__}",
            "only models of this package can be rebuilt from a config",
            f"Use one of {', '.join(MODELS)}, or save its state_dict yourself",
        )
    entry = {key: int(getattr(model, key)) for key in _CHANNELS}
    if model.edge_dim is not None:
        entry["edge_dim"] = int(model.edge_dim)  # pyright: ignore[reportArgumentType]
    entry = {"name": name, **entry, "options": {key: getattr(model, key) for key in option_types(name)}}
    folder = Path(folder)
    make_folder(folder)
    write_tensors(folder / "model.safetensors", model.state_dict(), {})
    config: dict[str, Any] = {"format": FORMAT, "library_name": "node2seq", "model": entry}
    if class_names is not None:
        config["class_names"] = list(class_names)
    write_json(folder / "config.json", config)


def from_pretrained(folder_or_hub_id: str | Path, *, revision: str | None = None) -> nn.Module:
    """Build a model back from a folder, a run folder, or ``owner/name`` on the Hugging Face hub.

    Args:
        folder_or_hub_id: A folder that exists here, else an id on the hub (needs ``huggingface_hub``).
        revision: Branch, tag or commit on the hub.
    """
    folder = Path(folder_or_hub_id)
    if not folder.is_dir():
        folder = _download(str(folder_or_hub_id), revision)
    config_file = folder / "config.json"
    config = read_json(config_file)
    check_format(config, config_file)
    model = build_model(config.get("model"), config_file)
    load_weights(model, folder / "model.safetensors")
    return model.eval()


def build_model(entry: Any, where: Path | str) -> nn.Module:
    """Build a model from what config.json says of it."""
    try:
        name, options = entry["name"], dict(entry["options"])
        in_channels, out_channels = (int(entry[key]) for key in _CHANNELS)
        edge_dim = int(entry["edge_dim"]) if "edge_dim" in entry else None
    except (KeyError, TypeError, ValueError) as error:
        raise Node2SeqError(
            f"{where}: model", f"it does not describe a model ({error})", "Restore the file from a copy"
        ) from error
    name, complete_options = complete(name, options, str(where))
    return MODELS[name].with_options(in_channels, out_channels, complete_options, edge_dim)


def load_weights(model: nn.Module, path: Path, belongs_to: str | None = None) -> None:
    """Load ``path`` into ``model``; with ``belongs_to``, refuse weights of another run."""
    tensors, notes = read_tensors(path)
    if belongs_to is not None and notes.get("belongs_to", belongs_to) != belongs_to:
        raise Node2SeqError(
            str(path),
            "it was trained with another config.json or split.json than the ones beside it",
            "Undo the edit of those files, or train again",
        )
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        detail = "; ".join(line.strip() for line in str(error).splitlines()[1:])
        raise Node2SeqError(
            str(path),
            f"its weights do not fit the model that config.json describes ({detail})",
            "Take both files from the same run",
        ) from error


def _download(hub_id: str, revision: str | None) -> Path:
    if not _HUB_ID.fullmatch(hub_id):
        raise Node2SeqError(
            hub_id, "there is no such folder, and it is no hub id", "Give a folder or owner/name"
        )
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise Node2SeqError(
            hub_id,
            "there is no such folder, and reading from the hub needs huggingface_hub",
            "Check the path, or run `pip install huggingface_hub`",
        ) from error
    try:
        return Path(
            snapshot_download(hub_id, revision=revision, allow_patterns=["config.json", "model.safetensors"])
        )
    except Exception as error:  # the hub's errors have no common base but OSError and ValueError
        reason = str(error).strip().splitlines()[0].rstrip(".") or type(error).__name__
        raise Node2SeqError(
            hub_id, f"the hub did not give it ({reason})", "Check the name and the network"
        ) from error
