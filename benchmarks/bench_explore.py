"""How fast the page of `node2seq explore` answers on a large graph, for one client and for many.

    python benchmarks/bench_explore.py                 # 100,000 nodes; a row in results/explore.jsonl
    python benchmarks/bench_explore.py --page-only     # the table of docs/explain.md alone

Draws a graph whose degrees follow a power law, trains the network for any graph on it for one epoch, serves
the run, and clicks on nodes drawn at random. Then many clients click at once for a while; each of their
requests has to be answered with the node that it asked for.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from script import Rows, argument_parser, write_between

from node2seq.environment import pick_device
from node2seq.explain.run import open_run
from node2seq.explain.server import serve
from node2seq.explain.view import Viewer
from node2seq.reporting.document import Grid, to_markdown
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.training import train_run
from node2seq.train.settings import TrainSettings

_CLASSES, _FEATURES, _DEGREE = 5, 16, 10


def write_files(folder: Path, nodes: int) -> Source:
    """A graph of so many nodes as the files of edges and nodes."""
    generator = np.random.default_rng(0)
    popular = generator.zipf(2.0, nodes).clip(max=nodes // 100).astype(float)
    source = generator.choice(nodes, nodes * _DEGREE // 2, p=popular / popular.sum())
    target = generator.integers(0, nodes, source.size)
    label = generator.integers(0, _CLASSES, nodes)
    x = generator.normal(size=(nodes, _FEATURES)) + np.eye(_CLASSES, _FEATURES)[label]
    columns = ",".join(f"x{number}" for number in range(_FEATURES))
    lines = (
        f"n{number},c{label[number]}," + ",".join(f"{v:.3f}" for v in x[number]) for number in range(nodes)
    )
    (folder / "nodes.csv").write_text("\n".join([f"id,kind,{columns}", *lines]) + "\n")
    edges = (f"n{a},n{b}" for a, b in zip(source.tolist(), target.tolist(), strict=True))
    (folder / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    return Source(edges=str(folder / "edges.csv"), nodes=str(folder / "nodes.csv"), label="kind")


def start(viewer: Viewer) -> int:
    """Serve the page of a run in a thread of its own, and return the port when it answers."""
    said: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=serve, args=(viewer, 0, said.put), daemon=True).start()
    return int(re.findall(r"127\.0\.0\.1:(\d+)", said.get())[-1])


def click(port: int, name: str) -> float:
    """Ask for a node; the seconds that it took."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    started = time.perf_counter()
    connection.request("GET", f"/api/node?name={name}")
    answer = connection.getresponse()
    found = json.loads(answer.read())
    took = time.perf_counter() - started
    connection.close()
    assert answer.status == 200, found
    assert found["node"]["name"] == name
    return took


def one_client(port: int, names: Sequence[str]) -> dict[str, float]:
    """The times of single clicks."""
    for name in names[:3]:  # what is built once
        click(port, name)
    times = [click(port, name) for name in names[3:]]
    return {"clicks": len(times), **_quantiles(times)}


def many_clients(port: int, nodes: int, clients: int, seconds: float) -> dict[str, float]:
    """The times and the losses of clients that click on any of the nodes at once."""
    until = time.monotonic() + seconds

    def click_on(number: int) -> tuple[list[float], int]:
        draw, times, lost = random.Random(number), [], 0
        while time.monotonic() < until:
            try:
                times.append(click(port, f"n{draw.randrange(nodes)}"))
            except (OSError, AssertionError, ValueError):
                lost += 1
        return times, lost

    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(click_on, range(clients)))
    times = [took for some, _ in found for took in some]
    lost = sum(lost for _, lost in found)
    return {"clients": clients, "seconds": seconds, "answered": len(times), "lost": lost, **_quantiles(times)}


def _quantiles(times: Sequence[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(times, share)), 4) for share in (50, 95, 99)}


def measure(nodes: int, clicks: int, clients: int, seconds: float) -> dict[str, Any]:
    """A row: both times on a graph of so many nodes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source = write_files(folder, nodes)
        config = RunConfig(
            source=source,
            model="residual-node2seq",
            options={"hidden_channels": 64},
            settings=TrainSettings(epochs=1),
        )
        train_run(config, folder / "run")
        viewer = Viewer(open_run(folder / "run", device="cpu"))
        about = {"nodes": nodes, "edges": viewer.about().edges}
        port = start(viewer)
        names = [f"n{number}" for number in random.Random(0).sample(range(nodes), clicks + 3)]
        single = one_client(port, names)
        print(single, flush=True)
        return about | {"one": single, "many": many_clients(port, nodes, clients, seconds)}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The latest row as a table."""
    row = rows[-1]
    lines = []
    for title, key in (("one client", "one"), (f"{row['many']['clients']} clients at once", "many")):
        found = row[key]
        count = found.get("answered", found.get("clicks"))
        times = [f"{1000 * found[name]:.0f}" for name in ("p50", "p95", "p99")]
        lines.append([title, str(count), str(found.get("lost", 0)), *times])
    return to_markdown([Grid(["", "answers", "lost", "median, ms", "95 %, ms", "99 %, ms"], lines)])


def main() -> None:
    """Read the command line, measure, and write the table."""
    parser = argument_parser(__doc__, __file__)
    parser.set_defaults(rows=Path("results/explore.jsonl"))
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--clicks", type=int, default=200)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--page", type=Path, default=Path("docs/explain.md"), help="page with the table")
    parser.add_argument("--page-only", action="store_true", help="measure nothing")
    options = parser.parse_args()
    rows = Rows(options.rows, pick_device("cpu"), options.commit)
    if not options.page_only:
        rows.add(measure(options.nodes, options.clicks, options.clients, options.seconds))
    write_between(options.page, "<!-- bench_explore.py -->", "<!-- end -->", table(rows.known))


if __name__ == "__main__":
    main()
