"""What is written to the terminal: tables, and text of any encoding."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from node2seq.cli.commands import make_table, print_table

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


def test_no_column_is_cut_off_in_a_narrow_terminal():
    header = ["model", "validation", "test", "macro-F1 (test)", "ROC-AUC (test)", "epoch", "seconds"]
    console = Console(file=io.StringIO(), width=40)
    print_table(console, make_table(header, [LINE], words=["model"], unbroken=["model"]))
    assert isinstance(console.file, io.StringIO)
    for word in ("ROC-AUC", "epoch", "seconds", "28.2"):
        assert word in console.file.getvalue()


def test_an_encoding_without_a_sign_ends_nothing():
    done = subprocess.run(
        [sys.executable, "-m", "node2seq", "train", "--help"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"mean ? sd" in b" ".join(done.stdout.replace(b"|", b"").split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_for_the_output_is_said():
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "node2seq", "data", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: the output cannot be written: the disk is full. Free some space.\n"
