"""A whole training step of each network beside PyG's two-layer GAT: forward, backward and Adam.

    python benchmarks/bench_epoch.py                          # Cora and Squirrel; see NODE2SEQ_DATA
    python benchmarks/bench_epoch.py --graphs cora --device cpu

PyG's GAT has 8 heads of 8 channels, dropout of 0.6 and Adam, as in PyG's example; ratios are to it, lower is
better. The others have 64 hidden channels. On a GPU every network is also replayed as a CUDA graph. GAT gets
its self loops as edges there, because looking for them in every step cannot be captured. Each backend is
verified before it is timed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from script import Report, argument_parser
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv
from torch_geometric.transforms import AddRemainingSelfLoops

from node2seq.benchmarking.layers import measure
from node2seq.benchmarking.rows import BenchmarkRow
from node2seq.benchmarking.short import verify_backends
from node2seq.data import load, make_split
from node2seq.nn.models import GCN, Node2Seq
from node2seq.train.trainer import WARM_UP, Replay

GRAPHS = {"cora": ("cora-f", "Cora"), "squirrel": ("squirrel", "Squirrel")}
HIDDEN = 64
BASE = "GAT of PyG"


class PyGGAT(nn.Module):
    """The network of PyG's own example.

    Args:
        in_channels: Size of each input sample.
        out_channels: Number of classes.
        add_self_loops: Whether its layers add them, as they do unless told.
    """

    def __init__(self, in_channels: int, out_channels: int, add_self_loops: bool = True) -> None:
        super().__init__()
        options = {"dropout": 0.6, "add_self_loops": add_self_loops}
        self.first = GATConv(in_channels, 8, heads=8, **options)
        self.second = GATConv(64, out_channels, heads=1, concat=False, **options)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The logits."""
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.first(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.second(x, edge_index)


NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    BASE: PyGGAT,
    "Node2Seq max": lambda c, d: Node2Seq(c, HIDDEN, d),
    "Node2Seq mean": lambda c, d: Node2Seq(c, HIDDEN, d, readout="mean"),
    "GCN": lambda c, d: GCN(c, HIDDEN, d),
}


def training_step(
    model: nn.Module, data: Data, train: Tensor, device: torch.device, captured: bool
) -> Callable[[], None]:
    """Forward, loss, backward and Adam; as a CUDA graph if ``captured``."""
    x, edge_index, y = data.x, data.edge_index, data.y
    assert isinstance(y, Tensor)
    # Adam that may be captured counts its steps on the device; users' own does not.
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4, capturable=captured)
    labels = y[train]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(x, edge_index)[train], labels).backward()
        optimizer.step()

    if not captured:
        return step
    replay = Replay(device)
    for _ in range(WARM_UP + 1):  # captured by then
        replay(step)
    assert replay.replayed
    return partial(replay, step)


def measure_network(
    name: str, graph: BenchmarkRow, data: Data, train: Tensor, captured: bool, seconds: float
) -> BenchmarkRow:
    """The row of one network, eager or captured."""
    device = train.device
    assert isinstance(data.y, Tensor)
    torch.manual_seed(0)
    sizes = data.num_features, int(data.y.max()) + 1
    model = NETWORKS[name](*sizes)
    if captured and name == BASE:
        model = PyGGAT(*sizes, add_self_loops=False)
        data = AddRemainingSelfLoops()(data)
    step = training_step(model.to(device).train(), data, train, device, captured)
    found = measure(step, device, seconds=seconds, least=10, most=200)
    assert found is not None
    if captured:  # what it holds was taken when it was captured, and a replay takes nothing
        found = replace(found, peak_bytes=None)
    return replace(graph, case=name, variant="captured" if captured else "eager", **vars(found))


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints a table for each graph."""
    parser = argument_parser(__doc__, __file__)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to repeat a step")
    options = parser.parse_args(arguments)
    report = Report(options)
    verify_backends(report.device)
    for name in options.graphs:
        column, title = GRAPHS[name]
        data = load(column)
        train = make_split(data, seed=0).train.to(report.device)
        graph = BenchmarkRow("epoch", title, int(data.num_nodes or 0), data.num_edges, "")
        data = data.to(str(report.device))
        report.header(f"{title}: a training step", "GAT")
        for captured in (False, True) if report.device.type == "cuda" else (False,):
            # The base comes first. Captured it comes last: a later version of PyG may not allow it.
            for network in sorted(NETWORKS, key=lambda name: captured and name == BASE):
                report.add(measure_network(network, graph, data, train, captured, options.seconds))


if __name__ == "__main__":
    main()
