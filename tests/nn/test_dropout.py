"""Counter-based dropout: a function of (seed, step, layer, element) and of nothing else."""

import copy
import math

import pytest
import torch

from node2seq import ops
from node2seq.nn.dropout import Dropout

SEED, STEP = torch.tensor(7), torch.tensor(3)
# Which of 36 elements are kept, as the bits of three rows.
WORDS = [1392, 3228, 3423]


def kept(
    p: float = 0.3, seed=SEED, step=STEP, layer: int = 0, rows: int = 400, channels: int = 300, nodes=None
):
    x = torch.ones(rows if nodes is None else nodes.numel(), channels)
    return ops.counter_dropout(x, p, seed, step, layer, nodes) != 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate_and_scale(p):
    x = torch.ones(1000, 500)
    out = ops.counter_dropout(x, p, SEED, STEP, 0)
    # Five standard deviations of a fair draw of half a million elements.
    assert abs(float((out == 0).float().mean()) - p) < 5 * (p * (1 - p) / x.numel()) ** 0.5
    assert out[out != 0].unique().tolist() == [pytest.approx(1 / (1 - p))]


def test_rows_columns_and_neighbours_are_independent():
    mask = kept(0.5, rows=2000, channels=500).double() - 0.5
    bound = 5 * 0.5 / 500**0.5
    assert mask.mean(1).abs().max() < bound * 1.2
    assert mask.mean(0).abs().max() < 5 * 0.5 / 2000**0.5 * 1.2
    pairs = {
        "right": mask[:, 1:] * mask[:, :-1],
        "below": mask[1:] * mask[:-1],
        "far": mask[:1000] * mask[1000:],
    }
    for name, product in pairs.items():
        assert abs(float(product.mean())) < 5 * 0.25 / product.numel() ** 0.5, name


@pytest.mark.parametrize(
    "change", [{"seed": SEED + 1}, {"step": STEP + 1}, {"layer": 1}, {"seed": SEED + 2**40}]
)
def test_seed_step_and_layer_each_make_another_mask(change):
    p = 0.5
    agreement = float((kept(p) == kept(p, **change)).float().mean())
    assert abs(agreement - 0.5) < 0.01


def test_a_part_of_the_graph_drops_what_the_whole_drops():
    nodes = torch.tensor([5, 399, 0, 17])
    assert torch.equal(kept(nodes=nodes), kept()[nodes])


RUNS = {"seed": torch.tensor([7, 8, 2**50]), "step": torch.tensor([3, 3, 4])}
RATES = torch.tensor([0.4, 0.0, 0.7], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize("p", [0.4, RATES])
def test_runs_side_by_side_drop_what_each_drops_alone(p, whole_rows, dtype):
    shared, own = torch.randn(50, 20, dtype=dtype), torch.randn(3, 50, 20, dtype=dtype)
    nodes = torch.randperm(1000)[:50]
    for x in (shared, own):
        together = ops.counter_dropout(x, p, **RUNS, layer=2, nodes=nodes, whole_rows=whole_rows)
        assert together.shape == (3, 50, 20)
        assert together.dtype == dtype
        for run in range(3):
            mine = {name: value[run] for name, value in RUNS.items()}
            rate = p if isinstance(p, float) else float(p[run])
            features = x if x.dim() == 2 else x[run]
            alone = ops.counter_dropout(features, rate, **mine, layer=2, nodes=nodes, whole_rows=whole_rows)
            assert torch.equal(together[run], alone)


def test_gradient_of_shared_features_is_the_sum_over_runs():
    x = torch.randn(50, 20, dtype=torch.float64, requires_grad=True)
    out = ops.counter_dropout(x, RATES, RUNS["seed"], RUNS["step"], 2)
    (grad,) = torch.autograd.grad(out.sum(), x)
    scale = (1 / (1 - RATES))[:, None, None]
    assert torch.allclose(grad, torch.where(out != 0, scale, 0.0).sum(0))


def test_whole_rows_are_dropped_or_kept():
    out = ops.counter_dropout(torch.ones(4000, 5), 0.3, SEED, STEP, 0, whole_rows=True)
    assert torch.equal(out, out[:, :1].expand(-1, 5))
    assert abs(float((out[:, 0] == 0).float().mean()) - 0.3) < 5 * (0.3 * 0.7 / 4000) ** 0.5
    assert Dropout(0.3, layer=0, whole_rows=True)(torch.ones(50, 5)).unique(dim=1).size(1) == 1


def test_words_are_the_same_for_good():
    """Runs that were interrupted under an older version go on with the same words."""
    row = ops.counter_dropout(torch.ones(3, 12), 0.5, torch.tensor(2**40 + 5), torch.tensor(17), 1)
    assert [int("".join("01"[int(v != 0)] for v in line), 2) for line in row] == WORDS


def test_stacked_module_is_its_runs():
    torch.manual_seed(0)
    alone = [Dropout(float(p), layer=1) for p in RATES]
    stacked = Dropout(RATES, layer=1)
    assert stacked.seed.shape == stacked.step.shape == (3,)
    stacked.seed.copy_(torch.stack([dropout.seed for dropout in alone]))
    x = torch.randn(30, 6)
    for _ in range(2):
        together = stacked(x)
        assert all(torch.equal(together[run], dropout(x)) for run, dropout in enumerate(alone))
    assert stacked.step.tolist() == [2, 2, 2]
    assert set(stacked.state_dict()) == {"seed", "step"}


def test_module_counts_steps_and_resumes_from_its_state():
    torch.manual_seed(0)
    dropout, x = Dropout(0.5, layer=1), torch.ones(30, 30)
    first = dropout(x)
    state = copy.deepcopy(dropout.state_dict())
    second = dropout(x)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    other = Dropout(0.5, layer=1)
    assert not torch.equal(other(x), first)
    other.load_state_dict(state)
    assert torch.equal(other(x), second)
    other.eval()
    assert torch.equal(other(x), x)
    assert other.step == 2


def test_gradient_passes_where_elements_are_kept():
    x = torch.randn(20, 20, requires_grad=True)
    out = ops.counter_dropout(x, 0.25, SEED, STEP, 0)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad, torch.where(out != 0, torch.tensor(1 / 0.75), 0.0))


@pytest.mark.parametrize("runs", [(), (3,)], ids=["one run", "three runs"])
@pytest.mark.parametrize("whole_rows", [False, True])
def test_the_step_of_a_compiled_graph_drops_the_same_in_both_directions(runs, whole_rows):
    """A GPU's compiled graph takes it; what runs within is chosen there."""
    seed, step = torch.arange(7, 7 + math.prod(runs)).view(runs), torch.full(runs, 3)
    rate, rates = (0.4, None) if not runs else (0.0, torch.tensor([0.2, 0.4, 0.6], dtype=torch.float64))
    x, nodes = torch.randn(20, 6, requires_grad=True), torch.randperm(50)[:20]
    expected = ops.counter_dropout(
        x, rate if rates is None else rates, seed, step.clone(), 1, nodes, whole_rows
    )
    weight = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad((expected * weight).sum(), x)

    def drop(x, step):
        out, _ = torch.ops.node2seq.drop(x, rate, rates, seed, step, 1, nodes, whole_rows)
        step.add_(1)
        return out

    out = torch.compile(drop, fullgraph=True, backend="aot_eager")(x, step)
    assert step.unique().tolist() == [4]
    (grad,) = torch.autograd.grad((out * weight).sum(), x)
    assert torch.equal(out, expected)
    assert torch.equal(grad, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize("p", [0.4, RATES, 0.9999999999])
def test_compiled_loops_drop_the_same_elements(p, whole_rows, dtype, monkeypatch):
    pool = pytest.importorskip("node2seq.ops.native.runtime", reason="numba is not installed")
    x = torch.randn(100, 100, dtype=dtype)
    x[torch.rand_like(x) < 0.5] = 0
    x[3, 5] = torch.nan
    nodes = torch.arange(100) * (2**33 + 7)
    cases = [(x, RUNS, nodes), (x.expand(3, -1, -1).contiguous(), RUNS, None)]
    if isinstance(p, float):
        cases.append((x, {"seed": SEED, "step": STEP}, nodes))

    def step(x, numbers, nodes):
        x = x.clone().requires_grad_()
        out = ops.counter_dropout(x, p, **numbers, layer=2, nodes=nodes, whole_rows=whole_rows)
        weight = torch.arange(out.numel(), dtype=dtype).view_as(out)
        return [out, *torch.autograd.grad((out.nan_to_num() * weight).sum(), x)]

    before = pool.RUNS["drop"]
    found = [step(*case) for case in cases]
    assert pool.RUNS["drop"] == before + 2 * len(cases)
    monkeypatch.setattr("node2seq.ops.dropout.fastest_for", lambda *_: None)
    for case, results in zip(cases, found, strict=True):
        (out, grad), (plain_out, plain_grad) = results, step(*case)
        torch.testing.assert_close(out, plain_out, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(grad, plain_grad)  # runs are added up before they are scaled, or after
    assert pool.RUNS["drop"] == before + 2 * len(cases)


@pytest.mark.parametrize("nodes", [None, torch.arange(40, 60)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_graphs_with_the_same_edges_drop_other_elements_each(dtype, nodes):
    drop, x = Dropout(0.5, 0), torch.ones(4, 20, 8, dtype=dtype)
    out = drop(x, nodes)
    assert out.shape == x.shape
    kept = (out > 0).float()
    assert 0.4 < float(kept.mean()) < 0.6
    for one in range(4):
        for other in range(one):
            assert 0.3 < float((kept[one] == kept[other]).float().mean()) < 0.7
    drop.step.zero_()
    first = drop(x[0], nodes)
    assert torch.equal(first, out[0])  # the first graph drops what it drops alone
