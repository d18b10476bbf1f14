"""What a training is worth by validation nodes none of which judges an epoch that it helped to choose.

The best of many epochs is above what it is worth, the more so the more an accuracy jumps about and the fewer
nodes it is of. So the nodes are cut into folds, and each is judged at the epoch that the nodes of all other
folds choose: its hits are counted, or, for a metric that is no mean over nodes, its own value is taken.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from node2seq.train.metrics import Score

# The nodes that choose an epoch are nine tenths of those that choose it in a training that is reported.
FOLDS = 10


class Folds:
    """The validation nodes of R runs, each run's cut into :data:`FOLDS` folds, of which some may be empty.

    Args:
        numbers: For each run, the fold of each of its validation nodes.
        device: Where the runs are trained.
        score: What epochs are chosen and folds judged by; None: what is a mean over nodes.
    """

    def __init__(self, numbers: Sequence[Tensor], device: torch.device, score: Score | None = None) -> None:
        self._score = score
        self._numbers = pad_sequence([own.cpu() for own in numbers], batch_first=True, padding_value=-1).to(
            device
        )
        places = [(own.cpu() == fold).nonzero().view(-1) for own in numbers for fold in range(FOLDS)]
        sizes = torch.tensor([own.numel() for own in places])
        # Gathered fold by fold and summed: adding each node to its fold's sum would race on a GPU.
        padded = pad_sequence(places, batch_first=True)
        real = torch.arange(padded.size(1)) < sizes[:, None]
        self._places, self._real = (t.view(len(numbers), FOLDS, -1).to(device) for t in (padded, real))
        self._sizes = sizes.view(len(numbers), FOLDS).to(device)
        self._runs = torch.arange(len(numbers), device=device)[:, None, None]

    @property
    def columns(self) -> int:
        """How many figures a tally holds for each fold."""
        return 2 if self._score is None else 4

    def tally(self, credit: Tensor, losses: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Hits and summed loss of each fold; for another metric also its own value and that of the others.

        Args:
            credit: Whether each validation node is predicted right, or what it adds to the mean, [R, T].
            losses: Its loss, [R, T].
            logits: What the model gives, [R, T, outputs].
            labels: What it is, [R, T].

        Returns:
            [R, FOLDS, 2], or [R, FOLDS, 4].
        """
        values = torch.stack([credit.double(), losses.double()], dim=-1)[self._runs, self._places]
        sums = values.masked_fill(~self._real[..., None], 0.0).sum(2)
        if self._score is None:
            return sums
        real = self._numbers >= 0
        inside = [self._numbers == fold for fold in range(FOLDS)]
        own = [self._score(logits, labels, fold) for fold in inside]
        others = [self._score(logits, labels, real & ~fold) for fold in inside]
        return torch.cat([sums, torch.stack([torch.stack(own, 1), torch.stack(others, 1)], dim=-1)], dim=-1)

    def judge(self, tallies: Tensor, epochs: Tensor) -> Tensor:
        """What each run is worth when the other folds choose the epoch of each, [R].

        Args:
            tallies: Those of each epoch, [epochs, R, FOLDS, …].
            epochs: How many epochs each run was trained, [R]; those after them count for nothing.
        """
        # Summed over the others, not taken from the sum of all: a fold must not decide by a rounding either.
        all_but_one = 1 - torch.eye(FOLDS, dtype=tallies.dtype, device=tallies.device)
        choosing = torch.einsum("erfc,fg->ergc", tallies[..., :2], all_but_one)
        alone = self._sizes == self._sizes.sum(1, keepdim=True)  # no other node can choose for a single node
        value, losses = torch.where(alone[..., None], tallies[..., :2], choosing).unbind(-1)
        own = tallies[..., 0]
        if self._score is not None:
            own = tallies[..., 2]
            value = torch.where(alone, own, tallies[..., 3]).nan_to_num(0.0)
        trained = torch.arange(len(tallies), device=tallies.device)[:, None] < epochs  # [epochs, R]
        # The higher value, then the lower loss; the first of equals, which is what argmin gives.
        value = value.masked_fill(~trained[..., None], -torch.inf)
        chosen = losses.masked_fill(value < value.amax(0), torch.inf).argmin(0, keepdim=True)
        own = own.gather(0, chosen)[0]
        if self._score is None:
            return own.sum(1) / self._sizes.sum(1)
        weight = self._sizes.masked_fill(own.isnan(), 0)  # of a single class, a fold may have no value
        return (own.nan_to_num(0.0) * weight).sum(1) / weight.sum(1).clamp(min=1)
