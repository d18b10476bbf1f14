"""torch.export and ONNX: exported on one graph, run on graphs of other sizes.

AOTInductor, which takes long, is tested once, as docs/serving.md uses it: tests/test_docs.py.
"""

import pytest
import torch
from pyg_cases import EDGES, features, layer, random_graph
from rounding import assert_same_up_to_rounding
from torch import Tensor, nn
from torch.export import Dim

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.models import MODELS, Node2Seq
from node2seq.train.stacking import stack

DYNAMIC = ({0: Dim.DYNAMIC}, {1: Dim.DYNAMIC})
# Larger and smaller than what is exported; few edges, none, a single node.
OTHERS = [
    random_graph(13, 60, seed=3),
    random_graph(30, 2, seed=4),
    (features(4), torch.empty(2, 0, dtype=torch.int64)),
    (features(1), torch.zeros(2, 5, dtype=torch.int64)),
]
MODULES = {
    "max": lambda: layer(),
    "mean": lambda: layer(readout="mean"),
    "sum": lambda: layer(readout="sum", kernel_size=5),
    "two hops": lambda: layer(hops=2, threshold=0.5),
    "gcn": lambda: GCNConv(5, 4),
    "by degree": lambda: layer(order="degree"),
    "ranks": lambda: layer(readout="ranks", heads=2),
    "hard ranks": lambda: layer(readout="ranks", soft=False, hops=2, threshold=0.5),
    "at random": lambda: layer(order="random", hops=2, threshold=0.5),
    "stack": lambda: stack([layer(seed=seed) for seed in (1, 2)]),
    **{name: lambda network=network: network(5, 4, 3).eval() for name, network in MODELS.items()},
}


def _made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODULES[name]()


@pytest.mark.parametrize(
    "name", [name if name == "max" else pytest.param(name, marks=pytest.mark.slow) for name in MODULES]
)
def test_export_with_dynamic_nodes_and_edges(name):
    module = _made(name)
    program = torch.export.export(module, (features(), EDGES), dynamic_shapes=DYNAMIC)
    exported = program.module()
    for x, edges in [(features(), EDGES), *OTHERS]:
        assert_same_up_to_rounding(exported(x, edges), module(x, edges))


@pytest.mark.slow
def test_a_program_survives_a_file(tmp_path):
    module = _made("two hops")
    program = torch.export.export(module, (features(), EDGES), dynamic_shapes=DYNAMIC)
    torch.export.save(program, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    for x, edges in OTHERS:
        assert_same_up_to_rounding(loaded(x, edges), module(x, edges))


class Traced(nn.Module):
    """Also hands out the order."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        out, trace = self.conv(x, edge_index, return_trace=True)
        return out, trace.ptr, trace.index, trace.scores


def _onnx(module: nn.Module | torch.export.ExportedProgram, path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    shapes = DYNAMIC if isinstance(module, nn.Module) else None
    torch.onnx.export(module, (features(), EDGES), path, dynamic_shapes=shapes, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        found = session.run(None, {name: x.numpy() for name, x in zip(names, inputs, strict=True)})
        return [torch.from_numpy(value) for value in found]

    return run


def _tied_graph(nodes: int, edges: int, seed: int) -> tuple[Tensor, Tensor]:
    """Small whole numbers, so that products are exact and many scores tie; a third of the nodes are zero."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-1, 2, (nodes, 5), generator=generator).float()
    x[::3] = 0
    edge_index = torch.randint(nodes, (2, edges), generator=generator)
    return x, torch.cat([edge_index, edge_index[:, : edges // 3], edge_index[:1, :3].expand(2, -1)], dim=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hops": 2, "threshold": 0.5},
        {"hops": 3, "threshold": 0.5, "nonlocal_order": "local-first", "readout": "mean"},
    ],
    ids=str,
)
def test_onnx_gives_the_exact_order(options, tmp_path):
    conv = layer(**options)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape))
    run = _onnx(Traced(conv).eval(), tmp_path / "traced.onnx")
    graphs = [(features(), EDGES), *OTHERS, *(_tied_graph(20, 60, seed) for seed in range(5))]
    ties = others = 0
    for x, edges in graphs:
        expected, trace = conv(x, edges, return_trace=True)
        out, ptr, index, scores = run(x, edges)
        entries = int(ptr[-1])
        assert torch.equal(ptr, trace.ptr)
        assert torch.equal(index[:entries], trace.index)
        assert_same_up_to_rounding(scores[:entries], trace.scores)
        assert_same_up_to_rounding(out, expected.detach())
        ties += int((trace.scores[1:] == trace.scores[:-1]).sum())
        others += int(trace.is_nonlocal.sum())
    assert ties > 100
    assert (others > 100) == ("hops" in options)


@pytest.mark.slow
def test_onnx_of_an_exported_program_with_several_hops(tmp_path):
    module = _made("two hops")
    program = torch.export.export(module, (features(), EDGES), dynamic_shapes=DYNAMIC)
    run = _onnx(program, tmp_path / "program.onnx")
    for x, edges in [(features(), EDGES), *OTHERS]:
        (out,) = run(x, edges)
        assert_same_up_to_rounding(out, module(x, edges).detach())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["network", "gat", "by degree", "at random", "ranks"])
def test_onnx_of_networks_and_fixed_orders(name, tmp_path):
    torch.manual_seed(0)
    module = Node2Seq(5, 4, 3, readout="mean").eval() if name == "network" else _made(name)
    run = _onnx(module, tmp_path / "module.onnx")
    for x, edges in [(features(), EDGES), *OTHERS]:
        (out,) = run(x, edges)
        assert_same_up_to_rounding(out, module(x, edges).detach())
