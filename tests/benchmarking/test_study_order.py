"""The study of when the order matters: its stages on small graphs, and the page that they become."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from node2seq.nn.models import MODELS
from node2seq.storage import read_lines

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study(load_script: Callable[[str], ModuleType]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "one-layer", MODELS["residual-sage"])  # taken back with the rest
        yield load_script("study_order")


@pytest.fixture(scope="module")
def small(study: Any) -> Any:
    """The study with a graph of each part, few nodes and two seeds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "NODES", 60)
        patch.setattr(study, "COLUMNS", ("wisconsin",))
        patch.setattr(
            study, "PARTS", {"drawn": ("second",), "bitcoin-otc": ("bitcoin-otc",), "columns": ("wisconsin",)}
        )
        patch.setattr(study, "SEEDS", dict.fromkeys(study.SEEDS, (0, 1)))
        patch.setattr(study, "GRID", dict(list(study.GRID.items())[:2]))
        patch.setattr(study, "load", lambda _: ring(40))
        patch.setattr(study, "bitcoin", lambda: (events(40), np.arange(40) % 4 - 1))
        yield study


def ring(nodes: int) -> Data:
    place = torch.arange(nodes)
    both = torch.stack([place, place.roll(1)])
    return Data(x=torch.randn(nodes, 5), edge_index=torch.cat([both, both.flip(0)], dim=1), y=place % 2)


def events(nodes: int) -> Any:
    """Each event's neighbours are the three before it; those of no part have no label."""
    target = torch.arange(nodes)[:, None].expand(-1, 3)
    source = target - torch.arange(1, 4)
    edges = torch.stack([source[source >= 0], target[source >= 0]])
    values = {"edge_order": edges[0].double(), "edge_attr": torch.rand(edges.size(1), 1)}
    y = torch.where(torch.arange(nodes) % 4 == 0, -1, torch.arange(nodes) // 4 % 2)
    return Data(x=torch.randn(nodes, 13), edge_index=edges, y=y, **values)


def run(study: Any, *arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["study_order.py", *arguments, "--device", "cpu"])
        study.main()


@pytest.fixture(scope="module")
def rows(small: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of all stages, two epochs each."""
    folder = tmp_path_factory.mktemp("study")
    packed, rows = str(folder / "order.npz"), folder / "order.jsonl"
    run(small, "pack", packed)
    for stage in ("measure", "choose", "measure"):  # before the choice, there is nothing chosen to measure
        run(small, stage, packed, "--rows", str(rows), "--epochs", "2")
    return rows


@pytest.mark.slow
def test_every_case_is_chosen_on_validation_nodes_and_then_measured(small: Any, rows: Path):
    found = list(read_lines(rows))
    assert not [row["error"] for row in found if "error" in row]
    cases = {part: [case.title for case in cases] for part, cases in small.CASES.items()}
    for part, titles in cases.items():
        own = [row for row in found if row["part"] == part]
        measured = [(row["layer"], row["seed"]) for row in own if row["stage"] == "measure"]
        assert sorted(measured) == sorted((title, seed) for title in titles for seed in (0, 1))
        trials = [(row["layer"], row["candidate"], row["seed"]) for row in own if row["stage"] == "choose"]
        grid = (
            [] if part == "columns" else [(t, c, s) for t in titles for c in small.GRID for s in (100, 101)]
        )
        assert sorted(trials) == sorted(grid)
    assert all(("test" in row) == (row["stage"] == "measure") for row in found)
    assert all(row["epoch"] and row["recipe"] and row["environment"]["torch"] for row in found)
    of_time = {row["metric"] for row in found if row["part"] == "bitcoin-otc"}
    assert of_time == {"roc-auc"}


@pytest.mark.slow
def test_the_best_candidate_is_chosen_and_runs_are_not_repeated(
    small: Any, rows: Path, capsys: pytest.CaptureFixture[str]
):
    found = list(read_lines(rows))
    means: dict[str, float] = {}
    for candidate in small.GRID:
        own = [
            row["validation"] for row in found if row["stage"] == "choose" and row["candidate"] == candidate
        ]
        own = own[:2]  # of the first layer on the first graph
        means[candidate] = float(np.mean(own))
    measured = next(row for row in found if row["stage"] == "measure" and row["part"] == "drawn")
    assert means[measured["candidate"]] == max(means.values())
    size = rows.stat().st_size
    packed = str(rows.with_name("order.npz"))
    run(small, "measure", packed, "--rows", str(rows), "--epochs", "2")
    assert rows.stat().st_size == size
    assert "runs in" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_test_figure_needs_a_complete_grid(
    small: Any, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    packed = str(rows.with_name("order.npz"))
    run(
        small,
        "measure",
        packed,
        "--rows",
        str(tmp_path / "none.jsonl"),
        "--only",
        "bitcoin-otc",
        "--epochs",
        "1",
    )
    assert capsys.readouterr().out.count("run `choose` first") == len(small.CASES["bitcoin-otc"])
    assert not (tmp_path / "none.jsonl").exists()


@pytest.mark.slow
def test_the_page_is_rendered_from_rows(small: Any, rows: Path, tmp_path: Path):
    run(small, "page", "--rows", str(rows), "--page", str(tmp_path / "order.md"))
    text = (tmp_path / "order.md").read_text(encoding="utf-8")
    assert text.startswith("# When does the order matter?\n\nOn ")
    assert "- **The class of the second neighbour** (drawn graphs): soft ranks reach " in text
    for heading in ("## Labels that are about an order", "## A graph with times", "## The paper's columns"):
        assert heading in text
    assert "| wisconsin |" in text
    assert "| **together** |" in text
    assert "(order.svg)" in text
    assert (tmp_path / "order.svg").exists()
    run(small, "page", "--rows", str(tmp_path / "none.jsonl"), "--page", str(tmp_path / "order.md"))
    assert "There are no runs yet." in (tmp_path / "order.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_committed_page_is_what_the_committed_rows_say(study: Any, tmp_path: Path):
    rows = ROOT / "results" / "order.jsonl"
    run(
        study,
        "page",
        "--rows",
        str(rows if rows.exists() else tmp_path / "none"),
        "--page",
        str(tmp_path / "order.md"),
    )
    for written in tmp_path.glob("order.*"):
        assert written.read_text(encoding="utf-8") == (ROOT / "docs" / written.name).read_text(
            encoding="utf-8"
        )


def test_intervals_are_those_of_student(study: Any):
    page = sys.modules["order_page"]
    for freedom, quantile in ((1, 12.706), (4, 2.776), (9, 2.262), (19, 2.093)):
        values = page.Sample(dict(enumerate([-1.0, 1.0, *[0.0] * (freedom - 1)])))
        assert values.margin == pytest.approx(quantile * values.sd / (freedom + 1) ** 0.5, rel=1e-3)
    runs = {0: 3.0, 1: 5.0, 2: 4.0, 7: 90.0}, {0: 1.0, 1: 1.0, 2: 1.0}, {0: 1.0}
    layers = dict(zip(("first", "second", "short"), map(page.Sample, runs), strict=True))
    gap = page.difference(layers, "first", "second")
    assert (gap.mean, gap.side) == (3.0, 1)
    assert gap.high - gap.mean == pytest.approx(4.303 / 3**0.5, abs=1e-2)
    assert page.difference(layers, "first", "short") is None
    assert page.difference(layers, "first", "third") is None


def test_what_a_rating_shows_of_itself_reaches_later_ones_alone(study: Any):
    """Its own value is among the columns for its neighbours: changed, its own logits stay as they are."""
    graph = events(30)
    model = sys.modules["order_tasks"].OneLayer
    for layer in ("soft ranks", "mean", "pna", "attention", "paper, max", "hard ranks, random"):
        network = model(13, 8, 2, layer=layer, target_columns=6)
        changed = graph.x.clone()
        changed[10, :7] += 1.0
        with torch.no_grad():
            before, after = network(graph.x, graph.edge_index), network(changed, graph.edge_index)
        moved = (before != after).any(1).nonzero().view(-1).tolist()
        assert moved
        assert set(moved) <= {11, 12, 13}
