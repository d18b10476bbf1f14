"""How kernels are started, and that the tests notice an address out of bounds."""

import itertools
from contextlib import nullcontext

import pytest
import torch
from kernel_cases import DEVICE
from triton import jit
from triton import language as tl

from node2seq.ops.triton.launch import READY, launch


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
