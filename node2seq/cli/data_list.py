"""``node2seq data list``: the known data sets. A file of its own, which does not wait for torch."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from node2seq.cli.commands import echo
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
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        caption="edges counted once; homophily: share of edges within a class",
    )
    columns = ("name", "nodes", "edges", "features", "classes", "homophily", "largest_degree", "split")
    for column in columns:
        justify = "left" if column in ("name", "split") else "right"
        table.add_column(column.replace("_", "\n"), justify=justify, no_wrap=column in ("name", "split"))
    for row in rows:
        table.add_row(*(f"{row[key]:.2f}" if key == "homophily" else str(row[key]) for key in columns))
    console.print(table)
    console.print("Splits:", highlight=False)
    for rule, words in RULES.items():
        console.print(f"  {rule}: {words}", highlight=False, soft_wrap=True)
    console.print("Known defects:", highlight=False)
    for title, defects in dict.fromkeys((row["title"], tuple(row["defects"])) for row in rows):
        for defect in defects:
            console.print(f"  {title}: {defect}", highlight=False, soft_wrap=True)
