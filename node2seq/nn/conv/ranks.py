"""What ``readout="ranks"`` adds to the layer: its options, and heads, which read the graph once each."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from node2seq import ops
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice


class RankOptions(NamedTuple):
    """The options of ranks with their defaults: what another readout has as well."""

    soft: bool | None = None
    """Whether ranks are soft; by default where the order is learned."""
    scores: str | None = None
    """What scores are taken from; by default from projections of their own where ranks are soft."""
    score_channels: int = 8
    """The channels of such projections."""
    temperature: float = 1.0
    """What scores are divided by."""
    heads: int = 1
    """How many orders there are at once."""


def complete(given: RankOptions, readout: str, order: str) -> RankOptions:
    """The options with what was left open, or an error if they make no sense."""
    if readout != "ranks":
        for name, value in given._asdict().items():
            if value != RankOptions._field_defaults[name]:
                raise Node2SeqError(
                    f"{name}={value!r} with readout={readout!r}",
                    "it is an option of ranks",
                    "Leave it out, or use readout='ranks'",
                )
        return given._replace(soft=False, scores="shared")
    soft = order == "attention" if given.soft is None else bool(given.soft)
    scores = ("own" if soft else "shared") if given.scores is None else given.scores
    check_choice("scores", scores, ("own", "shared"))
    for name in ("score_channels", "heads"):
        value = getattr(given, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Node2SeqError(f"{name}={value!r}", "there is at least one", "Pass a whole number from 1 up")
    temperature: Any = given.temperature
    if not isinstance(temperature, (int, float)) or not 0 < temperature < float("inf"):
        raise Node2SeqError(
            f"temperature={temperature!r}", "scores are divided by it", "Pass a number above 0, such as 1.0"
        )
    _check_together(soft, scores, float(temperature), given.heads, order)
    return RankOptions(soft, scores, given.score_channels, float(temperature), given.heads)


def _check_together(soft: bool, scores: str, temperature: float, heads: int, order: str) -> None:
    if soft and order != "attention":
        raise Node2SeqError(
            f"soft=True with order={order!r}",
            "soft ranks are shares by a score that is learned, and this order has none",
            "Use soft=False, or order='attention'",
        )
    if not soft and (scores == "own" or temperature != 1.0):
        raise Node2SeqError(
            "scores='own' with soft=False"
            if scores == "own"
            else f"temperature={temperature} with soft=False",
            "no gradient passes through a hard order, so projections of its own would never learn"
            if scores == "own"
            else "a hard order is the same at every temperature",
            "Leave it out, or use soft=True with order='attention'",
        )
    if heads > 1 and scores != "own":
        raise Node2SeqError(
            f"heads={heads} without scores of their own",
            "every head would have the same order",
            "Use soft=True and scores='own', or heads=1",
        )


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Channels of several heads as graphs of their own: [..., N, H * d] → [R * H, N, d]."""
    if heads == 1:
        return x
    return x.unflatten(-1, (heads, -1)).movedim(-2, -3).flatten(0, -3).contiguous()


def join_heads(x: Tensor, heads: int, has_runs: bool) -> Tensor:
    """The other way round: [R * H, N, D] → [N, H * D], or [R, N, H * D] where there were runs."""
    if heads == 1:
        return x
    x = x.unflatten(0, (-1, heads)).movedim(-3, -2).flatten(-2)
    return x if has_runs else x[0]


def for_heads(x: Tensor, heads: int) -> Tensor:
    """The same for each head: [..., N, D] → [R * H, N, D]."""
    if heads == 1:
        return x
    return x.unsqueeze(-3).expand(*x.shape[:-2], heads, -1, -1).flatten(0, -3)


def taps_of_heads(weight: Tensor, heads: int, runs: int) -> Tensor:
    """Each head's matrices: [H * (K + 1), D, D] → [R * H, K + 1, D, D], the same for each run or its own."""
    if heads == 1:
        return weight
    weight = weight.unflatten(-3, (heads, -1))
    return (weight if weight.dim() == 5 else weight.expand(runs, -1, -1, -1, -1)).flatten(0, 1)


def edges_of_heads(edges: ops.EdgeValues, heads: int, runs: int) -> ops.EdgeValues:
    """What edges carry, for graphs that each head reads."""
    if heads == 1 or edges.attr is None or edges.attr.dim() == 2:
        return edges
    return edges._replace(attr=edges.attr.repeat_interleave(heads, 0, output_size=runs * heads))


def threshold_of_heads(threshold: float | Tensor, heads: int) -> float | Tensor:
    """β of each run for each of its heads."""
    return torch.repeat_interleave(threshold, heads) if isinstance(threshold, Tensor) else threshold
