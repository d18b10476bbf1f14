"""Ragged sequences to try the operations on, and the backends to try them with."""

from types import ModuleType

import pytest
import torch

from node2seq import ops

BACKENDS = [*sorted(ops.BACKENDS), pytest.param("native", marks=pytest.mark.slow)]
# Every width of a group, its neighbours, empty rows, and a hub far beyond the rest.
LENGTHS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 23, 24, 25, 0, 33, 700, 1, 0]


def functions_of(backend: str) -> ModuleType:
    """The module of a backend."""
    return ops.choose_backend(backend, torch.ones(1))


def ragged(lengths: list[int], num_sources: int, seed: int = 0) -> ops.Sequences:
    """Sequences of the given lengths with distinct random sources."""
    generator = torch.Generator().manual_seed(seed)
    index = [torch.randperm(num_sources, generator=generator)[:length].sort().values for length in lengths]
    return ops.Sequences(ops.Rows.from_lengths(torch.tensor(lengths)), torch.cat(index), num_sources)
