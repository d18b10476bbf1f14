"""The example classifies graphs of a set in TUDataset's file layout, which is written here."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from node2seq import ops

EXAMPLE = Path(__file__).parents[2] / "examples/graph_classification.py"
NAME = "RINGS_AND_STARS"
# With half as many, rounding decides on some processors whether the running statistics are good enough.
EPOCHS = 12


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("graph_classification", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_set(root: Path, graphs: int, node_labels: bool) -> None:
    """Rings are class 1, stars class −1; a tenth of the nodes of each is of another kind."""
    generator = torch.Generator().manual_seed(0)
    edges, indicator, labels, kinds, first = [], [], [], [], 1
    for number in range(graphs):
        nodes = int(torch.randint(4, 12, (), generator=generator))
        is_ring = number % 2 == 0
        for node in range(nodes) if is_ring else range(1, nodes):
            other = (node + 1) % nodes if is_ring else 0
            edges += [(first + node, first + other), (first + other, first + node)]
        indicator += [number + 1] * nodes
        labels.append(1 if is_ring else -1)
        kinds += (torch.rand(nodes, generator=generator) < 0.1).long().tolist()
        first += nodes
    raw = root / NAME / "raw"
    raw.mkdir(parents=True)
    (raw / f"{NAME}_A.txt").write_text("".join(f"{one}, {other}\n" for one, other in edges))
    files = {"graph_indicator": indicator, "graph_labels": labels}
    if node_labels:
        files["node_labels"] = kinds
    for name, values in files.items():
        (raw / f"{NAME}_{name}.txt").write_text("".join(f"{value}\n" for value in values))


@pytest.mark.parametrize("numba", ["with numba", "without numba"])
@pytest.mark.parametrize(
    ("node_labels", "readout"),
    [(True, "add"), (False, "mean"), pytest.param(True, "max", marks=pytest.mark.slow)],
)
def test_it_tells_rings_from_stars(example, node_labels, readout, numba, tmp_path, capsys, request):
    if numba == "without numba":
        request.getfixturevalue("without_numba")
    write_set(tmp_path, 120, node_labels)
    kept = len(ops.PLANS._plans)
    options = ["--hidden", "8", "--layers", "2", "--lr", "0.02", "--readout", readout]
    options += ["--epochs", str(EPOCHS)]
    test = example.main(["--root", str(tmp_path), "--name", NAME, *options])
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == EPOCHS
    assert printed[-1].endswith(f"test of the best epoch {test:.3f}")
    assert test > 0.9
    assert len(ops.PLANS._plans) <= kept + 1  # the plans of past batches are gone


def test_a_graphs_logits_do_not_depend_on_its_batch(example):
    torch.manual_seed(0)
    model = example.GraphClassifier(3, 8, 2).double().eval()
    sizes, xs, edges = (5, 1, 7), [], []
    for size in sizes:
        xs.append(torch.randn(size, 3, dtype=torch.float64))
        edges.append(torch.randint(size, (2, 3 * size if size > 1 else 0)))
    offsets = [0, 5, 6]
    together = model(
        torch.cat(xs),
        torch.cat([edge + offset for edge, offset in zip(edges, offsets, strict=True)], dim=1),
        torch.repeat_interleave(torch.arange(3), torch.tensor(sizes)),
        3,
    )
    for number, (x, edge_index) in enumerate(zip(xs, edges, strict=True)):
        alone = model(x, edge_index, torch.zeros(len(x), dtype=torch.int64), 1)
        torch.testing.assert_close(together[number], alone[0], rtol=0, atol=1e-10)
