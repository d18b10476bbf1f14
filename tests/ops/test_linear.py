"""Features without their zeros: the same masks, products and gradients, and taken where they may be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from node2seq import ops
from node2seq.data import load, make_split
from node2seq.nn.models import GCN, MODELS
from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import evaluate
from node2seq.train.inputs import features_for
from node2seq.train.settings import TrainSettings
from node2seq.train.stacking import stack

ROWS, COLUMNS, RUNS = 40, 300, 3
SEED, STEP = torch.tensor(7), torch.tensor(3)
SEEDS, STEPS = torch.tensor([7, 8, 2**50]), torch.tensor([3, 3, 4])


def words(dtype: torch.dtype = torch.float64, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    """A matrix with few values, an empty row and an empty column."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    x[torch.rand(rows, columns, generator=generator) > 0.05] = 0.0
    x[3], x[:, 5] = 0.0, 0.0
    return x.to(dtype)


def sparse(x: Tensor) -> ops.SparseRows:
    found = ops.sparse_rows(x)
    assert isinstance(found, ops.SparseRows)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("whole_rows", [False, True])
@pytest.mark.parametrize("nodes", [None, torch.arange(ROWS).flip(0) + 2**26])
@pytest.mark.parametrize(
    ("p", "seed", "step"), [(0.4, SEED, STEP), (torch.tensor([0.4, 0.0, 0.9]).double(), SEEDS, STEPS)]
)
def test_drops_what_is_dropped_of_the_whole_matrix(dtype, whole_rows, nodes, p, seed, step):
    x = words(dtype)
    dropped = sparse(x).drop(p, seed, step, 1, nodes, whole_rows)
    expected = ops.counter_dropout(x, p, seed, step, 1, nodes, whole_rows)
    assert torch.equal(dropped.to_dense(), expected)
    assert not torch.equal(expected, x.expand_as(expected))
    # A second dropout, of what each run has left by now.
    again = dropped.drop(p, seed, step, 2, nodes)
    assert torch.equal(again.to_dense(), ops.counter_dropout(expected, p, seed, step, 2, nodes))


def test_rows_that_are_taken_are_those_of_the_matrix():
    x, rows = words(), torch.tensor([7, 3, 0, 39, 7])  # an empty one, and one twice
    taken = sparse(x).take(rows)
    assert torch.equal(taken.to_dense(), x[rows])
    weight = torch.randn(4, COLUMNS, dtype=torch.float64)
    torch.testing.assert_close(taken.times(weight), x[rows] @ weight.t())
    assert taken.to(torch.device("cpu")) is taken
    elsewhere = taken.to(torch.device("meta"))
    assert elsewhere.device.type == elsewhere.sequences.rows.ptr.device.type == "meta"


@pytest.mark.parametrize("large", [False, True])  # on a CPU: written in PyTorch alone, or compiled loops
@pytest.mark.parametrize("weights", ["one", "of each run"])
@pytest.mark.parametrize("features", ["shared", "of each run"])
def test_products_and_gradients(large, weights, features):
    x = words(rows=2000 if large else ROWS)
    found = sparse(x)
    assert (found.values.numel() >= 2**13) == large
    if features == "of each run":
        p = torch.tensor([0.3, 0.0, 0.7]).double()
        found, x = (
            found.drop(p, SEEDS, STEPS, 0),
            ops.counter_dropout(x, p, SEEDS, STEPS, 0),
        )
    weight = torch.randn(*([RUNS] if weights == "of each run" else []), 8, COLUMNS, dtype=torch.float64)
    bias = torch.randn(*weight.shape[:-1], dtype=torch.float64)
    ours, theirs = (weight.clone().requires_grad_() for _ in range(2))
    out = ops.linear(found, ours, bias)
    expected = ops.add_bias(x @ theirs.mT, bias)
    torch.testing.assert_close(out, expected, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(expected)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)


def karate_with_words() -> Data:
    graph = load("karate")
    return Data(x=words(rows=34), edge_index=graph.edge_index, y=graph.y)


READERS = [name for name, model in MODELS.items() if "reads_sparse_rows" in vars(model)]


def model_of(name: str, seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name](COLUMNS, 8, 4, **options).double()  # pyright: ignore[reportCallIssue]


# Hooks on messages take PyG's own way, which knows no runs.
CASES = [(case, stacked) for case in (*READERS, "own", "first") for stacked in (False, True)]


@pytest.mark.parametrize(("case", "stacked"), [*CASES, ("listened", False)])
def test_models_compute_the_same(case, stacked):
    data = karate_with_words()
    assert data.x is not None
    options = {
        "own": {"own": "apart", "node_dropout": 0.3},
        "first": {"position": 1, "root": "input", "hops": 2},
    }.get(case, {})
    name = case if case in MODELS else "node2seq-plus"
    losses, gradients = [], []
    for is_sparse in (True, False):
        model = model_of(name, **options)
        if stacked:
            model = stack([model_of(name, seed, **options) for seed in range(RUNS)])
        for module in model.modules():
            if case == "listened" and isinstance(module, MessagePassing):
                module.register_message_forward_hook(lambda *_: None)
        x = features_for(model, data.x)
        assert isinstance(x, ops.SparseRows)
        loss = model(x if is_sparse else data.x, data.edge_index).square().sum()
        loss.backward()
        losses.append(loss.detach())
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_every_model_but_those_that_sum_their_input_first():
    assert set(MODELS) - set(READERS) == {"gin"}


class Derived(GCN):
    """May do anything with its input."""


def test_who_reads_them():
    x = words()
    model = model_of("gcn")
    assert isinstance(features_for(model, x), ops.SparseRows)
    assert features_for(Derived(COLUMNS, 8, 4), x) is x
    assert features_for(torch.compile(model), x) is x  # pyright: ignore[reportArgumentType]
    hooked = model_of("gcn")
    next(hooked.children()).register_forward_pre_hook(lambda *_: None)
    assert features_for(hooked, x) is x
    full = torch.ones(10, 10)
    for other in (full, x.half(), x.clone().requires_grad_()):
        assert features_for(model, other) is other


@pytest.mark.parametrize("rows", [7, 999, 1000, 5003])
def test_the_share_of_all_rows_decides(rows):
    x = torch.zeros(rows, 20)
    x[:, :2] = 1.0
    assert torch.equal(sparse(x).to_dense(), x)
    x[-1, 2] = 1.0  # one more than a tenth
    assert ops.sparse_rows(x) is None
    assert ops.sparse_rows(torch.ones(rows, 20)) is None


def test_nothing_at_all():
    for shape in ((0, 5), (5, 0)):
        x = torch.zeros(shape, dtype=torch.float64)
        weight = torch.randn(3, shape[1], dtype=torch.float64)
        assert torch.equal(ops.linear(sparse(x), weight), torch.zeros(shape[0], 3, dtype=torch.float64))


def test_found_once_and_anew_when_the_features_change():
    x = words()
    first = sparse(x)
    assert sparse(x) is first
    x[0, 0] = 2.0
    assert torch.equal(sparse(x).to_dense(), x)


def test_training_takes_them_and_ends_as_with_the_dense_ones(real_data):
    data = real_data("cora-r", load)
    split = make_split(data, seed=0)
    settings = TrainSettings(epochs=5)
    assert data.x is not None
    fitter = Fitter(model := _gcn(data), data, split, settings)
    assert isinstance(fitter._trainer.x, ops.SparseRows)
    losses = [fitter.step().loss for _ in range(5)]
    reached = fitter.finish()
    assert evaluate(model, data, split.test) == reached.test

    derived = Derived(data.num_features, 8, 7, input_dropout=0.5).double()
    derived.load_state_dict(_gcn(data).state_dict())
    dense = fit(derived, Data(x=data.x.double(), edge_index=data.edge_index, y=data.y), split, settings)
    assert losses == pytest.approx([record.loss for record in dense.history], rel=1e-5)


def _gcn(data: Data) -> nn.Module:
    torch.manual_seed(0)
    return GCN(data.num_features, 8, 7, input_dropout=0.5)
