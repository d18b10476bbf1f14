"""The results page: right figures, and the same bytes from the same rows."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from result_rows import result_row

from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import Cell
from node2seq.experiments.results_page import FORMATS, build, render
from node2seq.experiments.rows import ResultRow, RowStore
from node2seq.experiments.samples import Effort, Sample, costs_of, efforts_of, makings_of
from node2seq.recipes import RECIPES
from node2seq.reporting.document import to_markdown
from node2seq.search.settings import parse_seeds
from node2seq.storage import JsonLines
from node2seq.train.settings import recipe

ROOT = Path(__file__).parents[2]


def made_up_rows() -> list[ResultRow]:
    draw = random.Random(4)
    return [
        result_row(
            Cell(model, column),
            seed,
            test=round(draw.uniform(0.6, 0.9), 3),
            test_rest=0.7 if column == "cora-f" else None,
            call="first" if seed < 10 else "second",
            jobs=2,
            at=float(seed),
        )
        for model, column in (("gcn", "cora-f"), ("sgc", "cora-f"), ("gcn", "texas"), ("node2seq", "texas"))
        for seed in range(20)
    ]


def changed(row: ResultRow, *, test: float = 0.0, **key: str) -> ResultRow:
    """The row as one of another cell, with ``test`` added to its accuracy."""
    return replace(row, key=row.key._replace(**key), test=row.test + test)


def store_of(rows: list[ResultRow], folder: Path) -> Path:
    store = RowStore(folder)
    for row in rows:
        store.append(row)
    return folder


def test_the_same_rows_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    rows = made_up_rows()
    first = render(store_of(rows, tmp_path / "a"), tmp_path / "docs-a", tuple(FORMATS))
    random.Random(0).shuffle(rows)
    second = render(store_of(rows, tmp_path / "b"), tmp_path / "docs-b", tuple(FORMATS))
    assert [path.name for path in first] == ["results.md", "results.html", "results.tex"]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


@pytest.mark.slow
def test_the_committed_page_is_what_the_committed_rows_give(tmp_path: Path) -> None:
    (path,) = render(ROOT / "results", tmp_path)
    assert path.read_bytes() == (ROOT / "docs/results.md").read_bytes()


def test_a_format_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Node2SeqError, match="pdf"):
        render(tmp_path, tmp_path / "docs", ["pdf"])


def test_figures_stand_beside_the_papers() -> None:
    rows = made_up_rows()
    tests = [100 * row.test for row in rows if row.key.cell == Cell("gcn", "cora-f")]
    mean, sd = statistics.fmean(tests), statistics.stdev(tests)
    text = to_markdown(build(rows))
    difference = f"{mean - 81.6:+.1f}".replace("-", "−")
    assert f"{mean:.1f} ± {sd:.1f} (n = 20)<br>paper 81.6 ± 0.8, {difference}" in text
    assert "–<br>paper 82.7 ± 0.7" in text  # nothing of LGCN yet
    assert "GCN*" not in text.replace(r"GCN\*", "")


def test_without_rows_the_page_shows_the_paper_alone() -> None:
    text = to_markdown(build([]))
    assert "paper 84.0 ± 0.6" in text
    assert "Rendered from 0 rows" in text
    assert "Paired" not in text


def section(text: str, title: str) -> str:
    """What stands under a heading of the page, up to the next one of its kind."""
    return text.split(f"\n## {title}", 1)[1].split("\n## ", 1)[0]


def test_rows_of_other_variants_are_shown_apart() -> None:
    rows = [changed(row, variant="trial") for row in made_up_rows()]
    text = to_markdown(build(rows))
    assert "trial, main" in section(text, "Other runs")
    assert "(n = 20)<br>paper" not in text


def test_plus_stands_beside_the_paper_and_never_in_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    own = recipe({"hidden_channels": 8, "taps": "scalar"}, {})
    monkeypatch.setitem(RECIPES["plus"], "node2seq", {"texas": own})
    paper = [row for row in made_up_rows() if row.key.model == "node2seq"]
    better = [changed(row, variant="plus", test=0.05) for row in paper]
    ablated = [changed(row, study="without few weights per tap", test=-0.01) for row in better]
    text = to_markdown(build([*paper, *better, *ablated]))
    mean = statistics.fmean(100 * row.test for row in paper)
    assert f"{mean:.1f} ±" in section(text, "Table 3: ")
    assert f"{mean + 5:.1f} ±" not in section(text, "Table 3: ")
    assert f"{mean + 5:.1f} ±" in section(text, "Table 3 with options")
    assert f"{mean + 5:.1f} ±" in section(text, "Node2Seq against")
    ablation = section(text, "Table 3 without one of the options")
    assert "with all − without few weights per tap |  |  |  |  | +1.0 (20 pairs)<br>[+1.0, +1.0] |" in (
        ablation.replace("| – ", "|  ")
    )
    assert "without averaged weights" not in ablation
    assert "Other runs" not in text


def test_it_is_said_where_node2seq_stands_to_the_paper() -> None:
    runs = Sample({0: 80.0, 1: 82.0, 2: 81.0, 3: 81.0})  # 81.0, standard error 0.41
    assert [runs.against(mean) for mean in (80.0, 81.0, 81.4, 81.5)] == [
        "at or above",
        "at or above",
        "within one standard error",
        "below",
    ]
    assert Sample({0: 80.96}).against(81.0) == "at or above"  # both are printed as 81.0
    assert Sample({0: 80.9}).against(81.0) == "below"
    text = to_markdown(build(made_up_rows()))
    told = section(text, "Node2Seq against")
    assert told.count("at or above") == 2  # the one column with rows, and the sum
    assert "- paper: at or above in 1, within one standard error in 0, below in 0 of 11" in told
    assert "plus:" not in told
    assert "<br>at or above" not in section(text, "Table 2")  # no rows of Node2Seq there


def test_tables_4_and_5_tell_their_paired_difference() -> None:
    rows = []
    for model, study, more in (
        ("node2seq", "main", 0.02),
        ("node2seq", "local", 0.0),
        ("gcn*", "main", 0.05),
    ):
        for row in made_up_rows()[:20]:
            rows.append(changed(row, model=model, study=study, test=more))
    text = to_markdown(build(rows))
    assert "| with non-local − local | +2.0 (20 pairs)<br>[+2.0, +2.0] | – |" in section(text, "Table 4")
    assert r"| Node2Seq − GCN\* | −3.0 (20 pairs)<br>[−3.0, −3.0] | – |" in section(text, "Table 5")
    assert "####" not in section(text, "Table 5")


def test_retired_rows_are_told() -> None:
    rows = made_up_rows()
    old = with_recipe(rows[:20], "past")
    assert "no row was ever made again" in to_markdown(build(rows))
    assert "| Cora-F | GCN | main | 2 |" in to_markdown(build(rows, old))


def with_recipe(rows: list[ResultRow], row_normalize: str) -> list[ResultRow]:
    """The same rows as if made with another recipe."""
    return [replace(row, recipe={**row.recipe, "row_normalize": row_normalize}) for row in rows]


def test_times_are_counted_by_what_the_rows_say() -> None:
    rows = made_up_rows()
    cell, own = Cell("gcn", "cora-f"), made_up_rows()[:20]
    first, second = with_recipe(own, "first"), with_recipe(own, "second")

    def times(retired: list[ResultRow], current: list[ResultRow] = rows) -> list[int]:
        return [sample.n for sample in makings_of(current, retired)[cell]]

    assert times([]) == [20]
    assert times(first + second) == [20, 20, 20]
    assert times(first + own + second) == [20, 20, 20, 20]  # its recipe went and came back
    assert times(own) == [20, 20]  # made again with the recipe that it had
    assert times(first[:5]) == [5, 20]  # stopped after five seeds
    in_two_calls = [replace(row, call="third" if row.key.seed < 7 else "fourth") for row in first]
    assert times(in_two_calls) == [20, 20]
    assert times(first, current=rows[20:]) == [20]
    means = [sample.mean for sample in makings_of(rows, [replace(row, test=0.5) for row in first])[cell]]
    assert means == [50.0, pytest.approx(100 * statistics.fmean(row.test for row in own))]


def test_a_cell_that_was_dropped_was_not_made_twice() -> None:
    rows = made_up_rows()
    dropped = [changed(row, study="without node dropout") for row in with_recipe(rows[60:], "past")]
    told = section(to_markdown(build(rows, dropped)), "How often")
    assert "Once for every cell: no row was ever made again." in told
    assert "not made again" in told
    assert "- Texas, Node2Seq, without node dropout: once\n" in told
    assert "| Texas |" not in told
    told = section(to_markdown(build(rows, [*dropped, *with_recipe(rows[:20], "past")])), "How often")
    assert "| Cora-F | GCN | main | 2 |" in told
    assert "without node dropout: once" in told


def test_wall_time_is_summed_over_calls() -> None:
    rows = [row for row in made_up_rows() if row.key.model == "sgc"]
    (cost,) = costs_of(rows)
    assert (cost.runs, cost.wall_seconds, cost.training_seconds) == (20, 9.0 + 19.0, 40.0)
    assert cost.together == "1"  # rows of before runs were trained together do not say so
    (cost,) = costs_of([*rows[:10], *(replace(row, together=[3, 4, 5]) for row in rows[10:])])
    assert cost.together == "1, 3"
    took = section(to_markdown(build(made_up_rows())), "What it took")
    assert "| Tables 2 to 6, all models | a device | 2 | 1 | 80 | 1600 | 160 s | 28 s |" in took


def test_pictures_are_well_formed(tmp_path: Path) -> None:
    (path,) = render(store_of(made_up_rows(), tmp_path / "r"), tmp_path / "d", ["html"])
    page = path.read_text()
    pictures = [part.split("</svg>")[0] for part in page.split("<svg")[1:]]
    trees = [ElementTree.fromstring(f"<svg{picture}</svg>") for picture in pictures]
    boxes = [len(tree.findall(".//rect")) for tree in trees]
    assert boxes[:2] == [2, 2]  # the cells of Tables 2 and 3 that have runs
    assert all(boxes)
    assert "http" not in page


def test_a_line_for_each_model_and_variant():
    text = to_markdown(
        build(
            [],
            (),
            {
                Cell("gcn", "cora-r"): Effort(5, 12),
                Cell("gcn", "texas", "plus"): Effort(7, 13),
            },
        )
    )
    assert "|  | Cora-R | Texas |" in text
    assert "| GCN, paper | 5<br>12 |  |" in text
    assert "| GCN, plus |  | 7<br>13 |" in text


@pytest.mark.slow
def test_the_page_shows_the_committed_trials(tmp_path):
    (path,) = render(ROOT / "results", tmp_path)
    page = path.read_text()
    efforts = efforts_of(ROOT / "results" / "trials.jsonl")
    mine = efforts[Cell("node2seq", "cora-r")]
    assert mine.trainings > mine.settings > 1000
    assert f"{mine.settings}<br>{mine.trainings}" in page


def test_a_trial_of_the_table_says_what_was_tried_and_what_came_out():
    lines = JsonLines(ROOT / "results" / "trials.jsonl").refresh().values
    searches = [line for line in lines if "variant" in line]
    trials = [line for line in lines if "variant" not in line]
    assert (len(searches), len(trials)) == (106, 7819)
    assert sum(trial["splits"] for trial in trials) == 70943
    for trial in trials:
        assert trial["splits"] == len(trial["val"]) == len(parse_seeds(trial["seeds"]))
        assert trial["mean"] == pytest.approx(statistics.fmean(trial["val"]), abs=1.1e-4)
