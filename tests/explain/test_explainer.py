"""Explanations of whole models: parts of the graph, gradients, counterfactuals, other forms."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import ExplainerConfig, fidelity, unfaithfulness
from torch_geometric.explain.algorithm import DummyExplainer

from node2seq import Node2Seq, Node2SeqConv, Node2SeqError, Node2SeqPlus
from node2seq.data import load
from node2seq.explain import Explainer, Explanation, explain
from node2seq.nn.models import GCN, ResidualNode2Seq
from node2seq.train.task import MultiLabel, Regression

CLASSES = 3


class OneLayer(nn.Module):
    """A model of a user's own, with heads, which the package's networks do not have."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv = Node2SeqConv(5, 8, readout="ranks", heads=2, **options)
        self.lin = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(self.conv(x, edge_index).tanh())


def with_linear_part(**options: Any) -> ResidualNode2Seq:
    """Blocks whose linear part was fitted, to nothing in particular."""
    model = ResidualNode2Seq(5, 8, CLASSES, linear_hops=3, **options)
    assert model.linear is not None
    model.linear.set_weights(torch.randn(4 * CLASSES, 5), torch.randn(CLASSES))
    return model


MODELS = {
    "max": lambda: Node2Seq(5, 8, CLASSES),
    "mean, first": lambda: Node2Seq(5, 8, CLASSES, position=1, readout="mean", skip="concat"),
    "sum, third": lambda: Node2Seq(5, 8, CLASSES, position=3, readout="sum"),
    "several hops": lambda: Node2Seq(5, 8, CLASSES, hops=2, threshold=0.3),
    "by degree": lambda: Node2Seq(5, 8, CLASSES, order="degree", readout="ranks"),
    "at random": lambda: Node2Seq(5, 8, CLASSES, order="random"),
    "plus": lambda: Node2SeqPlus(5, 8, CLASSES, directed=True, own="apart", smoothing=2, norm="layer"),
    "blocks": lambda: ResidualNode2Seq(5, 8, CLASSES),
    "soft ranks": lambda: ResidualNode2Seq(5, 8, CLASSES, readout="ranks"),
    "normalised sums": lambda: ResidualNode2Seq(5, 8, CLASSES, normalized_sum=True),
    "largest neighbours": lambda: ResidualNode2Seq(5, 8, CLASSES, readout="ranks", neighbour_max=True),
    "linear part": lambda: with_linear_part(num_layers=1),
    "hard ranks": lambda: ResidualNode2Seq(5, 8, CLASSES, readout="ranks", soft=False, num_layers=1),
    "heads": OneLayer,
}


def draw(degree: int = 3, **carried: Any) -> Any:
    """A directed graph along a ring: what lies around a node is a small part of it."""
    generator, nodes = torch.Generator().manual_seed(0), 300
    target, offset = (
        torch.randint(low, high, (nodes * degree,), generator=generator)
        for low, high in ((0, nodes), (-6, 7))
    )
    edge_index = torch.stack([(target + offset) % nodes, target])
    x = torch.randn(nodes, 5, generator=generator).double()
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    return Data(x=x, edge_index=edge_index, y=y, **carried)


def make(name: str) -> nn.Module:
    torch.manual_seed(1)
    return MODELS[name]().double().eval()


def float64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def orders(explanation: Explanation) -> list[list[int]]:
    return [[neighbour.node for neighbour in layer.sequence] for layer in explanation.layers]


def shown(model: nn.Module, data: Data, node: int, **values: Tensor) -> Tensor:
    with torch.no_grad():
        return model(data.x, data.edge_index, **values)[node].softmax(-1)


def without_edges(data: Data, edges: tuple[int, ...]) -> Data:
    kept = torch.ones(data.num_edges, dtype=torch.bool)
    kept[list(edges)] = False
    changed = data.clone()
    for name in ("edge_index", "edge_weight", "edge_attr", "edge_order"):
        if name in data:
            changed[name] = data[name][..., kept] if name != "edge_attr" else data[name][kept]
    return changed


QUICK = ("max", "soft ranks", "normalised sums", "linear part")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_a_counterfactual_is_a_pass_over_the_graph_without_the_edge(name: str):
    model, data = make(name), draw(degree=2)
    explainer = Explainer(model, data)
    is_whole = name in ("by degree", "at random")
    compared = 0
    for node in range(0, 300, 60):
        found = explainer.explain(node, steps=4)
        assert (found.nodes_read == 300) == is_whole
        torch.testing.assert_close(float64(found.probabilities), shown(model, data, node), rtol=0, atol=1e-10)
        for counterfactual in found.counterfactuals:
            changed = without_edges(data, counterfactual.edges)
            truth = shown(model, changed, node)
            told = float64(counterfactual.probabilities)
            torch.testing.assert_close(told, truth, rtol=0, atol=1e-10)
            # Switched off, it has the order that the changed graph has.
            off = explainer.explain(node, without=[counterfactual.node], counterfactuals=False, steps=1)
            whole = Explainer(model, changed)
            whole.receptive_field = whole.receptive_field._replace(hops=None)
            assert orders(off) == orders(whole.explain(node, counterfactuals=False, steps=1))
            assert off.probabilities == pytest.approx(counterfactual.probabilities, abs=1e-10)
            compared += 1
    assert compared >= 4


def test_the_linear_part_is_told_apart_from_the_layers():
    model, alone, data = make("linear part"), make("linear part"), draw()
    assert isinstance(alone, ResidualNode2Seq)
    assert alone.linear is not None
    alone.linear.reset_parameters()
    whole, layers = Explainer(model, data), Explainer(alone, data)
    assert (whole.receptive_field.hops, layers.receptive_field.hops) == (3, 1)
    same_class = whole.outputs.argmax(1) == layers.outputs.argmax(1)
    assert 0 < int(same_class.sum()) < 300
    node = int(same_class.nonzero()[0])
    found, without = (each.explain(node, counterfactuals=False, steps=64) for each in (whole, layers))
    assert orders(found) == orders(without)
    for mine, other in zip(found.layers, without.layers, strict=True):
        assert mine.gain == pytest.approx(other.gain, abs=1e-10)
        pairs = zip(mine.sequence, other.sequence, strict=True)
        assert all(a.contribution == pytest.approx(b.contribution, abs=1e-10) for a, b in pairs)
    assert without.linear is None
    assert found.score == pytest.approx(without.score + (found.linear or 0.0), abs=1e-10)
    added = (whole.outputs - layers.outputs)[node]
    assert found.linear == pytest.approx(float(added[found.predicted] - added.mean()), abs=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_contributions_add_up(name: str):
    model, data = make(name), draw()
    found = explain(model, data, 7, counterfactuals=False, steps=64)
    assert found.layers
    gains: dict[str, list[float]] = {}
    for layer in found.layers:
        terms = [layer.own, layer.bias, *layer.sequence]
        total = float64([term.terms for term in terms]).sum(0)
        torch.testing.assert_close(total, float64(layer.output), rtol=1e-10, atol=1e-10)
        assert [neighbour.position for neighbour in layer.sequence] == list(range(len(layer.sequence)))
        gains.setdefault(layer.name, []).append(sum(term.contribution for term in terms))
    for layer in found.layers:
        assert sum(gains[layer.name]) == pytest.approx(layer.gain, abs=layer.completeness_error + 1e-9)
        if name != "blocks":  # where the next layer sorts, its order jumps along the way
            assert layer.completeness_error < 0.05 * abs(layer.gain) + 1e-3, layer


def test_behind_the_last_layer_the_gradient_is_exact():
    found = explain(make("sum, third"), draw(), 7, steps=1)
    (layer,) = found.layers
    assert layer.completeness_error < 1e-12
    assert abs(layer.gain) > 0.01


@pytest.mark.parametrize("readout", ["max", "ranks"])
def test_edges_that_carry_something(readout: str):
    generator = torch.Generator().manual_seed(3)
    edges = 600
    carried: dict[str, Any] = {
        "edge_weight": torch.rand(edges, generator=generator).double(),
        "edge_attr": torch.rand(edges, 2, generator=generator).double(),
        "edge_order": torch.rand(edges, generator=generator).double(),
    }
    data = draw(degree=2, **carried)
    data.edge_index[:, 1] = data.edge_index[:, 0]  # two edges between the same nodes
    node = int(data.edge_index[1, 0])
    torch.manual_seed(0)
    how: dict[str, Any] = {"readout": readout, "order": "edge", "edge_dim": 2, "self_position": "last"}
    model = ResidualNode2Seq(5, 8, CLASSES, **how).double().eval()
    found = Explainer(model, data).explain(node, steps=2)
    assert found.nodes_read < 300
    sequence = found.layers[0].sequence
    assert sequence[-1].kind == "self"
    by_number = data.edge_order[[neighbour.edges[0] for neighbour in sequence[:-1]]]
    assert by_number.tolist() == sorted(by_number.tolist(), reverse=True)
    parallel = [cf for cf in found.counterfactuals if cf.node == int(data.edge_index[0, 0])]
    assert parallel[0].edges[:2] == (0, 1)
    changed = without_edges(data, parallel[0].edges)
    values = {name: changed[name] for name in carried}
    assert parallel[0].probabilities == pytest.approx(
        shown(model, changed, node, **values).tolist(), abs=1e-10
    )


def test_rejected_neighbours_and_distances():
    torch.manual_seed(0)
    data = load("karate")
    data.x = torch.randn(34, 5)
    model = Node2Seq(5, 8, 4, hops=2, threshold=0.5, position=1).eval()
    found = explain(model, data, 0, counterfactuals=False, steps=2)
    (layer,) = found.layers
    assert layer.rejected
    assert {neighbour.kind for neighbour in layer.sequence} >= {"local", "non-local"}
    for neighbour in layer.sequence:
        assert neighbour.hops == {"self": 0, "local": 1, "non-local": 2}[neighbour.kind]
        assert bool(neighbour.edges) == (neighbour.kind == "local")
    assert len(layer.sequence) == 17
    assert all(neighbour.score <= 0.5 for neighbour in layer.rejected)
    scores = [neighbour.score for neighbour in layer.rejected]
    assert scores == sorted(scores, reverse=True)
    # The score of a rejected neighbour is the one that it is rejected by.
    plain = Node2Seq(5, 8, 4, position=1).eval()
    plain.load_state_dict(model.state_dict())
    known = {n.node: n.score for n in explain(plain, data, 0, counterfactuals=False).layers[0].sequence}
    for neighbour in layer.rejected:
        assert neighbour.score == pytest.approx(known[neighbour.node], rel=1e-4)


def test_both_directions_on_request():
    data = load("karate")
    data.x = torch.randn(34, 5)
    torch.manual_seed(0)
    model = Node2Seq(5, 8, 4).eval()
    one, two = (Explainer(model, data, both_directions=both).explain(0, steps=2) for both in (False, True))
    assert all(len(each.edges) == 1 for each in one.counterfactuals)
    assert all(len(each.edges) == 2 for each in two.counterfactuals)
    truth = shown(model, without_edges(data, two.counterfactuals[0].edges), 0)
    assert two.counterfactuals[0].probabilities == pytest.approx(truth.tolist(), abs=1e-6)


def test_numbers_and_several_labels():
    data, model = draw(), make("max")
    data.y = torch.randn(300)
    number = ResidualNode2Seq(5, 8, 1).double().eval()
    found = explain(number, data, 3, task=Regression(shift=10.0, scale=2.0), steps=8)
    assert found.predicted is None
    assert len(found.probabilities) == 1
    assert found.score == pytest.approx(found.probabilities[0])
    data.y = torch.randint(2, (300, CLASSES))
    found = explain(model, data, 3, task=MultiLabel(), steps=2)
    assert found.label == data.y[3].tolist()
    assert sum(found.probabilities) != pytest.approx(1.0)


def test_a_model_that_reads_more_than_its_layers_say_is_run_on_the_whole_graph():
    class Shy(nn.Module):
        """Its layers do not tell that the mean of all nodes is added."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = Node2SeqConv(5, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out = self.conv(x, edge_index)
            return out + out.mean(0)

    torch.manual_seed(0)
    data, shy = draw(degree=2), Shy().double().eval()
    found = explain(shy, data, 0, steps=2)
    assert found.nodes_read == 300
    assert explain(OneLayer().double().eval(), data, 0, steps=2).nodes_read < 300
    with torch.no_grad():  # the gradients too are of the whole graph
        out = shy.conv(data.x, data.edge_index)[0]
    lost = out * (1 + 1 / 300)
    assert found.layers[0].gain == pytest.approx(float(lost[found.predicted] - lost.mean()))


def test_a_layer_that_is_called_twice_is_refused():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = Node2SeqConv(5, 5)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.conv(x, edge_index), edge_index)

    with pytest.raises(Node2SeqError, match="the model calls it more than once"):
        explain(Twice().double(), draw(), 0)


def test_other_forms():
    pytest.importorskip("polars")
    model, data = make("several hops"), draw()
    found = explain(model, data, 7, steps=4)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["layers"][0]["sequence"][0]["node"] == found.layers[0].sequence[0].node
    frame = found.to_frame()
    assert frame.height == sum(len(layer.sequence) + len(layer.rejected) for layer in found.layers)
    assert frame["contribution"].to_list()[0] == found.layers[0].sequence[0].contribution
    changes = frame.filter(frame["kind"] == "local")["change_without"]
    assert changes.null_count() == 0


def test_metrics_of_pyg_run_on_it():
    model, data = make("max").float(), draw()
    data.x = data.x.float()
    with torch.no_grad():
        prediction = model(data.x, data.edge_index)
    found = explain(model, data, 7, steps=4).to_pyg(data, prediction)
    into = data.edge_index[1] == 7
    assert found.edge_mask.max() == 1
    assert not found.edge_mask[~into].any()
    config = ExplainerConfig(explanation_type="model", edge_mask_type="object")
    explainer = PyGExplainer(
        model,
        DummyExplainer(),
        explanation_type=config.explanation_type,
        edge_mask_type=config.edge_mask_type,
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    assert all(0 <= share <= 1 for share in fidelity(explainer, found))
    assert 0 <= unfaithfulness(explainer, found) <= 1


def test_the_code_of_the_page_runs():
    page = (Path(__file__).parents[2] / "docs/explain.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/explain.md", "exec"), names)
    assert len(names["order"]) == 6
    assert names["without"].without == (names["found"].counterfactuals[0].node,)


def test_the_model_is_left_as_it_was():
    model, data = make("max"), draw()
    model.train()
    explain(model, data, 0, steps=2)
    assert model.training
    assert torch.is_grad_enabled()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda data: explain(make("max"), data, 300), "nodes 0 to 299"),
        (lambda data: explain(make("max"), data, -1), "nodes 0 to 299"),
        (lambda data: explain(make("max"), data, 0, steps=0), "Give 1 or more"),
        (lambda data: explain(make("max"), data, 0, without=[0]), "no edge of this node leads from it"),
        (lambda data: explain(GCN(5, 8, CLASSES).double(), data, 0), "no Node2Seq layer"),
    ],
)
def test_errors(call: Any, words: str):
    with pytest.raises(Node2SeqError, match=words):
        call(draw())
