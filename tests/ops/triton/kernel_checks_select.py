"""Checks of the selection and of dropout on a GPU against their plain twins, without pytest.

TRITON_INTERPRET=1 python tests/ops/triton/kernel_checks_select.py   # on a CPU, through Triton's interpreter
python tests/ops/triton/kernel_checks_select.py                      # on a GPU
"""

import json
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from kernel_checks import DEVICE, blocks, bounded, filled_memory, integers
from torch import Tensor

from node2seq import ops
from node2seq.ops import reference, selection
from node2seq.ops import triton as fused
from node2seq.ops.fixed_order import rearrange
from node2seq.ops.triton.dynamic_plan import DynamicPlan, layout_of
from node2seq.ops.triton.launch import LAUNCHES, Tile

NODES, RUNS = 64, 3


def graph(nodes: int = NODES, edges: int = 130, hub: int = 30) -> ops.Sequences:
    """A random directed graph with a hub on either side, nodes without neighbours and some out of reach."""
    source, target = torch.randint(0, nodes - 4, (2, edges))
    source[:hub], target[hub : 2 * hub] = 3, 7
    loops = torch.arange(nodes // 2)
    source, target = torch.cat([source, loops]).to(DEVICE), torch.cat([target, loops]).to(DEVICE)
    return ops.build_sequences(source, target, nodes, nodes, add_self_loops=False, merge_duplicates=True)


def plainly(key: Tensor, sequences: ops.Sequences, hops: int, threshold: Any, joint: bool) -> ops.Ranking:
    """The selection by the plain twin, in float64."""
    reach = ops.Candidates(sequences, hops)
    return selection.select(reference, key, key, sequences, reach, threshold, joint)


def assert_same(found: Any, truth: ops.Ranking | ops.Positions) -> None:
    """Nodes and entries as exact integers, scores of whole numbers too."""
    for name, ours, plain in zip(("node", "score", "entry"), found, truth, strict=True):
        assert torch.equal(ours.double(), plain.double()), f"another {name}"


def check_select() -> None:
    """Every threshold: all stay, some make room, all would; candidates too few, and many that tie."""
    sequences = graph()
    reach = {hops: ops.Candidates(sequences, hops) for hops in (2, 3)}
    candidates = reach[3].listed()
    assert candidates is not None
    assert int(candidates.rows.length().max()) > 32, "no list is longer than a block"
    nonlocals = []
    for levels, threshold, hops, joint in (
        (3, -1e9, 2, True),
        (3, 0.0, 2, True),
        (3, 1.0, 3, True),
        (1, 1.0, 2, True),
        (1, 0.0, 3, False),
        (3, 0.0, 2, False),
        (1, 1e9, 3, True),
    ):
        key = torch.randint(-levels, levels + 1, (NODES, 3), device=DEVICE).double()
        key[1::5] = key[0]  # the same score for many candidates: their precedence decides
        found = fused.select(key.float(), key.float(), sequences, reach[hops], threshold, joint)
        assert_same(found, plainly(key, sequences, hops, threshold, joint))
        nonlocals.append(int((found.entry < 0).sum()))
    assert nonlocals[0] == 0
    assert min(nonlocals[1:]) > 20, "too few were selected to show anything"
    kernels = ("room_kernel", "candidate_score_kernel", "choose_kernel", "stay_kernel")
    assert all(LAUNCHES[kernel] == len(nonlocals) for kernel in kernels), "some selections took another path"


def check_runs() -> None:
    """Several runs, thresholds of their own, from one list, all at once and one after the other."""
    sequences = graph()
    keys = integers(RUNS, NODES, 3)
    limits = torch.tensor([1.0, -1e9, 3.0], device=DEVICE)
    alone = [plainly(key, sequences, 2, float(limit), True) for key, limit in zip(keys, limits, strict=True)]
    entries = sequences.rows.num_entries
    nodes = torch.cat([ranking.node + run * NODES for run, ranking in enumerate(alone)])
    own = [torch.where(r.entry < 0, -1, r.entry + run * entries) for run, r in enumerate(alone)]
    truth = ops.Positions(nodes, torch.cat([ranking.score for ranking in alone]), torch.cat(own))
    flat, every = keys.float().view(-1, 3), limits.repeat_interleave(NODES)
    for at_once, launches in ((2**30, 1), (1, RUNS)):
        LAUNCHES.clear()
        with patch("node2seq.ops.triton.selection._SCORES_AT_ONCE", at_once):
            reach = ops.Candidates(sequences, 2).copies(RUNS)
            found = fused.select(flat, flat, sequences.copies(RUNS), reach, every, True)
        assert LAUNCHES["choose_kernel"] == launches
        assert_same(found, truth)


def check_odd_scores() -> None:
    """Infinite scores, undefined ones, subnormal ones and zeros: everyone is selected once at most."""
    sequences = graph()
    key = torch.randn(NODES, 1, device=DEVICE)
    for joint, odd in ((True, torch.inf), (False, torch.inf), (False, -0.0), (True, 1e-30)):
        key[5:12, 0] = odd
        with np.errstate(all="ignore"):  # the interpreter's
            found = fused.select(key, key, sequences, ops.Candidates(sequences, 2), 0.5, joint)
        node, target = found.node, sequences.rows.target
        assert bool(((node >= 0) & (node < NODES)).all())
        assert (target * NODES + node).unique().numel() == node.numel(), "someone was selected twice"


def check_too_many() -> None:
    """Candidates that are too many to keep are searched for in blocks."""
    sequences = graph()
    key = integers(NODES, 3)
    with patch("node2seq.ops.candidates.most_kept", return_value=5):
        found = fused.select(key.float(), key.float(), sequences, ops.Candidates(sequences, 2), 1.0, True)
    assert not LAUNCHES["choose_kernel"]
    assert_same(found, plainly(key, sequences, 2, 1.0, True))


def check_empty() -> None:
    """No nodes, no entries, nobody within reach."""
    for edges, nodes in (([], 0), ([], 3), ([(0, 1), (1, 0)], 3)):
        pairs = torch.tensor(edges, dtype=torch.int64, device=DEVICE).view(-1, 2)
        sequences = ops.build_sequences(
            pairs[:, 0], pairs[:, 1], nodes, nodes, add_self_loops=False, merge_duplicates=True
        )
        key = torch.ones(nodes, 2, device=DEVICE)
        found = fused.select(key, key, sequences, ops.Candidates(sequences, 2), 9.0, True)
        assert torch.equal(found.node, sequences.index)
        assert [values.numel() for values in found] == [len(edges)] * 3


def _gradients(ranked: Any, backend: Any, readout: str, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(5)
    x = integers(NODES, 5).to(dtype).requires_grad_()
    weight = integers(3, 5, 5).to(dtype).requires_grad_()
    out = getattr(backend, f"convolve_{readout}")(x, weight, ranked)
    out = out[0] if readout == "max" else out
    direction = integers(*out.shape).to(dtype)
    return [out.detach(), *torch.autograd.grad((out * direction).sum(), [x, weight])]


def check_gradients() -> None:
    """Convolutions over what was selected: sources that became hubs, and others that nobody selected."""
    sequences = graph()
    key = integers(NODES, 3).clamp(min=0)
    key[9] = 50.0  # stands in as many sequences as can reach it
    found: Any = fused.select(key.float(), key.float(), sequences, ops.Candidates(sequences, 3), 1e9, True)
    counts = torch.bincount(found.node, minlength=NODES)
    assert int(counts.max()) > 16, "no source is longer than two items"
    assert int(counts.min()) == 0
    ranked = found.layout
    truth = plainly(key, sequences, 3, 1e9, True).layout
    for readout in ("max", "sum"):
        ours = _gradients(ranked, fused, readout, torch.float32)
        plain = _gradients(truth, reference, readout, torch.float64)
        for place, (a, b) in enumerate(zip(ours, plain, strict=True)):
            assert torch.equal(a.double(), b.double()), f"{readout}: result {place} differs"
    assert LAUNCHES["choose_kernel"]
    assert LAUNCHES["sum_parts_kernel"]
    again = rearrange(found, hops=3, seed=None)
    assert_same(again, rearrange(plainly(key, sequences, 3, 1e9, True), hops=3, seed=None))
    layout = layout_of(again.layout)
    assert isinstance(layout.plan, DynamicPlan), "its plan would wait for the device"
    assert torch.equal(layout.index.long(), again.node)


def check_dropout() -> None:
    """The same elements, bit for bit: shared features or one's own, rates, parts of a graph, whole nodes."""
    runs = {"seed": torch.tensor([7, 2**50], device=DEVICE), "step": torch.tensor([3, 4], device=DEVICE)}
    alone = {name: value[1] for name, value in runs.items()}
    rates = torch.tensor([0.3, 0.0], dtype=torch.float64, device=DEVICE)
    nodes = torch.randint(0, 2**31, (70,), device=DEVICE)
    shared = torch.randn(70, 30, device=DEVICE)
    own = torch.randn(2, 70, 30, device=DEVICE)
    for x, p, streams, ids, whole_rows in (
        (shared, 0.3, alone, None, False),
        (shared, 1.5 / 2**32, alone, nodes, True),
        (shared, rates, runs, None, True),
        (shared, 0.6, runs, nodes, False),
        (own, rates, runs, nodes, False),
        (own.transpose(1, 2), 0.9, runs, None, False),
        (shared[:0], 0.5, alone, None, False),
    ):
        direction, results = torch.randn(2, 70, 30, device=DEVICE), []
        for backend in (None, fused):
            leaf, step = x.clone().requires_grad_(), streams["step"].clone()
            with patch("node2seq.ops.dropout.fastest_for", lambda *_, backend=backend: backend):
                out = ops.counter_dropout(leaf, p, streams["seed"], step, 2, ids, whole_rows)
            step += 1  # as a module counts before the backward pass
            (grad,) = torch.autograd.grad(
                (out * direction.view(-1)[: out.numel()].view(out.shape)).sum(), leaf
            )
            results.append((out, grad))
        (truth, plain_grad), (out, grad) = results
        assert torch.equal(out, truth)
        # Where runs share their features, sums and scales may be rounded in either order.
        assert torch.allclose(grad, plain_grad, rtol=1e-6, atol=1e-6)
    assert LAUNCHES["drop_kernel"] == 12


def check_large() -> None:
    """On a GPU: lists of tens of thousands and a hub, at the real block sizes; twice the same bits."""
    sequences = graph(30_000, 200_000, 20_000)
    key = integers(30_000, 16)
    reach = ops.Candidates(sequences, 2)
    for joint in (True, False):
        for threshold in (0.0, 8.0):
            found = fused.select(key.float(), key.float(), sequences, reach, threshold, joint)
            again = fused.select(key.float(), key.float(), sequences, reach, threshold, joint)
            assert_same(found, plainly(key, sequences, 2, threshold, joint))
            assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


def check_capture() -> None:
    """On a GPU: a step over two runs, captured; replayed with other features, it gives what they give."""
    sequences, runs = graph(500, 4000, 400), 2
    reach, union = ops.Candidates(sequences, 2).copies(runs), sequences.copies(runs)
    weight = torch.randn(runs, 3, 16, 16, device=DEVICE)
    x = torch.randn(runs * 500, 16, device=DEVICE, requires_grad=True)
    features = [torch.randn_like(x) for _ in range(2)]

    def step() -> list[Tensor]:
        with torch.no_grad():
            ranking = fused.select(x, x, union, reach, 1.0, True)
        ranked = ranking.layout
        total = fused.convolve_max(x, weight, ranked)[0].square().sum()
        total = total + fused.convolve_sum(x, weight, ranked).square().sum()
        return [ranking.node, *torch.autograd.grad(total, x)]

    expected = []
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for values in features:
            x.data.copy_(values)
            expected.append([value.clone() for value in step()])
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = step()
    assert not torch.equal(expected[0][0], expected[1][0])
    for values, truth in zip(features, expected, strict=True):
        x.data.copy_(values)
        captured.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(results, truth, strict=True))


SMALL: dict[str, Callable[[], None]] = {
    "select": check_select,
    "runs": check_runs,
    "odd scores": check_odd_scores,
    "too many": check_too_many,
    "empty": check_empty,
    "gradients": check_gradients,
    "dropout": check_dropout,
}
LARGE: dict[str, Callable[[], None]] = {"large": check_large, "capture": check_capture}


def run_checks() -> dict[str, str]:
    """Every check by name, and the error that it ended in, or nothing."""
    results = {}
    for name, check in {**SMALL, **(LARGE if DEVICE == "cuda" else {})}.items():
        torch.manual_seed(0)
        LAUNCHES.clear()
        start = time.perf_counter()
        try:
            with ExitStack() as stack:
                if name in SMALL:
                    stack.enter_context(filled_memory())
                    stack.enter_context(bounded())
                    stack.enter_context(blocks(8, (2, 4), (8, 16)))
                    # Lists of several blocks, as hubs have.
                    stack.enter_context(patch("node2seq.ops.triton.selection._CHOOSE_TILES", (Tile(32, 1),)))
                check()
            results[name] = ""
        except Exception:
            results[name] = traceback.format_exc()
        sys.stderr.write(f"{name}: {results[name] or 'ok'} ({time.perf_counter() - start:.1f} s)\n")
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run_checks()))
