"""Triton's kernels, loaded when first asked for."""

from functools import cache
from importlib import import_module
from types import ModuleType


@cache
def fused_kernels() -> ModuleType | None:
    """The backend of fused kernels, or nothing where Triton is not installed."""
    try:
        return import_module("node2seq.ops.triton")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return None
