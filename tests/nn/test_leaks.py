"""Nothing stays behind: no step on one graph and no new graph adds to the caches or to the live tensors."""

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from node2seq import MODELS, Node2SeqConv, ops
from node2seq.ops import autograd_record
from node2seq.train.settings import option_types

NODES, CHANNELS, CLASSES = 30, 6, 3
STEPS, NEW_GRAPHS = 10, 40
BACKENDS = ["eager", *(pytest.param(name, marks=pytest.mark.slow) for name in ("reference", "native"))]


def new_graphs() -> Iterator[Tensor]:
    """Edges of graphs of one size, each a tensor of its own; every other has a hub of more than 64 edges."""
    generator = torch.Generator().manual_seed(0)
    for number in itertools.count():
        edges = torch.randint(NODES, (2, 200), generator=generator)
        edges[1, :100] *= number % 2
        yield torch.cat([edges, edges.flip(0)], dim=1)


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    """What only the cycle collector frees stays too long on a GPU: it counts as left behind."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def kept() -> tuple[int, int, int]:
    """Plans, records of compiled steps, live tensors."""
    tensors = sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
    return len(ops.PLANS._plans), len(autograd_record._records), tensors


def assert_nothing_stays(step: Callable[[Tensor], object], graphs: Iterator[Tensor]) -> None:
    same = [next(graphs), next(graphs)]

    def on_one_graph(steps: int) -> None:
        for number in range(2 * steps):
            step(same[number % 2])

    def on_new_graphs(steps: int) -> None:
        for _ in range(steps):
            step(next(graphs))

    on_one_graph(2)
    on_new_graphs(4)  # the first steps may keep something for all later ones
    before = kept()
    on_one_graph(STEPS)
    assert kept() == before
    on_new_graphs(NEW_GRAPHS)
    assert kept() == before


def training_step(module: nn.Module) -> Callable[[Tensor], None]:
    x = torch.randn(NODES, CHANNELS)

    def step(edges: Tensor) -> None:
        module.zero_grad(set_to_none=False)
        module(x, edges).square().sum().backward()

    return step


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("readout", ["max", "mean", "sum"])
@pytest.mark.parametrize("hops", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_layer(backend: str, readout: str, hops: int) -> None:
    torch.manual_seed(0)
    conv = Node2SeqConv(CHANNELS, 4, readout=readout, hops=hops, backend=backend)
    assert_nothing_stays(training_step(conv), new_graphs())


def without_loops(edges: Tensor) -> Tensor:
    """The same number of entries in each graph, so that all need the same scratch memory."""
    return torch.stack([edges[0], torch.where(edges[0] == edges[1], (edges[1] + 1) % NODES, edges[1])])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("hops", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_edges_that_carry_something(backend: str, hops: int) -> None:
    torch.manual_seed(0)
    conv = Node2SeqConv(CHANNELS, 4, hops=hops, edge_dim=2, backend=backend)
    x, weight, attr = torch.randn(NODES, CHANNELS), torch.rand(400), torch.rand(400, 2)

    def step(edges: Tensor) -> None:
        conv.zero_grad(set_to_none=False)
        conv(x, edges, weight, attr).square().sum().backward()

    assert_nothing_stays(step, map(without_loops, new_graphs()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcn", "gat", "gin", "cheby"])
def test_networks_whose_edges_carry_something(name: str) -> None:
    torch.manual_seed(0)
    edge_dim = 2 if "edge_attr" in MODELS[name].carried else None
    network = MODELS[name](CHANNELS, 4, CLASSES, edge_dim=edge_dim)
    x, values = (
        torch.randn(NODES, CHANNELS),
        {"edge_weight": torch.rand(400), "edge_attr": torch.rand(400, 2)},
    )

    def step(edges: Tensor) -> None:
        network.zero_grad(set_to_none=False)
        network(x, edges, **{key: values[key] for key in MODELS[name].carried}).square().sum().backward()

    assert_nothing_stays(step, map(without_loops, new_graphs()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        lambda edges: EdgeIndex(edges, sparse_size=(NODES, NODES)),  # pyright: ignore[reportCallIssue]
        lambda edges: to_torch_csr_tensor(edges.unique(dim=1), size=(NODES, NODES)),
        lambda edges: to_torch_coo_tensor(edges.unique(dim=1), size=(NODES, NODES)),
    ],
    ids=["EdgeIndex", "CSR", "COO"],
)
def test_other_forms_of_edges(form: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    conv = Node2SeqConv(CHANNELS, 4, readout="mean", backend="eager")
    assert_nothing_stays(training_step(conv), map(form, new_graphs()))


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_network(backend: str, name: str) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"backend": backend} if "backend" in option_types(name) else {}
    assert_nothing_stays(training_step(MODELS[name](CHANNELS, 4, CLASSES, **options)), new_graphs())


@pytest.mark.slow
def test_sparse_features() -> None:
    """New features each time: what is found of them once goes with them."""
    lin = nn.Linear(CHANNELS * 20, 4, bias=False)

    def features() -> Iterator[Tensor]:
        while True:
            x = torch.zeros(NODES, CHANNELS * 20)
            x[torch.randint(NODES, (100,)), torch.randint(CHANNELS * 20, (100,))] = 1.0
            yield x

    def step(x: Tensor) -> None:
        rows = ops.sparse_rows(x)
        assert rows is not None
        lin.zero_grad(set_to_none=False)
        rows.times(lin.weight).sum().backward()

    assert_nothing_stays(step, features())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["node2seq", "gat", "lgcn"])
def test_compiled(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name](CHANNELS, 4, CLASSES, backend="eager")
    assert_nothing_stays(training_step(torch.compile(model, backend="aot_eager")), new_graphs())  # pyright: ignore[reportArgumentType]
