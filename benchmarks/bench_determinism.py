"""Two processes train every model from the same seed at the same time: do they end in the same bits?

    python benchmarks/bench_determinism.py                    # 200 epochs each; a GPU where there is one
    python benchmarks/bench_determinism.py --epochs 20 --graphs hub

On Cora (needs the data set; see NODE2SEQ_DATA) and on a graph whose first node is everyone's neighbour. Both
processes share the device, so that what runs beside a training differs from run to run.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from node2seq.benchmarking.determinism import TRAINED, hub_graph, thirds, weights_digest
from node2seq.benchmarking.rows import Row, add_arguments, keep
from node2seq.data import load, make_split
from node2seq.environment import pick_device

GRAPHS = {"cora": "Cora", "hub": "hub of all nodes"}
SAME, DIFFERENT = "the same bits", "different bits"


def graph(name: str) -> tuple[Data, Any]:
    """A graph and its split."""
    if name == "hub":
        data = hub_graph()
        return data, thirds(data)
    data = load("cora-f")
    return data, make_split(data, seed=0)


def digests(options: argparse.Namespace) -> None:
    """Runs in a process of its own: prints a JSON line for each training."""
    device = pick_device(options.device)
    for name in options.graphs:
        data, split = graph(name)
        data = data.to(str(device))
        about = {"graph": GRAPHS[name], "nodes": data.num_nodes, "edges": data.num_edges}
        for trained in TRAINED:
            digest = weights_digest(trained, data, split, device, options.epochs)
            print(json.dumps({**about, "case": trained.name, "digest": digest}), flush=True)


def main() -> None:
    """Prints a line for each training, and ends with an error if any two differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    add_arguments(parser, Path(__file__).with_name("rows.jsonl"))
    options = parser.parse_args()
    if pick_device(options.device).type == "cpu":
        torch.set_num_threads(
            1
        )  # sums are cut up by the number of threads, and two processes share the cores
    if options.job:
        digests(options)
        return
    command = [sys.executable, __file__, *sys.argv[1:], "--job"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    if any(process.returncode for process in both):
        sys.exit("a process failed: nothing is known")
    rows = []
    for first, second in zip(*(output.splitlines() for output in outputs), strict=True):
        found, other = json.loads(first), json.loads(second)
        result = SAME if found.pop("digest") == other.pop("digest") else DIFFERENT
        row = Row("determinism", **found, variant=f"{options.epochs} epochs", result=result)
        print(f"{row.graph:20}{row.case:20}{result}")
        rows.append(row)
    keep(rows, options, pick_device(options.device))
    sys.exit(any(row.result == DIFFERENT for row in rows))


if __name__ == "__main__":
    main()
