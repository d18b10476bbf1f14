"""Count how often execution passes from one file of the package to another, and through which files.

    python benchmarks/count_file_changes.py                       # one training step of Node2SeqConv
    python benchmarks/count_file_changes.py report                # a CSV file → report.html
    python benchmarks/count_file_changes.py node2seq train texas  # a module with its arguments

A step is forward + backward on a random graph of Cora's size on a CPU, after two steps that build the plan
and load compiled code. Calls and returns of the package's functions are followed: wherever two in a row lie
in different files is one change. What runs while a module is imported defines it, and is not followed. Needs
torch, PyTorch Geometric and numpy; ``report`` the command line's extra.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import runpy
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import node2seq
from node2seq import Node2SeqConv

PACKAGE = Path(node2seq.__file__).parent
NODES, EDGES, CHANNELS = 2708, 10556, 64


class Walk:
    """The files of the package that a call passes through.

    Args:
        function: What to call.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.functions: set[CodeType] = set()
        self._visits: list[str] = []
        root = f"{PACKAGE}/"

        importing: Counter[int] = Counter()  # modules that are being imported, by thread

        def note(frame: FrameType, event: str, _argument: Any) -> None:
            code, thread = frame.f_code, threading.get_ident()
            if event not in ("call", "return") or not code.co_filename.startswith(root):
                return
            if code.co_name == "<module>" and frame.f_globals["__name__"] != "__main__":
                importing[thread] += 1 if event == "call" else -1
            is_function = code.co_flags & inspect.CO_OPTIMIZED  # no module or class that is being defined
            if is_function and not importing[thread]:
                self._visits.append(code.co_filename.removeprefix(root))
                self.functions.add(code)

        threading.setprofile(note)
        sys.setprofile(note)
        try:
            function()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def changes(self) -> int:
        """How often two calls or returns in a row lie in different files."""
        return max(len(list(groupby(self._visits))) - 1, 0)

    @property
    def files(self) -> list[str]:
        """The files, in the order in which they were first entered."""
        return list(dict.fromkeys(self._visits))

    def print(self, title: str) -> None:
        """Print the counts and the files."""
        counts = f"{self.changes} changes of file, {len(self.files)} files, {len(self.functions)} functions"
        print(f"{title}: {counts}")
        print(*(f"  {file}" for file in self.files), sep="\n")


def training_step(readout: str) -> Callable[[], None]:
    """Forward + backward of the layer, twice already run."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, CHANNELS, generator=generator).requires_grad_()
    edge_index = torch.randint(NODES, (2, EDGES), generator=generator)
    conv = Node2SeqConv(CHANNELS, CHANNELS, readout=readout)

    def step() -> None:
        conv(x, edge_index).sum().backward()

    step()
    step()
    return step


def walk_to_report(*arguments: str) -> Walk:
    """``node2seq train`` on a graph of one's own, until its report is written.

    It is trained once before, because that compiles or loads the loops.

    Args:
        *arguments: Further arguments of the command.
    """
    from node2seq.cli import app
    from node2seq.data import load, write_graph

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_graph(load("karate"), "edges.csv", "nodes.csv")
        files = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "label"]
        given = ["train", *files, "--epochs", "5", "--json", *arguments]
        app([*given, "--out", "before"], standalone_mode=False)
        walk = Walk(lambda: app([*given, "--out", "run"], standalone_mode=False))
        assert Path("run/report.html").is_file()
    return walk


def main() -> None:
    """Read the arguments, count and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a module and its arguments")
    command: list[str] = parser.parse_args().command
    torch.set_num_threads(1)
    if not command:
        for readout in ("max", "mean"):
            Walk(training_step(readout)).print(f"Node2SeqConv, readout={readout!r}, forward + backward")
        return

    if command == ["report"]:
        walk_to_report().print("CSV → report.html")
        return

    def run() -> None:
        sys.argv = command
        try:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise

    Walk(run).print(" ".join(command))


if __name__ == "__main__":
    main()
