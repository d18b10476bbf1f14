"""The page says what its rows say, and the committed one is rendered from the committed rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from node2seq.experiments.declaration import PROTOCOL
from node2seq.experiments.evidence import Evidence, conclusions, study_sentences
from node2seq.experiments.evidence_page import FOREST, PAGE, build, forest, render
from node2seq.experiments.paper import PRINTED, Key
from node2seq.experiments.rows import RUNS, ResultRow, RowStore, SearchStore, recipe_to_json
from node2seq.reporting.document import to_markdown
from node2seq.train.settings import Recipe

ROOT = Path(__file__).parents[2]
SEEDS = (1000, 1001, 1002, 1003)


def rows(
    model: str, variant: str, column: str, mean: float, study: str = "main", **values: Any
) -> list[ResultRow]:
    """Runs around a mean, in percent, with the same ups and downs for every line."""
    return [
        ResultRow(
            key=Key(model, column, variant, study, seed),
            val=0.5,
            test=(mean + (-1) ** seed + 0.001 * (seed % 3) * (len(model) + len(study))) / 100,
            test_nodes=100,
            epoch=1,
            epochs=2,
            recipe=recipe_to_json(Recipe()),
            seconds=1.0,
            device="a device",
            versions={},
            commit=None,
            call="one",
            jobs=1,
            at=1.0,
            **values,
        )
        for seed in SEEDS
    ]


def two_columns() -> list[ResultRow]:
    """Node2Seq is first on Texas and behind GCN on Actor and Cornell; the MLP is behind on Texas alone."""
    found = []
    for column, ours in (("texas", 80.0), ("actor", 30.0), ("cornell", 40.0)):
        found += rows("node2seq", "paper", column, ours)
        found += rows("gcn", "paper", column, 60.0 if column == "texas" else 50.0)
        found += rows("mlp", "paper", column, 70.0)
        found += rows("largest class", "none", column, 20.0)
    return found


def test_conclusions_are_chosen_by_the_rows():
    told = "\n".join(conclusions(Evidence(PROTOCOL, two_columns())))
    assert "it is first in 1 of 2 columns that count" in told  # Cornell does not
    assert "within its interval of the first in 1; it is behind on Actor." in told
    assert (
        "1 is above zero (Texas, Node2Seq − MLP: +10.0) and 1 is below zero (Actor, Node2Seq − MLP: −40.0)"
        in told
    )
    assert "No network that reads edges is above the MLP, which sees none, on Actor, Cornell." in told
    assert "Every line is above the share of the largest class in every column." in told
    assert PRINTED["texas"].mean <= 80.0
    assert "of 10 columns that count: 1 as Node2Seq;" in told
    assert "On Cornell, which is not counted, it is reached by none." in told


def test_a_line_that_is_no_better_than_the_largest_class_is_named():
    found = [*two_columns(), *rows("gat", "paper", "texas", 20.0)]
    told = "\n".join(conclusions(Evidence(PROTOCOL, found)))
    assert "Not above the share of the largest class: GAT on Texas." in told


def test_studies_say_what_they_support():
    studies = {study.label: study.name for study in PROTOCOL.studies if study.table == "non-local"}
    found = rows("node2seq", "paper", "texas", 60.0, studies["ℓ = 1"])
    found += rows("node2seq", "paper", "texas", 70.0, studies["ℓ = 2, β = 0"], swapped=0.4)
    found += rows("node2seq", "paper", "texas", 60.0, studies["ℓ = 2, β = 1e+06"], swapped=1.0)
    first, second = study_sentences(Evidence(PROTOCOL, found), "non-local")
    assert first.startswith("A consistent gain from non-local neighbours: of 2 comparisons, 1 is above zero")
    assert second.startswith("In 1 of 2 cells the threshold selects")
    page = to_markdown(build(Evidence(PROTOCOL, found), SearchStore("nowhere"), []))
    assert "40 % non-local" in page


def test_a_page_without_rows_says_so():
    page = to_markdown(build(Evidence(PROTOCOL, []), SearchStore("nowhere"), []))
    assert "There are no rows yet." in page
    assert forest(Evidence(PROTOCOL, [])) == ""


def test_the_page_has_ranks_a_forest_and_what_was_earlier(tmp_path):
    earlier = rows("gcn", "paper", "texas", 61.0)
    evidence = Evidence(PROTOCOL, two_columns(), earlier)
    page = to_markdown(build(evidence, SearchStore(tmp_path), [], forest(evidence)))
    assert "| 3 | 3 | 1 |  |" in page  # Actor, Cornell, Texas; Wisconsin has no rows
    assert "earlier 61.0" in page
    assert f"]({FOREST})" in page
    assert "<svg" in forest(evidence)


def test_the_committed_page_is_that_of_the_committed_rows(tmp_path):
    folder = ROOT / "results/protocol"
    if not (folder / RUNS).exists():
        pytest.skip("the protocol has no rows yet")
    render(PROTOCOL, folder, ROOT / "results", tmp_path)
    for name in (PAGE, FOREST):
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / name).read_bytes()
    assert RowStore(folder).rows


def test_the_page_says_what_is_not_measured_yet():
    told = conclusions(Evidence(PROTOCOL, two_columns()))[-1]
    assert told.startswith("Not measured yet, so the protocol is not finished: ")
    studied = sum(len(study.columns) for study in PROTOCOL.studies if study.table == "kernel")
    assert f"{20 * studied:,} rows of the studies (kernel)" in told
    assert conclusions(Evidence(PROTOCOL, [])) == []
