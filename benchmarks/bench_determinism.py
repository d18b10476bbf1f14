"""Two processes train every model from the same seed at the same time: are the weights equal, bit for bit?

    python benchmarks/bench_determinism.py                    # 200 epochs each; a GPU where there is one
    python benchmarks/bench_determinism.py --epochs 20 --graphs hub

On Cora (needs the data set; see NODE2SEQ_DATA) and on a graph whose first node is connected to all others.
Both processes share the device, so that their timing differs from run to run.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import torch
from script import Report, argument_parser
from torch_geometric.data import Data

from node2seq.benchmarking.determinism import MODEL_CASES, hub_graph, thirds, weights_digest
from node2seq.benchmarking.rows import BenchmarkRow
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
        for case in MODEL_CASES:
            digest = weights_digest(case, data, split, device, options.epochs)
            print(json.dumps({**about, "case": case.name, "digest": digest}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each training, and ends with an error if any two differ."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if pick_device(options.device).type == "cpu":
        # Sums depend on the number of threads, and two processes share the cores.
        torch.set_num_threads(1)
    if options.job:
        digests(options)
        return
    report = Report(options)
    given = sys.argv[1:] if arguments is None else arguments
    command = [sys.executable, __file__, *given, "--job"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    if any(process.returncode for process in both):
        sys.exit("a process failed: nothing was compared")
    different = False
    for first, second in zip(*(output.splitlines() for output in outputs), strict=True):
        found, other = json.loads(first), json.loads(second)
        same = found.pop("digest") == other.pop("digest")
        different |= not same
        result = SAME if same else DIFFERENT
        report.add(BenchmarkRow("determinism", **found, variant=f"{options.epochs} epochs", result=result))
    sys.exit(different)


if __name__ == "__main__":
    main()
