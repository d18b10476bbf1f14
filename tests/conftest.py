"""What every test file may ask for."""

import os

# The tests' tensors are small: a second thread waits more than it works, and slows down what runs beside it.
# Set before torch is imported, and inherited by every process that a test starts.
os.environ["OMP_NUM_THREADS"] = "1"

from collections.abc import Callable
from typing import Any

import pytest

from node2seq import Node2SeqError


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
