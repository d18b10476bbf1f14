"""Names or files → a prepared graph, its split, its summary.

Loading and splitting need torch, torch_geometric and numpy alone; what else a function needs, it imports
itself.
"""

from node2seq.data.datasets import COLUMNS, DATASETS, NAMES, Column, Dataset
from node2seq.data.loading import load, normalize_features
from node2seq.data.splits import RULES, Split, make_split

__all__ = [
    "COLUMNS",
    "DATASETS",
    "NAMES",
    "RULES",
    "Column",
    "Dataset",
    "Split",
    "load",
    "make_split",
    "normalize_features",
]
