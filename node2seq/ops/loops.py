"""The loops that numba compiles, loaded when first asked for."""

from functools import cache
from importlib import import_module
from types import ModuleType

# Below so many entries, the seconds that numba takes to load are better spent on training.
_FEWEST_ENTRIES = 2**13


@cache
def native_loops() -> ModuleType | None:
    """The backend of compiled loops, or nothing where numba is not installed."""
    try:
        return import_module("node2seq.ops.native")
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        return None


def loops_for(entries: int) -> ModuleType | None:
    """The same, but nothing for a graph of so few entries that it is not worth loading them."""
    return native_loops() if entries >= _FEWEST_ENTRIES else None
