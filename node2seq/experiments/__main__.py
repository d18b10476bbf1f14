"""``python -m node2seq.experiments``: ``node2seq reproduce`` where the command line is not installed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from node2seq.errors import Node2SeqError
from node2seq.experiments.paper import TABLES
from node2seq.experiments.verb import Request, run


def parse(arguments: list[str] | None = None) -> Request:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m node2seq.experiments", description="Reproduce the paper's tables, and ours."
    )
    default = Request()
    add = parser.add_argument
    add("tables", nargs="*", help=f"{', '.join(['1', *TABLES])} (default: the paper's)")
    add("--columns", nargs="+", default=[], metavar="COLUMN")
    add("--models", nargs="+", default=[], metavar="MODEL")
    add("--runs", type=int, default=default.runs, help="seeds 0 to RUNS - 1 of each cell")
    add("--jobs", type=int, default=default.jobs, help="processes at once")
    add("--device", default=default.device, help="auto, cpu, cuda, cuda:1")
    add("--budget-seconds", type=float, help="stop after so much time; the same command goes on later")
    add("--check", type=int, metavar="N", help="make N random rows again and compare")
    add("--check-seed", type=int, help="which rows to check")
    add("--list", action="store_true", dest="list_only", help="list the cells and how many runs they have")
    add("--retire", action="store_true", help="first move rows of past recipes to retired.jsonl")
    add("--render", action="store_true", dest="render_only", help="only render the rows that are there")
    add("--epochs", type=int, help="at most so many epochs, for a trial with --results of its own")
    add("--results", type=Path, default=default.results, help="folder of the rows")
    add("--docs", type=Path, help="folder to render to, after training too")
    add("--data-root", help="folder of the data sets (default: $NODE2SEQ_DATA)")
    add("--commit", help="the code's commit, where there is no checkout")
    given = vars(parser.parse_args(arguments))
    lists = {name: tuple(given.pop(name)) for name in ("tables", "columns", "models")}
    return Request(**lists, **given)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the verb."""
    try:
        sys.exit(run(parse(), _say, live=sys.stdout.isatty()))
    except Node2SeqError as error:
        sys.exit(f"Error: {error}")
    except KeyboardInterrupt:
        sys.exit("Stopped. The rows that were made are kept; the same command goes on.")


if __name__ == "__main__":
    main()
