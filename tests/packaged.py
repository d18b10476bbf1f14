"""Modules that went through ``torch.package``, as those do that are handed to somebody else."""

import io
from typing import Any

from torch import nn
from torch.package.package_exporter import PackageExporter
from torch.package.package_importer import PackageImporter


def packaged(module: nn.Module) -> Any:
    """A copy of a module, by way of a package that leaves all code outside."""
    buffer = io.BytesIO()
    with PackageExporter(buffer) as exporter:
        exporter.extern("**")
        exporter.save_pickle("models", "module.pkl", module)
    buffer.seek(0)
    return PackageImporter(buffer).load_pickle("models", "module.pkl")
