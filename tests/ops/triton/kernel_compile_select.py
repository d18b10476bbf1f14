"""Compiles the kernels of the selection and of dropout for sm_90 without a GPU.

python tests/ops/triton/kernel_compile_select.py
"""

import json
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import kernel_compile
import torch

from node2seq.ops import triton as fused
from node2seq.ops.sequences import Rows

NODES = 300
kernel_compile._TYPES[torch.float64] = "*fp64"


def plan_of_copies(runs: int) -> Any:
    """What the kernels are given of a plan; nothing is run, so that the numbers may be any."""
    rows = Rows.from_lengths(torch.full((NODES * runs,), 5))
    numbers = torch.zeros(5 * NODES * runs, dtype=torch.int32)
    work = SimpleNamespace(
        ptr=rows.ptr.int(), item_row=numbers, item_first=numbers, rows=numbers, items=NODES, item=256
    )
    return SimpleNamespace(rows=rows, index=numbers, work=work)


def compile_selection(select: Any) -> None:
    """One run and several, at every block size, with one threshold and with many."""
    for runs, channels in ((1, 5), (3, 64)):
        x, plan, lists = torch.zeros(NODES * runs, channels), plan_of_copies(runs), plan_of_copies(1)
        scores, numbers = torch.zeros(plan.index.numel()), plan.index
        selected = (numbers, scores, numbers)
        for threshold in (0.0, torch.zeros(NODES * runs)):
            room = select._room(scores, threshold, plan, lists)
        for tile in (tiles := select._CHOOSE_TILES):
            select._CHOOSE_TILES = (tile,)
            select._choose(x, x, numbers, plan, lists, room, selected)
        select._CHOOSE_TILES = tiles
        select._stay(scores, numbers, plan, room, selected)


def compile_dropout() -> None:
    """Features that runs share or not, one rate or many, parts of a graph, whole nodes."""
    x, nodes, seeds = torch.zeros(3, 40, 5), torch.arange(40), torch.arange(3)
    for features, p, seed in ((x[0], 0.5, seeds[0]), (x[0], seeds / 5, seeds), (x, 0.5, seeds)):
        for ids, whole_rows in ((None, False), (nodes, False), (nodes, True), (None, True)):
            fused.drop(features, p, seed, seed, 0, ids, whole_rows)


def compile_all() -> dict[str, list[str]]:
    """The names of all kernels of the two modules, of those that were compiled and of those that fuse."""
    compiler = kernel_compile.Compiler()
    modules = [import_module(f"{fused.__name__}.{name}") for name in ("selection", "dropout")]
    for module in modules:
        vars(module)["launch"] = compiler
    compile_selection(modules[0])
    compile_dropout()
    names = {name for module in modules for name in vars(module) if name.endswith("_kernel")}
    found = {"kernels": sorted(names), "compiled": compiler.names(), "fused": compiler.fused()}
    return {**found, "confused": sorted(compiler.confused)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(compile_all()))
