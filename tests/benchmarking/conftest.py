"""Small graphs for the benchmarks, and their scripts as modules."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from node2seq.benchmarking import short
from node2seq.benchmarking.layers import Size

ROOT = Path(__file__).parents[2]
TINY = (Size("tiny", 40, 200), Size("small", 80, 600))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same benchmark on small graphs, without repeats."""
    monkeypatch.setattr(short, "SIZES", TINY)
    monkeypatch.setattr(short, "SECONDS_A_CASE", 0.0)
    monkeypatch.setattr(short, "EDGES", 1_500)
    monkeypatch.setattr(short, "NODES", 120)


@pytest.fixture(scope="session")
def load_script() -> Callable[[str], ModuleType]:
    """A script of ``benchmarks/`` as a module, by its name."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return load
