"""The trials of a search and their results, one JSON line each, from which a killed search resumes.

A table of searches, such as ``results/trials.jsonl``, has a line for each search, then a line for each of its
trials: the settings in which it differs from the search's recipe, and the validation accuracy on each split.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from node2seq.errors import Node2SeqError
from node2seq.nn.models import MODELS
from node2seq.search.settings import format_seeds
from node2seq.search.space import Settings
from node2seq.storage import JsonLines, hold, make_folder, write_bytes
from node2seq.train.many import TrainingOutcome
from node2seq.train.settings import TrainSettings, option_defaults, plainest

FORMAT = 1
_WRITING = ".writing"
# What a search in a table is known by.
_WHOSE = ("variant", "model", "column")


@dataclass
class Trial:
    """Settings, and the validation accuracy for every seed they were trained with (None: it failed).

    A trial that was cut short because it fell behind is ``pruned``: its figures are those of that moment.
    """

    number: int
    settings: Settings
    stage: str
    accuracies: dict[int, float | None] = field(default_factory=dict)
    epochs: dict[int, int | None] = field(default_factory=dict)
    pruned: bool = False
    seconds: float = 0.0

    def mean(self, seeds: Iterable[int] | None = None) -> float:
        """Mean validation accuracy over seeds, or all; minus infinity if one failed or was cut short."""
        if self.pruned:
            return float("-inf")
        values = [self.accuracies[seed] for seed in (self.accuracies if seeds is None else seeds)]
        finite = [value for value in values if value is not None]
        return fmean(finite) if finite and len(finite) == len(values) else float("-inf")

    @property
    def deviation(self) -> float:
        """Sample standard deviation over the seeds."""
        values = [value for value in self.accuracies.values() if value is not None]
        return stdev(values) if len(values) > 1 else 0.0


class Trials:
    """The trials of one search, in a file of JSON lines: what is searched, then every training.

    Args:
        path: Created with the first training. If it exists, ``header`` must be the one it was started with.
        header: What decides about the search; JSON values.
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self._asked: dict[str, Trial] = {}
        self._known: dict[str, list[dict[str, Any]]] = {}
        header = json.loads(json.dumps({"format": FORMAT, **header}))
        self.header = header
        self.digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
        make_folder(path.parent)
        self._file, self._lines = JsonLines(path, ascii_only=True), 0
        self.refresh()

    def refresh(self) -> None:
        """Learn what other processes have added to the file."""
        for line in self._file.refresh().values:
            self._lines += 1
            if self._lines == 1:
                _check_header(self.path, line, self.header)
                continue
            self._learn(line)
            trial = self._asked.get(_key(line["settings"]))
            if trial is not None and line["seed"] not in trial.accuracies:
                _take(trial, line)

    def __iter__(self) -> Iterator[Trial]:
        """Each trial, in the order of their numbers."""
        return iter(self._asked.values())

    def __len__(self) -> int:
        return len(self._asked)

    def trial(self, settings: Settings, stage: str) -> Trial:
        """The trial of these settings, with all that the file knows of it.

        Trials are numbered in the order of asking, which is the same when a search is resumed; the order of
        the file is another, since equal shapes are trained together.
        """
        key = _key(settings)
        if key not in self._asked:
            trial = self._asked[key] = Trial(len(self._asked), settings, stage)
            for line in self._known.get(key, []):
                _take(trial, line)
        return self._asked[key]

    def add(self, trained: Iterable[tuple[Trial, int, TrainingOutcome]]) -> None:
        """Keep what became of trials with a seed each."""
        lines = []
        for trial, seed, outcome in trained:
            line = {
                "trial": trial.number,
                "stage": trial.stage,
                "seed": seed,
                "val": outcome.cross_fitted,
                "epoch": outcome.result.best.epoch if outcome.result else None,
                "pruned": trial.pruned,
                "seconds": round(outcome.seconds, 4),
                "settings": trial.settings,
            }
            lines.append(line if outcome.error is None else {**line, "error": outcome.error})
        with hold(self.path.with_name(_WRITING), wait=True):  # other processes may search along
            self.refresh()
            self._file.append(lines if self._lines else [self.header, *lines])
            self.refresh()  # which tells the trials

    def _learn(self, line: Any) -> None:
        try:
            numbers = (line["val"], line["epoch"], line["seconds"])
            if not isinstance(line["seed"], int) or not isinstance(line["pruned"], bool):
                raise TypeError("seed or pruned")
            if not all(value is None or isinstance(value, int | float) for value in numbers):
                raise TypeError("val, epoch or seconds")
            self._known.setdefault(_key(line["settings"]), []).append(line)
        except (KeyError, TypeError) as error:
            raise Node2SeqError(
                f"{self.path}: line {self._lines}", f"it is not a training ({error!r})", "Restore the file"
            ) from error


def _take(trial: Trial, line: Mapping[str, Any]) -> None:
    """Add a line of the file to what is known of a trial."""
    trial.accuracies[line["seed"]], trial.epochs[line["seed"]] = line["val"], line["epoch"]
    trial.pruned |= line["pruned"]
    trial.seconds += line["seconds"]


def best_of(trials: Iterable[Trial], seeds: Sequence[int] | None = None) -> list[Trial]:
    """Trials by their mean over seeds, the best first; of equals the one that was tried first."""
    return sorted(trials, key=lambda trial: (-trial.mean(seeds), trial.number))


def most_trusted(trials: Iterable[Trial]) -> Trial | None:
    """The best among trials that were trained on different numbers of splits; None if there is none.

    Judged by two standard errors less than the mean, because the best of many on few splits was lucky.
    """
    judged = [trial for trial in trials if trial.accuracies and math.isfinite(trial.mean())]
    free = [len(trial.accuracies) - 1 for trial in judged]
    squares = sum(n * trial.deviation**2 for n, trial in zip(free, judged, strict=True))
    spread = math.sqrt(squares / max(sum(free), 1))  # between splits, pooled over the trials

    def surely(trial: Trial) -> float:
        return trial.mean() - 2 * spread / math.sqrt(len(trial.accuracies))

    return max(judged, key=lambda trial: (surely(trial), -trial.number), default=None)


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


def _comparable(header: Any) -> dict[str, Any]:
    """The header with its model and options as they would be said today, those that came later included."""
    header = dict(header) if isinstance(header, Mapping) else {}
    if isinstance(header.get("recipe"), Mapping):
        model, recipe = plainest(header.get("model", ""), header["recipe"])
        known = {**option_defaults(model), **asdict(TrainSettings())} if model in MODELS else {}
        header["model"], header["recipe"] = model, {**known, **recipe}
    return header


def _check_header(path: Path, found: Any, wanted: Mapping[str, Any]) -> None:
    found, wanted = _comparable(found), _comparable(wanted)
    changed = [name for name in wanted if found.get(name) != wanted[name]]
    if changed:
        raise Node2SeqError(
            str(path),
            f"the search there was started with another {', '.join(changed)}",
            "Give the same options to resume it, or another --out",
        )


def add_search(table: Path, variant: str, trials: Trials) -> None:
    """Add the trials of a search, in the place of what the table has of the same search.

    Args:
        table: The file; it is made if there is none.
        variant: What was searched: the name of the space.
        trials: The search.
    """
    known = read_table(table)
    about = {name: value for name, value in trials.header.items() if name not in ("format", "model", "data")}
    whose = {"variant": variant, "model": trials.header["model"], "column": trials.header["data"]}
    own = [lines for lines in known if all(lines[0].get(name) == whose[name] for name in _WHOSE)]
    same = [lines for lines in own if {**lines[0], **about} == lines[0]]
    number = same[0][0]["round"] if same else str(len(own) + 1)
    added = [{**whose, "round": number, **about}]
    added += [_table_line(trial, about["recipe"]) for trial in trials if trial.accuracies]
    if same:
        known[known.index(same[0])] = added
    else:
        known.append(added)
    make_folder(table.parent)
    lines = (json.dumps(line, ensure_ascii=False, separators=(",", ":")) for part in known for line in part)
    write_bytes(table, "".join(line + "\n" for line in lines).encode())


def read_table(table: Path) -> list[list[dict[str, Any]]]:
    """The searches of a table, each a line that describes it and then a line for each of its trials."""
    found: list[list[dict[str, Any]]] = []
    for line in JsonLines(table).refresh().values:
        if "variant" in line:
            found.append([line])
        elif not found:
            raise Node2SeqError(str(table), "a trial comes before its search", "Restore the file")
        else:
            found[-1].append(line)
    return found


def _table_line(trial: Trial, recipe: dict[str, Any]) -> dict[str, Any]:
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
