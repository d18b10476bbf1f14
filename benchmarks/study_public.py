"""Train the default for any graph on real graphs that no recipe was made for, and a plain GCN beside it.

    python benchmarks/study_public.py pack public.npz --packages Packages --wordnet /usr/share/wordnet \
        --planetoid data/planetoid
    python benchmarks/study_public.py measure public.npz      # test figures of ten splits
    python benchmarks/study_public.py render                  # the table in docs/any-graph.md

Runs that have a row are not trained again. `pack` needs Debian's index of packages, WordNet's files from its
package `wordnet-base`, and PubMed as PyTorch Geometric's `Planetoid` reads it, with scipy; `measure` needs
torch, torch_geometric and numpy.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import torch
from choose_defaults import LAYERS, TITLES, Figures, summary
from public_graphs import public_graphs
from script import Rows, pack_graphs, study_parser, table, train_missing, unpacked, write_between
from torch_geometric.data import Data

from node2seq.data import make_split
from node2seq.experiments.graphs import standardized
from node2seq.experiments.paper import grouped
from node2seq.recipes import recipe_for
from node2seq.recipes.choose import kind_of, settings_for, sizes_of_split
from node2seq.train.many import Training

# Three others, without a linear part, have rows too.
SEEDS = tuple(range(310, 320))
# Graphs measured again on other splits: those of ten classes or more when these came to drop less, and wide
# ones when their layers came to read the largest of the neighbours.
AGAIN: dict[str, tuple[int, ...]] = {
    "package sections by links alone": (320, 321, 322),
    "nouns by embeddings": (320, 321),
    "verbs by words": tuple(range(330, 340)),
    "package architectures": tuple(range(330, 340)),
    "package sections by words": tuple(range(330, 340)),
    "pubmed": tuple(range(330, 340)),
}
MODELS = (*(f"residual-{layer}" for layer in LAYERS), "gcn")
_START, _END = "<!-- public graphs: rendered -->", "<!-- end of public graphs -->"


def measure(path: Path, rows: Rows, only: list[str] | None, models: list[str]) -> None:
    """Train what `node2seq train` would with nothing said, on each graph and split."""
    for name, data in unpacked(path, only):
        for seed in AGAIN.get(name, SEEDS):
            train_missing(
                name, rows, data, [_run(name, data, model, seed) for model in models], measured=True
            )


def _run(name: str, data: Data, model: str, seed: int) -> tuple[dict[str, Any], dict[str, Any], Training]:
    """What tells a run from others, what its row says beside, and the training."""
    assert isinstance(data.y, torch.Tensor)
    split = make_split(data.y, "60/20/20", seed)
    sizes = sizes_of_split(data, split)
    recipe = recipe_for(model, None, sizes=sizes).updated(**settings_for(data))
    about = {
        "split": "60/20/20",
        "metric": recipe.settings.metric,
        "kind": kind_of(sizes),
        "nodes": data.num_nodes,
        "edges": data.num_edges // 2,
        "features": data.num_node_features,
        "classes": sizes.classes,
    }
    return {"graph": name, "model": model, "seed": seed}, about, Training(model, recipe, split, seed)


def lines(rows: Rows) -> list[str]:
    """The figures of each graph, as Markdown."""
    own = [row for row in rows.known if row["seed"] in AGAIN.get(row["graph"], SEEDS)]
    cells, found = [], []
    for graph, known in grouped(own, lambda row: row["graph"]).items():
        splits = len(AGAIN.get(graph, SEEDS))
        figures = Figures(graph, sorted(known, key=lambda row: row["seed"]), splits)
        if not figures.is_complete():
            continue
        row = known[0]
        facts = [f"{row[key]:,}" for key in ("nodes", "edges", "features", "classes")]
        largest = "ROC-AUC" if row["metric"] == "roc-auc" else f"{100 * row['largest_class']:.1f}"
        found.append(figures)
        cells.append([graph, *facts, row["kind"], largest, *figures.cells()])
    fewer = [f"{name}: {len(seeds)}" for name, seeds in AGAIN.items() if len(seeds) < len(SEEDS)]
    caption = (
        f"Test figures in %, mean ± sd over {len(SEEDS)} splits ({', '.join(fewer)}). "
        "Differences are of pairs on the same split, ± their standard error."
    )
    titles = ("graph", "nodes", "edges", "features", "classes", "kind", "largest class, or metric")
    return [
        *summary(found, "The default"),
        *textwrap.wrap(caption, 120),
        "",
        *table((*titles, *TITLES), cells),
    ]


def main() -> None:
    """Read the command line and do what it says."""
    parser = study_parser(
        __doc__,
        __file__,
        rows="results/public.jsonl",
        stages=("pack", "measure", "render"),
        page="docs/any-graph.md",
        graphs="public.npz",
    )
    for name in ("packages", "wordnet", "planetoid"):
        parser.add_argument(f"--{name}", type=Path, help="what to pack")
    parser.add_argument("--only", help="names of graphs, separated by commas")
    parser.add_argument("--models", default=",".join(MODELS), help="which models, separated by commas")
    options = parser.parse_args()
    if options.stage == "pack":
        found = public_graphs(options.packages, options.wordnet, options.planetoid)
        pack_graphs(options.graphs, ((name, standardized(data)) for name, data in found))
    elif options.stage == "measure":
        only = options.only and options.only.split(",")
        measure(options.graphs, Rows.of(options), only, options.models.split(","))
    else:
        write_between(options.page, _START, _END, "\n" + "\n".join(lines(Rows.of(options))) + "\n")


if __name__ == "__main__":
    main()
