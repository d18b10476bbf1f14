"""The selection for several runs at once: each run gets what it would get alone."""

import literal
import pytest
import torch

from node2seq import ops
from node2seq.ops.candidates import candidates_of

NODES, RUNS = 60, 3


@pytest.fixture
def sequences() -> ops.Sequences:
    edges = literal.random_graph(1, undirected=False, num_nodes=NODES)
    return ops.build_sequences(edges[0], edges[1], NODES, NODES, add_self_loops=True, merge_duplicates=True)


def select(key, sequences, threshold, joint):
    return ops.rank(key, key, sequences, hops=2, threshold=threshold, joint=joint, backend="eager")


@pytest.mark.parametrize("kept", [2**27, 10])
@pytest.mark.parametrize("joint", [True, False])
def test_copies_select_what_each_selects_alone(sequences, joint, kept, monkeypatch):
    monkeypatch.setattr("node2seq.ops.candidates._KEPT_ENTRIES", kept)
    torch.manual_seed(0)
    keys = torch.randint(-2, 3, (RUNS, NODES, 4)).float()
    thresholds = torch.tensor([1.0, -100.0, 3.0])
    together = select(keys, sequences, thresholds, joint)
    assert (candidates_of(sequences, 2).listed() is None) == (kept == 10)
    by_target = select(keys, sequences, thresholds.repeat_interleave(NODES), joint)
    assert all(map(torch.equal, by_target, together))
    entries, nonlocals = sequences.rows.num_entries, []
    for run, (key, threshold) in enumerate(zip(keys, thresholds.tolist(), strict=True)):
        alone = select(key, sequences, threshold, joint)
        mine = [values[run * entries : (run + 1) * entries] for values in together]
        assert torch.equal(mine[0] - run * NODES, alone.node)
        assert torch.equal(mine[1], alone.score)
        assert torch.equal(torch.where(mine[2] < 0, -1, mine[2] - run * entries), alone.entry)
        nonlocals.append(int((alone.entry < 0).sum()))
    assert nonlocals[1] == 0, "nobody was dropped below the lowest score"
    assert min(nonlocals[0], nonlocals[2]) > 20, "too few were selected to show anything"
