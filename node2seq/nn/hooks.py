"""Whether a layer may skip single messages."""

from torch_geometric.nn import MessagePassing


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
