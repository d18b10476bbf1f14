"""Load a data set by name or read your own files; split the graph and summarise it.

Loading and splitting need only torch, torch_geometric and numpy. Other packages are imported by the functions
that use them. Names are imported when they are first asked for: a list of data sets does not wait for torch.
"""

from typing import TYPE_CHECKING

from node2seq.environment import lazy_names

if TYPE_CHECKING:
    from node2seq.data.bitcoin_otc import load_bitcoin_otc
    from node2seq.data.datasets import COLUMNS, DATASETS, NAMES, RULES, Column, Dataset
    from node2seq.data.graph import ReadReport, Summary, summarise
    from node2seq.data.interop import from_networkx, from_pyg, to_frames, to_networkx, to_pyg, write_graph
    from node2seq.data.loading import load, normalize_features
    from node2seq.data.reading import from_frames, read_graph
    from node2seq.data.splits import Split, fold_numbers, make_split

_HOME = {
    "bitcoin_otc": ("load_bitcoin_otc",),
    "datasets": ("COLUMNS", "DATASETS", "NAMES", "RULES", "Column", "Dataset"),
    "graph": ("ReadReport", "Summary", "summarise"),
    "interop": ("from_networkx", "from_pyg", "to_frames", "to_networkx", "to_pyg", "write_graph"),
    "loading": ("load", "normalize_features"),
    "reading": ("from_frames", "read_graph"),
    "splits": ("Split", "fold_numbers", "make_split"),
}

__all__ = [
    "COLUMNS",
    "DATASETS",
    "NAMES",
    "RULES",
    "Column",
    "Dataset",
    "ReadReport",
    "Split",
    "Summary",
    "fold_numbers",
    "from_frames",
    "from_networkx",
    "from_pyg",
    "load",
    "load_bitcoin_otc",
    "make_split",
    "normalize_features",
    "read_graph",
    "summarise",
    "to_frames",
    "to_networkx",
    "to_pyg",
    "write_graph",
]


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
