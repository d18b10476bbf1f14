"""Backends that need a package which may not be there, loaded when first asked for."""

from functools import cache
from importlib import import_module
from types import ModuleType

import torch
from torch import Tensor

NATIVE_DTYPES = (torch.float32, torch.float64)
# Below so many entries, the seconds that numba takes to load are better spent on training.
_FEWEST_ENTRIES = 2**13


@cache
def _backend(name: str, needed: str) -> ModuleType | None:
    """A backend, or nothing where the package that it needs is not installed."""
    try:
        return import_module(f"node2seq.ops.{name}")
    except ModuleNotFoundError as error:
        if error.name != needed:
            raise
        return None


def fused_kernels() -> ModuleType | None:
    """The backend of Triton's fused kernels, or nothing without Triton."""
    return _backend("triton", "triton")


def native_loops() -> ModuleType | None:
    """The backend of loops that numba compiles, or nothing without numba."""
    return _backend("native", "numba")


def loops_for(entries: int) -> ModuleType | None:
    """The same, but nothing for a graph of so few entries that it is not worth loading them."""
    return native_loops() if entries >= _FEWEST_ENTRIES else None


def fastest_for(x: Tensor, entries: int) -> ModuleType | None:
    """The one of the two that can work on such values, if any; few entries are not worth loading it."""
    if x.is_cuda:
        return fused_kernels() if x.dtype == torch.float32 else None
    return loops_for(entries) if x.device.type == "cpu" and x.dtype in NATIVE_DTYPES else None
