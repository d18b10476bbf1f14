"""Graphs for the tests of stores, as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl


def write_files(folder: Path, ending: str = "csv", nodes: int = 300, edges: int = 2000) -> tuple[Path, Path]:
    """A graph with string ids, columns of every kind and unlabelled nodes; returns edges and nodes."""
    random = np.random.default_rng(0)
    ids = [f"node {number:05d}ü" for number in random.permutation(nodes)]
    label = random.integers(0, 3, nodes)
    table = pl.DataFrame(
        {
            "id": ids,
            "size": random.standard_normal(nodes) + 3 + 4 * label,
            "flag": random.integers(0, 2, nodes),
            "colour": random.choice(["red", "blue", "dark green"], nodes),
            "since": [f"2020-01-{number % 28 + 1:02d}" for number in range(nodes)],
            "kind": [["p", "q", "r"][number] for number in label],
        }
    )
    table = table.with_columns(pl.when(pl.int_range(pl.len()) % 7 > 0).then("kind").alias("kind"))
    ends = random.integers(0, nodes, (2, edges))
    links = pl.DataFrame({"source": [ids[i] for i in ends[0]], "target": [ids[i] for i in ends[1]]})
    for name, frame in (("nodes", table), ("edges", links)):
        path = folder / f"{name}.{ending}"
        frame.write_parquet(path) if ending == "parquet" else frame.write_csv(path)
    return folder / f"edges.{ending}", folder / f"nodes.{ending}"
