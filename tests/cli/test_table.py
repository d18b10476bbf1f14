"""Tables of the terminal."""

import io

import pytest
from rich.console import Console

from node2seq.cli.commands import make_table

LINE = ["residual-node2seq", "99.0", "97.5", "97.5", "99.1", "55", "28.2"]


@pytest.mark.parametrize(("width", "gap"), [(80, "\n"), (70, " ")])
def test_words_of_titles_are_whole_where_space_is_short(width: int, gap: str):
    header = [
        "model",
        "validation",
        "test",
        f"macro-F1{gap}(test)",
        f"ROC-AUC{gap}(test)",
        "epoch",
        "seconds",
    ]
    console = Console(file=io.StringIO(), width=width)
    console.print(make_table(header, [LINE], words=["model"], unbroken=["model"], pad_edge=False))
    assert isinstance(console.file, io.StringIO)
    first, *lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for word in ("validation", "macro-F1", "ROC-AUC"):
        assert any(word in line for line in lines), f"{word} was cut"
    assert width == 70 or first.endswith("┓"), "the table of a run does not fit into a terminal of 80 columns"
