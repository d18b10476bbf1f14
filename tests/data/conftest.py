import functools
import os

import pytest
from torch_geometric.data import Data

from node2seq.data import load
from node2seq.errors import Node2SeqError

ROOT = os.environ.get("NODE2SEQ_DATA")  # before any test points it elsewhere


@functools.cache
def _load(name: str, directed: bool) -> Data | Node2SeqError:
    try:
        return load(name, root=ROOT, directed=directed)
    except Node2SeqError as error:
        return error


@pytest.fixture
def known():
    """Load a known set once for all tests; skip with its name and the reason where it cannot be had."""

    def get(name: str, directed: bool = False) -> Data:
        data = _load(name, directed)
        if isinstance(data, Node2SeqError):
            pytest.skip(f"data set {name} cannot be had here: {data}")
        return data.clone()

    return get
