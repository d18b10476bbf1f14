"""What every test file may ask for."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from node2seq import Node2SeqError

# Two cores are what the smallest machines have; more threads than that only add noise to the timings.
torch.set_num_threads(min(torch.get_num_threads(), 2))


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
