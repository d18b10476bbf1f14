"""What the scripts share: arguments, clocks, rows, packed graphs, trainings, and tables to print or write."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from node2seq.benchmarking.layers import COMPILED, NOT_COMPILED, measure
from node2seq.benchmarking.rows import (
    BenchmarkRow,
    Machine,
    append_rows,
    number_text,
    size_text,
    time_text,
)
from node2seq.environment import describe, pick_device
from node2seq.experiments.graphs import pack, packed_names, unpack
from node2seq.experiments.samples import Paired
from node2seq.storage import append_line, make_folder, read_lines, write_bytes
from node2seq.train.many import Training, train_many


def argument_parser(description: str | None, script: str) -> argparse.ArgumentParser:
    """A parser with the arguments that every benchmark has.

    Args:
        description: The script's docstring.
        script: Its path; rows go to ``rows.jsonl`` beside it unless told otherwise.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--rows", type=Path, default=Path(script).with_name("rows.jsonl"), help="file to append rows to"
    )
    parser.add_argument("--commit", help="commit to note in rows where the code is not a checkout")
    return parser


class Report:
    """Prints each row as a line of a table and appends it to a file.

    Where a table has ratios, they are to its first row, and to the same case under ``torch.compile``.

    Args:
        options: What :func:`argument_parser` read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.device: torch.device = pick_device(options.device)
        self.machine = Machine.here(self.device, options.commit)
        self._path: Path = options.rows
        self._has_ratios = False
        self._base: BenchmarkRow | None = None
        self._compiled: BenchmarkRow | None = None

    def header(self, title: str, base: str | None = None) -> None:
        """Print the head of a table; ``base`` is what ratios are to, if it has any."""
        self._has_ratios, self._base, self._compiled = base is not None, None, None
        times = "" if base is None else f"× {base}"
        columns = f"{times:>14}{'× compiled':>12}{'memory':>12}{times:>14}{'of bound':>10}"
        print(f"\n{title}\n{'':36}{'ms (20 to 80 %)':>28}{columns}", flush=True)

    def add(self, row: BenchmarkRow) -> BenchmarkRow:
        """Print a row with its ratios, append it to the file and return it."""
        if self._base is not None:
            row = row.beside(self._base, self._compiled)
            if (row.case, row.variant) == (self._base.case, COMPILED):
                self._compiled = row
        elif self._has_ratios:
            self._base = row
        ratio, compiled, peak_ratio = (
            number_text(value, ".3f") for value in (row.ratio, row.compiled_ratio, row.peak_ratio)
        )
        memory, bound = size_text(row.peak_bytes), number_text(row.bound_share, ".0%")
        cells = f"{ratio:>14}{compiled:>12}{memory:>12}{peak_ratio:>14}{bound:>10}"
        print(f"{row.title():36}{time_text(row):>28}{cells}".rstrip(), flush=True)
        if not (row.result or "").startswith(NOT_COMPILED):  # which says something of the machine alone
            append_rows(self._path, [row], self.machine)
        return row


def seconds_of(step: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """How long a step takes once, to the end of what the device has to do, and what it returns."""
    started = time.perf_counter()
    found = step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started, found


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """The exponent a of cost ≈ c · size^a by least squares of the logarithms; none below three sizes."""
    if len(sizes) < 3:
        return None
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second of a large copy, read and written: the speed of the memory."""
    source = torch.ones(2**30 if device.type == "cuda" else 2**26, device=device)
    copied = torch.empty_like(source)
    found = measure(lambda: copied.copy_(source), device, seconds=0.5, most=10)
    assert found is not None
    return 2 * source.nbytes / (found.p50_ms / 1e3)


def study_parser(
    description: str | None,
    script: str,
    *,
    rows: str,
    stages: Sequence[str],
    page: str | None,
    graphs: str = "",
) -> argparse.ArgumentParser:
    """A parser with the arguments that every study has.

    Args:
        description: The script's docstring.
        script: Its path.
        rows: Where its rows are kept.
        stages: What it can be asked to do.
        page: The page that shows the rows; None: none unless it is given.
        graphs: The file of packed graphs, for a study that has one.
    """
    parser = argument_parser(description, script)
    parser.set_defaults(rows=Path(rows))
    parser.add_argument("stage", choices=stages)
    if graphs:
        parser.add_argument(
            "graphs", type=Path, nargs="?", default=Path(graphs), help="file of packed graphs"
        )
    default = None if page is None else Path(page)
    parser.add_argument("--page", type=Path, default=default, help="page to write to")
    return parser


class Rows:
    """The rows of one file: what is known, and how to add to it.

    Args:
        path: The file.
        device: What the runs are trained on.
        commit: What to note where the code is no checkout.
    """

    def __init__(self, path: Path, device: torch.device, commit: str | None) -> None:
        make_folder(path.parent)
        self.path, self.device = path, device
        self.known = list(read_lines(path)) if path.exists() else []
        about = {name: value for name, value in describe(device).items() if name != "platform"}
        self.about = {"environment": about | ({"commit": commit} if commit else {})}

    @classmethod
    def of(cls, options: argparse.Namespace) -> Rows:
        """The rows that the arguments of a study name, for the device that they name."""
        return cls(options.rows, pick_device(options.device), options.commit)

    def has(self, **key: Any) -> bool:
        """Whether there is a row with these values."""
        return any(all(row.get(name) == value for name, value in key.items()) for row in self.known)

    def add(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self.known.append(row)
        append_line(self.path, row | self.about)


def pack_graphs(path: Path, graphs: Iterable[tuple[str, Data]]) -> None:
    """Write graphs into one file by their names."""

    def told() -> Iterator[tuple[str, Data]]:
        for name, data in graphs:
            assert data.x is not None
            share = float((data.x != 0).double().mean())
            print(f"{name}: {data.x.size(0)} nodes, {data.x.size(1)} features, {share:.1%} not zero")
            yield name, data

    pack(path, told())
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


def unpacked(path: Path, wanted: Sequence[str] | None = None) -> Iterator[tuple[str, Data]]:
    """The graphs of a file by name, or those that are wanted."""
    for name in packed_names(path) if wanted is None else wanted:
        yield name, unpack(path, name)


def bare(data: Data) -> Data:
    """The features, edges and labels of a graph alone."""
    return Data(x=data.x, edge_index=data.edge_index, y=data.y)


def train_missing(
    title: str,
    rows: Rows,
    data: Data,
    wanted: Sequence[tuple[dict[str, Any], dict[str, Any], Training]],
    *,
    measured: bool,
) -> None:
    """Train what has no row yet, in one call, and add a row for each run.

    Args:
        title: What to call these runs when they are done.
        rows: Those that are there.
        data: The graph.
        wanted: What tells a run from others, what its row says beside, and the training.
        measured: Whether rows hold the figure of the test nodes.
    """
    missing = [each for each in wanted if not rows.has(**each[0])]
    started = time.perf_counter()
    outcomes = train_many(data, [training for _, _, training in missing], device=rows.device)
    for (key, about, training), outcome in zip(missing, outcomes, strict=True):
        recipe = training.recipe
        row = {**key, **about, "seconds": round(outcome.seconds, 3)}
        row["recipe"] = {"options": dict(recipe.options), "settings": asdict(recipe.settings)}
        if outcome.result is None:
            row["error"] = outcome.error
        else:
            best, test, linear = outcome.result.best, outcome.result.test, outcome.result.linear
            if training.cross_fit:
                nodes = training.split.val.numel()
                row |= {"cross_fitted": outcome.cross_fitted, "validation_nodes": nodes}
            row |= {"validation": best.val_score, "epoch": best.epoch, "epochs": len(outcome.result.history)}
            if linear is not None:
                row |= {"validation": linear.after["val"], "validation_alone": linear.before["val"]}
                row["linear_share"] = linear.share
            if measured and test is not None:
                row |= {"test": test.value(recipe.settings.metric), "largest_class": test.reference}
                row |= {"test_alone": linear.before["test"]} if linear is not None else {}
        rows.add(row)
    if missing:
        print(f"{title}: {len(missing)} runs in {time.perf_counter() - started:.1f} s", flush=True)


def interval(gap: Paired | None) -> str:
    """A difference with its interval, or a dash for none."""
    return "–" if gap is None else f"{gap.mean:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"


def words(gap: Paired) -> str:
    """Where the first stands to the second."""
    return ("level with", "above", "below")[gap.side]


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [_row(header), "|---" * len(header) + "|", *map(_row, lines)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def write_between(page: Path, start: str, end: str, text: str) -> None:
    """Replace what stands between two marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(start)
    write_bytes(page, f"{before}{start}\n{text.strip()}\n{end}{rest.partition(end)[2]}".encode())
    print(page)
