"""How workers hand over batches: in shared memory that is written again once its batch is gone.

By default each tensor that a worker sends has shared memory of its own. The system has to find and clear
its pages, and to give them back: for 85,000 rows of 64 features that took longer than to draw and read them.
Here a worker has a few blocks of memory. The process that trains sees the tensors where the worker wrote
them, and gives a block back when nothing refers to them any more.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import pickle
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.loader.utils import index_select

# Blocks of a worker: one that it writes, those that wait, and two that the training process may hold.
_MOST_BLOCKS = 5
# Tensors start at multiples of this; the first bytes of a block say whether it is taken.
_ALIGNED = 64
# A block has room for batches that are so much larger than the largest before.
_SPARE = 1.25

_numbers = itertools.count()
_open: weakref.WeakValueDictionary[int, SharedMemoryTransform] = weakref.WeakValueDictionary()
_writing: _Block | None = None
"""The block for the batch that this worker is reading."""


def take_rows(values: Tensor, index: Tensor) -> Tensor:
    """Some rows of a tensor. A worker writes them to where it hands them over."""
    if _writing is None:
        return index_select(values, index)
    out = _writing.room((index.numel(), *values.shape[1:]), values.dtype)
    return index_select(values, index) if out is None else torch.index_select(values, 0, index, out=out)


class _Block:
    """Some memory of a worker, and how much of it the batch at hand has taken.

    Args:
        size: Its bytes.
    """

    def __init__(self, size: int) -> None:
        storage = torch.UntypedStorage._new_shared(size, device="cpu")  # zeros, which say that it is free
        self.memory = torch.empty(0, dtype=torch.uint8).set_(storage)
        self.is_known = False
        self._used = _ALIGNED

    @property
    def is_free(self) -> bool:
        """Whether nothing refers to what it holds."""
        return not self.memory[0]

    def begin(self) -> _Block:
        """Take it for a new batch."""
        self.memory[0], self._used = 1, _ALIGNED
        return self

    def room(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
        """An uninitialised tensor within the block, or None if it is too small."""
        size = math.prod(shape) * dtype.itemsize
        end = self._used + size
        if not size or end > self.memory.numel():
            return None
        tensor = self.memory[self._used : end].view(dtype).view(shape)
        self._used = -(-end // _ALIGNED) * _ALIGNED
        return tensor

    def place(self, tensor: Tensor) -> tuple[int, tuple[int, ...], torch.dtype] | None:
        """Where a tensor lies in the block, to which it is copied if it lies elsewhere and there is room."""
        first, size = self.memory.data_ptr(), self.memory.numel()
        if not (first <= tensor.data_ptr() < first + size and tensor.is_contiguous()):
            room = self.room(tuple(tensor.shape), tensor.dtype)
            if room is None:
                return None
            tensor = room.copy_(tensor)
        return tensor.data_ptr() - first, tuple(tensor.shape), tensor.dtype


class SharedMemoryTransform:
    """Reads batches, and sends what was read from workers in blocks of memory.

    Args:
        read: Makes of a batch what is sent.
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read, self._key = read, next(_numbers)
        self._blocks: list[_Block] = []
        self.size = 0
        """The bytes of a block that the next batch should fit into."""
        self._received: dict[tuple[int, int], tuple[int, Tensor]] = {}
        _open[self._key] = self

    def __call__(self, batch: Any) -> Any:
        """What was read; in a worker, ready to be sent."""
        global _writing
        worker = get_worker_info()
        if worker is None:
            return self._read(batch)
        number = self._free_block()
        block = None if number is None else self._blocks[number].begin()
        _writing = block
        try:
            found = self._read(batch)
        except BaseException:
            if block is not None:
                block.memory[0] = 0
            raise
        finally:
            _writing = None
        return _Sent(found, self, block, (self._key, worker.id, number))

    def _free_block(self) -> int | None:
        for number, block in enumerate(self._blocks):
            if block.is_free:
                if block.memory.numel() < self.size:
                    self._blocks[number] = _Block(self.size)
                return number
        if len(self._blocks) == _MOST_BLOCKS or not self.size:
            return None
        self._blocks.append(_Block(self.size))
        return len(self._blocks) - 1

    def receive(self, worker: int, number: int, pid: int, memory: Tensor | None) -> Tensor:
        """The bytes of a block that a worker sent, which is free again when all tensors on them are gone."""
        if memory is not None:  # a new block; those of a worker that ended are not written any more
            kept = {key: held for key, held in self._received.items() if key[0] != worker or held[0] == pid}
            self._received = {**kept, (worker, number): (pid, memory)}
        block = self._received[worker, number][1].numpy()[:]
        weakref.finalize(block, _give_back, block.base, os.getpid()).atexit = False
        return torch.from_numpy(block)


class _Sent:
    """What a worker sends: becomes what was read in the process that receives it."""

    def __init__(
        self,
        found: Any,
        transform: SharedMemoryTransform,
        block: _Block | None,
        address: tuple[int, int, int | None],
    ) -> None:
        self._found, self._transform, self._block, self._address = found, transform, block, address

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        file, block = io.BytesIO(), self._block
        pickler = _Pickler(file, block)
        pickler.dump(self._found)
        self._transform.size = max(self._transform.size, int(_SPARE * pickler.size) + _ALIGNED)
        if block is None:
            return pickle.loads, (file.getvalue(),)
        memory, block.is_known = None if block.is_known else block.memory, True
        return _receive, (*self._address, os.getpid(), memory, file.getvalue())


class _Pickler(ForkingPickler):
    """Writes where tensors lie in a block instead of what they hold, and how many bytes they are."""

    def __init__(self, file: io.BytesIO, block: _Block | None) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._block, self.size = block, 0

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is not Tensor or obj.layout != torch.strided or obj.requires_grad or obj.is_cuda:
            return None
        self.size += -(-obj.nbytes // _ALIGNED) * _ALIGNED
        return None if self._block is None or not obj.numel() else self._block.place(obj)


class _Unpickler(pickle.Unpickler):
    """Finds tensors in a block."""

    def __init__(self, file: io.BytesIO, block: Tensor) -> None:
        super().__init__(file)
        self._block = block

    def persistent_load(self, pid: tuple[int, tuple[int, ...], torch.dtype]) -> Tensor:
        first, shape, dtype = pid
        return self._block[first : first + math.prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _receive(key: int, worker: int, number: int, pid: int, memory: Tensor | None, content: bytes) -> Any:
    block = _open[key].receive(worker, number, pid, memory)
    return _Unpickler(io.BytesIO(content), block).load()


def _give_back(block: Any, pid: int) -> None:
    if os.getpid() == pid:  # a process that was forked has references of its own, and no say
        block[0] = 0
