"""R models of equal shapes → one whose parameters have a leading dimension of runs, and back.

The layers of this package find out from their weights how many runs they are computing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from node2seq.errors import Node2SeqError

#: Options that may differ between the runs of a stack: numbers that decide about no shape and no branch.
PER_RUN = frozenset(
    {"p", "threshold", "conv_scale", "input_dropout", "dropout", "node_dropout", "attention_dropout"}
)


def stack(models: Sequence[nn.Module]) -> nn.Module:
    """One model that computes what each of ``models`` computes, [R, N, D], up to rounding.

    Options of :data:`PER_RUN` that differ become tensors [R]; any other difference is an error.
    """
    stacked = copy.deepcopy(models[0])
    for modules in _side_by_side([stacked, *models]):
        into, parts = modules[0], modules[1:]
        for kind in ("_parameters", "_buffers"):
            for name, own in list(getattr(into, kind).items()):
                if own is not None:
                    values = [getattr(part, kind)[name] for part in parts]
                    _check_shapes(name, values)
                    getattr(into, kind)[name] = _like(own, torch.stack([value.detach() for value in values]))
        for name in _options(into):
            values = [vars(part).get(name) for part in parts]
            if any(value != values[0] for value in values):
                _vary(into, name, values)
    return stacked


def unstack(stacked: nn.Module, run: int) -> nn.Module:
    """The model of one run, as it is now."""
    model = take(stacked, [run])
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = _like(parameter, parameter.detach()[0])
        for name, buffer in list(module._buffers.items()):
            if buffer is not None and name in PER_RUN:
                delattr(module, name)
                setattr(module, name, float(buffer))
            elif buffer is not None:
                module._buffers[name] = buffer[0]
    return model


def take(stacked: nn.Module, runs: Sequence[int]) -> nn.Module:
    """The stacked model of some of the runs, as they are now."""
    # Every tensor of a stacked model has a leading dimension of runs; none is copied before it is cut.
    own = [*stacked.parameters(), *stacked.buffers()]
    index = torch.tensor(runs, device=own[0].device) if own else None
    cut: dict[int, object] = {id(tensor): _like(tensor, tensor.detach()[index]) for tensor in own}
    return copy.deepcopy(stacked, cut)


def _like(tensor: Tensor, values: Tensor) -> Any:
    """Values as a parameter where the tensor is one, trained if it is."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(values, requires_grad=tensor.requires_grad)
    return values


def _side_by_side(models: Sequence[nn.Module]) -> Iterator[list[nn.Module]]:
    """The modules of the same place in each model."""
    by_name = [dict(model.named_modules()) for model in models]
    for name, module in by_name[0].items():
        others = [modules.get(name) for modules in by_name]
        if any(type(other) is not type(module) for other in others):
            raise Node2SeqError(
                f"models that differ in {name or 'their class'}",
                "runs that are trained together have the same layers",
                "Stack models of one class, made with the same options",
            )
        yield [other for other in others if other is not None]


def _options(module: nn.Module) -> list[str]:
    """The names of what a module was made with: plain values."""
    plain = (bool, int, float, str, tuple, type(None))
    hidden = ("_", "training")
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, plain) and not name.startswith(hidden)
    ]


def _check_shapes(name: str, values: Sequence[Tensor | None]) -> None:
    shapes = {None if value is None else tuple(value.shape) for value in values}
    if len(shapes) > 1:
        raise Node2SeqError(
            f"{name} of shapes {', '.join(map(str, shapes))}",
            "runs that are trained together have the same shapes",
            "Stack models of the same sizes",
        )


def _vary(module: nn.Module, name: str, values: Sequence[object]) -> None:
    """Let an option be one number for each run."""
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    if name not in PER_RUN or len(numbers) < len(values):
        raise Node2SeqError(
            f"{name}={', '.join(map(repr, dict.fromkeys(values)))}",
            f"{type(module).__name__} then computes in different ways, which cannot be stacked",
            f"Stack models that differ in no other options than {', '.join(sorted(PER_RUN))}",
        )
    tensors = [*module.buffers(), *module.parameters()]
    delattr(module, name)
    device = tensors[0].device if tensors else None
    number = torch.tensor(numbers, dtype=torch.float64, device=device)
    module.register_buffer(name, number, persistent=False)
