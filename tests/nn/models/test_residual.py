"""Residual blocks against a plain twin made of PyTorch's and PyTorch Geometric's own layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.utils import scatter

from node2seq import MODELS, Node2SeqConv
from node2seq.errors import Node2SeqError
from node2seq.nn.models.network import hops_of_network

CHANNELS, HIDDEN, CLASSES, NODES = 5, 8, 3, 30
NAMES = ["residual-node2seq", "residual-gcn", "residual-gat", "residual-sage", "residual-pna"]


def graph() -> tuple[Tensor, Tensor]:
    """Thirty nodes, the last of them isolated."""
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(NODES - 1, (2, 70), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
    return torch.randn(NODES, CHANNELS, generator=generator, dtype=torch.float64), edges


class PlainPNA(nn.Module):
    """Mean, deviation and positive part of the maximum, by PyTorch Geometric's scatter."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.lin_out = nn.Linear(3 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        values = self.lin(x)
        messages, target = values[edge_index[0]], edge_index[1]
        mean, square, largest = (
            scatter(source, target, 0, NODES, reduce)
            for source, reduce in ((messages, "mean"), (messages.square(), "mean"), (messages.relu(), "max"))
        )
        deviation = (F.relu(square - mean.square()) + 1e-5).sqrt()
        return self.lin_out(torch.cat([mean, deviation, largest], dim=1))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "residual-node2seq": lambda: Node2SeqConv(HIDDEN, HIDDEN, 3, bias=False, backend="reference"),
    "residual-gcn": lambda: pyg.GCNConv(HIDDEN, HIDDEN, bias=False),
    "residual-gat": lambda: pyg.GATConv(HIDDEN, HIDDEN // 4, 4, bias=False),
    "residual-sage": lambda: pyg.SAGEConv(HIDDEN, HIDDEN, root_weight=False, bias=False),
    "residual-pna": PlainPNA,
}


class Twin(nn.Module):
    """The network, written down once more without runs, sparse features or dropout."""

    def __init__(self, name: str, normalized_sum: bool) -> None:
        super().__init__()
        self.lin = nn.Linear(CHANNELS, HIDDEN)
        self.sum = pyg.SimpleConv("sum") if normalized_sum else None
        read = (3 if normalized_sum else 2) * HIDDEN
        self.blocks = nn.ModuleList()
        for _ in range(2):
            block: Any = nn.Module()
            block.norm, block.conv = nn.LayerNorm(HIDDEN), LAYERS[name]()
            block.lins = nn.ModuleList([nn.Linear(read, 2 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)])
            self.blocks.append(block)
        self.norm, self.classifier = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.gelu(self.lin(x))
        for block in self.blocks:
            parts: Any = block
            own = parts.norm(x)
            read = [own, parts.conv(own, edge_index)]
            if self.sum is not None:
                index, weight = pyg.conv.gcn_conv.gcn_norm(edge_index, num_nodes=NODES, dtype=x.dtype)
                read.append(self.sum(own, index, weight))
            hidden = parts.lins[0](torch.cat(read, dim=1))
            x = x + parts.lins[1](F.gelu(hidden))
        return self.classifier(self.norm(x))


@pytest.mark.parametrize("normalized_sum", [False, True])
@pytest.mark.parametrize("backend", ["eager", "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_gradients_are_those_of_a_plain_twin(
    name: str, backend: str, normalized_sum: bool
) -> None:
    torch.manual_seed(0)
    options = {"expansion": 2, "dropout": 0.0, "backend": backend, "normalized_sum": normalized_sum}
    ours = MODELS[name](CHANNELS, HIDDEN, CLASSES, **options).double()
    twin = Twin(name, normalized_sum).double()
    state = {key: value for key, value in ours.state_dict().items() if "dropout" not in key}
    twin.load_state_dict(state)
    with torch.no_grad():  # or a map that is forgotten would change nothing
        for model in (ours, twin):
            for key, p in model.named_parameters():
                if "norm" in key:
                    p.add_(torch.linspace(-0.5, 0.5, p.numel(), dtype=p.dtype))
    results = []
    for model in (ours, twin):
        x, edge_index = graph()
        x.requires_grad_()
        out = model(x, edge_index)
        (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()).sum().backward()
        results.append({"out": out, "x": x.grad, **{k: p.grad for k, p in model.named_parameters()}})
    assert results[0].keys() == results[1].keys()
    for key, value in results[0].items():
        torch.testing.assert_close(
            value, results[1][key], atol=1e-9, rtol=1e-9, msg=lambda m, k=key: f"{k}: {m}"
        )


def test_without_self_loops_the_layer_reads_the_neighbours_alone() -> None:
    torch.manual_seed(0)
    ours: Any = MODELS["residual-node2seq"](CHANNELS, HIDDEN, CLASSES, self_loops=False).double().eval()
    twin = Twin("residual-node2seq", normalized_sum=False).double().eval()
    for block in twin.blocks:
        block.conv = Node2SeqConv(HIDDEN, HIDDEN, 3, bias=False, backend="reference", add_self_loops=False)
        block.lins = nn.ModuleList([nn.Linear(2 * HIDDEN, HIDDEN), nn.Linear(HIDDEN, HIDDEN)])
    twin.double().load_state_dict({k: v for k, v in ours.state_dict().items() if "dropout" not in k})
    x, edge_index = graph()
    out = ours(x, edge_index)
    torch.testing.assert_close(out, twin(x, edge_index))
    with_own: Any = MODELS["residual-node2seq"](CHANNELS, HIDDEN, CLASSES).double().eval()
    with_own.load_state_dict(ours.state_dict())
    assert not torch.allclose(out, with_own(x, edge_index))


@pytest.mark.parametrize("carried", [(), ("edge_weight", "edge_attr"), ("edge_order",)])
@pytest.mark.parametrize("self_loops", [True, False])
def test_half_of_the_channels_are_the_largest_of_the_neighbours(self_loops: bool, carried: tuple[str, ...]):
    """One by one: the order plays no part in them, and what edges carry does."""
    torch.manual_seed(0)
    order = {"order": "edge", "self_position": "none" if not self_loops else "last"}
    options: dict[str, Any] = {"readout": "ranks", "self_loops": self_loops, "num_layers": 1}
    options |= order if "edge_order" in carried else {}
    edge_dim = 2 if "edge_attr" in carried else None
    ours: Any = MODELS["residual-node2seq"](
        CHANNELS, HIDDEN + 1, CLASSES, neighbour_max=True, edge_dim=edge_dim, **options
    )
    ours = ours.double().eval()
    block = ours.blocks[0]
    assert (block.conv.out_channels, block.pool.out_channels) == (5, 4)
    assert block.pool.order == options.get("order", "attention")
    x, edge_index = graph()
    count = edge_index.size(1)
    of_edges = {"edge_weight": torch.rand(count), "edge_attr": torch.randn(count, 2)}
    of_edges["edge_order"] = torch.randperm(count).double()
    values = {name: of_edges[name].double() for name in carried}
    out = ours(x, edge_index, **values)

    own = block.norm(F.gelu(ours.lin(x)))
    key, weight, root = block.pool.lin(own), block.pool.weight[0], block.pool.lin_root
    rows = [[] for _ in range(NODES)]  # of each node, what it may be the largest of
    for entry, (source, target) in enumerate(edge_index.T.tolist()):
        row = key[source]
        if "edge_attr" in values:
            row = row + block.pool.lin_edge(values["edge_attr"][entry])
        rows[target].append(row * values["edge_weight"][entry] if "edge_weight" in values else row)
    for node in range(NODES if self_loops else 0):
        rows[node].append(key[node])
    largest = [torch.stack([r @ weight for r in each]).amax(0) if each else key.new_zeros(4) for each in rows]
    pooled = torch.stack(largest) + root(key)
    read = torch.cat([own, block.conv(own, edge_index, **values), pooled], dim=1)
    hidden = F.gelu(ours.lin(x)) + block.lins[1](F.gelu(block.lins[0](read)))
    torch.testing.assert_close(out, ours.classifier(ours.norm(hidden)), atol=1e-10, rtol=1e-10)


def test_the_largest_neighbours_belong_to_the_layers():
    """They are trained as these are, start as these do, and read from no further away."""
    ours: Any = MODELS["residual-node2seq"](CHANNELS, HIDDEN, CLASSES, neighbour_max=True, conv_scale=0.0)
    inside = ours.parameter_groups()["node2seq"]
    assert {id(p) for block in ours.blocks for p in block.pool.parameters()} <= set(map(id, inside))
    assert not any(block.pool.weight.any() or block.pool.lin_root.weight.any() for block in ours.blocks)
    assert hops_of_network(ours) == len(ours.blocks) == 2
    with pytest.raises(Node2SeqError, match="hidden_channels=1 with neighbour_max=True"):
        MODELS["residual-node2seq"](CHANNELS, 1, CLASSES, neighbour_max=True)


@pytest.mark.parametrize("readout", ["max", "ranks"])
def test_the_convolution_starts_at_a_share_of_its_weights(readout: str) -> None:
    def drawn(again: bool, **options: Any) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = MODELS["residual-node2seq"](CHANNELS, HIDDEN, CLASSES, readout=readout, **options)
        if again:
            torch.manual_seed(0)
            model.reset_parameters()
        return dict(model.named_parameters())

    for again in (False, True):
        whole, share = drawn(again), drawn(again, conv_scale=0.25)
        scaled = {key for key in whole if key.endswith(("conv.weight", "conv.lin_root.weight"))}
        assert len(scaled) == 4  # of two blocks
        for key, value in whole.items():
            assert torch.equal(share[key], 0.25 * value if key in scaled else value), (key, again)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_layer_inside_differs(name: str) -> None:
    def others(model: nn.Module) -> dict[str, torch.Size]:
        return {key: value.shape for key, value in model.state_dict().items() if ".conv." not in key}

    assert others(MODELS[name](CHANNELS, HIDDEN, CLASSES)) == others(
        MODELS[NAMES[0]](CHANNELS, HIDDEN, CLASSES)
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_features_may_be_left_to_the_first_pass(name: str) -> None:
    model: Any = MODELS[name](-1, HIDDEN, CLASSES).double()
    x, edge_index = graph()
    assert model(x, edge_index).shape == (NODES, CLASSES)
    assert model.lin.weight.shape == (HIDDEN, CHANNELS)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_smoothed_once(name: str) -> None:
    torch.manual_seed(0)
    model: Any = MODELS[name](CHANNELS, HIDDEN, CLASSES, smoothing=2, teleport=0.3).double().eval()
    x, edge_index = graph()
    plain: Any = MODELS[name](CHANNELS, HIDDEN, CLASSES).double().eval()
    plain.load_state_dict(model.state_dict())
    spread = pyg.APPNP(2, 0.3).double()
    torch.testing.assert_close(model(x, edge_index), spread(plain(x, edge_index), edge_index))


def test_the_layers_inside_are_a_group_of_their_own() -> None:
    model: Any = MODELS["residual-node2seq"](CHANNELS, HIDDEN, CLASSES)
    groups = model.parameter_groups()
    assert {id(p) for p in groups["node2seq"]} == {
        id(p) for key, p in model.named_parameters() if ".conv." in key
    }
    assert sum(map(len, groups.values())) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("residual-gcn", {"num_layers": 0}, "num_layers=0"),
        ("residual-gcn", {"expansion": 0}, "expansion=0"),
        ("residual-gat", {"heads": 3}, "heads=3 with hidden_channels=8"),
    ],
)
def test_what_makes_no_network_is_refused(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(Node2SeqError, match=message):
        MODELS[name](CHANNELS, HIDDEN, CLASSES, **options)
