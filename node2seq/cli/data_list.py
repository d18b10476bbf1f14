"""``node2seq data list``: the known data sets. A file of its own, which does not wait for torch."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console

from node2seq.cli.commands import echo, make_table, print_line, print_table
from node2seq.cli.flags import DataListFlags
from node2seq.data.datasets import DATASETS, NAMES, RULES


def list_sets(flags: DataListFlags) -> None:
    """Show the known data sets, their sizes and their known defects."""
    rows = []
    for name, column in NAMES.items():
        dataset = DATASETS[column.dataset]
        facts = asdict(dataset.facts)
        about = {"split": column.rule, "defects": list(dataset.defects)}
        rows.append({"name": name, "title": dataset.title, **facts, **about})
    if flags.as_json:
        echo(json.dumps(rows))
    else:
        _show_sets(rows)


def _show_sets(rows: list[dict[str, Any]]) -> None:
    console = Console()
    columns = ("name", "nodes", "edges", "features", "classes", "homophily", "largest_degree", "split")
    table = make_table(
        [column.replace("_", "\n") for column in columns],
        [[f"{row[key]:.2f}" if key == "homophily" else str(row[key]) for key in columns] for row in rows],
        words=("name", "split"),
        unbroken=("name", "split"),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        caption="edges counted once; homophily: share of edges within a class",
    )
    print_table(console, table)
    print_line(console, "Splits:")
    for rule, words in RULES.items():
        print_line(console, f"  {rule}: {words}")
    print_line(console, "Known defects:")
    for title, defects in dict.fromkeys((row["title"], tuple(row["defects"])) for row in rows):
        for defect in defects:
            print_line(console, f"  {title}: {defect}")
