"""Whether a layer may skip single messages."""

from typing import Any

from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import is_torch_sparse_tensor


def is_listened_to(layer: MessagePassing) -> bool:
    """Whether an explainer or a hook wants to see or change single messages; the fused path has none."""
    hooks = (
        layer._propagate_forward_pre_hooks,
        layer._propagate_forward_hooks,
        layer._message_forward_pre_hooks,
        layer._message_forward_hooks,
        layer._aggregate_forward_pre_hooks,
        layer._aggregate_forward_hooks,
    )
    return bool(layer.explain) or any(hooks)


def can_fuse(layer: MessagePassing, edge_index: Any) -> bool:
    """Whether a layer may aggregate over a plan: plain edges, and nobody wants to see single messages."""
    plain = isinstance(edge_index, Tensor) and not is_torch_sparse_tensor(edge_index)
    return plain and not is_listened_to(layer)
