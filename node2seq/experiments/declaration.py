"""What is compared, and how: lines, columns, spaces, budgets, seeds and the stopping rule. No logic.

Committed before the first row was made, and not changed since: ``results/protocol/declaration.json`` holds
the same values, and the tests compare both and read the history. A later protocol gets another name and
stands beside this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from node2seq.experiments.paper import Cell
from node2seq.search.settings import RESERVED_SEEDS, check_seeds
from node2seq.search.space import Choice, LogUniform, Range, Space, Uniform
from node2seq.search.spaces import GIVEN
from node2seq.train.settings import Recipe


@dataclass(frozen=True)
class Line:
    """A model of the comparison.

    Args:
        label: How the page calls it.
        model: A key of ``node2seq.nn.models.MODELS``.
        variant: ``paper``: the network and the plain training of its paper; ``plus`` and ``ranks``: with
            options beyond it; ``default``: what ``node2seq train`` takes for any graph.
        columns: Where it is trained.
        searched: Whether its settings are searched; the others follow a rule.
    """

    label: str
    model: str
    variant: str
    columns: tuple[str, ...]
    searched: bool = True

    def cell(self, column: str) -> Cell:
        """What rows call it on a column."""
        return Cell(self.model, column, self.variant)


@dataclass(frozen=True)
class Rung:
    """A round of the search: how many settings are trained, on which splits.

    Args:
        settings: How many, the best of the round before.
        seeds: Of the splits, the initial weights and the dropout.
    """

    settings: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class CellSpace:
    """What is fixed and what is searched for a line on a column."""

    base: Recipe
    space: Space


@dataclass(frozen=True)
class Study:
    """A change of the chosen recipe of Node2Seq (paper).

    Args:
        table: The table it stands in.
        label: Its line there.
        changes: Of the recipe.
        columns: Where.
    """

    table: str
    label: str
    changes: Mapping[str, Any]
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """How rows call it."""
        return f"{self.table}: {self.label}"

    def cell(self, column: str) -> Cell:
        """What rows call it on a column."""
        return Cell("node2seq", column, "paper", self.name)


@dataclass(frozen=True)
class Protocol:
    """A comparison of lines over columns, with equal budgets.

    Args:
        name: Part of every draw.
        lines: What is compared; Node2Seq (paper), which the studies change, is one of them.
        spaces: For each line and column whose settings are searched.
        rungs: The rounds of the search, the same for every cell. Each adds splits; settings are compared by
            the mean over all splits so far of the accuracy on validation nodes, by cross-fitting.
        shapes: How many combinations of sizes and branches the settings of a cell share at most.
        final_seeds: Of the rows that are reported, which no search may use.
        studies: What is changed in Node2Seq (paper), one thing at a time, on the final seeds.
        further: Columns that take the recipes chosen for another one, and count apart.
        uncounted: Columns that are shown and not counted.
    """

    name: str
    lines: tuple[Line, ...]
    spaces: Mapping[Cell, CellSpace]
    rungs: tuple[Rung, ...]
    shapes: int
    final_seeds: tuple[int, ...] = tuple(RESERVED_SEEDS)
    studies: tuple[Study, ...] = ()
    further: Mapping[str, str] = field(default_factory=dict)
    uncounted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_seeds([seed for rung in self.rungs for seed in rung.seeds])

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that are searched, each once."""
        return tuple(dict.fromkeys(column for line in self.lines for column in line.columns))

    @property
    def ours(self) -> Line:
        """Node2Seq as the paper describes it."""
        return next(line for line in self.lines if _is_paper(line))

    @property
    def searched(self) -> list[tuple[Line, str]]:
        """Every line and column whose settings are searched."""
        return [(line, column) for line in self.lines if line.searched for column in line.columns]

    @property
    def trainings_per_cell(self) -> int:
        """How many trainings the search of one cell takes; the same for every line and column."""
        return sum(rung.settings * len(rung.seeds) for rung in self.rungs)


_CITATION = ("cora-f", "cora-r", "citeseer-f", "citeseer-r")
_TABLE_2 = (*_CITATION, "amazon-r")
_WIKIPEDIA = ("chameleon", "squirrel")
_OTHERS = ("actor", "cornell", "texas", "wisconsin")
_ALL = (*_TABLE_2, *_WIKIPEDIA, *_OTHERS)
_ABLATED = (*_CITATION, *_WIKIPEDIA)  # those of the paper's Table 5
_NONLOCAL = ("cora-f", "citeseer-f", "citeseer-r", "chameleon", "squirrel", "texas")  # of its Table 4

_LINES = (
    Line("Cheby", "cheby", "paper", _TABLE_2),
    Line("GCN", "gcn", "paper", _ALL),
    Line("GAT", "gat", "paper", _ALL),
    Line("SGC", "sgc", "paper", _ALL),
    Line("LGCN", "lgcn", "paper", _TABLE_2),
    Line("GCN*", "gcn*", "paper", _ALL),
    Line("MLP", "mlp", "paper", _ALL),
    Line("Node2Seq", "node2seq", "paper", _ALL),
    Line("Cheby, plus", "cheby", "plus", _TABLE_2),
    Line("GCN, plus", "gcn", "plus", _ALL),
    Line("GAT, plus", "gat", "plus", _ALL),
    Line("SGC, plus", "sgc", "plus", _ALL),
    Line("LGCN, plus", "lgcn", "plus", _TABLE_2),
    Line("MLP, plus", "mlp", "plus", _ALL),
    Line("Node2Seq, plus", "node2seq", "plus", _ALL),
    Line("Node2Seq, ranks", "node2seq", "ranks", _ALL),
    Line("default network", "residual-node2seq", "default", _ALL, searched=False),
)

# Training, the same ranges for every line. Their ends are where the public recipes for such graphs lie.
_FEW_LABELS: dict[str, Range] = {
    "lr": LogUniform(0.003, 0.05),
    "weight_decay": LogUniform(3e-5, 5e-3),
    "input_dropout": Uniform(0.0, 0.95),
    "dropout": Uniform(0.0, 0.95),
}
_LONG: dict[str, Range] = {
    "lr": LogUniform(0.003, 0.05),
    "weight_decay": LogUniform(1e-6, 1e-3, zero=0.3),
    "input_dropout": Uniform(0.0, 0.6),
    "dropout": Uniform(0.0, 0.5),
}
_SMALL: dict[str, Range] = {
    "lr": LogUniform(0.003, 0.1),
    "weight_decay": LogUniform(3e-5, 0.02),
    "input_dropout": Uniform(0.0, 0.8),
    "dropout": Uniform(0.0, 0.8),
}
_TRAINING: dict[str, dict[str, Range]] = {
    column: _FEW_LABELS if column in _TABLE_2 else _LONG if column in _WIKIPEDIA else _SMALL
    for column in _ALL
}
# The stopping rule, the same for every line: the maximum of epochs, and of epochs without a better one.
_STOPPING = {
    column: {"epochs": 1000, "patience": 100} if column in _WIKIPEDIA else {"epochs": 300, "patience": 60}
    for column in _ALL
}
# What a model has beyond the ranges that all have: fixed, and searched.
_FIXED: dict[str, dict[str, Any]] = {
    "gat": {"hidden_channels": 8, "heads": 8},
    "lgcn": {"hidden_channels": 32, "optimizer": "nadam"},
}
_OWN_SHAPE: dict[str, dict[str, Range]] = {
    "cheby": {"K": Choice((2, 3))},
    "sgc": {"K": Choice((1, 2, 3))},
    "lgcn": {"num_lgcl": Choice((1, 2))},
    "gcn*": {"skip": Choice(("sum", "concat")), "activation": Choice(("relu", "elu", "none"))},
}
_OWN_FREE: dict[str, dict[str, Range]] = {
    "gat": {"attention_dropout": Uniform(0.0, 0.7)},
    "sgc": {"lr": LogUniform(0.02, 0.5)},
}
# What the paper does not have, open to every network. Smoothed predictions suit neighbours that are alike.
_VIEWS = Choice((1, 2))
_PLUS_SHAPE: dict[str, dict[str, Range]] = {
    column: {
        "own": Choice(("mixed", "apart")),
        "views": _VIEWS,
        **({"smoothing": Choice((0, 10))} if column in _TABLE_2 else {}),
    }
    for column in _ALL
}
_PLUS_FREE: dict[str, Range] = {
    "consistency": LogUniform(0.1, 2.0),
    "averaging": Choice((0.0, 0.9, 0.97)),
    "label_smoothing": LogUniform(0.02, 0.3, zero=0.5),
}


def _node2seq(column: str, variant: str) -> Space:
    """What Node2Seq has beyond the ranges that all have."""
    few, wikipedia = column in _TABLE_2, column in _WIKIPEDIA
    shape: dict[str, Range] = {
        "position": Choice((2,) if few else (2, 3) if wikipedia else (1, 2, 3)),
        "kernel_size": Choice((3, 5)),
        "skip": Choice(("sum", "concat")),
        "activation": Choice(("relu", "none") if few else ("relu", "elu")),
    }
    if variant != "ranks":
        shape["readout"] = Choice(("max", "mean"))
    if variant == "plus":
        shape["taps"] = Choice(("full", "depthwise", "scalar"))
    decay = LogUniform(1e-6, 1e-3, zero=0.3) if wikipedia else LogUniform(1e-4, 0.5)
    if column in _CITATION:  # where the layer has more weights than there are labels
        decay = LogUniform(5e-3, 1.0)
    free: dict[str, Range] = {"conv_scale": LogUniform(0.02, 1.0), "conv_weight_decay": decay}
    if variant == "paper" and column in _NONLOCAL:  # the only cells that take nodes from further away
        free["threshold"] = Uniform(-0.1, 0.2)
    return Space(shape, free)


def _cell_space(line: Line, column: str) -> CellSpace:
    given = GIVEN["paper"]["node2seq"].get(column, {}) if _is_paper(line) else {}
    if line.model == "node2seq":
        own = _node2seq(column, line.variant)
    else:
        own = Space(_OWN_SHAPE.get(line.model, {}), _OWN_FREE.get(line.model, {}))
    shape, free = dict(own.shape), {**_TRAINING[column], **own.free}
    if column in _OTHERS:
        shape["row_normalize"] = Choice((False, True))
    if line.model == "sgc":  # it has no hidden layer
        del free["dropout"]
    if line.variant != "paper":
        # The MLP sees no neighbours to keep its own features apart from, or to smooth over.
        shape |= {"views": _VIEWS} if line.model == "mlp" else _PLUS_SHAPE[column]
        free |= _PLUS_FREE
    fixed = {"hidden_channels": 64, "row_normalize": column in _CITATION, **_STOPPING[column]}
    fixed |= _FIXED.get(line.model, {}) | given | ({"readout": "ranks"} if line.variant == "ranks" else {})
    return CellSpace(Recipe().updated(**fixed), Space(shape, free).without(given))


def _is_paper(line: Line) -> bool:
    return (line.model, line.variant) == ("node2seq", "paper")


_READOUTS = ("max", "mean", "ranks")
_ORDERS = {"attention": "by attention", "degree": "by degree", "random": "at random"}
_STUDIES = (
    *(
        Study("order", f"{readout}, {title}", {"hops": 1, "readout": readout, "order": order}, _ABLATED)
        for readout in _READOUTS
        for order, title in _ORDERS.items()
    ),
    Study("non-local", "ℓ = 1", {"hops": 1}, _NONLOCAL),
    *(
        Study("non-local", f"ℓ = 2, β = {beta:g}", {"hops": 2, "threshold": beta}, _NONLOCAL)
        for beta in (0.0, 0.3, 1.0, 3.0, 10.0, 1e6)
    ),
    *(Study("kernel", f"k = {k}", {"kernel_size": k}, _ABLATED) for k in (1, 3, 5, 8, 10)),
    Study("neighbours", "without the layer's neighbours", {"layer": "dense"}, _ALL),
)

#: The protocol of this package: 152 searched cells of 60 trainings each.
PROTOCOL = Protocol(
    name="equal budgets",
    lines=_LINES,
    spaces={
        line.cell(column): _cell_space(line, column)
        for line in _LINES
        if line.searched
        for column in line.columns
    },
    rungs=(Rung(20, (3000, 3001)), Rung(5, (3002, 3003, 3004, 3005))),
    shapes=5,
    studies=_STUDIES,
    further={"chameleon-unique": "chameleon", "squirrel-unique": "squirrel"},
    uncounted=("cornell",),
)
