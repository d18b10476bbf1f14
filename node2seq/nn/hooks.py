"""Whether a layer may skip single messages."""

from torch.nn import Module
from torch_geometric.nn import Linear, MessagePassing


def has_message_hooks(layer: MessagePassing) -> bool:
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


def is_plain_linear(module: Module) -> bool:
    """Whether a linear layer may be read as a matrix: nobody put another in its place or hooks onto it."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return type(module) is Linear and not any(hooks)
