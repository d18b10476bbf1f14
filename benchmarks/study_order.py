"""When does the order matter? Train the same network with several orders, and say what came out.

    python benchmarks/study_order.py pack order.npz       # the paper's sets and bitcoin-otc, in one file
    python benchmarks/study_order.py choose order.npz     # the grid, on validation nodes alone
    python benchmarks/study_order.py measure order.npz    # test figures with what was chosen
    python benchmarks/study_order.py page                 # docs/order.md and its chart; trains nothing

Three parts, each a name for ``--only``, as are the graphs in them:

- ``drawn``: four tasks whose label follows from the order of the neighbours, a new graph for each seed;
- ``bitcoin-otc``: is a rating negative, given the earlier ratings of the same member, split by time;
- ``columns``: the paper's sets, in the network for any graph with its settings by rule.

In the first two the settings of each layer are chosen from one grid, which is the same for all, by the mean
over seeds that no test figure uses; `measure` leaves out a layer whose grid is not complete. Runs that have a
row are not trained again. Several processes may work at once, each with graphs and rows of its own
(``--only``, ``--layers``, ``--rows``); put the files of rows together afterwards. Needs torch,
torch_geometric and numpy.
"""

from __future__ import annotations

import itertools
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from order_page import write_page
from order_tasks import TASKS, OneLayer, draw_order_task
from script import Rows, bare, pack_graphs, study_parser, train_missing
from torch_geometric.data import Data

from node2seq.data import Split, load, make_split
from node2seq.data.bitcoin_otc import load_bitcoin_otc
from node2seq.experiments.graphs import standardized, unpack
from node2seq.nn.models import MODELS
from node2seq.train.inputs import SplitLike
from node2seq.train.many import Training
from node2seq.train.settings import Recipe, TrainSettings

MODELS["one-layer"] = OneLayer  # known to training by its name

BITCOIN = "bitcoin-otc"
COLUMNS = (
    "cora-r",
    "citeseer-r",
    "amazon-r",
    "chameleon",
    "squirrel",
    "actor",
    "cornell",
    "texas",
    "wisconsin",
)
PARTS = {"drawn": tuple(TASKS), BITCOIN: (BITCOIN,), "columns": COLUMNS}
SEEDS = {"drawn": tuple(range(5)), BITCOIN: tuple(range(10)), "columns": tuple(range(20))}
CHOICE_SEEDS = (100, 101)
NODES = 4_000  # of a drawn graph

#: The grid: the same for every layer.
GRID = {
    f"lr={lr:g} dropout={dropout:g} decay={decay:g}": {"lr": lr, "dropout": dropout, "weight_decay": decay}
    for lr, dropout, decay in itertools.product((0.003, 0.01), (0.0, 0.3), (0.0, 1e-3))
}
_DRAWN: dict[str, Any] = {"hidden_channels": 64}
_BITCOIN: dict[str, Any] = {"hidden_channels": 32, "target_columns": 6}
_SOFT = ("soft ranks", "soft ranks, 4 heads", "soft ranks, shared scores")
_EPOCHS = {"drawn": 300, BITCOIN: 200}
_PATIENCE = 60
# Of the paper's columns: what the rule for any graph was when the rows were made.
_COLUMNS_RECIPE = Recipe(
    {"hidden_channels": 128, "num_layers": 2, "dropout": 0.5, "input_dropout": 0.5},
    TrainSettings(epochs=300, patience=_PATIENCE, lr=0.003, weight_decay=5e-4),
)


@dataclass(frozen=True)
class Case:
    """A layer with its order, on any graph of a part.

    Args:
        title: What the tables call it.
        model: A key of ``MODELS``.
        options: What makes it that layer.
        carries: Which values of the edges it reads: of ``edge_attr`` and ``edge_order``.
    """

    title: str
    model: str
    options: dict[str, Any]
    carries: tuple[str, ...] = ()


def _one_layer(part: dict[str, Any], layer: str, *carries: str) -> Case:
    told = ", told the age" if "edge_attr" in carries else ""
    return Case(layer + told, "one-layer", {**part, "layer": layer}, carries)


def _residual(title: str, **options: Any) -> Case:
    return Case(title, "residual-node2seq", options)


CASES: dict[str, list[Case]] = {
    "drawn": [
        *(_one_layer(_DRAWN, name) for name in _SOFT),
        *(_one_layer(_DRAWN, name) for name in ("hard ranks, attention", "hard ranks, random")),
        _one_layer(_DRAWN, "hard ranks, given", "edge_order"),
        *(
            _one_layer(_DRAWN, name)
            for name in ("paper, max", "paper, mean", "attention", "gat", "mean", "pna")
        ),
    ],
    BITCOIN: [
        _one_layer(_BITCOIN, "hard ranks, given", "edge_order"),
        *(
            _one_layer(_BITCOIN, name)
            for name in ("hard ranks, random", "hard ranks, attention", "soft ranks")
        ),
        _one_layer(_BITCOIN, "soft ranks", "edge_attr"),
        _one_layer(_BITCOIN, "attention"),
        _one_layer(_BITCOIN, "attention", "edge_attr"),
        *(_one_layer(_BITCOIN, name) for name in ("mean", "pna", "paper, max", "paper, max, random")),
        _one_layer(_BITCOIN, "paper, max, given", "edge_order"),
    ],
    "columns": [
        _residual("soft ranks", readout="ranks"),
        _residual("hard ranks, attention", readout="ranks", soft=False),
        _residual("hard ranks, degree", readout="ranks", order="degree"),
        _residual("hard ranks, random", readout="ranks", order="random"),
        _residual("paper, max", readout="max"),
        _residual("paper, max, degree", readout="max", order="degree"),
        _residual("paper, max, random", readout="max", order="random"),
        Case("mean", "residual-sage", {}),
    ],
}


def packed() -> Iterator[tuple[str, Data]]:
    """The graphs that are read from files, by name."""
    for name in COLUMNS:
        yield name, bare(standardized(load(name)))
    data, part = bitcoin()
    data.part = torch.from_numpy(part)
    yield BITCOIN, data


def bitcoin() -> tuple[Data, np.ndarray]:
    """All ratings as one graph, and the part of the split that each stands in, −1 for none.

    The first columns are what a rating shows as a neighbour, the last ones what it knows of itself, which are
    zero for a rating that is a neighbour only. No edge leads from a rating to itself.
    """
    found = load_bitcoin_otc(age=True)
    rating, earlier, edges = found["rating"], found["earlier"], found["earlier", "rating"]
    number, count = rating.number, earlier.x.size(0)
    own = torch.zeros(count, rating.x.size(1))
    own[number] = rating.x
    y, part = torch.full((count,), -1), np.full(count, -1)
    y[number] = rating.y
    for place, name in enumerate(("train", "val", "test")):
        part[number[rating[f"{name}_mask"]].numpy()] = place
    edge_index = torch.stack([edges.edge_index[0], number[edges.edge_index[1]]])
    values = {"edge_order": edges.edge_order, "edge_attr": edges.edge_attr}
    return Data(x=torch.cat([earlier.x, own], dim=1), edge_index=edge_index, y=y, **values), part


def graphs(
    part: str, name: str, path: Path, seeds: Sequence[int]
) -> Iterator[tuple[Data, dict[int, SplitLike]]]:
    """The graphs of a name, each with the splits of the seeds that belong to it."""
    if part == "drawn":
        for seed in seeds:
            data = draw_order_task(name, NODES, seed)
            assert isinstance(data.y, torch.Tensor)
            yield data, {seed: make_split(data.y, "60/20/20", seed)}
        return
    data = unpack(path, name)
    assert isinstance(data.y, torch.Tensor)
    if part == "columns":
        yield data, {seed: make_split(data.y, name, seed) for seed in seeds}
        return
    nodes = [(data.part == place).nonzero().view(-1) for place in range(3)]
    yield data, dict.fromkeys(seeds, Split(*nodes, rule="by time", seed=0, test_rest=nodes[2]))


def recipe_of(part: str, case: Case, candidate: str, epochs: int | None = None) -> Recipe:
    """How a case is trained with a candidate of the grid; by the rule for any graph in the last part.

    Args:
        part: Of the study.
        case: The layer.
        candidate: A key of the grid, or ``rule``.
        epochs: Train so few, to see whether everything runs.
    """
    if part == "columns":
        recipe = _COLUMNS_RECIPE.updated(**case.options)
    else:
        metric = "roc-auc" if part == BITCOIN else "accuracy"
        settings = TrainSettings(epochs=_EPOCHS[part], patience=_PATIENCE, metric=metric)
        recipe = Recipe(case.options, settings).updated(**GRID[candidate])
    return recipe if epochs is None else replace(recipe, settings=replace(recipe.settings, epochs=epochs))


def train(
    rows: Rows,
    key: dict[str, Any],
    case: Case,
    data: Data,
    splits: dict[int, SplitLike],
    recipes: dict[str, Recipe],
) -> None:
    """Train what has no row yet, all seeds and candidates of a case on a graph in one call."""
    wanted = [
        (
            {**key, "model": case.model, "candidate": name, "seed": seed},
            {"metric": recipe.settings.metric, "split": getattr(split, "rule", "")},
            Training(case.model, recipe, split, seed),
        )
        for name, recipe in recipes.items()
        for seed, split in splits.items()
    ]
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y, **{n: data[n] for n in case.carries})
    title, measured = f"{key['graph']}, {case.title}", key["stage"] == "measure"
    train_missing(title, rows, graph, wanted, measured=measured)


def choose(rows: Rows, options: Namespace) -> None:
    """Train every candidate of the grid; measures no test node."""
    for part, name in wanted_of(options.only):
        if part == "columns":
            continue  # its settings are those of the rule
        for data, splits in graphs(part, name, options.graphs, CHOICE_SEEDS):
            for case in _wanted_cases(part, options.layers):
                recipes = {each: recipe_of(part, case, each, options.epochs) for each in GRID}
                key = {"stage": "choose", "part": part, "graph": name, "layer": case.title}
                train(rows, key, case, data, splits, recipes)


def chosen(rows: Rows, part: str, name: str, case: Case) -> str | None:
    """The candidate with the best mean on validation nodes; None before all of them have their rows."""
    if part == "columns":
        return "rule"
    found: dict[str, list[float]] = {candidate: [] for candidate in GRID}
    for row in rows.known:
        if (row["stage"], row["graph"], row["layer"]) == ("choose", name, case.title):
            found[row["candidate"]].append(row.get("validation", 0.0))
    if any(len(values) < len(CHOICE_SEEDS) for values in found.values()):
        return None
    return max(found, key=lambda candidate: float(np.mean(found[candidate])))


def measure(rows: Rows, options: Namespace) -> None:
    """Train each case with what was chosen for it, and measure test nodes."""
    for part, name in wanted_of(options.only):
        for data, splits in graphs(part, name, options.graphs, SEEDS[part]):
            for case in _wanted_cases(part, options.layers):
                candidate = chosen(rows, part, name, case)
                if candidate is None:
                    print(f"{name}, {case.title}: the grid is not complete; run `choose` first", flush=True)
                    continue
                recipe = recipe_of(part, case, candidate, options.epochs)
                key = {"stage": "measure", "part": part, "graph": name, "layer": case.title}
                train(rows, key, case, data, splits, {candidate: recipe})


def _wanted_cases(part: str, layers: str | None) -> list[Case]:
    """The layers of a part whose titles are named, separated by semicolons because titles have commas."""
    named = None if layers is None else layers.split(";")
    return [case for case in CASES[part] if named is None or case.title in named]


def wanted_of(only: str | None) -> list[tuple[str, str]]:
    """The parts and graphs that names stand for."""
    names = None if only is None else only.split(",")
    return [
        (part, name)
        for part, members in PARTS.items()
        for name in members
        if names is None or part in names or name in names
    ]


def main() -> None:
    """Read the command line and do what it says."""
    parser = study_parser(
        __doc__,
        __file__,
        rows="results/order.jsonl",
        stages=("pack", "choose", "measure", "page"),
        page="docs/order.md",
        graphs="order.npz",
    )
    parser.add_argument("--only", help="parts or graphs, separated by commas")
    parser.add_argument("--layers", help="titles of layers, separated by semicolons")
    parser.add_argument("--epochs", type=int, help="train so few, to try everything; for rows to throw away")
    options = parser.parse_args()
    if options.stage == "pack":
        pack_graphs(options.graphs, packed())
        return
    rows = Rows.of(options)
    if options.stage == "page":
        write_page(options.page, rows.known)
    else:
        {"choose": choose, "measure": measure}[options.stage](rows, options)


if __name__ == "__main__":
    main()
