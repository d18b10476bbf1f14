"""How much does a choice among drawn candidates differ from the exact one? Two hops, some numbers of walks.

    python benchmarks/study_candidates.py measure    # Chameleon, Squirrel, Actor and a random graph with hubs
    python benchmarks/study_candidates.py page       # the table of docs/large-graphs.md

Scores are those of a layer before training: random projections of the features. Rows go to
``results/candidates.jsonl``. Needs torch, torch_geometric and numpy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from script import Rows, study_parser, table, write_between
from torch import Tensor

from node2seq import ops
from node2seq.benchmarking.layers import power_law
from node2seq.data import load
from node2seq.ops.candidates import candidates_of

HOPS, CHANNELS = 2, 64
WALKS = (16, 64, 256)
SETS = {"chameleon": "Chameleon", "squirrel": "Squirrel", "actor": "Actor"}
LARGE = (100_000, 1_100_000)
START, END = "<!-- candidates -->", "<!-- end of candidates -->"


def graphs(device: torch.device) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Names, projections and edges."""
    generator = torch.Generator().manual_seed(0)
    for name, title in SETS.items():
        data = load(name)
        assert data.x is not None
        assert data.edge_index is not None
        weight = torch.randn(data.x.size(1), CHANNELS, generator=generator) / data.x.size(1) ** 0.5
        yield title, (data.x @ weight).to(device), data.edge_index.to(device)
    nodes, edges = LARGE
    edge_index = power_law(nodes, edges, device, exponent=0.5)
    yield f"random, {nodes:,} nodes", torch.randn(nodes, CHANNELS, generator=generator).to(device), edge_index


def chosen(key: Tensor, sequences: ops.Sequences, walks: int | None) -> tuple[Tensor, Tensor, float]:
    """The pairs of a node and one that it takes from further away, the sum of their scores, and seconds."""
    _ = ops.rank(key, key, sequences, hops=HOPS, max_candidates=walks).positions  # finds the candidates
    start = time.perf_counter()
    found = ops.rank(key, key, sequences, hops=HOPS, max_candidates=walks)
    positions = found.positions
    seconds = time.perf_counter() - start
    target = found.sequences.rows.target
    pair = target * key.size(0) + positions.node
    near = sequences.rows.target * key.size(0) + sequences.index
    is_far = ~torch.isin(pair, near)
    return pair[is_far], positions.score[is_far].double().sum(), seconds


def measure(rows: Rows) -> None:
    """A row for each graph and number of walks."""
    for name, key, edge_index in graphs(rows.device):
        graph = ops.GraphNumbers(1, key.size(0), key.size(0), add_self_loops=1, merge_duplicates=1)
        sequences = graph.find(edge_index)
        exact, best, seconds = chosen(key, sequences, None)
        listed = candidates_of(sequences, HOPS).listed()
        every = None if listed is None else listed.index.numel() / key.size(0)
        for walks in WALKS:
            if rows.has(graph=name, walks=walks):
                continue
            found, total, quick = chosen(key, sequences, walks)
            drawn = candidates_of(sequences, HOPS, walks).listed()
            assert drawn is not None
            row = {
                "graph": name,
                "walks": walks,
                "candidates": every,
                "drawn": drawn.index.numel() / key.size(0),
                "swapped": exact.numel() / sequences.index.numel(),
                "same": float(torch.isin(found, exact).double().mean()),
                "score": float(total / found.numel() / (best / exact.numel())),
                "exact_seconds": round(seconds, 4),
                "seconds": round(quick, 4),
            }
            rows.add(row)
            print(row, flush=True)


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    header = (
        "graph",
        "candidates a node",
        "walks",
        "drawn a node",
        "same nodes chosen",
        "their score",
        "time",
    )
    lines = [
        (
            row["graph"],
            "too many to list" if row["candidates"] is None else f"{row['candidates']:,.0f}",
            *(f"{row['walks']}", f"{row['drawn']:.0f}", f"{row['same']:.0%}", f"{row['score']:.0%}"),
            f"{row['seconds'] / row['exact_seconds']:.2f}",
        )
        for row in rows
    ]
    return "\n".join(table(header, lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do what it says."""
    rows, stages = "results/candidates.jsonl", ("measure", "page")
    parser = study_parser(__doc__, __file__, rows=rows, stages=stages, page="docs/large-graphs.md")
    options = parser.parse_args(arguments)
    if options.stage == "page":
        write_between(options.page, START, END, page(Rows.of(options).known))
    else:
        measure(Rows.of(options))


if __name__ == "__main__":
    main()
