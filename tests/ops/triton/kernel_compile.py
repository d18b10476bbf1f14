"""Compiles every kernel for sm_90 (H100, H200) without a GPU: the interpreter does not show what fails there.

    python tests/ops/triton/kernel_compile.py

The backend runs as it would, except that each launch compiles its kernel for the types, alignments and block
sizes of that launch instead of running it.
"""

import json
import pkgutil
import sys
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from node2seq import ops
from node2seq.ops import triton as fused
from node2seq.ops.triton import build_few, build_sequences, partition, plan, selection
from node2seq.ops.triton.launch import OPTIONS, signature
from node2seq.ops.triton.sorting import sort_rows

_TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
}
_OPTIONS = {"num_warps", "num_stages"}
_TARGET = GPUTarget("cuda", 90, 32)
# Of the graph that is selected from.
_NODES = 300


def kernels() -> set[str]:
    """The names of all kernels of the package."""
    found = set()
    for module in pkgutil.iter_modules(fused.__path__):
        names = vars(import_module(f"{fused.__name__}.{module.name}"))
        found |= {name for name in names if name.endswith("_kernel")}
    return found


def confused(kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> list[str]:
    """The arguments that Triton compiles anew for when they change, and whose change we would not notice."""
    bind = create_function_from_signature(kernel.signature, kernel.params, make_backend(_TARGET))

    def both(changed: tuple[Any, ...], **more: Any) -> tuple[Any, Any]:
        return bind(*changed, **(meta | more), **OPTIONS)[1:], signature(kernel, changed, meta | more)[0]

    triton_key, our_key = both(args)
    found = []
    for place, arg in enumerate(args):
        for other in _others(arg):
            theirs, ours = both((*args[:place], other, *args[place + 1 :]))
            if theirs != triton_key and ours == our_key:
                found.append(f"{kernel.arg_names[place]}: {arg} and {other}")
    for name, value in meta.items():
        theirs, ours = both(args, **{name: value + 1})
        assert theirs != triton_key
        if ours == our_key:
            found.append(name)
    return found


def _others(arg: Any) -> list[Any]:
    """Arguments that a kernel might get in the place of this one."""
    if not isinstance(arg, Tensor):
        return [0, 1, 2, 16, 17, 100, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**62, 2**63, True, 0.5, None]
    memory = torch.zeros(64, dtype=torch.uint8)
    aligned = memory[-memory.data_ptr() % 16 :][:32]
    return [aligned.view(dtype)[first:] for dtype in (*_TYPES, torch.float16) for first in (0, 1)] + [None]


class Compiler:
    """Takes the place of ``launch``: compiles instead of running, each variant once."""

    def __init__(self) -> None:
        self.compiled: dict[str, Any] = {}
        self.confused: set[str] = set()

    def __call__(self, kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
        """Compiles a kernel as Triton would for these arguments."""
        if 0 in grid:
            return
        self.confused |= {f"{kernel.fn.__name__} {what}" for what in confused(kernel, args, meta)}
        options = {name: value for name, value in meta.items() if name in _OPTIONS} | OPTIONS
        constants = {name: value for name, value in meta.items() if name not in _OPTIONS}
        signature, attributes = {}, {}
        for place, (name, value) in enumerate(zip(kernel.arg_names, args, strict=False)):
            is_special = not kernel.params[place].do_not_specialize
            if not isinstance(value, Tensor) and value == 1 and is_special:
                constants[name] = value  # as Triton's own launcher does
                continue
            signature[name] = _TYPES[value.dtype] if isinstance(value, Tensor) else "i32"
            if isinstance(value, Tensor) or (value % 16 == 0 and is_special):
                attributes[(place,)] = [["tt.divisibility", 16]]
        signature |= dict.fromkeys(constants, "constexpr")
        signature = {name: signature[name] for name in kernel.arg_names}
        title = f"{kernel.fn.__name__} {constants} {options}"
        if title not in self.compiled:
            source = ASTSource(kernel, signature, constants, attributes)
            self.compiled[title] = triton.compile(source, target=_TARGET, options=options)

    def names(self) -> list[str]:
        """The kernels that were compiled."""
        return sorted({title.split()[0] for title in self.compiled})

    def fused(self) -> list[str]:
        """Those among them that fuse a product of floats with an addition."""
        return [title for title, kernel in self.compiled.items() if "fma.rn.f32" in kernel.asm["ptx"]]


def read_totals(unread: Any) -> list[list[int]]:
    """Counts of a plan, counted here: the kernels that do so are compiled, not run."""
    return [counted(part.ptr) for part in unread]


def counted(ptr: Tensor) -> list[int]:
    """What the kernels would add up for rows that start there."""
    length = ptr.diff()
    sizes = partition.sizes_on(ptr.device, plan.Work.cuts()[2])
    rows = [int((length > size).sum()) for size in sizes.flip(0)[1:]] + [length.numel()]
    parts, chunks = (
        int(((length[length > size] + size - 1) // size).sum()) for size in (plan.ITEM, plan.SORT_WIDTHS[-1])
    )
    return [*rows, *[rows[-1] + parts] * len(rows), *[rows[-1] + parts + chunks] * len(rows)]


class CountedTotals(partition.Totals):
    """Knows the rows whose counts it stands for."""

    def __init__(self, ptr: Tensor) -> None:
        self.ptr = ptr


class CountedOrder(partition.Order):
    """Leaves counting to :func:`counted`."""

    @classmethod
    def of(cls, ptr: Tensor, entries: int, sizes: tuple[int, ...], item: int, chunk: int) -> Any:
        """The order, and what knows its rows."""
        return super().of(ptr, entries, sizes, item, chunk)[0], CountedTotals(ptr)


def compile_all(kernel_sizes: tuple[int, ...] = (3, 10, 20)) -> Compiler:
    """Runs every operation, forward and backward, over a graph with hubs."""
    compiler = Compiler()
    for module in pkgutil.iter_modules(fused.__path__):
        names = vars(import_module(f"{fused.__name__}.{module.name}"))
        if "launch" in names:
            names["launch"] = compiler
    plan.Order, plan.read_totals = CountedOrder, read_totals
    small = plan.MOST_PADDED, plan.MOST_COMPARED
    plan.MOST_PADDED = plan.MOST_COMPARED = 0  # every width by itself
    lengths = torch.tensor([0, 1, 20, 40, 100, 200, 300, 600, 3000])
    rows = ops.Rows.from_lengths(lengths)
    index = torch.cat([torch.arange(int(length)) for length in lengths])
    # One source that stands in many sequences is a hub of the transposed graph.
    sequences = ops.Sequences(rows, torch.where(index < 300, 0, index), 3000)
    without_hubs = ops.Sequences(ops.Rows.from_lengths(lengths[:5]), sequences.index[:161], 3000)
    _compile_building()
    fused.precedence(torch.zeros(20_000))  # more than are sorted in one launch
    source, target = (torch.zeros(size, requires_grad=True) for size in (3000, rows.num_rows))
    fused.attention(source, target, sequences, 0.2).sum().backward()
    for channels in (64, 5):
        x = torch.zeros(3000, channels, requires_grad=True)
        rank = partial(fused.score_and_rank, torch.zeros(9, channels), x.detach(), sequences)
        sort_rows(torch.zeros(rows.num_entries), torch.arange(3000), rank().layout.plan)
        weight = torch.zeros(rows.num_entries, requires_grad=True)
        fused.aggregate(x, sequences, weight).sum().backward()
        for graph, count in ((sequences, 32), (without_hubs, 8)):
            weight = torch.zeros(graph.rows.num_entries)
            fused.largest(x, graph, weight, count).sum().backward()
        for kernel_size in kernel_sizes if channels == 64 else kernel_sizes[1:2]:
            taps = torch.zeros(kernel_size, channels, channels, requires_grad=True)
            fused.convolve_max(x, taps, sequences)[0].sum().backward()
            fused.convolve_sum(x, taps, sequences).sum().backward()
            summed = rank(ops.Convolution(kernel_size, "sum")).layout
            fused.convolve_sum(x, taps, summed).sum().backward()
    for channels, count in ((64, 3), (300, 18)):
        _compile_ranks(sequences, channels, count)
    _compile_layer(kernel_sizes[::2])
    plan.MOST_PADDED, plan.MOST_COMPARED = small
    _compile_layer(kernel_sizes[:1])
    _compile_selection()
    _compile_dropout()
    return compiler


def _compile_ranks(sequences: ops.Sequences, channels: int, count: int) -> None:
    """Scores, soft ranks and the convolution over them."""
    shapes = (sequences.rows.num_rows, 8), (3000, 8), (3000, channels), (count + 1, channels, 64)
    query, key, x, weight = (torch.zeros(shape, requires_grad=True) for shape in shapes)
    ranks = fused.soft_ranks(fused.pair_scores(query, key, sequences), sequences, count)
    fused.convolve_ranks(x, weight, ranks, sequences).sum().backward()


def _compile_building() -> None:
    """A graph that is new; as nothing runs, it has no entries."""

    def nothing(unread: Any) -> list[list[int]]:
        return [[0] * (48 if isinstance(part, partition.Totals) else part.numel()) for part in unread]

    build_sequences.read_totals = nothing
    build_few.torch = SimpleNamespace(empty=torch.zeros, int32=torch.int32, int64=torch.int64)
    for merge in (False, True):
        for edges in (torch.zeros(2, 5000).long(), torch.zeros(2, 50_000).long()):
            how = {"add_self_loops": True, "merge_duplicates": merge, "expect_backward": True}
            fused.build(edges[0], edges[1], 3000, 3000, **how)


def _compile_layer(kernel_sizes: tuple[int, ...]) -> None:
    """The same with own rows: as many rows as sources."""
    lengths = torch.cat([torch.tensor([0, 1, 20, 40, 100, 200, 300, 600, 3000]), torch.ones(2991).long()])
    index = torch.cat([torch.arange(int(length)) for length in lengths])
    rows = ops.Rows.from_lengths(lengths)
    sequences = ops.Sequences(rows, torch.where(index < 300, 0, index), 3000)
    root, bias = torch.zeros(64, 64, requires_grad=True), torch.zeros(64, requires_grad=True)
    x = torch.zeros(3000, 64, requires_grad=True)
    for kernel_size in kernel_sizes:
        taps = torch.zeros(kernel_size, 64, 64, requires_grad=True)
        for readout in ("max", "sum", "mean"):
            follows = ops.Convolution(kernel_size, readout, with_root=True)
            scored = fused.score_and_rank(x.detach(), x.detach(), sequences, follows).layout
            for order in (sequences, scored):
                if readout == "max":
                    out, _ = fused.convolve_max(x, taps, order, root, bias)
                else:
                    out = fused.convolve_sum(x, taps, order, root, bias, is_mean=readout == "mean")
                out.sum().backward()


def _plan_of_copies(runs: int) -> Any:
    """What the kernels are given of a plan; nothing is run, so that the numbers may be any."""
    rows = ops.Rows.from_lengths(torch.full((_NODES * runs,), 5))
    numbers = torch.zeros(5 * _NODES * runs, dtype=torch.int32)
    work = SimpleNamespace(
        ptr=rows.ptr.int(), item_row=numbers, item_first=numbers, rows=numbers, items=_NODES, item=256
    )
    return SimpleNamespace(rows=rows, index=numbers, work=work)


def _compile_selection() -> None:
    """One run and several, at every block size, with one threshold and with many."""
    for runs, channels in ((1, 5), (3, 64)):
        x, graph, alone = torch.zeros(_NODES * runs, channels), _plan_of_copies(runs), _plan_of_copies(1)
        part: Any = selection.ListedPart(0, alone.index, alone.work)
        lists = selection.Lists(alone.rows.length().int(), [part])
        scores, numbers = torch.zeros(graph.index.numel()), graph.index
        selected = (numbers, scores, numbers)
        for threshold in (0.0, torch.zeros(_NODES * runs)):
            room = selection._room(scores, threshold, graph, lists)
        for tile in (tiles := selection._CHOOSE_TILES):
            selection._CHOOSE_TILES = (tile,)
            selection._choose(x, x, numbers, graph, lists, room, selected)
        selection._CHOOSE_TILES = tiles
        selection._stay(scores, numbers, graph, room, selected)


def _compile_dropout() -> None:
    """Features that runs share or not, one rate or many, parts of a graph, whole nodes."""
    x, nodes, seeds = torch.zeros(3, 40, 5), torch.arange(40), torch.arange(3)
    for features, p, seed in ((x[0], 0.5, seeds[0]), (x[0], seeds / 5, seeds), (x, 0.5, seeds)):
        for ids, whole_rows in ((None, False), (nodes, False), (nodes, True), (None, True)):
            fused.drop(features, p, seed, seed, 0, ids, whole_rows)


if __name__ == "__main__":
    found = compile_all()
    names = {"kernels": sorted(kernels()), "compiled": found.names(), "fused": found.fused()}
    sys.stdout.write(json.dumps({**names, "confused": sorted(found.confused)}))
