"""How kernels are started: counted, with the block sizes that measured best.

Numbers that differ from graph to graph are ``do_not_specialize``: a new graph must not compile a kernel anew.

Small graphs are bound by the host. Triton binds and inspects the arguments of every launch, which takes
longer than many a kernel runs: what it compiled is kept here and started directly when such arguments come
again.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import takewhile
from operator import attrgetter, itemgetter, or_
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.runtime import driver

_dtype, _pre_run_hooks = attrgetter("dtype"), attrgetter("pre_run_hooks")

# How often each kernel ran, by name: tests ask it which path was taken.
LAUNCHES: Counter[str] = Counter()


class Tile(NamedTuple):
    """How much of a sequence a program holds at once, and how many warps work on it."""

    block: int
    warps: int
    stages: int = 1  # blocks that are under way at once, where a kernel asks for it


# Threads that hold the same sum have to hold the same bits of it, or entries disagree about who stands first.
# Fused with the first addition of a sum over threads, each thread's own product would stay unrounded.
OPTIONS = {"enable_fp_fusion": False}

# By kernel; `benchmarks/bench_ops.py` measures the neighbours of each.
TILES: dict[str, Tile] = {
    "rank_grad": Tile(16, 1),
    "rank_sum": Tile(16, 1),
    "rank_sum_by_source": Tile(16, 1),
    "score": Tile(16, 1),
    "scored_window_sum": Tile(16, 1),
    "segment_sum": Tile(8, 2),
    "window_max": Tile(4, 1),
    "window_sum": Tile(4, 1),
    "window_sum_grad": Tile(8, 1),
}
# A program's channels: 128 floats are a full line of four sectors for every lane.
WIDEST = 128
# A program's taps: more would spill; a longer kernel takes several programs per sequence.
MOST_TAPS = 16


class Ready(NamedTuple):
    """A compiled kernel, loaded on its device, and what it is started with."""

    run: Callable[..., None]
    fixed: tuple[Any, ...]  # the arguments between the stream and the kernel's own
    constants: tuple[Any, ...]  # the arguments that were compiled in; the launcher skips them

    @classmethod
    def of(cls, compiled: Any, constants: tuple[Any, ...]) -> Ready:
        """What starts a kernel that Triton has compiled; no metadata and no hooks: nobody watches."""
        start, behind = compiled.run, (compiled.packed_metadata, None, None, None)
        if not _is_known(start):
            return cls(start, (compiled.function, *behind), constants)
        how = start.launch_cooperative_grid, start.launch_pdl
        return cls(start.launch, (compiled.function, *how, *_NO_SCRATCH, *behind), constants)


# What the C function takes that Triton's launcher calls in the end: grid, stream and function; two flags;
# memory to scratch in; metadata and hooks. The launcher itself only looks whether a kernel wants such memory.
_KNOWN_VERSION, _KNOWN_ARGUMENTS, _NO_SCRATCH = "3.6.", "iiiKKppOOOOOO", (None, None)


def _is_known(start: Any) -> bool:
    """Whether the C function behind a launcher is of the form above and gets no scratch memory."""
    module = sys.modules.get(type(start).__module__)
    if getattr(module, "_BASE_ARGS_FORMAT", None) != _KNOWN_ARGUMENTS:
        return False
    if not triton.__version__.startswith(_KNOWN_VERSION) or type(start).__name__ != "CudaLauncher":
        return False
    return start.global_scratch_size == start.profile_scratch_size == 0


# By what Triton tells kernels apart with; see `signature`.
READY: dict[tuple[Any, ...], Ready] = {}


class Last(NamedTuple):
    """What a kernel with some constants was started with last.

    To see that arguments are of the same kind takes two thirds of the time of working out their signature.
    """

    device: int
    dtypes: list[torch.dtype]  # of the tensors, all aligned; numbers come behind them
    numbers: tuple[int, ...]
    ready: Ready


LAST: dict[tuple[Any, ...], Last] = {}


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
    """Starts a kernel on the device of its first argument, unless there is nothing to do."""
    if 0 in grid:
        return
    LAUNCHES[kernel.fn.__name__] += 1
    device = args[0].get_device()
    if device < 0 or torch.version.hip:  # Triton's interpreter; AMD's kernels differ in more than `signature`
        kernel[grid](*args, **meta, **OPTIONS)
    elif device == torch.cuda.current_device():
        _start(kernel, device, grid, args, meta)
    else:
        with torch.cuda.device(device):
            _start(kernel, device, grid, args, meta)


def _start(kernel: Any, device: int, grid: tuple[int, ...], args: tuple[Any, ...], meta: dict) -> None:
    variant, is_watched = (kernel.fn, *meta, *meta.values()), _is_watched(kernel)
    last = LAST.get(variant)
    if last is not None and last.device == device and not is_watched:
        passed = _alike(args, last)
        if passed is not None:
            _run(last.ready, device, grid, passed)
            return
    found, passed = signature(kernel, args, meta)
    ready = READY.get((device, *found))
    if ready is not None and not is_watched:
        _run(ready, device, grid, passed)
        _note(variant, device, args, ready)
        return
    compiled = kernel[grid](*args, **meta, **OPTIONS)
    if hasattr(compiled, "packed_metadata"):
        constants = tuple(meta[name] for name in kernel.arg_names[len(args) :])
        READY[(device, *found)] = Ready.of(compiled, constants)


def _alike(args: tuple[Any, ...], last: Last) -> list[int] | None:
    """The arguments as they are passed, if they are of the same kinds as the last ones."""
    number = len(last.dtypes)
    tensors, numbers = args[:number], args[number:]
    if numbers != last.numbers or [*map(type, numbers)] != [int] * len(numbers):
        return None
    if [*map(_dtype, tensors)] != last.dtypes:
        return None
    pointers = [*map(Tensor.data_ptr, tensors)]
    return None if reduce(or_, pointers) % 16 else [*pointers, *numbers]


def _run(ready: Ready, device: int, grid: tuple[int, ...], passed: Sequence[Any]) -> None:
    x, y, z = (*grid, 1, 1)[:3]
    ready.run(x, y, z, _stream(device), *ready.fixed, *passed, *ready.constants)


def _note(variant: tuple[Any, ...], device: int, args: tuple[Any, ...], ready: Ready) -> None:
    """Keeps how a kernel was started, where tensors come first, aligned, and whole numbers behind them."""
    tensors = [*takewhile(lambda arg: isinstance(arg, Tensor), args)]
    numbers = args[len(tensors) :]
    is_aligned = all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    if is_aligned and all(type(number) is int for number in numbers):
        LAST[variant] = Last(device, [tensor.dtype for tensor in tensors], numbers, ready)


def signature(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> tuple[tuple[Any, ...], list[Any]]:
    """What Triton compiles a kernel anew for, and the arguments with pointers in the place of tensors.

    These are a tensor's type and whether it begins at a multiple of 16 bytes; a number's width and, where
    it counts, whether it is 1 or a multiple of 16; and everything that is compiled in.
    """
    found, passed = [kernel.fn, *meta.items()], []
    for place, arg in enumerate(args):
        if isinstance(arg, Tensor):
            pointer = arg.data_ptr()
            found += (arg.dtype, pointer % 16 == 0)
            passed.append(pointer)
        elif type(arg) is int:
            width = (arg if arg >= 0 else ~arg).bit_length() // 32  # up to 31 bits, up to 63, more
            is_special = not kernel.params[place].do_not_specialize
            found.append((width, is_special and arg == 1, is_special and arg % 16 == 0))
            passed.append(arg)
        else:
            found.append((type(arg), arg))
            passed.append(arg)
    return tuple(found), passed


class Given(NamedTuple):
    """Stands for a tensor that is another one each time, by its number among these."""

    number: int


def given(count: int) -> Iterator[Given]:
    """One for each of so many tensors."""
    return map(Given, range(count))


class Again(NamedTuple):
    """What starts a kernel on other tensors of the same kinds."""

    name: str
    run: Callable[..., None]
    in_order: Callable[[list[Any]], tuple[Any, ...]]  # what it takes, out of what changes and what stays
    staying: list[Any]


class Prepared:
    """A launch of which some tensors are not known yet.

    Args:
        kernel: The kernel.
        grid (tuple): How many programs there are.
        *args: Its arguments, with a :class:`Given` in the place of each tensor that changes.
        **meta: What is compiled in.
    """

    def __init__(self, kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
        self.kernel, self.grid, self.args, self.meta = kernel, grid, args, meta

    def start(self, tensors: tuple[Tensor, ...]) -> Again | None:
        """Starts it on these tensors; once it is known how such arguments are passed, it tells."""
        args = tuple(tensors[arg.number] if isinstance(arg, Given) else arg for arg in self.args)
        launch(self.kernel, self.grid, *args, **self.meta)
        last = LAST.get((self.kernel.fn, *self.meta, *self.meta.values()))
        if last is None or last.device != args[0].get_device() or _alike(args, last) is None:
            return None
        return self._again(last.ready, len(tensors))

    def _again(self, ready: Ready, changing: int) -> Again:
        """Of what changes, the stream comes first, and then a pointer to each of so many tensors."""
        places, staying = [], []
        for value in (*(*self.grid, 1, 1)[:3], Given(-1), *ready.fixed, *self.args, *ready.constants):
            if isinstance(value, Given):
                places.append(1 + value.number)
            else:
                places.append(1 + changing + len(staying))
                staying.append(value.data_ptr() if isinstance(value, Tensor) else value)
        return Again(self.kernel.fn.__name__, ready.run, itemgetter(*places), staying)


class Repeated:
    """Launches that come again on other tensors, one after the other: what stays the same is looked at once.

    Args:
        *launches (Prepared): The launches. A tensor that changes has the same number in all of them.
    """

    def __init__(self, *launches: Prepared) -> None:
        self.launches = [each for each in launches if 0 not in each.grid]
        self.kernels = [each.kernel for each in self.launches]
        self.again: list[Again] = []  # none before all of them are known

    def __call__(self, *tensors: Tensor) -> None:
        """Starts them on these tensors."""
        if self.again and self._start_again(tensors):
            return
        found: Any = [each.start(tensors) for each in self.launches]
        self.again = [] if None in found else found
        self.device, self.dtypes = tensors[0].get_device(), [*map(_dtype, tensors)]

    def _start_again(self, tensors: tuple[Tensor, ...]) -> bool:
        """Starts them as the last time, unless something is not as it was then."""
        device = tensors[0].get_device()
        if device != self.device or device != torch.cuda.current_device() or _is_watched(*self.kernels):
            return False
        pointers = [*map(Tensor.data_ptr, tensors)]
        if [*map(_dtype, tensors)] != self.dtypes or reduce(or_, pointers) % 16:
            return False
        changing = [_stream(device), *pointers]
        for name, run, in_order, staying in self.again:
            LAUNCHES[name] += 1
            run(*in_order(changing + staying))
        return True


def _stream(device: int) -> int:
    return driver.active.get_current_stream(device)  # pyright: ignore[reportAttributeAccessIssue]


def _is_watched(*kernels: Any) -> bool:
    """Whether a profiler or a debugger wants to hear of launches."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    listeners = getattr(enter, "calls", enter) or getattr(leave, "calls", leave)
    return bool(listeners or any(map(_pre_run_hooks, kernels)))


# Triton has functions for these that kernels may call too; from the host they take longer than a launch.
def cdiv(count: int, size: int) -> int:
    """How many blocks of a size it takes."""
    return -(-count // size)


def next_power_of_2(count: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << (count - 1).bit_length()


def channel_blocks(channels: int) -> tuple[int, int]:
    """The number of blocks that channels are cut into, and their width, a power of two."""
    width = min(next_power_of_2(channels), WIDEST)
    return cdiv(channels, width), width


def tap_blocks(kernel_size: int) -> tuple[int, int]:
    """The number of blocks that taps are cut into, and their width, a power of two."""
    width = min(next_power_of_2(kernel_size), MOST_TAPS)
    return cdiv(kernel_size, width), width


def plain(x: Tensor) -> Tensor:
    """The tensor as kernels read it; they write to new ones, so that autograd need not be told."""
    return x.contiguous()
