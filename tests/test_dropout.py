"""Counter-based dropout: a function of (seed, step, layer, element) and of nothing else."""

import copy

import pytest
import torch

from node2seq import ops

SEED, STEP = torch.tensor(7), torch.tensor(3)


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


def test_runs_side_by_side_drop_what_each_drops_alone():
    seeds, steps = torch.tensor([7, 8, 2**50]), torch.tensor([3, 3, 4])
    together = ops.counter_dropout(torch.ones(3 * 50, 20), 0.4, seeds, steps, 2).view(3, 50, 20)
    for run in range(3):
        alone = ops.counter_dropout(torch.ones(50, 20), 0.4, seeds[run], steps[run], 2)
        assert torch.equal(together[run], alone)


def test_module_counts_steps_and_resumes_from_its_state():
    torch.manual_seed(0)
    dropout, x = ops.Dropout(0.5, layer=1), torch.ones(30, 30)
    first = dropout(x)
    state = copy.deepcopy(dropout.state_dict())
    second = dropout(x)
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    other = ops.Dropout(0.5, layer=1)
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
