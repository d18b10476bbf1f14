"""How long a step takes, and how much memory it adds."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Measured:
    """Milliseconds at the 20th, 50th and 80th percentile, and the bytes that a step adds at its peak."""

    p20_ms: float
    p50_ms: float
    p80_ms: float
    peak_bytes: int | None


def measure(
    step: Callable[[], Any], device: torch.device, *, seconds: float, least: int = 3, most: int = 30
) -> Measured | None:
    """Time and memory of a step, or None if it runs out of memory.

    Args:
        step: What to measure; it runs twice before it is timed, which fills caches.
        device: Where it runs.
        seconds: About how long to repeat it,
        least: at least this often,
        most: at most this often, unless ``least`` is more.
    """
    try:
        step()
        peak = peak_bytes(step, device)
        times = sorted(_repeat(step, device, seconds, least, most))
        return Measured(*(float(q) for q in np.percentile(times, (20, 50, 80))), peak_bytes=peak)
    except (torch.OutOfMemoryError, MemoryError):
        return None
    except RuntimeError as error:  # what torch raises where a CPU runs out
        if "DefaultCPUAllocator" not in str(error):
            raise
        return None


def _repeat(
    step: Callable[[], Any], device: torch.device, seconds: float, least: int, most: int
) -> list[float]:
    end, times = time.perf_counter() + seconds, []
    while len(times) < least or (len(times) < most and time.perf_counter() < end):
        times.append(_once_on_gpu(step) if device.type == "cuda" else _once(step))
    return times


def _once(step: Callable[[], Any]) -> float:
    start = time.perf_counter()
    step()
    return 1e3 * (time.perf_counter() - start)


def _once_on_gpu(step: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int | None:
    """The bytes that a step adds at its peak; None where the system does not report them."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    if not _CLEAR.exists():
        step()
        return None
    _return_free_memory()
    _CLEAR.write_text("5")  # resets the high-water mark
    before = _resident("VmRSS:")
    step()
    return max(_resident("VmHWM:") - before, 0)


def _return_free_memory() -> None:
    """Return freed memory to the system: a step that reused it would seem to need none."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
        if trim is not None:
            trim(0)


def _resident(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
