"""The selection of neighbours from farther away."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from kernel_cases import DEVICE, NODES, assert_same, graph, integers, plainly
from torch import Tensor

from node2seq import ops
from node2seq.ops import triton as fused
from node2seq.ops.triton.launch import LAUNCHES

pytestmark = pytest.mark.usefixtures("short_blocks_of_candidates")

RUNS = 3


def test_selections_are_those_of_the_reference():
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


def test_runs_select_by_thresholds_of_their_own():
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


def test_lists_in_parts_select_what_one_list_does():
    """Lists that are cut after some nodes, for one run and for several at once and one after the other."""
    sequences = graph()
    keys = integers(RUNS, NODES, 3).float()
    flat, limits = keys.view(-1, 3), torch.tensor([1.0, -1e9, 3.0], device=DEVICE).repeat_interleave(NODES)

    def select() -> tuple[ops.Ranking, ops.Ranking]:
        reach = ops.Candidates(sequences, 2)
        alone = fused.select(keys[0], keys[0], sequences, reach, 1.0, True)
        every = (sequences.copies(RUNS), reach.copies(RUNS))
        return alone, fused.select(flat, flat, *every, limits, True)

    whole = select()
    for at_once in (2**30, 1):
        LAUNCHES.clear()
        with (
            patch("node2seq.ops.candidates._ENTRIES_PER_PART", 10),
            patch("node2seq.ops.candidates._MARKS_PER_BLOCK", NODES),
            patch("node2seq.ops.triton.selection._SCORES_AT_ONCE", at_once),
        ):
            cut = select()
        assert LAUNCHES["choose_kernel"] > 6, "the lists were not cut"
        for found, truth in zip(cut, whole, strict=True):
            assert_same(found, truth)


def test_nobody_is_selected_twice_whatever_the_scores():
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


def test_candidates_too_many_to_keep_are_searched_in_blocks():
    """Candidates that are too many to keep are searched for in blocks."""
    sequences = graph()
    key = integers(NODES, 3)
    with patch("node2seq.ops.candidates.most_kept", return_value=5):
        found = fused.select(key.float(), key.float(), sequences, ops.Candidates(sequences, 2), 1.0, True)
    assert not LAUNCHES["choose_kernel"]
    assert_same(found, plainly(key, sequences, 2, 1.0, True))


def test_empty_graphs():
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


@pytest.mark.gpu
def test_long_lists_and_a_hub_at_the_real_block_sizes():
    """Lists of tens of thousands and a hub, at the real block sizes; twice the same bits."""
    sequences = graph(30_000, 200_000, 20_000)
    key = integers(30_000, 16)
    reach = ops.Candidates(sequences, 2)
    for joint in (True, False):
        for threshold in (0.0, 8.0):
            found = fused.select(key.float(), key.float(), sequences, reach, threshold, joint)
            again = fused.select(key.float(), key.float(), sequences, reach, threshold, joint)
            assert_same(found, plainly(key, sequences, 2, threshold, joint))
            assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.gpu
def test_a_captured_step_replays_with_other_features():
    """A step over two runs, captured; replayed with other features, it gives what they give."""
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
