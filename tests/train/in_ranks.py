"""What test_processes.py runs in one process and in two: ``torchrun … in_ranks.py FILE [STORE]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from node2seq import Node2SeqError
from node2seq.data import Split, make_split
from node2seq.data.store import StoredGraph
from node2seq.environment import Processes
from node2seq.nn.models.network import hops_of_network
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.training import train_run
from node2seq.train import BatchSettings, TrainSettings, fit
from node2seq.train.minibatch import StoreTrainer
from node2seq.train.processes import join
from node2seq.train.settings import make_network

NODES, FEATURES, CLASSES = 90, 6, 3
# 50 training nodes in batches of 7: the last batch has one node, and one of two processes none.
CASES: dict[str, tuple[str, int, TrainSettings]] = {
    "as it is": ("node2seq", 4, TrainSettings(epochs=12, lr=0.02)),
    "weights, views, averages": (
        "residual-node2seq",
        3,
        TrainSettings(
            epochs=8,
            class_weights=True,
            views=2,
            consistency=0.5,
            averaging=0.9,
            label_smoothing=0.1,
            metric="roc-auc",
        ),
    ),
    "all neighbours, early stopping": ("gat", -1, TrainSettings(epochs=30, lr=0.02, patience=3)),
    "degrees": ("gcn", 2, TrainSettings(epochs=6, optimizer="nadam")),
}


def graph() -> tuple[Data, Split]:
    """Classes that a node shares with most of its neighbours."""
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    pairs = torch.randint(NODES, (2, 900), generator=generator)
    same = (y[pairs[0]] == y[pairs[1]]) | (torch.rand(900, generator=generator) < 0.1)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=torch.float64)
    x[:, :CLASSES] += torch.nn.functional.one_hot(y, CLASSES)
    order = torch.randperm(NODES, generator=generator)
    parts = {"train": order[:50], "val": order[50:70], "test": order[70:], "test_rest": order[70:]}
    return Data(x=x, edge_index=pairs[:, same], y=y), Split(**parts, rule="given", seed=0)


def run_case(name: str, processes: Processes | None = None) -> dict[str, Any]:
    """The curves of a run in float64, and what it reaches."""
    model, fanout, settings = CASES[name]
    data, split = graph()
    # Other weights in the second process: those of the first count.
    torch.manual_seed(0 if processes is None else processes.rank)
    network = make_network(model, FEATURES, CLASSES, {"hidden_channels": 8}).double()
    batches = BatchSettings(7, (fanout,) * hops_of_network(network))
    found = fit(network, data, split, settings, batches=batches, seed=3, processes=processes)
    return {
        "loss": [record.loss for record in found.history],
        "val_loss": [record.val_loss for record in found.history],
        "val_score": [record.val_score for record in found.history],
        "best": found.best.epoch,
        "accuracies": {part: measured.value("accuracy") for part, measured in found.metrics.items()},
        "weights": [float(p.detach().double().sum()) for p in network.parameters()],
    }


def run_store(path: str, processes: Processes | None = None) -> list[float]:
    """The curves of a run on a graph on disk."""
    store = StoredGraph(path)
    split = make_split(store.data(), seed=0)
    torch.manual_seed(0)
    network = make_network("gcn", 6, 3, {"hidden_channels": 8})
    how = (TrainSettings(epochs=3), BatchSettings(64, (3, 3)), 1, processes)
    trainer = StoreTrainer(network, store, split, *how)
    while trainer.active:
        trainer.advance()
    return [value for record in trainer.runs[0].history for value in (record.loss, record.val_loss)]


def sentence(action: Any) -> str:
    """What an action is refused with."""
    try:
        action()
    except Node2SeqError as error:
        return str(error)
    return "not refused"


def _missing(rank: int) -> None:
    raise Node2SeqError(f"file-{rank}.csv", "there is no such file", "Check the path")


def _only_second_fails(processes: Processes) -> None:
    with processes.reporting():
        if not processes.is_first:
            _missing(processes.rank)
    processes.share(lambda: None)


def _both_fail(processes: Processes) -> None:
    with processes.reporting():
        _missing(processes.rank)


def _train_with_own_rate(processes: Processes, folder: Path) -> None:
    settings = TrainSettings(epochs=2, lr=0.01 * (1 + processes.rank))
    config = RunConfig(
        Source(name="karate"),
        settings=settings,
        options={"hidden_channels": 8},
        batches=BatchSettings(7, (2, 2, 2)),
    )
    train_run(config, folder, processes=processes)


def main() -> None:
    """Run everything in each process; each writes its own file."""
    with join(60) as processes:
        data, split = graph()
        gin = make_network("gin", FEATURES, CLASSES, {"hidden_channels": 8}).double()
        found: dict[str, Any] = {name: run_case(name, processes) for name in CASES}
        processes.draws_own = True
        found["own draws"] = run_case("all neighbours, early stopping", processes)
        found["other draws"] = run_case("as it is", processes)
        processes.draws_own = False
        batches = BatchSettings(7, (2,) * hops_of_network(gin))
        found["refused"] = {
            "normalised": sentence(lambda: fit(gin, data, split, batches=batches, processes=processes)),
            "full batch": sentence(lambda: fit(gin, data, split, processes=processes)),
            "first": sentence(lambda: processes.share(lambda: _missing(0))),
            "second": sentence(lambda: _only_second_fails(processes)),
            "both": sentence(lambda: _both_fail(processes)),
        }
        found["store"] = run_store(sys.argv[2], processes) if len(sys.argv) > 2 else []
        found["settings"] = sentence(lambda: _train_with_own_rate(processes, Path(f"{sys.argv[1]}-run")))
        found["shared"] = processes.share(lambda: f"from {processes.rank}")
        Path(f"{sys.argv[1]}.{processes.rank}").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
