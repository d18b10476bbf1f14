"""How kernels are started, and that the tests notice an address out of bounds."""

import itertools
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest
import torch
from kernel_cases import DEVICE
from triton import jit
from triton import language as tl

from node2seq.ops.triton import launch as module
from node2seq.ops.triton.launch import (
    LAUNCHES,
    OPTIONS,
    READY,
    Prepared,
    Ready,
    Repeated,
    given,
    launch,
    signature,
)


def read(x, out, place):
    """Reads an element, which may lie behind the last."""
    tl.store(out, tl.load(x + place))


@pytest.mark.skipif(DEVICE == "cuda", reason="addresses are watched in Triton's interpreter: hide the GPU")
def test_an_address_out_of_bounds_is_noticed():
    """Behind the last element or before the first."""
    x, out, kernel = torch.arange(8.0), torch.zeros(1), jit(read)
    launch(kernel, (1,), x[:8], out, 7)
    assert out.item() == 7.0
    for place in (8, -1, 2**28):
        # Triton's interpreter wraps what goes wrong in errors of its own.
        with pytest.raises(Exception, match="outside of every tensor"):
            launch(kernel, (1,), x[:8], out, place)


def copy(x, out, count, stride, BLOCK: tl.constexpr):
    """Copies every so many-th element."""
    place = tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place * stride, mask=place < count, other=0), mask=place < count)


def test_kernels_start_again_with_other_arguments():
    """With what Triton compiles them anew for, and on another stream."""
    kernel = jit(do_not_specialize=["count"])(copy)
    stream = torch.cuda.Stream() if DEVICE == "cuda" else None
    numbers = torch.arange(600, device=DEVICE)
    for _ in range(2):
        for dtype, first, count, stride, block in itertools.product(
            (torch.float32, torch.int32, torch.uint8), (0, 1), (1, 16, 5), (1, 16, 3), (16, 32)
        ):
            x = numbers.to(dtype)[first:]
            out = torch.zeros(32, dtype=dtype, device=DEVICE)
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream())
            with nullcontext() if stream is None else torch.cuda.stream(stream):
                launch(kernel, (1,), x, out, count, stride, BLOCK=block)
            if stream is not None:
                torch.cuda.current_stream().wait_stream(stream)
            assert torch.equal(out[:count], x[::stride][:count]), f"{dtype} {first} {count} {stride} {block}"
            assert out[count:].eq(0).all()
    kept = {name: value for name, value in READY.items() if kernel.fn in name}
    # By type, alignment, the stride's three kinds and the block; the count makes no difference.
    assert len(kept) == (3 * 2 * 3 * 2 if DEVICE == "cuda" else 0)


class Recorded:
    """In the place of a kernel: notes what it is compiled for and what is run."""

    def __init__(self, fixed: list[str], **constants: int) -> None:
        self.fn = lambda: None
        self.arg_names = ["x", "y", "count", "stride", *constants]
        self.params = [SimpleNamespace(do_not_specialize=name in fixed) for name in self.arg_names]
        self.pre_run_hooks: list[object] = []
        self.compiled: list[tuple] = []
        self.ran: list[tuple] = []

    def __getitem__(self, _grid: tuple[int, ...]):
        def compile(*args: object, **meta: object) -> object:
            number = len(self.compiled)
            self.compiled.append((args, meta))

            def run(*given: object) -> None:
                self.ran.append((number, given[0], given[9:]))

            return SimpleNamespace(run=run, function=None, packed_metadata=())

        return compile


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are started as on a GPU."""
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(module, "driver", SimpleNamespace(active=SimpleNamespace(get_current_stream=int)))


@pytest.mark.usefixtures("on_device")
def test_what_is_started_was_compiled_for_such_arguments():
    """Also where those before them were of other kinds: each of many in turn, in several orders."""
    kernel = Recorded(["count"], BLOCK=16)
    memory = torch.zeros(64)
    aligned = memory[-memory.data_ptr() % 16 // 4 :]
    tensors = [aligned[:8], aligned[1:8], aligned[:8].to(torch.int32), aligned[4:8]]
    cases = [
        (x, y, count, stride, block)
        for x, y in itertools.product(tensors, repeat=2)
        for count, stride in ((5, 3), (7, 3), (16, 16), (1, 1), (2**31, 5), (5, 1), (5, True), (5, 1.0))
        for block in (16, 32)
    ]
    for seed in range(3):
        for place in torch.randperm(len(cases), generator=torch.Generator().manual_seed(seed)).tolist() * 2:
            x, y, count, stride, block = cases[place]
            compiled, ran = len(kernel.compiled), len(kernel.ran)
            launch(kernel, (3,), x, y, count, stride, BLOCK=block)
            if len(kernel.compiled) > compiled:
                continue
            assert len(kernel.ran) == ran + 1
            number, grid, passed = kernel.ran[-1]
            args, meta = kernel.compiled[number]
            assert (grid, passed) == (3, (x.data_ptr(), y.data_ptr(), count, stride, block))
            assert [type(value) for value in passed[2:4]] == [type(count), type(stride)]
            of_these = signature(kernel, (x, y, count, stride), {"BLOCK": block} | OPTIONS)[0]
            assert signature(kernel, args, meta)[0] == of_these
    assert len(kernel.compiled) < len(cases)


@pytest.mark.usefixtures("on_device")
def test_constants_are_told_apart_by_their_names():
    kernel = Recorded([], BLOCK=16, WIDTH=32)
    x = torch.zeros(8)
    for _ in range(3):
        launch(kernel, (1,), x, x, 1, 1, BLOCK=16, WIDTH=32)
        launch(kernel, (1,), x, x, 1, 1, WIDTH=16, BLOCK=32)
    assert [meta for _, meta in kernel.compiled] == [
        {"BLOCK": 16, "WIDTH": 32, "enable_fp_fusion": False},
        {"WIDTH": 16, "BLOCK": 32, "enable_fp_fusion": False},
    ]
    assert [number for number, *_ in kernel.ran] == [0, 1] * 2


@pytest.fixture
def aligned() -> torch.Tensor:
    """Memory that begins at a multiple of 16 bytes."""
    memory = torch.zeros(64)
    return memory[-memory.data_ptr() % 16 // 4 :]


@pytest.mark.usefixtures("on_device")
def test_a_repeated_launch_passes_what_changes_in_its_places(
    aligned: torch.Tensor, monkeypatch: pytest.MonkeyPatch
):
    """From the third time on without looking at the rest; what is of another kind is looked at again."""
    kernel, fixed = Recorded(["count"], BLOCK=16), aligned[8:16]
    repeated = Repeated(Prepared(kernel, (3, 2), *given(1), fixed, 5, 4, BLOCK=16))
    LAUNCHES.clear()
    looked: list[tuple] = []
    monkeypatch.setattr(module, "launch", lambda *args, **meta: looked.append(args) or launch(*args, **meta))
    for number in range(6):
        x = aligned[4 * number :]
        repeated(x)
        if number:
            assert kernel.ran[-1] == (0, 3, (x.data_ptr(), fixed.data_ptr(), 5, 4, 16))
    assert (len(kernel.compiled), len(kernel.ran), len(looked)) == (1, 5, 2)
    assert LAUNCHES[kernel.fn.__name__] == 6
    for changed in (aligned.to(torch.int32), aligned[1:]):
        repeated(changed)
        args, _ = kernel.compiled[-1]
        assert args[0] is changed
        assert args[1] is fixed
    assert len(kernel.compiled) == 3
    kernel.pre_run_hooks.append(None)  # somebody watches
    repeated(aligned)
    assert len(kernel.compiled) == 4


@pytest.mark.usefixtures("on_device")
def test_launches_on_the_same_tensors_start_in_order(aligned: torch.Tensor):
    """Each with its own places for them, and with constants of its own; those of nothing are left out."""
    first, second, nothing = Recorded([], BLOCK=16), Recorded(["count"], BLOCK=16), Recorded([], BLOCK=16)
    fixed, (a, b) = aligned[8:16], given(2)
    repeated = Repeated(
        Prepared(first, (3,), a, b, 5, 4, BLOCK=16),
        Prepared(nothing, (4, 0), a, b, 5, 4, BLOCK=16),
        Prepared(second, (2, 7), fixed, a, 6, 4, BLOCK=16),
        Prepared(second, (2, 7), b, fixed, 7, 4, BLOCK=32),
    )
    order: list[Recorded] = []
    for kernel in (first, second):
        kernel.ran = Noted(kernel, order)
    for number in range(5):
        tensors = aligned[4 * number :], aligned[4 * number + 4 :]
        repeated(*tensors)
        x, y, at = (tensor.data_ptr() for tensor in (*tensors, fixed))
        if number:
            assert first.ran[-1] == (0, 3, (x, y, 5, 4, 16))
            assert second.ran[-2:] == [(0, 2, (at, x, 6, 4, 16)), (1, 2, (y, at, 7, 4, 32))]
    assert order == [first, second, second] * 4
    assert not nothing.compiled


@pytest.mark.usefixtures("on_device")
def test_a_repeated_launch_starts_what_was_compiled_for_its_device(
    aligned: torch.Tensor, monkeypatch: pytest.MonkeyPatch
):
    """Also where the last one of its kind was on another device."""
    kernel = Recorded([], BLOCK=16)

    def repeat(count: int) -> None:
        repeated = Repeated(Prepared(kernel, (1,), *given(1), aligned, 5, 4, BLOCK=16))
        for _ in range(count):
            repeated(aligned)

    repeat(4)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 1)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    repeat(4)
    assert len(kernel.compiled) == 2
    assert [number for number, *_ in kernel.ran] == [0] * 3 + [1] * 3


class Noted(list):
    """What a kernel ran, noted among what others ran."""

    def __init__(self, kernel: Recorded, order: list[Recorded]) -> None:
        super().__init__()
        self.kernel, self.order = kernel, order

    def append(self, ran: tuple) -> None:
        super().append(ran)
        self.order.append(self.kernel)


@pytest.mark.usefixtures("on_device")
def test_a_repeated_launch_of_unaligned_memory_is_looked_at_each_time(aligned: torch.Tensor):
    """And so is another one on the same tensors."""
    kernel, other = Recorded([], BLOCK=16), Recorded([], BLOCK=16)
    unaligned = Prepared(kernel, (1,), *given(1), aligned[1:9], 5, 4, BLOCK=16)
    repeated = Repeated(Prepared(other, (1,), *given(1), aligned, 5, 4, BLOCK=16), unaligned)
    for _ in range(4):
        repeated(aligned)
    assert not repeated.again
    assert len(kernel.ran) == len(other.ran) == 3


@pytest.mark.usefixtures("on_device")
def test_a_repeated_launch_of_nothing_starts_nothing(aligned: torch.Tensor):
    kernel = Recorded([], BLOCK=16)
    repeated = Repeated(Prepared(kernel, (4, 0), *given(1), aligned, 5, 4, BLOCK=16))
    for _ in range(2):
        repeated(aligned)
    assert not kernel.compiled


class CudaLauncher:
    """Triton 3.6's, whose C function notes what it is given."""

    launch_cooperative_grid, launch_pdl, profile_scratch_size = False, True, 0

    def __init__(self, global_scratch_size: int = 0) -> None:
        self.global_scratch_size, self.given = global_scratch_size, []

    def launch(self, *args: object) -> None:
        self.given.append(args)

    def __call__(self, x: int, y: int, z: int, stream: int, function: int, *args: object) -> None:
        scratch = "memory" if self.global_scratch_size else None
        flags = self.launch_cooperative_grid, self.launch_pdl
        self.launch(x, y, z, stream, function, *flags, scratch, None, *args)


@pytest.mark.parametrize(
    ("version", "form", "scratch"),
    [
        ("3.6.0", "iiiKKppOOOOOO", 0),
        ("3.6.0", "iiiKKppOOOOOO", 8),
        ("3.6.0", "iiiKKppOOOOO", 0),
        ("3.7.0", "iiiKKppOOOOOO", 0),
    ],
)
def test_the_c_function_behind_a_known_launcher_gets_the_same(
    version: str, form: str, scratch: int, monkeypatch: pytest.MonkeyPatch
):
    """Any other launcher is called itself."""
    driver: object = ModuleType("driver_of_a_version")
    vars(driver)["_BASE_ARGS_FORMAT"] = form
    monkeypatch.setitem(sys.modules, "driver_of_a_version", driver)
    monkeypatch.setattr(CudaLauncher, "__module__", "driver_of_a_version")
    monkeypatch.setattr(module.triton, "__version__", version)
    launcher = CudaLauncher(scratch)
    compiled = SimpleNamespace(run=launcher, function=7, packed_metadata=(4, 1, 0))
    ready = Ready.of(compiled, (16,))
    assert (ready.run == launcher.launch) == (version == "3.6.0" and form.endswith("O" * 6) and not scratch)
    ready.run(1, 2, 3, 99, *ready.fixed, 11, 12, *ready.constants)
    launcher(1, 2, 3, 99, 7, (4, 1, 0), None, None, None, 11, 12, 16)
    assert launcher.given[0] == launcher.given[1]
