"""Whether a network's passes can be recorded as a CUDA graph."""

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from node2seq import ops
from node2seq.nn.hooks import has_message_hooks


class Capturable(nn.Module):
    """A network all of whose layers compute the same kernels in the same sizes every time, where the fused
    ones are used and nobody listens to single messages.
    """

    def can_capture(self, x: Tensor) -> bool:
        """Whether passes over such features can be recorded."""
        if not x.is_cuda:
            return False
        backends = {vars(module)["backend"] for module in self.modules() if "backend" in vars(module)}
        plain = ops.BACKENDS.values()  # written in PyTorch alone, they look at values
        fused = all(ops.choose_backend(name, x) not in plain for name in backends)
        layers = [module for module in self.modules() if isinstance(module, MessagePassing)]
        return fused and not any(map(has_message_hooks, layers))
