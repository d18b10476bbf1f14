"""Many runs as one program, beside the same runs one after the other.

    python benchmarks/bench_together.py                       # 64 runs on Cora-F; see NODE2SEQ_DATA
    python benchmarks/bench_together.py --runs 8 --epochs 20 --device cpu

Node2Seq by its recipe, each run with its own seed, from the untrained model to the measured result. Times
are of all runs: single runs are timed for a few of them and counted up. Ratios are to single runs as they are
without a CUDA graph; lower is better. Nothing is reported of a backend that differs from the reference.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch_geometric.data import Data

from node2seq.benchmarking.agreement import refuse_if_wrong, runnable_backends
from node2seq.benchmarking.rows import Row, add_arguments, keep
from node2seq.data import load, make_split
from node2seq.environment import make_deterministic, pick_device
from node2seq.recipes import recipe_for
from node2seq.train.fitter import Fitter
from node2seq.train.many import Training, prepare_graph, train_many, untrained

COLUMN = "cora-f"
# How many single runs are timed.
SINGLE = 2


def train_alone(data: Data, trainings: Sequence[Training], capture: bool) -> list[float]:
    """Train one run after the other; the accuracy of each on its validation nodes."""
    accuracies = []
    for training in trainings:
        graph = prepare_graph(data, training.recipe)
        model = untrained(training, graph)
        fitter = Fitter(model, graph, training.split, training.recipe.settings, capture=capture)
        while not fitter.done:
            fitter.step()
        accuracies.append(fitter.finish().val.accuracy)
        if capture and data.is_cuda:
            assert fitter.captured, "no epoch was captured"
    return accuracies


def train_at_once(data: Data, trainings: Sequence[Training], capture: bool) -> list[float]:
    """Train all runs as one program; the accuracy of each on its validation nodes."""
    outcomes = train_many(data, trainings, capture=capture)
    return [outcome.result.val.accuracy for outcome in outcomes if outcome.result is not None]


def seconds_of(train: Callable[[], list[float]], device: torch.device) -> tuple[float, list[float]]:
    """How long a training takes, to the end of what the device has to do, and what it returns."""
    started = time.perf_counter()
    accuracies = train()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, accuracies


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="auto")
    add_arguments(parser, Path(__file__).with_name("rows.jsonl"))
    options = parser.parse_args()
    device = pick_device(options.device)
    make_deterministic(device)
    refuse_if_wrong(runnable_backends(device), device)
    data = load(COLUMN).to(str(device))
    recipe = recipe_for("node2seq", COLUMN)
    recipe = replace(recipe, settings=replace(recipe.settings, epochs=options.epochs, patience=None))
    trainings = [
        Training("node2seq", recipe, make_split(data, seed=seed), seed) for seed in range(options.runs)
    ]
    few = trainings[:SINGLE]
    captures = (False, True) if device.type == "cuda" else (False,)
    # Kernels are compiled once per machine, and not timed.
    train_alone(data, few[:1], capture=device.type == "cuda")
    train_at_once(data, trainings, capture=False)

    graph = Row("together", "Cora", int(data.num_nodes or 0), data.num_edges, "")
    print(f"{options.runs} runs of Node2Seq on {COLUMN}, {options.epochs} epochs: seconds, ratio, validation")
    rows: list[Row] = []
    for captured in captures:
        how = "captured" if captured else "eager"
        alone, accuracies = seconds_of(lambda captured=captured: train_alone(data, few, captured), device)
        scaled = alone * options.runs / len(few)
        add(rows, graph, f"{options.runs} single runs", how, scaled, accuracies)
        at_once, accuracies = seconds_of(
            lambda captured=captured: train_at_once(data, trainings, captured), device
        )
        add(rows, graph, f"{options.runs} runs as one program", how, at_once, accuracies)
    keep(rows, options, device)


def add(
    rows: list[Row], graph: Row, case: str, variant: str, seconds: float, accuracies: Sequence[float]
) -> None:
    """Note a row and print its line; the first is what the others are compared with."""
    row = replace(graph, case=case, variant=variant, p50_ms=1e3 * seconds)
    rows.append(row.beside(rows[0]) if rows else row)
    ratio = "" if rows[-1].ratio is None else f"{rows[-1].ratio:.3f}"
    accuracy = 100 * sum(accuracies) / len(accuracies)
    print(f"{row.title():40}{seconds:10.2f}{ratio:>10}{accuracy:10.1f}", flush=True)


if __name__ == "__main__":
    main()
