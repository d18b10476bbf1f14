"""Split the labelled nodes into train, validation and test sets by one of five rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from node2seq.data.datasets import NAMES, RULES
from node2seq.environment import LazyModule
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data
else:
    torch = LazyModule("torch")

#: The parts of a split.
PARTS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Split:
    """Sorted node numbers (int64) of the three sets; unlabelled nodes are in none.

    ``test_rest`` holds every labelled node outside train and val. It is larger than a fixed test set that
    leaves nodes out; for the other rules it equals ``test``.
    """

    train: Tensor
    val: Tensor
    test: Tensor
    rule: str
    seed: int
    test_rest: Tensor

    @property
    def sizes(self) -> dict[str, int]:
        """How many nodes each part has."""
        return {part: getattr(self, part).numel() for part in PARTS}


CLASSIFICATION, REGRESSION, MULTI_LABEL = "classification", "regression", "multi-label"
#: What can be predicted of nodes.
TASKS = (CLASSIFICATION, REGRESSION, MULTI_LABEL)


def kind_of_labels(y: Tensor) -> str:
    """What labels say is predicted: whole numbers are classes, floats numbers, rows several labels."""
    if y.dim() == 2:
        return MULTI_LABEL
    return REGRESSION if y.is_floating_point() else CLASSIFICATION


def labelled(y: Tensor) -> Tensor:
    """Which nodes have a label, [N]; of several labels, all have to be known."""
    known = ~y.isnan() if y.is_floating_point() else y >= 0
    return known.all(1) if y.dim() == 2 else known


def make_split(data: Data | Tensor, rule: str | None = None, seed: int = 0) -> Split:
    """Split the labelled nodes of a graph by a rule.

    The same labels and seed give the same split on every machine.

    Args:
        data (Data or Tensor): A graph with ``y``, or ``y`` itself; a label below 0 means unlabelled. Nodes
            with numbers to predict (floats, NaN: unlabelled) are split as if they were of one class.
        rule (str, optional): A key of ``RULES`` or a name that ``load`` takes. If not given: the rule of the
            loaded set, else the graph's masks where it has them, else ``"60/20/20"``.
        seed (int): Which split of that rule; ``"fixed"`` has only one.
    """
    y = data if isinstance(data, torch.Tensor) else data.y
    masks = None if isinstance(data, torch.Tensor) else masks_of(data)
    if not isinstance(y, torch.Tensor):
        raise Node2SeqError("the graph", "it has no labels `y`", "Give a label column, or set data.y")
    if rule is None:
        own = None if isinstance(data, torch.Tensor) else data.to_dict().get("split_rule")
        rule = own or ("60/20/20" if masks is None else "fixed")
    rule = NAMES[rule].rule if rule in NAMES else rule
    if rule not in RULES:
        raise Node2SeqError(
            f"rule={rule!r}",
            "no such split rule",
            f"Take one of {', '.join(RULES)}, or the name of a data set",
        )
    if y.dim() not in (1, 2) or (y.dtype != torch.int64 and not y.is_floating_point()):
        raise Node2SeqError(
            f"labels of shape {list(y.shape)} and type {y.dtype}", "a split needs one class number per node",
            "Give y as int64 of shape [N], or numbers to predict as floats",
        )  # fmt: skip
    if kind_of_labels(y) != CLASSIFICATION and rule.startswith("20/"):
        raise Node2SeqError(
            f"rule={rule!r}", "it counts nodes of each class, and there are no classes",
            "Take 60/20/20, or give a split column",
        )  # fmt: skip
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise Node2SeqError(f"seed={seed!r}", "not a whole number from 0 to 2⁶³ − 1", "Give the run's number")

    # Where no classes are predicted, every label is of class 0.
    labels = (y if kind_of_labels(y) == CLASSIFICATION else labelled(y).long() - 1).cpu().numpy()
    if rule in ("fixed", "redrawn"):
        if masks is None:
            raise Node2SeqError(
                f"rule={rule!r}", "the graph has no train, val and test masks",
                "Take another rule, or give a split column",
            )  # fmt: skip
        train, val, test = (np.flatnonzero(mask & (labels >= 0)) for mask in masks)
        if rule == "redrawn":
            train, val = _redraw(labels, train, val, seed)
    else:
        train, val, test = _draw(labels, rule, seed)
    rest = np.setdiff1d(np.flatnonzero(labels >= 0), np.concatenate([train, val]))
    tensors = [torch.from_numpy(np.sort(part).astype(np.int64)) for part in (train, val, test, rest)]
    return Split(tensors[0], tensors[1], tensors[2], rule, seed, tensors[3])


def split_in_order(times: np.ndarray) -> list[np.ndarray] | None:
    """The first 60 %, the next 20 % and the last 20 % by time, as masks [N]; NaN is in none of them.

    Equal times stay together: a cut goes where the time changes, as near to its place as it can. None if
    there are not three different times.
    """
    known = np.sort(times[~np.isnan(times)])
    changes = np.flatnonzero(known[1:] != known[:-1]) + 1
    if changes.size < 2:
        return None
    first = changes[:-1][np.abs(changes[:-1] - int(0.6 * known.size)).argmin()]
    later = changes[changes > first]
    second = later[np.abs(later - int(0.8 * known.size)).argmin()]
    return [
        times < known[first],
        (times >= known[first]) & (times < known[second]),
        times >= known[second],
    ]


def fold_numbers(nodes: int, folds: int, seed: int) -> Tensor:
    """A random fold, 0 to ``folds`` − 1, for each of ``nodes`` nodes; fold sizes differ by at most one."""
    mixed = _mixed(np.arange(nodes), _words(nodes, seed))
    numbers = np.empty(nodes, dtype=np.int64)
    numbers[mixed] = np.arange(nodes) % folds
    return torch.from_numpy(numbers)


def _words(count: int, seed: int) -> np.ndarray:
    """Raw 64-bit words of the generator, which are specified bit for bit."""
    return np.random.Philox(key=seed).random_raw(count)


def _mixed(nodes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Nodes sorted by a random word each; numpy's own `permutation` may change with its version."""
    return nodes[np.argsort(words, kind="stable")]


def masks_of(data: Data) -> list[np.ndarray] | None:
    """The train, val and test masks of a graph, or None if it has no such split."""
    held = data.to_dict()
    masks = [held.get(f"{part}_mask") for part in PARTS]
    # Some of PyTorch Geometric's sets carry ten splits as columns of a matrix: those are not one split.
    if any(mask is None or mask.dim() != 1 for mask in masks):
        return None
    return [mask.cpu().numpy().astype(bool) for mask in masks if mask is not None]


def _draw(labels: np.ndarray, rule: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    words = _words(2 * labels.size, seed).reshape(2, labels.size)
    mixed = _mixed(np.arange(labels.size), words[0])
    of_class = [mixed[labels[mixed] == label] for label in np.unique(labels[labels >= 0])]
    if rule == "20/500/rest":
        train = _together(nodes[:20] for nodes in of_class)
        # Fresh words: by the first ones, large classes would come first among the nodes that are left.
        rest = np.sort(_together(nodes[20:] for nodes in of_class))
        rest = _mixed(rest, words[1, rest])
        return train, rest[:500], rest[500:]
    by_count = rule == "20/30/rest"
    cuts = [(20, 50) if by_count else (int(0.6 * own.size), int(0.8 * own.size)) for own in of_class]
    parts = [np.split(own, cut) for own, cut in zip(of_class, cuts, strict=True)]
    train, val, test = (_together(part[i] for part in parts) for i in range(3))
    return train, val, test


def _redraw(labels: np.ndarray, train: np.ndarray, val: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    pool = np.concatenate([train, val])
    pool = _mixed(pool, _words(labels.size, seed)[pool])
    drawn = [
        pool[labels[pool] == label][: np.sum(labels[train] == label)] for label in np.unique(labels[train])
    ]
    train = _together(drawn)
    return train, np.setdiff1d(pool, train)


def _together(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
