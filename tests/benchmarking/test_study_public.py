"""Real graphs of package indexes, made of small files of the same form, and the table of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import public_graphs
import pytest
import study_public
import torch
from script import Rows

PACKAGES = """Package: one
Version: 1:2.0
Architecture: all
Installed-Size: 7
Size: 3
Section: contrib/games
Depends: two (>= 1) | three, four:any
Tag: role::program,
 use::playing
Description: a game of Words

Package: two
Version: 1
Architecture: amd64
Size: 5
Section: libs
Description: words

Package: three
Version: 1
Architecture: amd64
Size: 5
Section: games
Recommends: one
Description: another game
"""
VERBS = """  1 a line of the licence
00000001 29 v 01 breathe 0 002 @ 00000002 v 0000 + 00000002 n 0101 01 + 02 00 | draw air into the lungs
00000002 30 v 02 act 0 do 0 001 ~ 00000001 v 0000 | perform an action, or air it
"""


@pytest.fixture(autouse=True)
def small_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_graphs, "_SMALLEST_CLASS", 1)


def test_packages(tmp_path: Path) -> None:
    path = tmp_path / "Packages"
    path.write_text(PACKAGES)
    index = public_graphs._Packages(path)
    by_words = index.sections(3, seed=0, words=2)
    assert by_words.edge_index is not None
    assert isinstance(by_words.x, torch.Tensor)
    # Of alternatives the first counts; four is no package of the index.
    assert sorted(by_words.edge_index.T.tolist()) == [[0, 1], [0, 2], [1, 0], [2, 0]]
    assert isinstance(by_words.y, torch.Tensor)
    assert by_words.y.tolist() == [0, 1, 0]  # two games, one of which is no part of main
    assert by_words.x.tolist() == [[1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]  # game, words
    assert index.architectures(3, seed=0).y.tolist() == [0, 1, 1]  # pyright: ignore
    assert index.programs(3, seed=0).y.tolist() == [1, -1, -1]  # pyright: ignore


def test_synsets(tmp_path: Path) -> None:
    path = tmp_path / "data.verb"
    path.write_text(VERBS)
    data = public_graphs._synsets(path)
    assert data.edge_index is not None
    assert isinstance(data.x, torch.Tensor)
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]  # the noun is no verb
    assert isinstance(data.y, torch.Tensor)
    assert data.y.tolist() == [0, 1]
    assert int((data.x.sum(0) == 2).sum()) == 1  # "air" alone stands in both


def _row(graph: str, model: str, seed: int, test: float) -> dict[str, Any]:
    facts = {"nodes": 1000, "edges": 2000, "features": 3, "classes": 2, "kind": "narrow"}
    return (
        {"graph": graph, "model": model, "seed": seed, "test": test, "metric": "accuracy", "seconds": 1.0}
        | facts
        | {"largest_class": 0.5}
    )


def test_the_table_compares_pairs_of_the_same_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_public, "SEEDS", (310, 311))
    rows = Rows(tmp_path / "rows.jsonl", torch.device("cpu"), None)
    for graph, ours in (("first", 0.9), ("second", 0.6), ("third", 0.1)):
        for seed in (309, 310, 311):
            for model in study_public.MODELS:
                is_ours = model == "residual-node2seq"
                test = (ours if is_ours else 0.7) - 0.02 * (seed - 310)
                if graph != "third" or is_ours:  # a graph that is not measured whole
                    rows.add(_row(graph, model, seed, 0.0 if seed == 309 else test))
    text = "\n".join(study_public.lines(rows))
    assert "more than a standard error on 1 of 2 sets" in text
    assert "| first | 1,000 | 2,000 | 3 | 2 | narrow | 50.0 | 89.0 ± 1.4 |" in text
    assert "+20.0 ± 0.0 | +20.0 ± 0.0 | 1.00 |" in text
    assert "-10.0 ± 0.0 | -10.0 ± 0.0 | 1.00 |" in text
    assert "third" not in text
