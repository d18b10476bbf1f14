"""What networks of three layers have in common, of which one stands out: making, scaling and naming it."""

from typing import Any

import torch
from torch import nn

from node2seq.nn.conv.gcn import GCNConv
from node2seq.nn.conv.node2seq import Node2SeqConv
from node2seq.nn.models.network import Network


class ThreeLayers(Network):
    """Two GCN layers, and at ``position`` 1, 2 or 3 the layer that a subclass makes in ``_make_special``."""

    position: int = 2
    conv_scale: float

    def _make_convs(self, options: Any, **shared: Any) -> nn.ModuleList:
        hidden = self.hidden_channels
        joined = 2 * hidden if options.skip == "concat" else hidden
        widths = [(self.in_channels, hidden), (hidden, hidden), (joined, self.out_channels)]
        return nn.ModuleList(
            self._make_special(options, *pair, **shared)
            if place == self.position
            else GCNConv(*pair, backend=options.backend, **shared)
            for place, pair in enumerate(widths, 1)
        )

    def _make_special(self, options: Any, width_in: int, width_out: int, **shared: Any) -> nn.Module:
        raise NotImplementedError

    def _special_layers(self) -> list[nn.Module]:
        return [self.convs[self.position - 1]]

    def _scale_convolution(self) -> None:
        for conv in self._special_layers():
            if isinstance(conv, Node2SeqConv):
                with torch.no_grad():
                    conv.weight.mul_(self.conv_scale)

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        super().reset_parameters()
        self._scale_convolution()

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """The Node2Seq layer's parameters (or those of what stands in its place), and all others."""
        special = [parameter for conv in self._special_layers() for parameter in conv.parameters()]
        ids = set(map(id, special))
        return {"node2seq": special, "other": [p for p in self.parameters() if id(p) not in ids]}

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Networks of before there was Node2SeqPlus were saved with a dropout of nodes, whatever they dropped.
        if "node_drop" not in self._modules:
            for name in ("seed", "step"):
                state_dict.pop(f"{prefix}node_drop.{name}", None)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
