"""One contract that every model of the registry passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from node2seq import MODELS
from node2seq.data import load, make_split
from node2seq.train.fitter import fit
from node2seq.train.settings import TrainSettings, option_types

CHANNELS, HIDDEN, CLASSES = 12, 8, 3
BACKENDS = ["auto", "auto without numba", "reference", pytest.param("native", marks=pytest.mark.slow)]


@pytest.fixture
def graph() -> tuple[Tensor, Tensor]:
    """Forty nodes, the last of them isolated; untied features."""
    generator = torch.Generator().manual_seed(7)
    edges = torch.randint(39, (2, 90), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    return torch.randn(40, CHANNELS, generator=generator), torch.cat([edges, edges.flip(0)], dim=1)


def make(name: str, seed: int = 3, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name](CHANNELS, HIDDEN, CLASSES, **options)


def make_with(
    backend: str, name: str, request: pytest.FixtureRequest, in_channels: int = CHANNELS
) -> nn.Module:
    """A network with a backend, where it has the choice."""
    backend, _, without_numba = backend.partition(" ")
    if without_numba:
        request.getfixturevalue("without_numba")
    if backend == "native":
        pytest.importorskip("numba")
    torch.manual_seed(3)
    options: dict[str, Any] = {"backend": backend} if "backend" in option_types(name) else {}
    return MODELS[name](in_channels, HIDDEN, CLASSES, **options)


@pytest.mark.parametrize("name", MODELS)
class TestContract:
    def test_every_parameter_gets_a_gradient(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        model = make(name)
        model(*graph).square().sum().backward()
        without = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]
        assert without == []
        assert len(list(model.parameters())) >= 2

    def test_permuting_nodes_permutes_the_output(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        x, edge_index = graph[0].double(), graph[1]
        model = make(name).double().eval()
        permutation = torch.randperm(40, generator=torch.Generator().manual_seed(1))
        place = permutation.argsort()
        permuted = model(x[permutation], place[edge_index])
        torch.testing.assert_close(permuted, model(x, edge_index)[permutation], atol=1e-10, rtol=1e-10)

    def test_isolated_nodes_and_no_edges_stay_finite(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        x, edge_index = graph
        model = make(name)
        for edges in (edge_index, edge_index[:, :0]):
            out = model(x, edges)
            assert out.shape == (40, CLASSES)
            assert out.isfinite().all()
            out.sum().backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("nodes", [0, 1])
    def test_a_graph_without_edges_or_without_nodes(
        self, name: str, backend: str, nodes: int, request: pytest.FixtureRequest
    ) -> None:
        model = make_with(backend, name, request).eval()  # batch normalisation trains on two nodes or more
        x = torch.randn(nodes, CHANNELS).requires_grad_()
        out = model(x, torch.empty(2, 0, dtype=torch.int64))
        assert out.shape == (nodes, CLASSES)
        assert out.isfinite().all()
        out.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

    @pytest.mark.parametrize("backend", ["auto", "auto without numba", "reference"])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    @pytest.mark.parametrize("way", ["16 bits", "autocast"])
    def test_low_precision(
        self,
        name: str,
        backend: str,
        dtype: torch.dtype,
        way: str,
        graph: tuple[Tensor, Tensor],
        request: pytest.FixtureRequest,
    ) -> None:
        model, (x, edge_index) = make_with(backend, name, request), graph
        if way == "16 bits":
            model, x = model.to(dtype), x.to(dtype)
        with torch.autocast("cpu", dtype=dtype, enabled=way == "autocast"):
            out = model(x, edge_index)
        assert way == "autocast" or out.dtype == dtype
        out.float().logsumexp(-1).mean().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_lazy_sizes_come_from_the_first_input(
        self, name: str, backend: str, graph: tuple[Tensor, Tensor], request: pytest.FixtureRequest
    ) -> None:
        lazy = make_with(backend, name, request, in_channels=-1)
        x, edge_index = graph[0].requires_grad_(), graph[1]
        first = copy.deepcopy(lazy).eval()(x, edge_index)
        assert first.shape == (40, CLASSES)
        out = lazy(x, edge_index)
        out.square().sum().backward()
        assert x.grad is not None
        without = [key for key, p in lazy.named_parameters() if p.grad is None or not p.grad.any()]
        assert without == []
        sized = make_with(backend, name, request)
        assert {key: p.shape for key, p in sized.named_parameters()} == {
            key: p.shape for key, p in lazy.named_parameters()
        }
        sized.load_state_dict(lazy.state_dict())
        assert torch.equal(sized.eval()(x, edge_index), lazy.eval()(x, edge_index))
        torch.manual_seed(9)
        lazy.reset_parameters()  # pyright: ignore[reportCallIssue]
        again = make_with(backend, name, request, in_channels=-1)
        again.load_state_dict(sized.state_dict())  # before its first input
        assert torch.equal(again.eval()(x, edge_index), sized(x, edge_index))

    def test_a_state_dict_brings_everything_back(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        model = make(name)
        model(*graph)  # moves the dropouts' steps and the running statistics
        other = make(name, seed=4)
        other.load_state_dict(model.state_dict())
        assert torch.equal(model(*graph), other(*graph))
        assert torch.equal(model.eval()(*graph), other.eval()(*graph))

    def test_the_same_seed_gives_the_same_bits(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        weights = []
        for _ in range(2):
            model = make(name)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
            for _ in range(5):
                optimizer.zero_grad()
                model(*graph).square().sum().backward()
                optimizer.step()
            weights.append(list(model.state_dict().values()))
        assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))

    def test_reset_draws_everything_anew(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        model = make(name)
        fresh = copy.deepcopy(model.state_dict())
        model(*graph).square().sum().backward()
        torch.manual_seed(3)
        model.reset_parameters()  # pyright: ignore[reportCallIssue]
        torch.manual_seed(5)
        other = make(name, seed=5)
        other.reset_parameters()  # pyright: ignore[reportCallIssue]
        changed = [key for key, value in model.state_dict().items() if value.is_floating_point()]
        assert changed
        drawn = [
            key for key in changed if key.endswith("weight") and "norm" not in key and fresh[key].dim() > 1
        ]
        assert all(not torch.equal(other.state_dict()[key], fresh[key]) for key in drawn)
        assert all(not int(v) for key, v in model.state_dict().items() if key.endswith("step"))

    def test_every_option_is_kept_as_an_attribute(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        model = make(name)
        again = MODELS[name](
            CHANNELS, **{key: getattr(model, key) for key in option_types(name)}, out_channels=CLASSES
        )
        again.load_state_dict(model.state_dict())
        assert torch.equal(again.eval()(*graph), model.eval()(*graph))

    def test_dropout_looks_at_global_ids(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        x, edge_index = graph
        outputs = [
            make(name)(x, edge_index, n_id=n_id) for n_id in (None, torch.arange(40), torch.arange(40) + 7)
        ]
        assert torch.equal(outputs[0], outputs[1])
        dropped = any(isinstance(v, float) and v > 0 for k, v in vars(make(name)).items() if "dropout" in k)
        assert torch.equal(outputs[0], outputs[2]) != dropped

    def test_embed_gives_one_row_per_node(self, name: str, graph: tuple[Tensor, Tensor]) -> None:
        out = make(name).eval().embed(*graph)  # pyright: ignore[reportCallIssue]
        assert out.size(0) == 40

    @pytest.mark.slow
    def test_it_learns_more_of_texas_than_the_largest_class(
        self, name: str, real_data: Callable[..., Any]
    ) -> None:
        data = real_data("texas", load)
        split = make_split(data, seed=0)
        torch.manual_seed(0)
        options: dict[str, Any] = {key: 0.2 for key in option_types(name) if "dropout" in key}
        model = MODELS[name](data.x.size(1), 16, 5, **options)
        result = fit(model, data, split, TrainSettings(epochs=60, lr=0.02))
        assert result.history[-1].loss < 0.7 * result.history[0].loss
        largest_class = torch.bincount(data.y[split.val]).max().item() / split.val.numel()
        assert result.best.val_accuracy > largest_class
