"""Convolution, readout, own rows and bias in one step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_cases import (
    LENGTHS,
    SOURCES,
    assert_close,
    assert_exact,
    assert_ran,
    integers,
    normal,
    ragged,
)
from torch import Tensor

from node2seq import ops
from node2seq.ops import triton as fused
from node2seq.ops.sequences import multiply


def whole_layer(readout: str, sequences: ops.Sequences, is_learned: bool) -> Callable[..., Any]:
    """Convolution, readout, own rows and bias, by backend: in one step, or one after the other.

    The order is that of the rows' products, or as given.
    """

    def run(backend: Any, x: Tensor, weight: Tensor, root: Tensor, bias: Tensor) -> Any:
        ranked = sequences
        if is_learned:
            follows = ops.Convolution(weight.size(-3), readout, with_root=True)
            ranked = ops.rank(x, x, sequences, then=follows, backend=backend).layout
        if backend is fused and readout == "max":
            return fused.convolve_max(x, weight, ranked, root, bias)
        if backend is fused:
            return fused.convolve_sum(x, weight, ranked, root, bias, is_mean=readout == "mean")
        step = backend.convolve_max if readout == "max" else backend.convolve_sum
        out = step(x, weight, ranked)
        out, winner = out if readout == "max" else (out, None)
        if readout == "mean":
            out = out / sequences.rows.windows(weight.size(-3))[:, None]
        out = out + multiply(x, root.transpose(-2, -1))
        out = (out.view(*root.shape[:-2], -1, out.size(-1)) + bias.unsqueeze(-2)).flatten(0, -2)
        return out if winner is None else (out, winner)

    return run


@pytest.mark.parametrize(
    ("kernel_size", "is_learned", "runs"),
    [(1, True, 1), (3, True, 1), (20, False, 1), (3, True, 2)],
    ids=["k=1", "k=3", "order given", "two runs"],
)
def test_own_rows_and_bias_in_the_same_step(kernel_size: int, is_learned: bool, runs: int):
    """Own rows and bias in the same step: hubs, empty rows, rows of no sequence, several runs."""
    lengths = [*LENGTHS, *[2] * (SOURCES - len(LENGTHS))]
    union = ragged(lengths, SOURCES).copies(runs)
    lead = (runs,) if runs > 1 else ()

    def inputs(draw: Callable[..., Tensor]) -> list[Tensor]:
        shapes = [(kernel_size, 6, 6), (6, 6), (6,)]
        return [draw(runs * SOURCES, 6), *(draw(*lead, *shape) for shape in shapes)]

    for readout in ("max", "sum"):
        run = whole_layer(readout, union, is_learned)
        assert_exact(run, inputs(integers), integers(runs * SOURCES, 6))
    run = whole_layer("mean", union, is_learned)  # quotients are not exact
    assert_close(run, inputs(normal), normal(runs * SOURCES, 6))
    assert_ran("window_max", "max_parts", "window_max_grad", "window_sum_grad", "sum_parts")
    assert_ran(*(("sum_short", "sum_long", "sum_hub") if is_learned else ("window_sum",)))


@pytest.mark.parametrize("readout", ["max", "mean"])
def test_the_same_where_nothing_is_recorded(readout: str):
    """Without autograd the steps are the same."""
    lengths = [*LENGTHS, *[2] * (SOURCES - len(LENGTHS))]
    run = whole_layer(readout, ragged(lengths, SOURCES), True)
    given = [normal(*shape).float() for shape in ((SOURCES, 6), (3, 6, 6), (6, 6), (6,))]
    plain = run(fused, *given)
    recorded = run(fused, *(value.clone().requires_grad_() for value in given))
    for ours, theirs in zip(
        *((out if readout == "max" else (out,)) for out in (plain, recorded)), strict=True
    ):
        assert not ours.requires_grad
        assert torch.equal(ours, theirs.detach())
