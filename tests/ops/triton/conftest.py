"""The conditions under which kernels are tested: on the GPU, or else through Triton's interpreter.

Fresh memory is filled with NaN and the largest integers, so that what a kernel leaves out is seen. In the
interpreter, every address is looked at too: no kernel may leave the bounds of its tensors. Blocks are small,
so that small graphs have hubs. Tests marked ``gpu`` do without all of it: they take the real block sizes.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from kernel_bounds import watched

IS_INTERPRETED = not torch.cuda.is_available()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is slow, and those for a GPU are skipped where there is none."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.slow)
        # Asked for by `filled_memory`, which is not about determinism.
        item.add_marker(pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning"))
        if IS_INTERPRETED and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: run tests/ops/triton where there is one"))


@pytest.fixture(autouse=True)
def start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random numbers for each test, and no launches yet."""
    from node2seq.ops.triton.launch import LAUNCHES

    torch.manual_seed(0)
    LAUNCHES.clear()
    if IS_INTERPRETED:
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def small_blocks(request: pytest.FixtureRequest, start: None) -> Iterator[None]:
    """Plans cut rows at 8 entries, short rows have up to 4, sorts 8 and 16."""
    from kernel_cases import blocks

    with nullcontext() if request.node.get_closest_marker("gpu") else blocks(8, (2, 4), (8, 16)):
        yield


@pytest.fixture(params=[False, True], ids=["width by width", "as small graphs"])
def is_small(request: pytest.FixtureRequest, small_blocks: None) -> Iterator[bool]:
    """Whether rows of several widths are worked on together, as those of small graphs are."""
    from node2seq.ops.triton import plan

    padded, compared = (2**20, 2**29) if request.param else (0, 0)
    with patch.multiple(plan, MOST_PADDED=padded, MOST_COMPARED=compared):
        yield request.param


@pytest.fixture(autouse=True)
def filled_memory(request: pytest.FixtureRequest, start: None) -> Iterator[None]:
    """Fresh memory holds NaN or the largest integer."""
    if request.node.get_closest_marker("gpu"):
        yield
        return
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # pyright: ignore[reportAttributeAccessIssue]
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def bounds(start: None) -> Iterator[None]:
    """Where kernels are interpreted, an address outside of every tensor is an error."""
    with watched() if IS_INTERPRETED else nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def language_patched_once() -> Iterator[None]:
    """Functions that an interpreted kernel calls leave Triton's language as the kernel has it.

    The interpreter would look through every name of the language for each call, to replace what the kernel's
    launch has replaced already: half of its time.
    """
    if not IS_INTERPRETED or find_spec("triton") is None:
        yield
        return
    from triton import language
    from triton.runtime import interpreter

    patch_language = interpreter._patch_lang

    def patch_once(function: Any) -> Any:
        names = function.__globals__.values()
        seen = [module for module in (language, language.core) if any(name is module for name in names)]
        if any(language.core.is_builtin(module.load) for module in seen):
            return patch_language(function)
        return interpreter._LangPatchScope()  # nothing to take back

    with patch.object(interpreter, "_patch_lang", patch_once):
        yield


@pytest.fixture
def short_blocks_of_candidates(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lists of candidates take several blocks, as those of hubs do."""
    from node2seq.ops.triton.launch import Tile

    tiles = patch("node2seq.ops.triton.selection._CHOOSE_TILES", (Tile(32, 1),))
    with nullcontext() if request.node.get_closest_marker("gpu") else tiles:
        yield
