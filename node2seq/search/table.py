"""A table of searches: a line for each, then a line for each of its trials; ``results/trials.jsonl`` is one.

A trial's line holds the settings in which it differs from the search's recipe, and the validation accuracy on
each of its splits.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

from node2seq.search.settings import format_seeds
from node2seq.search.trials import Trial, Trials
from node2seq.storage import JsonLines, make_folder, write_bytes

_WHOSE = ("variant", "model", "column")


def add_search(table: Path, variant: str, trials: Trials) -> None:
    """Add the trials of a search, in the place of what the table has of the same search.

    Args:
        table: The file; it is made if there is none.
        variant: What was searched: the name of the space.
        trials: The search.
    """
    known = [list(lines) for _, lines in groupby(JsonLines(table).refresh().values, _count_searches())]
    about = {name: value for name, value in trials.header.items() if name not in ("format", "model", "data")}
    whose = {"variant": variant, "model": trials.header["model"], "column": trials.header["data"]}
    own = [lines for lines in known if all(lines[0].get(name) == whose[name] for name in _WHOSE)]
    same = [lines for lines in own if {**lines[0], **about} == lines[0]]
    number = same[0][0]["round"] if same else str(len(own) + 1)
    added = [{**whose, "round": number, **about}]
    added += [_line(trial, about["recipe"]) for trial in trials if trial.accuracies]
    if same:
        known[known.index(same[0])] = added
    else:
        known.append(added)
    make_folder(table.parent)
    lines = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for part in known for line in part)
    write_bytes(table, "".join(line + "\n" for line in lines).encode())


def _count_searches() -> Any:
    """A key that is the same for the lines of one search."""
    count = 0

    def number(line: dict[str, Any]) -> int:
        nonlocal count
        count += "variant" in line
        return count

    return number


def _line(trial: Trial, recipe: dict[str, Any]) -> dict[str, Any]:
    trained = sorted((seed, value) for seed, value in trial.accuracies.items() if value is not None)
    values = [value for _, value in trained]
    line = {
        "trial": trial.number,
        "stage": trial.stage,
        "settings": {name: value for name, value in trial.settings.items() if recipe.get(name) != value},
        "seeds": format_seeds(seed for seed, _ in trained),
        "mean": round(fmean(values), 4) if values else None,
        "sd": round(trial.deviation, 4),
        "splits": len(values),
        "val": [round(value, 4) for value in values],
        "seconds": round(trial.seconds, 2),
    }
    failed = len(trial.accuracies) - len(values)
    return line | ({"failed": failed} if failed else {}) | ({"pruned": True} if trial.pruned else {})
