"""What all networks have in common."""

from dataclasses import fields
from inspect import Parameter, Signature
from typing import Any, ClassVar, Self, get_type_hints

import torch.nn.functional as F
import torch_geometric.nn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from node2seq import ops
from node2seq.nn.hooks import has_message_hooks
from node2seq.options import build


class Network(nn.Module):
    """A network that classifies nodes. Every option is an attribute of the same name.

    A subclass names the dataclass of its options and makes its layers in ``_make_layers``. Unless it says
    otherwise, there are two: dropout, a layer, ReLU, dropout, a layer.

    Args:
        in_channels (int): Size of each input sample, or -1 to derive it from the first input.
        hidden_channels (int): Size of the hidden layers' outputs.
        out_channels (int): Number of classes.
        **options: The other fields of ``Options``.
    """

    Options: ClassVar[type]
    in_channels: int
    hidden_channels: int
    out_channels: int
    convs: nn.ModuleList
    dropouts: nn.ModuleList

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Gives the class the signature that its options make, for ``help``."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__signature__ = None  # its own, not an inherited one
        elif "Options" in vars(cls):
            cls.__signature__ = _signature(cls.Options)

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int, **options: Any) -> None:
        given = {"hidden_channels": hidden_channels, **options}
        self._make(in_channels, out_channels, build(self.Options, given, f"options of {type(self).__name__}"))

    @classmethod
    def with_options(cls, in_channels: int, out_channels: int, options: Any) -> Self:
        """Make the network of an instance of ``Options``, which is complete and checked."""
        network = cls.__new__(cls)
        network._make(in_channels, out_channels, options)
        return network

    def _make(self, in_channels: int, out_channels: int, options: Any) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        for field in fields(options):
            setattr(self, field.name, getattr(options, field.name))
        self._make_layers(options)

    def _make_layers(self, options: Any) -> None:
        """Makes layers and dropouts; the order decides what is drawn for each of them."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draws all parameters, and the seeds of the dropouts, anew."""
        for child in self.children():
            reset(child)

    def can_capture(self, x: Tensor) -> bool:
        """Whether passes over such features can be recorded as a CUDA graph.

        They can where all layers use fused kernels, which have the same sizes every time, and nobody listens
        to single messages.
        """
        if not x.is_cuda:
            return False
        backends = {vars(module)["backend"] for module in self.modules() if "backend" in vars(module)}
        plain = ops.BACKENDS.values()  # written in PyTorch alone, they look at values
        fused = all(ops.choose_backend(name, x) not in plain for name in backends)
        layers = [module for module in self.modules() if isinstance(module, MessagePassing)]
        return fused and not any(map(has_message_hooks, layers))

    def embed(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The node embeddings before the last layer, [N, H]."""
        return F.relu(self.convs[0](self.dropouts[0](x, n_id), edge_index))

    def forward(self, x: Tensor, edge_index: Any, n_id: Tensor | None = None) -> Tensor:
        """The logits of each class, [N, out_channels].

        Args:
            x (torch.Tensor): The node features.
            edge_index (torch.Tensor or SparseTensor): The edges.
            n_id (torch.Tensor, optional): The nodes' ids in the graph that this is a part of, so that dropout
                drops the same elements however batches are cut.
        """
        return self.convs[1](self.dropouts[1](self.embed(x, edge_index, n_id), n_id), edge_index)


def make_linear(in_channels: int, out_channels: int, bias: bool = True) -> nn.Module:
    """A linear layer, or for -1 one that takes its size from its first input."""
    if in_channels == -1:
        return torch_geometric.nn.Linear(in_channels, out_channels, bias)
    return nn.Linear(in_channels, out_channels, bias)


def _signature(options: type) -> Signature:
    types = get_type_hints(options)
    channels = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=int)
        for name in ("in_channels", "hidden_channels", "out_channels")
    ]
    others = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])
        for field in fields(options)
        if field.name != "hidden_channels"
    ]
    return Signature([*channels, *others])
