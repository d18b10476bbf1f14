"""Exponential averages of the weights, each run with a factor of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from node2seq.train.optimizer import per_run


class WeightAverages:
    """Averages of parameters; there are none where no run asks for them.

    Args:
        parameters: What is averaged; with more than one run, each has a leading dimension of runs.
        factors: How much of the average each run keeps per step; 0: none of it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], factors: Sequence[float]) -> None:
        self._parameters = list(parameters) if any(factors) else []
        self._factors = [per_run(factors, p) for p in self._parameters]
        self.tensors = [p.detach().clone() for p in self._parameters]

    @torch.no_grad()
    def update(self, epoch: Tensor) -> None:
        """Take in the parameters as they are after a step, the first of which has the number 0."""
        if not self.tensors:
            return
        # The first steps forget faster, so that the initial weights do not linger.
        start = (1 + epoch) / (10 + epoch)
        for average, parameter, share in zip(self.tensors, self._parameters, self._factors, strict=True):
            average.lerp_(parameter, 1 - torch.minimum(share, start.to(share.dtype)))

    def by_name(self, model: nn.Module) -> dict[str, Tensor]:
        """The averages under the names that the model has for the parameters; shared ones have several."""
        if not self.tensors:
            return {}
        by_id = {id(p): average for p, average in zip(self._parameters, self.tensors, strict=True)}
        named = model.named_parameters(remove_duplicate=False)
        return {name: by_id[id(p)] for name, p in named if id(p) in by_id}

    def discard(self) -> None:
        """Forget them: from now on the weights themselves count."""
        self._parameters, self._factors, self.tensors = [], [], []
