"""What the searches took, counted from the trials that they left."""

from __future__ import annotations

from pathlib import Path

from node2seq.experiments.render import render
from node2seq.experiments.searches import Effort, Searched, efforts_of, search_blocks
from node2seq.reporting.document import to_markdown
from node2seq.runs.folder import Source
from node2seq.search.halving import Halving
from node2seq.search.session import Request, run


def search(folder: Path, round_: str, trials: int) -> None:
    plan = Halving(trials=trials, seeds=(100, 101), final_seeds=(200,), generations=0, finalists=1, shapes=1)
    run(
        Request(
            source=Source(name="karate"),
            model="gcn",
            out=folder / f"paper_gcn_karate-{round_}.jsonl",
            fix=("epochs=2", "hidden_channels=4"),
            plan=plan,
            device="cpu",
        ),
        say=lambda _: None,
    )


def test_counts_settings_and_trainings_of_all_rounds(tmp_path):
    search(tmp_path, "first", trials=3)  # 3 on two splits, the best on a third
    search(tmp_path, "second", trials=2)
    assert efforts_of(tmp_path) == {Searched("paper", "gcn", "karate"): Effort(5, 12)}


def test_a_line_for_each_model_and_variant():
    text = to_markdown(
        search_blocks(
            {
                Searched("paper", "gcn", "cora-r"): Effort(5, 12),
                Searched("plus", "gcn", "texas"): Effort(7, 13),
            }
        )
    )
    assert "|  | Cora-R | Texas |" in text
    assert "| GCN, paper | 5<br>12 |  |" in text
    assert "| GCN, plus |  | 7<br>13 |" in text


def test_the_page_shows_the_committed_trials(tmp_path):
    results = Path(__file__).parents[2] / "results"
    paths = render(results, tmp_path)
    page = next(path for path in paths if path.suffix == ".md").read_text()
    efforts = efforts_of(results / "search")
    mine = efforts[Searched("paper", "node2seq", "cora-r")]
    assert mine.trainings > mine.settings > 1000
    assert f"{mine.settings}<br>{mine.trainings}" in page
