"""Does an explanation name the neighbours that decide? Ours and others' on graphs with a planted order.

    python benchmarks/study_explanations.py measure    # trains, explains, adds rows that are missing
    python benchmarks/study_explanations.py page       # the tables of docs/explain.md; trains nothing

The label of a node follows from one or two of its neighbours (`benchmarks/order_tasks.py`). A network of
one Node2Seq layer is trained, and each explanation ranks the edges into test nodes that are predicted
correctly. The area under the ROC curve says how often a deciding neighbour is ranked above another one: 0.5
is chance, 1 is perfect. Means over the nodes. Runs that have their row are not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from order_tasks import CLASSES, TASKS, OneLayer, draw_order_task
from script import Rows, study_parser, write_between
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import AttentionExplainer, ExplainerAlgorithm, GNNExplainer
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks

from node2seq.data import make_split
from node2seq.explain import Explainer
from node2seq.explain.ego import ReceptiveField
from node2seq.reporting.document import Grid, to_markdown
from node2seq.train import TrainSettings, fit
from node2seq.train.inputs import edge_values

#: The tasks, each with a layer that learns it: an order that is learned, or the one that the data has.
CASES = {
    "first": "soft ranks",
    "second": "soft ranks",
    "difference": "hard ranks, given",
    "second-by-pair": "hard ranks, given",
}
#: The ranks of the neighbours that decide, by task.
DECISIVE = {"first": [0], "second": [1], "difference": [0, 1], "second-by-pair": [1]}
SEEDS = tuple(range(5))
NODES, EXPLAINED, STEPS = 4_000, 60, 32
METHODS = {
    "contributions": "ours: contributions to the class",
    "without": "ours: change of the probability without the neighbour",
    "integrated gradients": "integrated gradients of a mask on the edges",
    "attention": "AttentionExplainer of PyG",
    "gnnexplainer": "GNNExplainer of PyG, 100 epochs",
}
START, END = "<!-- study_explanations.py -->", "<!-- end -->"
_MODEL: Any = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def train(task: str, seed: int, epochs: int) -> tuple[OneLayer, Data, Tensor, Tensor]:
    """A trained network, the graph as it reads it, the order of the edges, and the test nodes."""
    data = draw_order_task(task, NODES, seed)
    order = data.edge_order
    if CASES[task] != "hard ranks, given":
        del data.edge_order
    assert isinstance(data.y, Tensor)
    split = make_split(data.y, "60/20/20", seed)
    torch.manual_seed(seed)
    model = OneLayer(data.num_features, 64, CLASSES, layer=CASES[task], dropout=0.3)
    fit(model, data, split, TrainSettings(epochs=epochs, patience=60, lr=0.01, weight_decay=1e-3))
    return model.eval(), data, order, split.test


def area(scores: Sequence[float], decisive: Sequence[int]) -> float:
    """How often a deciding neighbour has the higher score; equal scores count half."""
    values = np.asarray(scores)
    others = np.delete(values, decisive)
    above = values[decisive][:, None] - others
    return float(((above > 0) + 0.5 * (above == 0)).mean())


class Part:
    """What a network of one layer reads for a node: the edges into it, for methods that mask edges."""

    def __init__(self, explainer: Explainer, node: int) -> None:
        self.model: nn.Module = explainer.model
        ego = explainer.graph.around(node, ReceptiveField(1, counts_edges=False))
        self.x, self.edge_index, self.centre = explainer.x[ego.nodes], ego.edge_index, ego.centre
        self.edges = ego.edges
        values = edge_values(explainer.model, explainer.data)
        self.values: dict[str, Any] = {name: value[ego.edges] for name, value in values.items()}

    def by_pyg(self, algorithm: ExplainerAlgorithm) -> Tensor:
        """The mask that an algorithm of PyG finds, [edges]."""
        explainer = PyGExplainer(
            self.model, algorithm, explanation_type="model", edge_mask_type="object", model_config=_MODEL
        )
        found = explainer(self.x, self.edge_index, index=self.centre, **self.values)
        return found.edge_mask

    def integrated(self) -> Tensor:
        """Integrated gradients of the class's logit, less the mean, from no edge to all of them, [edges]."""
        points, weights = np.polynomial.legendre.leggauss(STEPS)
        total = torch.zeros(self.edges.numel())
        predicted = int(self.model(self.x, self.edge_index, **self.values)[self.centre].argmax())
        for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
            mask = nn.Parameter(torch.full((self.edges.numel(),), float(point)))
            set_masks(self.model, mask, self.edge_index, apply_sigmoid=False)
            out = self.model(self.x, self.edge_index, **self.values)[self.centre]
            total += weight * torch.autograd.grad(out[predicted] - out.mean(), mask)[0]
        clear_masks(self.model)
        return total.abs()


def measure_nodes(explainer: Explainer, order: Tensor, test: Tensor, task: str) -> dict[str, Any]:
    """The mean area of each method over nodes that are predicted correctly."""
    labels = explainer.y[test]
    right = test[explainer.predictions[test].argmax(1) == labels]
    areas: dict[str, list[float]] = {name: [] for name in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for node in right[:EXPLAINED].tolist():
        part = Part(explainer, node)
        by_order = order[part.edges].argsort(descending=True).tolist()
        decisive = [by_order[rank] for rank in DECISIVE[task]]
        for name, scores in _methods(explainer, part, node).items():
            started = time.perf_counter()
            areas[name].append(area(scores().tolist(), decisive))
            seconds[name] += time.perf_counter() - started
    count = len(areas["contributions"])
    return {
        "accuracy": right.numel() / test.numel(),
        "nodes": count,
        "auc": {name: float(np.mean(found)) for name, found in areas.items()},
        "seconds": {name: round(spent / count, 4) for name, spent in seconds.items()},
    }


def _methods(explainer: Explainer, part: Part, node: int) -> dict[str, Callable[[], Tensor]]:
    edges = explainer.graph.edge_index.size(1)

    def ours() -> Tensor:
        found = explainer.explain(node, counterfactuals=False, steps=STEPS)
        return found.edge_scores(edges)[part.edges]

    def without() -> Tensor:
        change = torch.zeros(edges, dtype=torch.float64)
        for found in explainer.explain(node, steps=1).counterfactuals:
            change[list(found.edges)] = abs(found.change)
        return change[part.edges]

    return {
        "contributions": ours,
        "without": without,
        "integrated gradients": part.integrated,
        "attention": lambda: part.by_pyg(AttentionExplainer()),
        "gnnexplainer": lambda: part.by_pyg(GNNExplainer(epochs=100)),
    }


def measure(rows: Rows, epochs: int) -> None:
    """Train and explain what has no row yet."""
    for task, layer in CASES.items():
        for seed in SEEDS:
            key = {"task": task, "layer": layer, "seed": seed}
            if rows.has(**key):
                continue
            model, data, order, test = train(task, seed, epochs)
            row = key | measure_nodes(Explainer(model, data), order, test, task)
            rows.add(row)
            print(task, seed, {name: round(value, 3) for name, value in row["auc"].items()}, flush=True)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The means over seeds as a table; a task is a column."""
    header = ["explanation", *(f"{TASKS[task]} ({layer})" for task, layer in CASES.items()), "ms for a node"]
    lines = []
    for name, title in METHODS.items():
        cells = [_cell([row["auc"][name] for row in rows if row["task"] == task]) for task in CASES]
        lines.append([title, *cells, f"{1000 * np.mean([row['seconds'][name] for row in rows]):.0f}"])
    accuracy = [_cell([row["accuracy"] for row in rows if row["task"] == task]) for task in CASES]
    lines.append(["test accuracy of the network", *accuracy, ""])
    return to_markdown([Grid(header, lines)])


def _cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0.0:.3f}"


def main() -> None:
    """Read the command line and do what it says."""
    rows, stages = "results/explanations.jsonl", ("measure", "page")
    parser = study_parser(__doc__, __file__, rows=rows, stages=stages, page="docs/explain.md")
    parser.add_argument("--epochs", type=int, default=300, help="train so many at most")
    options = parser.parse_args()
    if options.stage == "page":
        write_between(options.page, START, END, table(Rows.of(options).known))
    else:
        measure(Rows.of(options), options.epochs)


if __name__ == "__main__":
    main()
