"""The seeds of a search, which are never those of a reported figure."""

from __future__ import annotations

from collections.abc import Iterable

from node2seq.errors import Node2SeqError

#: Reported rows use the seeds below, and no search trains on their splits. That keeps the test nodes of a
#: fixed split out of it; those of a random split are training and validation nodes of other seeds.
FIRST_SEED = 100


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read ``100-104`` or ``100,103``."""
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            seeds += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise Node2SeqError(f"seeds {text!r}", "not whole numbers", "Write 100-104 or 100,103") from error
    return tuple(seeds)


def format_seeds(seeds: Iterable[int]) -> str:
    """Write seeds as :func:`parse_seeds` reads them."""
    spans: list[list[int]] = []
    for seed in sorted(seeds):
        if spans and spans[-1][-1] == seed - 1:
            spans[-1] = [spans[-1][0], seed]
        else:
            spans.append([seed])
    return ",".join("-".join(map(str, span)) for span in spans)


def check_seeds(seeds: Iterable[int]) -> None:
    """Refuse the seeds of the reported rows, and the same one twice."""
    seeds = list(seeds)
    low = [seed for seed in seeds if seed < FIRST_SEED]
    if low:
        raise Node2SeqError(
            f"seed {low[0]}",
            f"seeds below {FIRST_SEED} are kept for reported figures, whose splits no search may see",
            f"Give seeds from {FIRST_SEED} up",
        )
    if not seeds or len(set(seeds)) != len(seeds):
        raise Node2SeqError(f"seeds {seeds}", "each has to be there once", "Write 100-104 or 100,103")
