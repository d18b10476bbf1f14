"""The machine: devices, memory, threads, processes, signals, versions, and the commit of a checkout.

Functions import torch where they need it: versions are told without waiting for it.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import Data

_T = TypeVar("_T")

# Up to this number of nodes and edges, threads spend more time waiting for each other than working.
_FEW_ENTRIES = 2**14

# NVIDIA's driver, in containers and in Windows' subsystem for Linux too; AMD's.
_GPU_DRIVER = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/kfd")

#: What a launcher tells each process: its number, how many there are, and where they meet.
LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PACKAGES = ("node2seq", "torch", "torch_geometric", "numpy", "safetensors")


class LazyModule:
    """A module that is imported when something of it is first asked for: what needs none of it runs without.

    Args:
        name: What it is imported as.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def lazy_names(package: str, home: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """A package's ``__getattr__``, which imports each name from its module when it is first asked for.

    Args:
        package: The package.
        home: The names of each of its modules.
    """

    def find(name: str) -> object:
        for module, names in home.items():
            if name in names:
                return getattr(import_module(f"{package}.{module}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def pick_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu``, ``cuda`` or ``cuda:1`` into a device that is really there."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].split(". ")[0].rstrip(".")
        if reason.startswith("Expected one of"):  # some twenty kinds, of which few are anywhere
            reason = "there is no such kind of device"
        raise Node2SeqError(
            f"device {name!r}", f"it cannot be used here ({reason})", "Take auto or cpu"
        ) from error
    return device


def make_deterministic(device: torch.device) -> None:
    """Have this process compute the same bits for the same seed, whatever runs beside it.

    On a CPU that takes one thread per process: sums are cut up by the number of threads.
    """
    import torch

    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    else:
        torch.set_num_threads(1)


def memory_of(device: torch.device) -> int | None:
    """All that a process can have, in bytes: what is free on a GPU, else what the machine has if it says."""
    if device.type == "cuda":
        return free_on_gpu(device)
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_on_gpu(device: torch.device) -> int:
    """The bytes that this process can still take on a GPU."""
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def release_freed_memory() -> None:
    """Give what was freed back to the system, where the C library can be told to: glibc keeps it."""
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def threads_for(data: Data) -> Iterator[None]:
    """One thread while a small graph is worked on; otherwise as many as PyTorch takes.

    Threads wait for each other after every operation: on a busy machine, a small graph then takes twenty
    times as long. With one thread the bits do not depend on the number of cores either.
    """
    import torch

    before = torch.get_num_threads()
    if (data.num_nodes or 0) + data.num_edges <= _FEW_ENTRIES:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def stop_requests(asked: list[int] | None = None) -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of breaking an epoch in two; a second one breaks it after all.

    Args:
        asked: Where the signals' numbers are collected; a list of its own if left out.
    """
    asked = [] if asked is None else asked

    def ask(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    if threading.current_thread() is not threading.main_thread():  # only the main one may listen
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextmanager
def repeating(call: Callable[[], float], seconds: float) -> Iterator[None]:
    """Call a function again and again in a thread of its own while this lasts.

    Args:
        call: What to call; it returns after how many seconds to call it next.
        seconds: When to call it first.
    """
    ended = threading.Event()

    def repeat(wait: float = seconds) -> None:
        while not ended.wait(wait):
            wait = call()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Processes:
    """One process alone; ``train.processes.join`` gives the one that belongs to several.

    Args:
        rank: The number of this process.
        size: How many there are.
        restarted: Whether torchrun started them again, because one had ended; the first process knows.
        draws_own: Whether each process draws for its own nodes of a batch alone.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, restarted: bool = False, draws_own: bool = False
    ) -> None:
        self.rank, self.size, self.restarted, self.draws_own = rank, size, restarted, draws_own

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and the terminal."""
        return self.rank == 0

    def share(self, make: Callable[[], _T]) -> _T:
        """What ``make`` returns in the first process, where alone it is called."""
        return make()

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Tell all processes of an error of this one; they are about to share something, or have one too."""
        yield

    def sum_(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the processes."""

    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first process."""

    def exchange_rows_(self, table: Tensor, parts: Iterable[tuple[int, Tensor]]) -> None:
        """Give rows to all processes.

        Args:
            table: Each process has worked out its own rows.
            parts: Whose each run of successive rows is.
        """

    def any(self, flag: bool) -> bool:
        """Whether it is true in any process."""
        return flag

    def known(self, error: Node2SeqError) -> Node2SeqError:
        """An error that all processes have."""
        return error

    def wait_for_first(self) -> None:
        """Wait until the first process has ended."""

    def local_device(self, device: torch.device) -> torch.device:
        """The GPU of this process among those of its machine, where GPUs are asked for."""
        return device

    @property
    def described(self) -> dict[str, Any]:
        """What config.json says of them: nothing of one alone."""
        if self.size == 1:
            return {}
        return {"processes": self.size, **({"draw": "own"} if self.draws_own else {})}


def this_process() -> Processes:
    """This process alone, which torchrun may have started again."""
    return Processes(restarted=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0)


def is_launched(environment: Mapping[str, str]) -> bool:
    """Whether a launcher started several processes, of which this is one."""
    return all(name in environment for name in LAUNCHED) and int(environment["WORLD_SIZE"]) > 1


def describe(device: torch.device | None = None) -> dict[str, Any]:
    """Return versions, platform, device and commit as JSON values."""
    import torch

    found: dict[str, Any] = {**package_versions(PACKAGES), "platform": platform.platform()}
    if device is not None:
        found["device"] = device_name(device) if device.type == "cuda" else str(device)
    found["threads"] = torch.get_num_threads()
    found["commit"] = source_commit()
    return found


def has_gpu_driver() -> bool:
    """Whether a GPU may be there: without the driver's files there is none, and torch need not be asked."""
    return os.name == "nt" or any(Path(place).exists() for place in _GPU_DRIVER)


def source_commit() -> str | None:
    """Return the commit of the checkout this package is imported from; ``+`` marks uncommitted changes."""
    folder = Path(__file__).parent
    # An installed copy may lie inside somebody's own repository, whose commit would say nothing.
    if git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    commit = git(folder, "rev-parse", "HEAD")
    changed = git(folder, "status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+" if commit and changed else commit


def same_code(commit: str | None, paths: Iterable[str]) -> bool:
    """Whether files and folders of this package are as they were at a commit; False where that is unknown.

    Args:
        commit: The commit, as :func:`source_commit` names it.
        paths: Relative to the package.
    """
    folder = Path(__file__).parent
    # Git fails where there is a difference, and at a commit that it does not know.
    return commit is not None and git(folder, "diff", "--quiet", commit, "--", *paths) is not None


def device_name(device: torch.device) -> str:
    """The model of the GPU or of the processor."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    lines = info.read_text(errors="replace").splitlines() if info.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def package_versions(packages: Iterable[str]) -> dict[str, str | None]:
    """The version of Python and of each package; None for a package that is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def git(folder: Path, *arguments: str) -> str | None:
    """What git prints in a folder; None if it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
