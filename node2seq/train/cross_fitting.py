"""What a training is worth by validation nodes none of which judges an epoch that it helped to choose.

The best of many epochs is above what it is worth, the more so the more an accuracy jumps about and the fewer
nodes it is of. So the nodes are cut into folds, and the hits of each are counted at the epoch that the nodes
of all other folds choose.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

# The nodes that choose an epoch are nine tenths of those that choose it in a training that is reported.
FOLDS = 10


class Folds:
    """The validation nodes of R runs, each run's cut into :data:`FOLDS` folds, of which some may be empty.

    Args:
        numbers: For each run, the fold of each of its validation nodes.
        device: Where the runs are trained.
    """

    def __init__(self, numbers: Sequence[Tensor], device: torch.device) -> None:
        places = [(own.cpu() == fold).nonzero().view(-1) for own in numbers for fold in range(FOLDS)]
        sizes = torch.tensor([own.numel() for own in places])
        # Gathered fold by fold and summed: adding each node to its fold's sum would race on a GPU.
        padded = pad_sequence(places, batch_first=True)
        real = torch.arange(padded.size(1)) < sizes[:, None]
        self._places, self._real = (t.view(len(numbers), FOLDS, -1).to(device) for t in (padded, real))
        self._sizes = sizes.view(len(numbers), FOLDS).to(device)
        self._runs = torch.arange(len(numbers), device=device)[:, None, None]

    def tally(self, right: Tensor, losses: Tensor) -> Tensor:
        """Hits and summed loss of each fold, [R, FOLDS, 2], from those of each validation node, [R, T]."""
        values = torch.stack([right.double(), losses.double()], dim=-1)[self._runs, self._places]
        return values.masked_fill(~self._real[..., None], 0.0).sum(2)

    def hits(self, tallies: Tensor, epochs: Tensor) -> Tensor:
        """Count the validation nodes of each run that are hit when the other folds choose the epoch, [R].

        Args:
            tallies: Those of each epoch, [epochs, R, FOLDS, 2].
            epochs: How many epochs each run was trained, [R]; those after them count for nothing.
        """
        # Summed over the others, not taken from the sum of all: a fold must not decide by a rounding either.
        others = 1 - torch.eye(FOLDS, dtype=tallies.dtype, device=tallies.device)
        choosing = torch.einsum("erfc,fg->ergc", tallies, others)
        alone = self._sizes == self._sizes.sum(1, keepdim=True)  # a single node has nobody to choose for it
        hits, losses = torch.where(alone[..., None], tallies, choosing).unbind(-1)
        trained = torch.arange(len(tallies), device=tallies.device)[:, None] < epochs  # [epochs, R]
        # Higher accuracy, then lower loss; the first of equals, which is what argmin gives.
        hits = hits.masked_fill(~trained[..., None], -1.0)
        chosen = losses.masked_fill(hits < hits.amax(0), torch.inf).argmin(0, keepdim=True)
        return tallies[..., 0].gather(0, chosen)[0].sum(1)
