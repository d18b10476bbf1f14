"""Do mini-batches reach the accuracy of the full batch? The same network, splits and first weights for both.

    python benchmarks/study_batches.py pack batches.npz       # Cora, Squirrel and Amazon in one file
    python benchmarks/study_batches.py measure batches.npz    # ten seeds of each: full batch, mini-batches
    python benchmarks/study_batches.py page                   # the table of docs/large-graphs.md

All have the settings below. The learning rate and the neighbours of mini-batches are the defaults, chosen on
validation nodes of seed 300 alone; two other arms, which came before them, keep the rate of the full batch.
Runs that have a row are not trained again. Several processes may work at once, each with ``--only`` or
``--seeds`` and ``--rows`` of its own; put the files of rows together afterwards. Needs torch, torch_geometric
and numpy.
"""

from __future__ import annotations

import itertools
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from script import (
    Rows,
    bare,
    interval,
    pack_graphs,
    study_parser,
    table,
    unpacked,
    write_between,
)
from torch_geometric.data import Data

from node2seq.data import load, make_split
from node2seq.experiments.samples import Sample, paired
from node2seq.train import BatchSettings, TrainSettings, fit
from node2seq.train.settings import make_network

GRAPHS = {"cora-r": "Cora", "squirrel": "Squirrel", "amazon-r": "Amazon Photo"}
SEEDS = "0,1,2,3,4,5,6,7,8,9"
NETWORKS: dict[str, dict[str, Any]] = {
    "residual-node2seq": {
        "hidden_channels": 64,
        "num_layers": 2,
        "readout": "ranks",
        "dropout": 0.5,
        "input_dropout": 0.5,
    },
    "residual-gcn": {"hidden_channels": 64, "num_layers": 2, "dropout": 0.5, "input_dropout": 0.5},
}
SETTINGS = TrainSettings(epochs=200, lr=0.01, weight_decay=5e-4, patience=60)
SPLIT = "60/20/20"
BATCHES = {
    "full batch": None,
    "mini-batches by default": BatchSettings(512, scale_lr=True),
    "mini-batches, 10 neighbours": BatchSettings(512, (10, 10), scale_lr=True),
    "mini-batches": BatchSettings(512, (10, 10)),
    "mini-batches, all neighbours": BatchSettings(512, (-1, -1)),
}
# How each arm takes the learning rate and neighbours, in the table.
WORDS = {
    "mini-batches by default": ("scaled", "all (default)"),
    "mini-batches, 10 neighbours": ("scaled", "10"),
    "mini-batches": ("of the full batch", "10"),
    "mini-batches, all neighbours": ("of the full batch", "all"),
}
START, END = "<!-- rows -->", "<!-- end of rows -->"


def measure(rows: Rows, options: Namespace) -> None:
    """Train each arm on each graph with every seed."""
    settings = SETTINGS if options.epochs is None else replace(SETTINGS, epochs=options.epochs)
    for name, data in unpacked(options.graphs, options.only.split(",")):
        for seed in map(int, options.seeds.split(",")):
            for model in options.models.split(","):
                for arm in options.arms.split(";"):
                    key = {"graph": name, "model": model, "batches": arm, "seed": seed}
                    if not rows.has(**key):
                        rows.add(key | train(data, model, arm, seed, settings, rows.device))
                        print(
                            {**key, **{k: rows.known[-1][k] for k in ("test", "epochs", "seconds")}},
                            flush=True,
                        )


def train(
    data: Data, model: str, arm: str, seed: int, settings: TrainSettings, device: torch.device
) -> dict[str, Any]:
    """One run and what it reached."""
    assert isinstance(data.y, torch.Tensor)
    split = make_split(data.y, SPLIT, seed)
    torch.manual_seed(seed)
    network = make_network(model, data.num_features, int(data.y.max()) + 1, NETWORKS[model]).to(device)
    start = time.perf_counter()
    result = fit(network, data, split, settings, batches=BATCHES[arm], seed=seed)
    assert result.test is not None
    batches = BATCHES[arm]
    return {
        "split": SPLIT,
        "recipe": {
            "options": NETWORKS[model],
            "settings": asdict(settings),
            "batches": batches and asdict(batches) | {"lr": batches.lr(settings.lr, split.train.numel())},
        },
        "val": result.val.value("accuracy"),
        "test": result.test.value("accuracy"),
        "best_epoch": result.best.epoch,
        "epochs": len(result.history),
        "seconds": round(time.perf_counter() - start, 2),
    }


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The accuracies of mini-batches, and their paired differences to the full batch, as Markdown."""
    whole, *others = BATCHES
    lines = []
    for name, model, arm in itertools.product(GRAPHS, NETWORKS, others):
        full, batched = (_figures(rows, name, model, each) for each in (whole, arm))
        seeds = sorted(full.keys() & batched.keys())
        pairs = [Sample({seed: own[seed] for seed in seeds}) for own in (full, batched)]
        found = paired(pairs[1], pairs[0])
        if found is not None:
            figures = [*map(str, pairs), interval(found), str(len(seeds))]
            lines.append([GRAPHS[name], f"`{model}`", *WORDS[arm], *figures])
    header = ("graph", "network", "learning rate", "neighbours", whole, "mini-batches")
    return "\n".join(table((*header, "difference, 95 % interval", "runs"), lines))


def _figures(rows: Sequence[dict[str, Any]], *case: str) -> dict[int, float]:
    """Test accuracies in percent by seed."""
    found = [row for row in rows if (row["graph"], row["model"], row["batches"]) == case]
    return {row["seed"]: 100 * row["test"] for row in found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do what it says."""
    parser = study_parser(
        __doc__,
        __file__,
        rows="results/batches.jsonl",
        stages=("pack", "measure", "page"),
        page="docs/large-graphs.md",
        graphs="batches.npz",
    )
    parser.add_argument("--only", default=",".join(GRAPHS), help="graphs, separated by commas")
    parser.add_argument("--models", default=",".join(NETWORKS), help="networks, separated by commas")
    arms = "full batch;mini-batches by default"
    parser.add_argument("--arms", default=arms, help=f"of {'; '.join(BATCHES)}, separated by semicolons")
    parser.add_argument("--seeds", default=SEEDS, help="seeds, separated by commas")
    parser.add_argument("--epochs", type=int, help="train so few, to try everything; for rows to throw away")
    options = parser.parse_args(arguments)
    if options.stage == "pack":
        pack_graphs(options.graphs, ((name, bare(load(name))) for name in GRAPHS))
        return
    torch.set_num_threads(1)
    if options.stage == "page":
        write_between(options.page, START, END, page(Rows.of(options).known))
    else:
        measure(Rows.of(options), options)


if __name__ == "__main__":
    main()
