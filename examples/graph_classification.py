"""Classify whole graphs: Node2Seq layers, a readout over the nodes of each graph, two dense layers.

    python examples/graph_classification.py --name MUTAG

The data set is one of https://chrsmrrs.github.io/datasets, which PyTorch Geometric downloads, or files of
your own in the same layout: ``ROOT/NAME/raw/NAME_A.txt`` and so on.
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.transforms import Constant

from node2seq import Node2SeqConv

READOUTS = {"add": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class GraphClassifier(nn.Module):
    """Layers that each see one hop further; the readouts of all of them are what a graph is classified by.

    Args:
        in_channels (int): Size of each node's features.
        hidden_channels (int): Size of each layer's output.
        out_channels (int): Number of classes.
        num_layers (int): Number of Node2Seq layers. (default: :obj:`3`)
        readout (str): :obj:`"add"`, :obj:`"mean"` or :obj:`"max"` over the nodes of a graph.
            (default: :obj:`"add"`)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 3,
        readout: str = "add",
    ) -> None:
        super().__init__()
        self.readout = READOUTS[readout]
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = nn.ModuleList(
            Node2SeqConv(before, after, readout="mean") for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden_channels) for _ in range(num_layers))
        self.lin1 = nn.Linear(num_layers * hidden_channels, hidden_channels)
        self.lin2 = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        """The logits of each graph, [num_graphs, out_channels]; node i belongs to graph ``batch[i]``."""
        summaries = []
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x, edge_index)).relu()
            summaries.append(self.readout(x, batch, num_graphs))
        hidden = self.lin1(torch.cat(summaries, dim=-1)).relu()
        return self.lin2(F.dropout(hidden, 0.5, self.training))


def train(model: nn.Module, loader: Any, optimizer: torch.optim.Optimizer) -> float:
    """One epoch; the mean loss."""
    model.train()
    total = 0.0
    for data in loader:  # another batch of graphs in every step
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.x, data.edge_index, data.batch, data.num_graphs), data.y)
        loss.backward()
        optimizer.step()
        total += float(loss.detach()) * data.num_graphs
    return total / len(loader.dataset)


@torch.no_grad()
def accuracy(model: nn.Module, loader: Any) -> float:
    """The share of graphs that are classified correctly."""
    model.eval()
    correct = 0
    for data in loader:
        out = model(data.x, data.edge_index, data.batch, data.num_graphs)
        correct += int((out.argmax(dim=-1) == data.y).sum())
    return correct / len(loader.dataset)


def main(arguments: Sequence[str] | None = None) -> float:
    """Train on 80 % of the graphs, choose the epoch on 10 %, and report the accuracy on the rest."""
    parser = argparse.ArgumentParser(description="Classify whole graphs with Node2Seq layers.")
    parser.add_argument("--name", default="MUTAG", help="the data set")
    parser.add_argument("--root", default="data", help="the folder of data sets")
    parser.add_argument("--readout", default="add", choices=READOUTS)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)

    torch.manual_seed(args.seed)
    dataset: Any = TUDataset(args.root, args.name, use_node_attr=True)
    if not dataset.num_node_features:  # every node gets the same feature: only the edges tell graphs apart
        dataset.transform = Constant()
    dataset = dataset.shuffle()
    tenth = max(len(dataset) // 10, 1)
    parts = (dataset[2 * tenth :], dataset[tenth : 2 * tenth], dataset[:tenth])
    train_loader, val_loader, test_loader = (
        DataLoader(part, args.batch_size, shuffle=number == 0) for number, part in enumerate(parts)
    )

    width, classes = dataset[0].num_node_features, dataset.num_classes
    model = GraphClassifier(width, args.hidden, classes, args.layers, args.readout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    best_val = test = 0.0
    for epoch in range(1, args.epochs + 1):
        loss = train(model, train_loader, optimizer)
        val = accuracy(model, val_loader)
        if val >= best_val:  # of equal epochs the last, whose statistics of the norms are settled
            best_val, test = val, accuracy(model, test_loader)
        print(f"epoch {epoch:3d}  loss {loss:.3f}  validation {val:.3f}  test of the best epoch {test:.3f}")
    return test


if __name__ == "__main__":
    main()
