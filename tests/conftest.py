"""What every test file may ask for."""

import gc
import os
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The tests' tensors are small: a second thread waits more than it works, and slows down what runs beside it.
# Set before torch is imported, and inherited by every process that a test starts. A value given is kept.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start processes in folders of their own, from where a relative path leads nowhere.
if "NODE2SEQ_DATA" in os.environ:
    os.environ["NODE2SEQ_DATA"] = str(Path(os.environ["NODE2SEQ_DATA"]).resolve())

import pytest
import torch

# Triton and our kernels decide when they are imported whether they run in Triton's interpreter, as the tests
# of tests/ops/triton need without a GPU: so they are imported here, before any test file can do it. The
# variable is taken back: other tests, and the processes that they start, must not see it.
if not torch.cuda.is_available() and find_spec("triton") is not None:
    with pytest.MonkeyPatch.context() as _environment:
        _environment.setenv("TRITON_INTERPRET", "1")
        import_module("node2seq.ops.triton")

# Before any test: torch's compiler imports it, and it refuses if distutils was imported in some other way.
import setuptools  # noqa: F401

from node2seq import Node2SeqError
from node2seq.ops import dispatch


@pytest.fixture(scope="session")
def real_data() -> Callable[[str, Callable[..., Any]], Any]:
    """Loads a real data set, or skips the test and says which set could not be had, and why."""
    loaded: dict[str, Any] = {}

    def get(name: str, load: Callable[..., Any]) -> Any:
        if name not in loaded:
            try:
                loaded[name] = load(name)
            except Node2SeqError as error:
                pytest.skip(f"the data set {name} cannot be had: {error}")
        return loaded[name]

    return get


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where numba is not installed: the backend ``auto`` is ``eager`` on a CPU."""
    load = dispatch._load
    monkeypatch.setattr(
        dispatch, "_load", lambda name, *needed: None if "numba" in needed else load(name, *needed)
    )


def pytest_collection_finish() -> None:
    """Leaves out what was imported: looked through each time, it makes a collection take half a second."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Takes it back, for libraries that look at the end for objects of theirs that are left."""
    gc.unfreeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints each reason for skipping once, with the number of tests that share it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"SKIPPED [{count}] {reason}")
