from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from node2seq.reporting.run import _confusion, _confusions, _details, _short, render, write_report
from node2seq.runs.folder import RunConfig, RunFolder, Source
from node2seq.runs.training import train_run
from node2seq.train.measured import ClassMetrics, Metrics
from node2seq.train.settings import TrainSettings

CONFIG = RunConfig(Source(name="karate"), options={"hidden_channels": 4}, settings=TrainSettings(epochs=8))
VOID = {"meta", "line", "circle", "polyline", "br"}


class Checker(HTMLParser):
    """Notes tags that are not closed, and everything that could reach out of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object", "a", "base"):
            self.outside.append(tag)
        self.outside += [name for name, _ in attrs if name in ("src", "href") or name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


def check(page: str) -> None:
    checker = Checker()
    checker.feed(page)
    assert checker.faults == []
    assert checker.open == []
    assert checker.outside == []
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "karate"
    train_run(CONFIG, path)
    train_run(replace(CONFIG, model="gcn", options={"hidden_channels": 4}), path / "baseline-gcn")
    return path


def test_a_page_that_stands_alone(run: Path):
    page = write_report(RunFolder(run)).read_text()
    check(page)
    for text in (
        "node2seq on karate",
        "Learning curves",
        "Comparison on the same split",
        "Metrics by class",
        "Confusion matrix",
        "kernel_size",
        "weight_decay",
        "60/20/20",
        "torch_geometric",
        "prefers-color-scheme: dark",
    ):
        assert text in page
    # Two learning curves, three taps, the classes by place, how the order settles, accuracy by degree and by
    # class, calibration.
    assert page.count("<svg") == 10
    assert page.count("<polyline") == 4 + 2 + 2


def test_the_report_shows_the_order_of_the_neighbours(run: Path):
    folder = RunFolder(run)
    page = render(folder)
    for title in (
        "Learned matrices",
        "How often the neighbour at each place has the node&#x27;s class",
        "How the order settles",
        "Neighbours in their order",
        "Accuracy by degree (test nodes)",
        "Accuracy by class (test nodes)",
        "Share of right predictions by their probability",
    ):
        assert title in page, title
    assert "Non-local nodes at each place" not in page  # one hop
    for example in folder.details["examples"]:
        assert f"{example['name']}<br>class {example['class']}" in page
    folder.details = {}  # as in folders of earlier versions
    assert "Learned matrices" not in render(folder)


def test_the_report_of_a_baseline_has_no_order(run: Path):
    page = render(RunFolder(run / "baseline-gcn"))
    assert "Accuracy by degree" in page
    assert "Learned matrices" not in page
    assert "Neighbours in their order" not in page


@pytest.mark.slow
def test_non_local_nodes_and_several_layers_are_shown(tmp_path: Path):
    options = {"hidden_channels": 4, "num_layers": 3, "readout": "ranks", "hops": 2, "threshold": 0.05}
    train_run(replace(CONFIG, model="residual-node2seq", options=options), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    page = render(folder)
    check(page)
    assert len(folder.details["layers"]) == 3
    assert page.count("Learned matrices, layer") == 3
    assert page.count("Non-local nodes at each place, layer") == 2  # the first and the last
    assert "· non-local" in page


@pytest.mark.slow
def test_layers_beside_others_are_called_by_what_they_add(tmp_path: Path):
    ranks = {"hidden_channels": 4, "num_layers": 2, "readout": "ranks", "neighbour_max": True}
    mean = {"hidden_channels": 4, "num_layers": 1, "readout": "mean", "kernel_size": 1}
    pages = []
    for name, options in (("ranks", ranks), ("mean", mean)):
        train_run(replace(CONFIG, model="residual-node2seq", options=options), tmp_path / name)
        pages.append(render(RunFolder(tmp_path / name)))
        check(pages[-1])
    with_ranks, with_mean = pages
    for title in ("layer 1", "layer 1, largest", "layer 2", "layer 2, largest"):
        assert f">Learned matrices, {title}<" in with_ranks
    assert "the node&#x27;s class, layer 2<" in with_ranks
    assert "the node&#x27;s class, layer 2, largest" not in with_ranks
    none = "the order of the neighbours plays no part in this network"
    assert none in with_mean
    assert none not in with_ranks
    assert "How the order settles" in with_ranks
    assert "How the order settles" not in with_mean


def test_what_the_user_named_is_text_not_markup(run: Path):
    folder = RunFolder(run)
    nasty = '<script>alert("x")</script>'
    folder.config["graph"]["class_names"] = [nasty, "b&b", "c'", "d"]
    folder.config["graph"]["files"] = {f"/tmp/{nasty}.csv": "0" * 64}
    folder.config["environment"]["device"] = nasty
    page = render(folder)
    check(page)
    assert nasty not in page
    assert "&lt;script&gt;" in page
    assert "b&amp;b" in page


def test_many_classes_have_a_list_of_confusions_and_long_names_have_numbers():
    few = _metrics([[5, 1, 0], [0, 4, 3], [0, 0, 6]])
    assert _confusion(few, ["a", "b", "c"]).header == ["", "a", "b", "c"]
    grid = _confusion(few, ["a", "a rather long name", "c"])
    assert grid.header == ["", "1", "2", "3"]
    assert [line[0] for line in grid.lines] == ["1 · a", "2 · a rather long name", "3 · c"]
    listed = _confusions(few, ["a", "b", "c"])
    assert listed.lines == [["b", "c", "3"], ["a", "b", "1"]]
    assert listed.caption == "4 nodes are predicted as another class"
    forty = _details(_metrics([[0] * 40] * 40), "(test nodes)", list(map(str, range(40))))
    assert [getattr(block, "title", None) for block in forty] == [
        "Metrics by class (test nodes), in %",
        "Most frequent confusions (test nodes)",
    ]


def _metrics(confusion: list[list[int]]) -> Metrics:
    rows = tuple(ClassMetrics(1.0, 1.0, 1.0, 1) for _ in confusion)
    return Metrics(1, 0.0, 1.0, 1.0, None, rows, tuple(map(tuple, confusion)))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["cat", "dog"], ["cat", "dog"]),
        (["a long name of cats", "dogs have one too"], ["a long name…", "dogs have o…"]),
        (["subclass number 10", "subclass number 20"], ["subcl…ber 10", "subcl…ber 20"]),
        (["the class 10 of forty", "the class 11 of forty"], ["1 · the cl…", "2 · the cl…"]),
    ],
)
def test_shortened_names_differ(names: list[str], short: list[str]):
    assert _short(names) == short
