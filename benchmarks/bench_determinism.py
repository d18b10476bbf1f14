"""Two processes train every model from the same seed at the same time: are the weights equal, bit for bit?

    python benchmarks/bench_determinism.py                    # 200 epochs each; a GPU where there is one
    python benchmarks/bench_determinism.py --epochs 20 --graphs hub
    python benchmarks/bench_determinism.py --only compiled    # the layer with mode="reduce-overhead" alone

On Cora (needs the data set; see NODE2SEQ_DATA) and on a graph whose first node is connected to all others.
The layer is also trained by itself under ``torch.compile(mode="reduce-overhead")``, whose CUDA graphs replay
what lies between the layer's own steps. Both processes share the device, so that their timing differs from
run to run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from script import Report, argument_parser
from torch import Tensor
from torch_geometric.data import Data

from node2seq import Node2SeqConv
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.data import Split, load, make_split
from node2seq.environment import pick_device
from node2seq.nn.models import MODELS
from node2seq.storage import sha256_tensors
from node2seq.train.fitter import Fitter
from node2seq.train.settings import TrainSettings

GRAPHS = {"cora": "Cora", "hub": "hub of all nodes"}
SAME, DIFFERENT = "the same bits", "different bits"
SEED = 7


@dataclass(frozen=True)
class ModelCase:
    """A model with its options, and its name."""

    name: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)


# Node2Seq with each readout and with two hops, and each network that it is compared with.
MODEL_CASES = (
    ModelCase("Node2Seq max", "node2seq"),
    ModelCase("Node2Seq mean", "node2seq", {"readout": "mean"}),
    ModelCase("Node2Seq, 2 hops", "node2seq", {"hops": 2}),
    *(ModelCase(model.__name__, name) for name, model in MODELS.items() if name != "node2seq"),
)


def graph(name: str) -> tuple[Data, Split]:
    """A graph and its split."""
    data = hub_graph() if name == "hub" else load("cora-f")
    return data, make_split(data, seed=0)


def hub_graph(nodes: int = 2_000, edges: int = 12_000) -> Data:
    """A graph whose first node is connected to all others; labels follow the features."""
    generator = torch.Generator().manual_seed(SEED)
    ends = torch.randint(nodes, (2, edges), generator=generator)
    spokes = torch.stack([torch.zeros(nodes - 1, dtype=torch.int64), torch.arange(1, nodes)])
    pairs = torch.cat([ends, spokes], dim=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)
    x = torch.randn(nodes, 32, generator=generator)
    return Data(x=x, edge_index=edge_index, y=x[:, :5].argmax(1))


def weights_digest(case: ModelCase, data: Data, split: Split, device: torch.device, epochs: int) -> str:
    """Train from :data:`SEED` and return the digest of the weights after the last epoch.

    Args:
        case: What to train.
        data: The graph.
        split: Its training, validation and test nodes.
        device: Where to train.
        epochs: How many, without early stopping.
    """
    torch.manual_seed(SEED)
    assert isinstance(data.y, Tensor)
    classes = int(data.y.max()) + 1
    model = MODELS[case.model](data.num_features, 16, classes, **case.options).to(device)
    fitter = Fitter(model, data, split, TrainSettings(epochs=epochs))
    while not fitter.done:
        fitter.step()
    return sha256_tensors(model.state_dict())


def compiled_digest(readout: str, data: Data, device: torch.device, epochs: int) -> str:
    """The same for one layer under ``torch.compile(mode="reduce-overhead")``."""
    torch.manual_seed(SEED)
    x, edge_index, target = data.x, data.edge_index, data.y
    assert isinstance(x, Tensor)
    assert isinstance(target, Tensor)
    conv = Node2SeqConv(x.size(-1), int(target.max()) + 1, readout=readout).to(device)
    compiled = torch.compile(conv, mode="reduce-overhead", dynamic=False)
    optimizer = torch.optim.Adam(conv.parameters(), lr=0.01)
    for _ in range(epochs):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(x, edge_index), target).backward()
        optimizer.step()
    return sha256_tensors(conv.state_dict())


def digests(options: argparse.Namespace) -> None:
    """Runs in a process of its own: prints a JSON line for each training."""
    device = pick_device(options.device)
    for name in options.graphs:
        data, split = graph(name)
        data = data.to(str(device))
        about = {"graph": GRAPHS[name], "nodes": data.num_nodes, "edges": data.num_edges}
        for case in MODEL_CASES if options.only != "compiled" else ():
            digest = weights_digest(case, data, split, device, options.epochs)
            print(json.dumps({**about, "case": case.name, "digest": digest}), flush=True)
        for readout in ("max", "mean") if options.only != "models" else ():
            digest = compiled_digest(readout, data, device, options.epochs)
            case = f"Node2SeqConv {readout}, reduce-overhead"
            print(json.dumps({**about, "case": case, "digest": digest}), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a line for each training, and ends with an error if any two differ."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--only", choices=["models", "compiled"], help="train these alone")
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
