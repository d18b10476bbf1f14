"""One training → one row."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from node2seq import __version__
from node2seq.data import load, make_split, normalize_features
from node2seq.environment import make_deterministic
from node2seq.experiments.cells import Key, recipe_to_row
from node2seq.models import MODELS
from node2seq.recipes import Recipe
from node2seq.train import Fitter, evaluate

_PACKAGES = ("torch_geometric", "numpy")


class Bench:
    """Trains on one device; reads each graph once and keeps it there.

    Args:
        device: Where to train.
        root: The folder of the data sets; see :func:`node2seq.data.load`.
    """

    def __init__(self, device: torch.device, root: str | None = None) -> None:
        make_deterministic(device)
        self.device = device
        self.root = root
        self._graphs: dict[tuple[str, bool], Data] = {}

    def graph(self, column: str, row_normalize: bool) -> Data:
        """The graph of a column on the device."""
        key = (column, row_normalize)
        if key not in self._graphs:
            data = load(column, root=self.root)
            assert data.x is not None
            if row_normalize:
                data.x = normalize_features(data.x)
            data.num_classes_known = int(data.y.max()) + 1  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            self._graphs[key] = data.to(str(self.device))
        return self._graphs[key]

    def train(self, key: Key, recipe: Recipe, on_epoch: Callable[[], None] | None = None) -> dict[str, Any]:
        """Train once and return what the row says of it.

        Args:
            key: What to train, and the seed of the split, the initial weights and the dropout.
            recipe: How.
            on_epoch: Called after each epoch; what it raises ends the training.
        """
        started = time.monotonic()
        data = self.graph(key.column, recipe.row_normalize)
        split = make_split(data, seed=key.seed)
        torch.manual_seed(key.seed)
        model = MODELS[key.model](data.num_features, out_channels=data.num_classes_known, **recipe.options)
        fitter = Fitter(model.to(self.device), data, split, recipe.settings)
        while not fitter.done:
            fitter.step()
            if on_epoch is not None:
                on_epoch()
        result = fitter.finish()
        assert result.test is not None
        row: dict[str, Any] = {
            **key._asdict(),
            "val": result.val.accuracy,
            "test": result.test.accuracy,
            "test_nodes": result.test.nodes,
        }
        if split.test_rest.numel() != split.test.numel():
            row["test_rest"] = evaluate(model, data, split.test_rest).accuracy
        return {
            **row,
            "epoch": result.best.epoch,
            "epochs": len(result.history),
            "seconds": round(time.monotonic() - started, 3),
            "recipe": recipe_to_row(recipe),
        }


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The device and the versions that a row was made with: equal ones are expected to give equal bits."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu: {_processor()}"
    versions = {
        "python": platform.python_version(),
        "node2seq": __version__,
        "torch": torch.__version__,  # with the build, which decides about kernels
        **{package: metadata.version(package) for package in _PACKAGES},
    }
    return {"device": name, "versions": versions}


def _processor() -> str:
    """The model of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
