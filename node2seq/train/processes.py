"""Several processes that train one run together, as ``torchrun`` starts them, on one machine or many.

Each process has a copy of the weights and of the graph's arrays. The nodes of a batch are divided among them,
the gradients are summed in one call for each step, and all take the same step. Errors of one are told to all,
so that one sentence reaches the user.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from node2seq.environment import LAUNCHED, Processes, is_launched, this_process
from node2seq.errors import Node2SeqError
from node2seq.options import check_choice

T = TypeVar("T")

TIMEOUT_SECONDS = 600.0
#: Who draws a batch: each process the whole of it, or what its own nodes need.
DRAWS = ("whole", "own")
_MARK = "node2seq"


class SharedError(Node2SeqError):
    """An error of one process that all know of: the first one says it."""


class _Group(Processes):
    """One of several processes.

    Args:
        timeout_seconds: How long one waits for the others.
        restarted: See :class:`Processes`.
        draws_own: See :class:`Processes`.
    """

    def __init__(self, timeout_seconds: float, restarted: bool, draws_own: bool) -> None:
        super().__init__(dist.get_rank(), dist.get_world_size(), restarted, draws_own)
        self._timeout = timeout_seconds

    def share(self, make: Callable[[], T]) -> T:
        made: list[Any] = [None]
        with self.reporting():
            if self.is_first:
                made = [make()]
        self._tell(None)
        with self._translated():
            dist.broadcast_object_list(made, 0)
        return made[0]

    @contextmanager
    def reporting(self) -> Iterator[None]:
        try:
            yield
        except SharedError:
            raise
        except Node2SeqError as error:
            self._tell(error)
            raise

    def _tell(self, error: Node2SeqError | None) -> None:
        """Exchange errors; raise the first, if there is any."""
        found: list[Any] = [None] * self.size
        with self._translated():
            dist.all_gather_object(found, error and error.args)
        for rank, known in enumerate(found):
            if known is not None:
                given, reason, cure = known
                raise SharedError(f"rank {rank}: {given}" if rank else given, reason, cure) from error

    def sum_(self, tensor: Tensor) -> None:
        with self._translated():
            dist.all_reduce(tensor)

    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        with self._translated():
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def exchange_rows_(self, table: Tensor, parts: Iterable[tuple[int, Tensor]]) -> None:
        with self._translated():
            sent = [
                dist.broadcast(table[int(rows[0]) : int(rows[-1]) + 1], owner, async_op=True)
                for owner, rows in parts
            ]
            for one in sent:
                assert one is not None
                one.wait()

    def any(self, flag: bool) -> bool:
        count = torch.tensor(int(flag))
        self.sum_(count)
        return bool(count)

    def known(self, error: Node2SeqError) -> Node2SeqError:
        return SharedError(*error.args)

    def wait_for_first(self) -> None:
        if not self.is_first:
            with suppress(Node2SeqError):  # its end is the end of the connection
                self.any(False)

    def local_device(self, device: torch.device) -> torch.device:
        if device.type != "cuda" or device.index is not None:
            return device
        found = torch.cuda.device_count()
        # Without a launcher that numbers them, as in pods of one GPU each, all machines have as many.
        number = int(os.environ.get("LOCAL_RANK", self.rank % max(found, 1)))
        if number >= found:
            raise Node2SeqError(
                f"process {number + 1} on this machine",
                f"each process needs a GPU of its own, and there are {found}",
                f"Start {found} with --nproc-per-node, or train with --device cpu",
            )
        torch.cuda.set_device(number)
        return torch.device("cuda", number)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Make a sentence of what the network says."""
        try:
            yield
        except RuntimeError as error:
            raise Node2SeqError(
                f"rank {self.rank} of {self.size}",
                f"another process ended, or did not answer within {self._timeout:g} s ({_first_line(error)})",
                "See what it said; `torchrun --max-restarts 3` resumes from the last checkpoint by itself",
            ) from error


@contextmanager
def join(timeout_seconds: float = TIMEOUT_SECONDS, draw: str = "whole") -> Iterator[Processes]:
    """Join the processes that a launcher started with this one; this one alone, if none did.

    A process group that there is already, as Ray Train makes one, is used and left as it is.

    Args:
        timeout_seconds: How long one process waits for the others, at first and at each step.
        draw: ``"whole"``: each process draws the whole of every batch, and the results do not depend on their
            number; ``"own"``: each draws for its own nodes alone, which is faster with many.
    """
    check_choice("draw", draw, DRAWS)
    draws_own = draw == "own"
    if dist.is_available() and dist.is_initialized():
        yield _Group(timeout_seconds, False, draws_own) if dist.get_world_size() > 1 else Processes()
        return
    alone = this_process()
    if not is_launched(os.environ):
        yield alone
        return
    restarted = alone.restarted
    rank, size, host, port = (os.environ[name] for name in LAUNCHED)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    timeout = timedelta(seconds=timeout_seconds)
    try:
        if dist.is_torchelastic_launched():
            store, again = _store_of_this_start(int(rank), host, int(port), timeout)
            restarted = restarted or again  # another machine may count the restarts
            dist.init_process_group(
                backend, store=store, rank=int(rank), world_size=int(size), timeout=timeout
            )
        else:
            dist.init_process_group(backend, timeout=timeout)
    except (RuntimeError, OSError, ValueError) as error:
        raise Node2SeqError(
            f"rank {rank} of {size}",
            f"it did not reach the others through {host}, port {port}, within {timeout_seconds:g} s "
            f"({_first_line(error)})",
            "Start all of them with the same address and number of processes, and let the port through "
            "the firewall; --timeout-seconds waits longer",
        ) from error
    try:
        yield _Group(timeout_seconds, restarted, draws_own)
    finally:
        dist.destroy_process_group()


def _store_of_this_start(rank: int, host: str, port: int, timeout: timedelta) -> tuple[Any, bool]:
    """Where the processes of this start find each other, and whether there was a start before.

    The store of torchrun outlives a restart, and with it the addresses of processes that have ended: it only
    says where the first process has opened a new one.
    """
    # Here, because some builds of torch come without it.
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    meeting = TCPStore(host, port, is_master=False, timeout=timeout)
    if rank == 0:
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        mark, is_again = uuid4().hex, meeting.check([_MARK])
        store.set(_MARK, mark)
        meeting.set(_MARK, f"{store.port} {mark}")
        return store, is_again
    ends = time.monotonic() + timeout.total_seconds()
    while True:
        told, mark = meeting.get(_MARK).decode().split()
        try:
            with socket.create_connection((host, int(told)), timeout=5):
                pass  # a closed one is noticed at once, and silently
            store = TCPStore(host, int(told), is_master=False, timeout=timeout)
            if store.check([_MARK]) and store.get(_MARK).decode() == mark:
                return store, False
        except (RuntimeError, OSError):
            if time.monotonic() >= ends:
                raise
        time.sleep(0.1)


def _first_line(error: Exception) -> str:
    """What went wrong, without the places in the source of libraries and their advice."""
    text = re.sub(r"\[/[^\]]*\]\s*", "", str(error)).strip()
    return (text.splitlines() or [type(error).__name__])[0].split(". ")[0].rstrip(".")
