"""``python -m node2seq.search``: ``node2seq tune`` where neither the command line nor optuna is installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from node2seq.errors import Node2SeqError
from node2seq.runs.folder import Source
from node2seq.search.halving import Halving
from node2seq.search.seeds import parse_seeds
from node2seq.search.session import Request, run


def parse(arguments: list[str] | None = None) -> list[Request]:
    """Read the command line: one search for each model on each data set."""
    parser = argparse.ArgumentParser(
        prog="python -m node2seq.search", description="Search settings by validation accuracy."
    )
    add, plan = parser.add_argument, Halving()
    add("--data", required=True, nargs="+", help="data sets; see node2seq.data.load")
    add("--data-root", help="folder of the data sets (default: $NODE2SEQ_DATA)")
    add("--directed", action="store_true", help="keep the edges' direction")
    add("--model", nargs="+", default=["node2seq"])
    add("--space", default="paper", help="a key of node2seq.search.spaces.SPACES")
    add("--fix", action="append", default=[], metavar="NAME=VALUE", help="decide a setting, or =[A, B]")
    add("--rule", help="how to split; a key of node2seq.data.RULES (default: as the data set says)")
    add("--start", type=Path, help="a recipe as TOML to begin with")
    add("--trials", type=int, default=plan.trials)
    add("--seeds", default="100-104", help="splits of the search: 100-104 or 100,103")
    add("--final-seeds", default="200-209", help="further splits for the best")
    add("--generations", type=int, default=plan.generations, help="rounds close to the best")
    add("--shapes", type=int, help="combinations of shapes to start with")
    add("--finalists", type=int, default=plan.finalists)
    add("--seed", type=int, default=plan.seed, help="of the draws")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:1")
    add("--budget-seconds", type=float, help="stop each search after so much time; the same command goes on")
    add(
        "--out",
        required=True,
        help="file of the trials, such as {data}-{model}.jsonl; the recipe lies beside it",
    )
    given = vars(parser.parse_args(arguments))
    names, models, out = given.pop("data"), given.pop("model"), given.pop("out")
    root = given.pop("data_root")
    read = {"directed": True} if given.pop("directed") else {}
    given |= {name: parse_seeds(given[name]) for name in ("seeds", "final_seeds")}
    plan = Halving(**{name: given.pop(name) for name in Halving.__dataclass_fields__})
    given |= {"plan": plan, "fix": tuple(given["fix"])}
    files = {
        (name, model): Path(out.replace("{data}", name).replace("{model}", model.replace("*", "-star")))
        for name in names
        for model in models
    }
    if len(set(files.values())) < len(files):
        raise Node2SeqError(
            f"--out {out}",
            f"{len(files)} searches need a file each",
            "Write {data} and {model} into its name",
        )
    return [
        Request(source=Source(name=name, root=root, reading=read), model=model, out=file, **given)
        for (name, model), file in files.items()
    ]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Search and say what came out."""
    try:
        for request in parse():
            _say(f"{request.model} on {request.source.title}: {request.out}")
            found = run(request, _say)
            if not found.finished:
                _say("The time is spent; the same command goes on.")
            _say(f"Trial {found.best.number} {found.recipe.source}; {found.recipe_file}")
    except Node2SeqError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. What was trained is kept; the same command goes on.")


if __name__ == "__main__":
    main()
