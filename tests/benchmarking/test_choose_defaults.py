"""Defaults are chosen on validation nodes, and each set is measured with what the others choose."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from node2seq import Node2SeqError
from node2seq.data import load
from node2seq.data.encoding import standardize
from node2seq.storage import read_lines

DROPPED = {"dropout": 0.1, "input_dropout": 0.1}
CANDIDATES = {
    "small/fast": {"hidden_channels": 4, "num_layers": 1, "lr": 0.01, "epochs": 6} | DROPPED,
    "small/still": {"hidden_channels": 4, "num_layers": 1, "lr": 1e-9, "epochs": 2, "readout": "mean"}
    | DROPPED,
}


@pytest.fixture
def script(load_script: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with few graphs, candidates and seeds."""
    found = load_script("choose_defaults")
    monkeypatch.setattr(found, "SETS", {"one": "karate", "two": "karate", "three": "karate"})
    monkeypatch.setattr(found, "TWINS", {"one": ("one", "two"), "two": ("one", "two")})
    monkeypatch.setattr(found, "GRAPHS", ("one", "two", "three", "hubs-few"))
    kinds = ("narrow", "homophilous", "few-labels")
    monkeypatch.setattr(found, "CANDIDATES", dict.fromkeys(kinds, CANDIDATES))
    monkeypatch.setattr(found, "SWEEP_SEEDS", (100,))
    monkeypatch.setattr(found, "MEASURE_SEEDS", dict.fromkeys(found.MEASURE_SEEDS, (0, 1)))
    monkeypatch.setattr(found, "SHORT_EPOCHS", (1, 2))
    return found


@pytest.fixture
def command(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Runs a stage and returns all rows."""
    graphs, rows = tmp_path / "graphs.npz", tmp_path / "rows.jsonl"

    def run(stage: str, *arguments: str) -> list[Any]:
        given = [stage, str(graphs), "--rows", str(rows), "--device", "cpu", *arguments]
        monkeypatch.setattr(sys, "argv", ["choose_defaults.py", *given])
        script.main()
        return list(read_lines(rows)) if rows.exists() else []

    return run


def test_graphs_are_packed_as_they_are_trained_on(script: ModuleType, command: Callable, tmp_path: Path):
    command("pack")
    found = dict(script.unpacked(tmp_path / "graphs.npz"))
    assert list(found) == ["one", "two", "three", "hubs-few"]
    karate = load("karate")
    assert karate.x is not None
    assert karate.edge_index is not None
    assert isinstance(karate.y, torch.Tensor)
    assert torch.equal(found["one"].x, torch.from_numpy(standardize(karate.x.numpy())))
    assert torch.equal(found["one"].edge_index, karate.edge_index)
    assert torch.equal(found["one"].y, karate.y)
    few, hubs = script.split_of("hubs-few", found["hubs-few"], 0), found["hubs-few"].y
    assert torch.bincount(hubs[few.train]).tolist() == [script.FEW_LABELS] * (int(hubs.max()) + 1)


@pytest.mark.slow
def test_from_graphs_to_the_page(script: ModuleType, command: Callable, tmp_path: Path):
    command("pack")
    rows = command("sweep")
    assert len(rows) == 4 * len(CANDIDATES)
    assert {row["graph"] for row in rows} == set(script.GRAPHS)
    assert all("cross_fitted" in row and "test" not in row for row in rows), "the sweep measured test nodes"
    assert len(command("sweep")) == len(rows), "a run that has a row was trained again"

    swept = len(rows)
    rows = command("labels", "--only", "hubs-few")
    assert {row["labels"] for row in rows[swept:]} == set(script.BOUNDARY["labels"])
    assert {row["model"] for row in rows[swept:]} == {"residual-node2seq", "gcn"}
    assert all("test" not in row for row in rows), "a boundary was sought on test nodes"

    known = len(rows)
    rows = command("short", "--only", "three")
    short = [row for row in rows[known:] if row["model"] == "residual-node2seq"]
    assert {row["epochs"] for row in short} == set(script.SHORT_EPOCHS)
    assert {row["recipe"]["settings"]["lr"] for row in short if "lr" in row["candidate"]} == {0.005, 0.01}
    assert all("test" not in row for row in rows), "few epochs were measured on test nodes"

    rows = command("measure", "--only", "three")[len(rows) :]
    models = {*(f"residual-{layer}" for layer in script.LAYERS), "gcn"}
    assert {(row["model"], row["seed"]) for row in rows} == {(m, seed) for m in models for seed in (0, 1)}
    assert {row["graph"] for row in rows} == {"three"}
    assert all(0 <= row["test"] <= 1 and row["stage"] == "measure" for row in rows)
    plain = next(row for row in rows if row["model"] == "residual-gcn")
    assert "readout" not in plain["recipe"]["options"]

    page = tmp_path / "page.md"
    page.write_text(f"# Defaults\n\nText.\n\n{script.HEADING}\n\nOld.\n")
    command("choose", "--page", str(page))
    before, after = page.read_text().split(script.HEADING)
    assert before == "# Defaults\n\nText.\n\n"
    assert "Old." not in after
    lines = [line for line in after.splitlines() if line.startswith(("| one |", "| two |", "| three |"))]
    assert [line.split(" | ")[0] for line in lines] == ["| three"] * 2, "a set without rows has a line"
    figures = [
        np.mean([row["validation"] for row in short if (row["candidate"], row["epochs"]) == ("as it is", n)])
        for n in script.SHORT_EPOCHS
    ]
    assert " · ".join(f"{100 * figure:.1f}" for figure in figures) in lines[1]
    own = [row["test"] for row in rows if row["model"] == "residual-node2seq"]
    assert f"{100 * np.mean(own):.1f} ± {100 * np.std(own, ddof=1):.1f}" in lines[0]


def test_later_graphs_are_swept_with_the_leading_candidates(
    script: ModuleType, command: Callable, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(script, "GRAPHS", ("one", "hubs-small"))
    monkeypatch.setattr(script, "LATER", ("hubs-small",))
    monkeypatch.setattr(script, "LEADING", 1)
    command("pack")
    command("sweep", "--only", "one")
    rows = command("sweep", "--only", "hubs-small")
    later = [row["candidate"] for row in rows if row["graph"] == "hubs-small"]
    scores = {row["candidate"]: row["cross_fitted"] for row in rows if row["graph"] == "one"}
    assert later == [max(scores, key=scores.__getitem__)]


def test_where_finalists_have_more_splits_they_alone_are_compared(
    script: ModuleType, command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(script, "FINALISTS", dict.fromkeys(script.CANDIDATES, ("small/still",)))
    monkeypatch.setattr(script, "FINAL_SEEDS", (100, 101))
    command("pack")
    swept = command("sweep", "--only", "three")
    assert {row["candidate"]: row["cross_fitted"] for row in swept}.keys() == CANDIDATES.keys()
    (added,) = command("finals", "--only", "three")[len(swept) :]
    assert (added["candidate"], added["seed"], added["stage"]) == ("small/still", 101, script.SWEEP)
    rows = script.Rows(tmp_path / "rows.jsonl", torch.device("cpu"), None)
    assert script.shortfalls(rows, added["kind"]) == {"small/still": 0.0}
    assert "test" not in added


def test_a_graph_and_its_twin_have_no_say_in_what_they_are_measured_with(script: ModuleType, tmp_path: Path):
    rows = script.Rows(tmp_path / "rows.jsonl", torch.device("cpu"), None)
    for graph, fast, still, nodes in (
        ("one", 0.9, 0.5, 9),
        ("two", 0.9, 0.5, 9),
        ("three", 0.5, 0.75, 10**6),
    ):
        for candidate, value in (("small/fast", fast), ("small/still", still)):
            row = {
                "stage": script.SWEEP,
                "graph": graph,
                "candidate": candidate,
                "kind": "narrow",
                "seed": 100,
            }
            rows.add(row | {"validation_nodes": nodes, "cross_fitted": value, "validation": 1.0})
    # In standard errors: of nine nodes √(0.9 · 0.1 / 9) = 0.1, of a million nodes the least, 0.0025.
    assert script.shortfalls(rows, "narrow") == pytest.approx({"small/still": 8 / 3, "small/fast": 100 / 3})
    assert script.chosen(rows, "narrow", script.TWINS["one"]) == "small/still"
    assert script.chosen(rows, "narrow", ("three",)) == "small/fast"


def test_sets_that_hold_copies_have_no_say(script: ModuleType, tmp_path: Path):
    rows = script.Rows(tmp_path / "rows.jsonl", torch.device("cpu"), None)
    about = {"stage": script.SWEEP, "kind": "wide", "seed": 100, "validation_nodes": 100}
    for graph, own in (("squirrel", (0.9, 0.1)), ("squirrel-unique", (0.4, 0.5))):
        for candidate, value in zip(CANDIDATES, own, strict=True):
            rows.add({**about, "graph": graph, "candidate": candidate, "cross_fitted": value})
    script.CANDIDATES["wide"] = CANDIDATES
    assert script.chosen(rows, "wide") == "small/still"


def test_nothing_is_measured_before_the_sweep(script: ModuleType, command: Callable):
    command("pack")
    with pytest.raises(Node2SeqError, match="no row says what is best on"):
        command("measure", "--only", "three")


def test_what_a_linear_part_adds_is_shown(script: ModuleType, tmp_path: Path):
    rows = script.Rows(tmp_path / "rows.jsonl", torch.device("cpu"), None)
    models = {f"residual-{layer}": 0.7 for layer in script.LAYERS} | {"residual-node2seq": 0.75, "gcn": 0.6}
    for seed, (model, test) in itertools.product((0, 1), models.items()):
        known = {"stage": "measure", "graph": "one", "candidate": "small/still", "seed": seed, "seconds": 1.0}
        linear = {} if model == "gcn" else {**script.LINEAR, "test_alone": test - 0.04 - 0.02 * seed}
        rows.add({**known, "model": model, "test": test, **linear})
        rows.add({**known, "model": model, "test": 0.1, **({"linear_hops": 9} if model == "gcn" else {})})
    for candidate, value in zip(CANDIDATES, (0.1, 0.9), strict=True):
        about = {
            "stage": script.SWEEP,
            "graph": "three",
            "candidate": candidate,
            "kind": "narrow",
            "seed": 100,
        }
        rows.add({**about, "validation_nodes": 50, "cross_fitted": value})
        rows.add({**about, "graph": "one", "validation_nodes": 50, "cross_fitted": value})
    figures = script.Figures.of(rows, "one")
    assert figures.is_complete(), "rows of before the linear part count"
    assert figures.gap(None) == pytest.approx((5.0, 1.0))
    assert figures.gap("gcn") == pytest.approx((15.0, 0.0))
    assert figures.cells()[6:9] == ["+5.0 ± 1.0", "+15.0 ± 0.0", "+5.0 ± 0.0"]


def test_short_trainings_with_normalised_sums_take_the_place_of_earlier_ones(
    script: ModuleType, tmp_path: Path
):
    rows = script.Rows(tmp_path / "rows.jsonl", torch.device("cpu"), None)
    for graph, sums in (("one", {}), ("two", {}), ("two", {"normalized_sum": True})):
        for way in (*script._FASTER, "default"):
            model = "gcn" if way == "default" else "residual-node2seq"
            if way == "default" and sums:
                continue  # a plain GCN is the same
            for epochs in script.SHORT_EPOCHS:
                key = {"stage": script.SHORT, "graph": graph, "candidate": way, "epochs": epochs}
                rows.add(
                    {
                        **key,
                        "model": model,
                        **({} if way == "default" else sums),
                        "validation": 0.5 + 0.4 * bool(sums),
                    }
                )
    for row in [row for row in rows.known if row["graph"] == "one"]:  # as another kind, before
        rows.known.insert(0, {**row, "kind": "wide", "validation": 0.1})
    text = script.short_lines(rows)
    for name, figure in (("one", "50.0"), ("two, summed", "90.0"), ("mean", "70.0")):
        ways = [f"{figure} · {figure}"] * len(script._FASTER)
        assert f"| {name} | {' | '.join(ways)} | 50.0 · 50.0 |" in text
