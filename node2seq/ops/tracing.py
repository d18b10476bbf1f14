"""What PyTorch is doing right now: running, or tracing a graph in which values cannot be looked at."""

from contextlib import AbstractContextManager, nullcontext

import torch


def is_tracing() -> bool:
    """Whether values cannot be looked at: while compiling, exporting or capturing a CUDA graph."""
    if torch.compiler.is_compiling():
        return True
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def is_exporting() -> bool:
    """Whether what is traced has to run without this package.

    PyTorch's function of that name is no help: up to 2.11 it says so whenever ``torch.compile`` asks.
    """
    return torch.compiler._is_exporting_flag


def lasting() -> AbstractContextManager[object]:
    """For what is kept with a graph: worked out in inference mode, it has to serve backward passes later."""
    return nullcontext() if torch.compiler.is_compiling() else torch.inference_mode(False)
