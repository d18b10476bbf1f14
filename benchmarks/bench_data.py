"""Time and memory of `node2seq data check` on a large graph in CSV files.

    python benchmarks/bench_data.py [--nodes 1000000] [--edges 10000000]

Writes a graph with string ids to the temporary folder, where the next run finds it, checks it in a process of
its own, and prints the seconds and the peak memory of that process. The aim, for the default size on two
cores: 25 s and 4 GiB. Needs polars.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

AIM_SECONDS, AIM_BYTES = 25.0, 4 * 2**30


def make_graph(folder: Path, num_nodes: int, num_edges: int) -> tuple[Path, Path]:
    """Edges with a heavy tail of degrees; nodes with two numbers, a category and a label with gaps."""
    edges, nodes = folder / f"edges-{num_nodes}-{num_edges}.csv", folder / f"nodes-{num_nodes}.csv"
    if edges.exists() and nodes.exists():
        return edges, nodes
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    shuffled = random.permutation(num_nodes)
    ids = (
        pl.select(pl.format("user-{}", pl.Series(shuffled).cast(pl.String).str.zfill(9)))
        .to_series()
        .alias("id")
    )
    # Squares of uniform numbers: a few nodes have many neighbours, as in most real graphs.
    source = (random.random(num_edges) ** 2 * num_nodes).astype(np.int64)
    target = random.integers(num_nodes, size=num_edges)
    pl.DataFrame({"source": ids.gather(source), "target": ids.gather(target)}).write_csv(edges)
    pl.DataFrame(
        {
            "id": ids,
            "age": random.integers(18, 90, num_nodes),
            "score": random.normal(size=num_nodes).astype(np.float32),
            "country": random.choice(["de", "fr", "it", "pl"], num_nodes),
            "label": random.choice(["a", "b", "c", ""], num_nodes),
        }
    ).write_csv(nodes)
    return edges, nodes


def check(edges: Path, nodes: Path) -> tuple[float, float, int]:
    """Seconds, seconds of processor time (which a busy machine changes less), and peak resident bytes."""
    command = [
        sys.executable,
        "-m",
        "node2seq",
        "data",
        "check",
        "--edges",
        str(edges),
        "--nodes",
        str(nodes),
    ]
    begun = time.perf_counter()
    process = subprocess.Popen([*command, "--label", "label"])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"the command ended with status {process.returncode}")
    return (
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "node2seq-bench-data")
    given = parser.parse_args(arguments)
    edges, nodes = make_graph(given.folder, given.nodes, given.edges)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    seconds, cpu_seconds, peak = check(edges, nodes)
    row = {
        "nodes": given.nodes,
        "edges": given.edges,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "peak_gib": round(peak / 2**30, 2),
        "within_aim": seconds <= AIM_SECONDS and peak <= AIM_BYTES,
        "cores": os.cpu_count(),
        "load_before": load,
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "polars": pl.__version__,
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
