"""Many runs as one program, beside the same runs one after the other.

    python benchmarks/bench_together.py                       # 64 runs on Cora-F; see NODE2SEQ_DATA
    python benchmarks/bench_together.py --runs 8 --epochs 20 --device cpu

Node2Seq by its recipe, each run with its own seed, from the untrained model to its metrics. Times are of all
runs: a few single runs are timed, and their time is scaled to the number of runs. Ratios are to single runs
without a CUDA graph; lower is better. Each backend is verified before it is timed.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from script import Report, argument_parser, seconds_of
from torch_geometric.data import Data

from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import verify_backends
from node2seq.data import load, make_split
from node2seq.environment import make_deterministic
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
        accuracies.append(fitter.finish().best.val_accuracy)
        if capture and data.is_cuda:
            assert fitter.captured, "no epoch was captured"
    return accuracies


def train_at_once(data: Data, trainings: Sequence[Training], capture: bool) -> list[float]:
    """Train all runs as one program; the accuracy of each on its validation nodes."""
    outcomes = train_many(data, trainings, capture=capture)
    return [outcome.result.best.val_accuracy for outcome in outcomes if outcome.result is not None]


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints one table, and the mean validation accuracy of each way to train."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=200)
    options = parser.parse_args(arguments)
    report = Report(options)
    device = report.device
    make_deterministic(device)
    verify_backends(device)
    data = load(COLUMN).to(str(device))
    recipe = recipe_for("node2seq", COLUMN)
    recipe = replace(recipe, settings=replace(recipe.settings, epochs=options.epochs, patience=None))
    trainings = [
        Training("node2seq", recipe, make_split(data, seed=seed), seed) for seed in range(options.runs)
    ]
    few = trainings[:SINGLE]
    # Kernels are compiled once per machine, and not timed.
    train_alone(data, few[:1], capture=device.type == "cuda")
    train_at_once(data, trainings, capture=False)

    report.header(f"{options.runs} runs of Node2Seq on {COLUMN}, {options.epochs} epochs", "single runs")
    graph = BenchmarkRow("together", "Cora", int(data.num_nodes or 0), data.num_edges, "")
    for captured in (False, True) if device.type == "cuda" else (False,):
        for case, train, timed in (
            (f"{options.runs} single runs", train_alone, few),
            (f"{options.runs} runs as one program", train_at_once, trainings),
        ):
            seconds, accuracies = seconds_of(partial(train, data, timed, captured), device)
            seconds *= options.runs / len(timed)
            variant = "captured" if captured else "eager"
            report.add(replace(graph, case=case, variant=variant, p50_ms=1e3 * seconds))
            print(f"  mean validation accuracy {100 * sum(accuracies) / len(accuracies):.1f} %")


if __name__ == "__main__":
    main()
