"""Comparisons of what was computed in two ways.

Equal bits are asked of the same operations in the same order alone. A sum in another order, a product of
other sizes or one of a batch rounds differently; how differently is up to the processor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from node2seq.nn.conv.node2seq import Trace


def assert_same_up_to_rounding(found: Any, expected: Any, roundings: float = 8) -> None:
    """The largest difference is a few roundings of the largest value: of each tensor by itself."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same_up_to_rounding(found[name], value, roundings)
        return
    if isinstance(expected, Sequence):
        for one, other in zip(found, expected, strict=True):
            assert_same_up_to_rounding(one, other, roundings)
        return
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    if expected.numel():
        largest, error = (float(t.detach().abs().max()) for t in (expected, found - expected))
        allowed = roundings * torch.finfo(expected.dtype).eps * largest
        assert error <= allowed, f"{error:.2e} apart, {allowed:.2e} allowed"


def assert_same_layer(found: tuple[Tensor, Trace], expected: tuple[Tensor, Trace]) -> None:
    """Two layers' outputs and traces: orders and winners as exact integers, numbers up to rounding."""
    (out, trace), (expected_out, expected_trace) = found, expected
    assert trace.ptr.tolist() == expected_trace.ptr.tolist()
    assert trace.index.tolist() == expected_trace.index.tolist()
    assert trace.is_nonlocal.tolist() == expected_trace.is_nonlocal.tolist()
    assert (trace.winner is None) == (expected_trace.winner is None)
    if trace.winner is not None and expected_trace.winner is not None:
        assert trace.winner.tolist() == expected_trace.winner.tolist()
    assert_same_up_to_rounding(trace.scores, expected_trace.scores)
    assert_same_up_to_rounding(out, expected_out)
