"""A protocol that is done in a moment: three lines on a karate club."""

from node2seq.experiments.declaration import CellSpace, Line, Protocol, Rung, Study
from node2seq.experiments.paper import Cell
from node2seq.search.space import Choice, Space, Uniform
from node2seq.train.settings import Recipe

COMMIT = "0" * 40


def tiny_protocol() -> Protocol:
    base = Recipe().updated(hidden_channels=4, epochs=4)
    space = Space({"skip": Choice(("sum", "concat"))}, {"dropout": Uniform(0.0, 0.5)})
    cells = {
        Cell("gcn", "karate"): CellSpace(base, Space({}, space.free)),
        Cell("node2seq", "karate"): CellSpace(base, space),
    }
    return Protocol(
        name="tiny",
        lines=(
            Line("GCN", "gcn", "paper", ("karate",)),
            Line("Node2Seq", "node2seq", "paper", ("karate",)),
            Line("default network", "residual-node2seq", "default", ("karate",), searched=False),
        ),
        spaces=cells,
        rungs=(Rung(3, (3000, 3001)), Rung(1, (3002,))),
        shapes=2,
        final_seeds=(1000, 1001),
        studies=(
            Study("non-local", "ℓ = 2", {"hops": 2, "threshold": 1e6}, ("karate",)),
            Study("neighbours", "none", {"hops": 2, "layer": "dense"}, ("karate",)),
        ),
    )
