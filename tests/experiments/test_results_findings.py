"""The page opens with what its rows say, and other rows make it say something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_rows import result_row

from node2seq.experiments.paper import TABLES, Cell, cell_of
from node2seq.experiments.results_page import build
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.experiments.samples import Effort
from node2seq.reporting.document import to_markdown

ROOT = Path(__file__).parents[2]


def rows_of(means: Mapping[Cell, float], spread: float = 0.0) -> list[ResultRow]:
    """Ten rows of each cell around its mean in percent; ``spread`` alternates, and not alike in all cells."""
    return [
        result_row(cell, seed, test=(mean + spread * (-1) ** (seed // (1 + place % 3))) / 100)
        for place, (cell, mean) in enumerate(means.items())
        for seed in range(10)
    ]


def line_of(table: str, label: str, column: str) -> Cell:
    cell = cell_of(next(line for line in TABLES[table].lines if line.label == label), column)
    assert cell is not None
    return cell


def opening(rows: list[ResultRow], *rest: Any) -> str:
    text = to_markdown(build(rows, *rest))
    title, first, *_ = text.split("\n## ")
    assert title.startswith("# Results\n")
    assert first.startswith("What the rows say\n")
    return first


#: Two models of a column, without which there is nothing to open with.
TWO = {Cell("gcn", "texas"): 60.0, Cell("node2seq", "texas"): 61.0}


def test_without_two_models_of_a_column_nothing_is_said() -> None:
    for rows in ([], rows_of({Cell("gcn", "texas"): 60.0}), rows_of({Cell("node2seq", "texas"): 60.0})):
        assert "What the rows say" not in to_markdown(build(rows))


def test_ranks_and_what_they_come_to() -> None:
    means = {
        Cell("gcn", "texas"): 60.0,
        Cell("sgc", "texas"): 63.0,
        Cell("node2seq", "texas"): 61.0,
        Cell("gcn", "wisconsin"): 50.0,
        Cell("node2seq", "wisconsin"): 54.0,
    }
    text = opening(rows_of(means))
    assert "|  | Texas | Wisconsin |" in text
    assert "| rank of Node2Seq, paper | 2 of 3 | 1 of 2 |" in text
    assert "| SGC<br>−2.0<br>[−2.0, −2.0] | GCN<br>+4.0<br>[+4.0, +4.0] |" in text
    # The paper prints more for GCN than for Node2Seq on Wisconsin.
    assert "is first in 1 of 2 columns; by the paper's own figures, in 1. Its interval" in text
    assert "lies above zero in 1, below it in 1, and holds it in 0." in text
    assert "With the options of plus" not in text
    text = opening(rows_of({**means, Cell("node2seq", "texas"): 63.5}, spread=2.0))
    assert "| rank of Node2Seq, paper | 1 of 3 | 1 of 2 |" in text
    assert "is first in 2 of 2 columns" in text
    assert "lies above zero in 1, below it in 0, and holds it in 1." in text


def test_plus_stands_beside_an_mlp_and_baselines_that_it_may_harm() -> None:
    means = {Cell(model, "texas", "plus"): mean for model, mean in (("gcn", 59.0), ("node2seq", 85.0))}
    text = opening(rows_of({**TWO, **means}))
    assert "With the options of plus it is first in 1 of 1 columns." in text
    assert "1 of 1 have a lower mean with them than without." in text
    assert "MLP" not in text
    means |= {Cell("mlp", "texas", "plus"): 86.0, Cell("gcn", "texas", "plus"): 60.0}
    text = opening(rows_of({**TWO, **means}))
    assert "| rank of Node2Seq, plus | 2 of 3 |" in text
    assert "On Texas that other is the MLP, which sees no neighbours." in text
    assert "0 of 1 have a lower mean with them than without." in text


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        ((0.0, 0.0, 0.0), "No difference from non-local neighbours (Table 4): all 3 intervals hold zero."),
        (
            (0.0, 0.5, 0.0),
            "No consistent difference from non-local neighbours (Table 4): of 3 intervals, 2 hold zero and 1 "
            "lies above zero (Chameleon +0.5 [+0.5, +0.5]).",
        ),
        (
            (-0.4, 0.5, 0.5),
            "No consistent difference from non-local neighbours (Table 4): of 3 intervals, 2 lie above zero "
            "(Chameleon +0.5 [+0.5, +0.5]; Texas +0.5 [+0.5, +0.5]) and 1 lies below zero (Citeseer-F −0.4 "
            "[−0.4, −0.4]).",
        ),
        (
            (0.5, 0.0, 0.5),
            "A consistent gain from non-local neighbours (Table 4): of 3 intervals, 1 holds zero and 2 lie "
            "above zero (Citeseer-F +0.5 [+0.5, +0.5]; Texas +0.5 [+0.5, +0.5]).",
        ),
        (
            (-0.5, 0.0, -0.5),
            "A consistent loss from non-local neighbours (Table 4): of 3 intervals, 1 holds zero and 2 lie "
            "below zero (Citeseer-F −0.5 [−0.5, −0.5]; Texas −0.5 [−0.5, −0.5]).",
        ),
    ],
)
def test_the_sentence_about_non_local_neighbours_is_chosen_by_its_intervals(differences, said) -> None:
    means = dict(TWO)
    for column, difference in zip(("citeseer-f", "chameleon", "texas"), differences, strict=True):
        means[Cell("node2seq", column)] = 61.0
        means[Cell("node2seq", column, study="local")] = 61.0 - difference
    assert f"- {said}\n" in opening(rows_of(means))


def test_the_sentence_about_the_order_is_chosen_by_its_intervals() -> None:
    def told(degree: float, random: float) -> str:
        cells = [line_of("order", label, "squirrel") for label in ("by attention", "by degree", "at random")]
        means = zip(cells, (60.0, 60.0 - degree, 60.0 - random), strict=True)
        return opening(rows_of({**TWO, **dict(means)}))

    subject = "from sorting neighbours by attention rather than by degree or at random"
    assert f"- No difference {subject}: all 2 intervals hold zero. In 1 of 1 columns" in told(0.0, 0.0)
    assert (
        f"- A consistent gain {subject}: of 2 intervals, 2 lie above zero (Squirrel, by attention − by"
        in (told(1.0, 2.0))
    )
    assert f"- No consistent difference {subject}: of 2" in told(1.0, -2.0)
    assert "sorting neighbours" not in opening(rows_of(TWO))


def test_the_sentence_about_kernels_subtracts_the_shorter_one() -> None:
    def told(more: float) -> str:
        cells = [line_of("6", f"k = {k}", "squirrel") for k in (3, 5, 8)]
        means = zip(cells, (60.0, 60.0 + more, 60.0 + 2 * more), strict=True)
        return opening(rows_of({**TWO, **dict(means)}))

    assert "- No difference from a longer kernel (Table 6): all 3 intervals hold zero.\n" in told(0.0)
    assert "- A consistent gain from a longer kernel (Table 6): of 3 intervals, 3 lie above zero" in told(0.5)
    assert "k = 8 − k = 3 +1.0 [+1.0, +1.0]" in told(0.5)
    assert "- A consistent loss from a longer kernel" in told(-0.5)


def test_a_gain_over_a_weak_network_is_called_so() -> None:
    means = {Cell("node2seq", "cora-r"): 82.0, Cell("gcn*", "cora-r"): 79.0, Cell("gcn", "cora-r"): 80.0}
    text = opening(rows_of(means))
    assert "- A consistent gain from the layer in place of a GCN layer (Table 5): of 1 intervals, 1" in text
    assert "the network with the GCN layer is itself below the plain GCN in 1 of 1." in text
    text = opening(rows_of({**means, Cell("gcn", "cora-r"): 78.0}))
    assert "- A consistent gain from the layer" in text
    assert "itself below" not in text
    assert "- A consistent loss from the layer" in opening(rows_of({**means, Cell("gcn*", "cora-r"): 83.0}))


def test_where_plus_gains_is_told_from_what_its_options_are_worth() -> None:
    def told(views: tuple[float, float], labels: float) -> str:
        means = dict(TWO)
        for column, gain in zip(("cora-r", "citeseer-f"), views, strict=True):
            means[Cell("node2seq", column, "plus")] = 80.0
            means[Cell("node2seq", column, "plus", "without consistent views")] = 80.0 - gain
            means[Cell("node2seq", column, "plus", "without smoothed labels")] = 80.0 - labels
        text = opening(rows_of(means))
        return next(line for line in text.splitlines() if line.startswith("- Taken out one at a time"))

    assert told((1.0, 2.5), 0.0) == (
        "- Taken out one at a time, the options of plus that help wherever used are consistent views (2 "
        "columns, +1.0 to +2.5). Of the 2 intervals of the other options, 0 lie above zero and 0 below."
    )
    assert told((1.0, 0.0), -0.3) == (
        "- Taken out one at a time, no option of plus helps wherever it is used. Of the 4 "
        "intervals of the options, 1 lie above zero (by +1.0 at most) and 2 below."
    )
    assert "consistent views (2 columns, +1.0 to +2.5) and smoothed labels (2 columns, +0.3" in (
        told((1.0, 2.5), 0.3)
    )


def test_reuse_of_labels_is_told_of_random_splits_alone() -> None:
    fixed = {Cell("gcn", "cora-f"): 81.0, Cell("node2seq", "cora-f"): 82.0}
    text = opening(rows_of(fixed))
    assert "lent their labels" not in text
    assert "- On the fixed splits (Cora-F) no search used a test label.\n" in text
    text = opening(rows_of({**fixed, **TWO}))
    assert "- Settings for the 1 columns with random splits were searched on other splits of the same" in text
    assert "so test nodes of seeds 0–9 lent their labels to the choice." in text
    assert "On the fixed splits (Cora-F) no search" in text
    assert "fixed splits" not in opening(rows_of(TWO))


def test_budgets_are_told_where_trials_are_kept() -> None:
    efforts = {
        Cell("node2seq", "texas"): Effort(500, 900),
        Cell("node2seq", "cora-r"): Effort(40, 90),
        Cell("node2seq", "texas", "plus"): Effort(7000, 9000),
        Cell("gcn", "texas"): Effort(12, 90),
    }
    said = "40 to 500 settings a column for Node2Seq, 12 to 12 for a baseline"
    assert said in opening(rows_of(TWO), (), efforts)
    assert "The searches are" not in opening(rows_of(TWO))
    equal = dict.fromkeys(efforts, Effort(64, 128))
    assert "- The searches are of equal size: 64 settings for each model and column.\n" in (
        opening(rows_of(TWO), (), equal)
    )


def test_it_is_told_which_cells_were_searched_again() -> None:
    texas, actor = Cell("node2seq", "texas"), Cell("node2seq", "actor")  # the paper prints 63.7 and 31.4
    rows = rows_of({Cell("gcn", "texas"): 60.0, texas: 66.0, actor: 33.0})

    def past(means: Mapping[Cell, float], recipe: str = "past") -> list[ResultRow]:
        old = rows_of(means)
        return [replace(row, recipe={**row.recipe, "row_normalize": recipe}) for row in old]

    assert "- The test rows of every cell were made once.\n" in opening(rows)
    text = opening(rows, [*past({texas: 60.0}), *past({texas: 65.0}, "later")])
    assert "the rows of 1 of 3 cells were made more than once, up to 3 times." in text
    assert (
        "Cells that fell short were searched again: of Node2Seq's 2 cells (paper), 1 of the 1 that fell "
        "short of the paper at first were given new settings, and 0 of the 1 others." in text
    )
    text = opening(rows, past({texas: 60.0, actor: 32.0}))  # a cell that did not fall short was, too
    assert "Cells that fell short were searched again" not in text
    assert "Of Node2Seq's 2 cells (paper), 1 of the 1 that fell short of the paper at first were" in text
    text = opening(rows, past({texas: 65.0}))
    assert "the rows of 1 of 3 cells were made more than once, up to 2 times." in text
    assert "fell short" not in text


@pytest.mark.slow
def test_the_committed_rows_say_what_was_found() -> None:
    """Rows that change this change what the README says of the layer too."""
    store = RowStore(ROOT / "results")
    text = opening(list(store.rows.values()), store.retired())
    assert "first in 6 of 11 columns; by the paper's own figures, in 10." in text
    assert "No consistent difference from sorting neighbours by attention" in text
    assert "No consistent difference from non-local neighbours" in text
    assert "No difference from a longer kernel" in text
    assert "own features apart (4 columns" in text
    assert "consistent views (4 columns" in text
    assert "Cells that fell short were searched again" in text
