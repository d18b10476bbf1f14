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
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from choose_defaults import Rows, packed, unpack
from order_networks import OneLayer
from order_page import write_page
from script import argument_parser
from torch_geometric.data import Data

from node2seq.data import Split, load, make_split
from node2seq.data.bitcoin_otc import load_bitcoin_otc
from node2seq.data.order_tasks import TASKS, draw_order_task
from node2seq.environment import pick_device
from node2seq.nn.models.registry import MODELS
from node2seq.train.inputs import SplitLike
from node2seq.train.many import Training, train_many
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


def pack(path: Path) -> None:
    """Write the graphs that are read from files into one."""
    arrays: dict[str, np.ndarray] = {}
    for name in COLUMNS:
        arrays |= packed(name, load(name), standard=True)
    data, part = bitcoin()
    arrays |= packed(BITCOIN, data, standard=False) | {f"{BITCOIN}/part": part}
    for name in ("edge_order", "edge_attr"):
        arrays[f"{BITCOIN}/{name}"] = data[name].numpy()
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


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
    ((_, data),) = unpack(path, [name])
    assert isinstance(data.y, torch.Tensor)
    if part == "columns":
        yield data, {seed: make_split(data.y, name, seed) for seed in seeds}
        return
    with np.load(path) as arrays:
        for value in ("edge_order", "edge_attr"):
            data[value] = torch.from_numpy(arrays[f"{name}/{value}"])
        nodes = [torch.from_numpy(np.flatnonzero(arrays[f"{name}/part"] == place)) for place in range(3)]
    yield data, dict.fromkeys(seeds, Split(*nodes, rule="by time", seed=0, test_rest=nodes[2]))


def recipe_of(part: str, case: Case, values: dict[str, Any]) -> Recipe:
    """How a case is trained with a candidate of the grid; by the rule for any graph in the last part."""
    if part == "columns":
        return _COLUMNS_RECIPE.updated(**case.options)
    metric = "roc-auc" if part == BITCOIN else "accuracy"
    settings = TrainSettings(epochs=_EPOCHS[part], patience=_PATIENCE, metric=metric)
    return Recipe(case.options, settings).updated(**values)


def train(
    rows: Rows,
    key: dict[str, Any],
    case: Case,
    data: Data,
    splits: dict[int, SplitLike],
    recipes: dict[str, Recipe],
    device: torch.device,
) -> None:
    """Train what has no row yet, all seeds and candidates of a case on a graph in one call."""
    todo = [(name, seed) for name in recipes for seed in splits]
    todo = [each for each in todo if not rows.has(**key, candidate=each[0], seed=each[1])]
    carried = {name: data[name] for name in case.carries}
    graph = Data(x=data.x, edge_index=data.edge_index, y=data.y, **carried)
    runs = [Training(case.model, recipes[name], splits[seed], seed) for name, seed in todo]
    started = time.perf_counter()
    for (name, seed), outcome in zip(todo, train_many(graph, runs, device=device), strict=True):
        recipe = recipes[name]
        row = {**key, "model": case.model, "candidate": name, "seed": seed, "metric": recipe.settings.metric}
        row |= {"split": getattr(splits[seed], "rule", ""), "seconds": round(outcome.seconds, 3)}
        row["recipe"] = {"options": dict(recipe.options), "settings": asdict(recipe.settings)}
        if outcome.result is None:
            row["error"] = outcome.error
        else:
            best, test = outcome.result.best, outcome.result.test
            row |= {"validation": best.val_score, "epoch": best.epoch, "epochs": len(outcome.result.history)}
            if key["stage"] == "measure" and test is not None:
                row |= {"test": test.value(recipe.settings.metric), "largest_class": test.reference}
        rows.add(row)
    if runs:
        took = time.perf_counter() - started
        print(f"{key['graph']}, {case.title}: {len(runs)} runs in {took:.1f} s", flush=True)


def choose(
    path: Path, rows: Rows, device: torch.device, wanted: Sequence[tuple[str, str]], options: Namespace
) -> None:
    """Train every candidate of the grid; measures no test node."""
    for part, name in wanted:
        if part == "columns":
            continue  # its settings are those of the rule
        for data, splits in graphs(part, name, path, CHOICE_SEEDS):
            for case in _wanted_cases(part, options.layers):
                recipes = {
                    each: _short(recipe_of(part, case, values), options.epochs)
                    for each, values in GRID.items()
                }
                key = {"stage": "choose", "part": part, "graph": name, "layer": case.title}
                train(rows, key, case, data, splits, recipes, device)


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


def measure(
    path: Path, rows: Rows, device: torch.device, wanted: Sequence[tuple[str, str]], options: Namespace
) -> None:
    """Train each case with what was chosen for it, and measure test nodes."""
    for part, name in wanted:
        for data, splits in graphs(part, name, path, SEEDS[part]):
            for case in _wanted_cases(part, options.layers):
                candidate = chosen(rows, part, name, case)
                if candidate is None:
                    print(f"{name}, {case.title}: the grid is not complete; run `choose` first", flush=True)
                    continue
                recipe = _short(recipe_of(part, case, GRID.get(candidate, {})), options.epochs)
                key = {"stage": "measure", "part": part, "graph": name, "layer": case.title}
                train(rows, key, case, data, splits, {candidate: recipe}, device)


def _wanted_cases(part: str, layers: str | None) -> list[Case]:
    """The layers of a part whose titles are named, separated by semicolons because titles have commas."""
    named = None if layers is None else layers.split(";")
    return [case for case in CASES[part] if named is None or case.title in named]


def _short(recipe: Recipe, epochs: int | None) -> Recipe:
    """A recipe of fewer epochs, to see whether everything runs."""
    return recipe if epochs is None else replace(recipe, settings=replace(recipe.settings, epochs=epochs))


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
    parser = argument_parser(__doc__, __file__)
    parser.set_defaults(rows=Path("results/order.jsonl"))
    parser.add_argument("stage", choices=("pack", "choose", "measure", "page"))
    parser.add_argument(
        "graphs", type=Path, nargs="?", default=Path("order.npz"), help="file of packed graphs"
    )
    parser.add_argument("--only", help="parts or graphs, separated by commas")
    parser.add_argument("--layers", help="titles of layers, separated by semicolons")
    parser.add_argument("--epochs", type=int, help="train so few, to try everything; for rows to throw away")
    parser.add_argument("--page", type=Path, default=Path("docs/order.md"), help="page to write")
    options = parser.parse_args()
    if options.stage == "pack":
        pack(options.graphs)
        return
    device = pick_device(options.device)
    rows = Rows(options.rows, device, options.commit)
    if options.stage == "page":
        write_page(options.page, rows.known)
        return
    stage = {"choose": choose, "measure": measure}[options.stage]
    stage(options.graphs, rows, device, wanted_of(options.only), options)


if __name__ == "__main__":
    main()
