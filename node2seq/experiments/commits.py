"""What the history says: whether a commit held a file as it is now, and whether it comes before another."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from node2seq.experiments.rows import CHOSEN, DECLARATION, RUNS, SEARCH
from node2seq.storage import JsonLines

# What has to be committed before rows are made.
_GOVERNED_BY = {SEARCH: (DECLARATION,), RUNS: (DECLARATION, CHOSEN)}


def violations(folder: Path) -> list[str]:
    """Which rows name a commit that does not hold what governs them, or that is younger than they are."""
    found = []
    for name, governing in _GOVERNED_BY.items():
        rows = Counter(row["commit"] for row in JsonLines(folder / name).refresh().values)
        for commit, count in rows.items():
            told = f"{name}: {count} rows of the commit {commit}"
            found += [
                f"{told}, which does not hold {other} as it is"
                for other in governing
                if not is_held(commit, folder / other)
            ]
            last = last_change(folder / name)
            if last is not None and not is_before(commit, last, folder):
                found.append(f"{told}, which does not come before {last}, where they are")
    return found


def is_held(commit: str, path: Path) -> bool | None:
    """Whether a commit holds a file with its content of now; None where there is no repository to ask."""
    if not is_repository(path.parent):
        return None
    held = _git(path.parent, "show", f"{commit}:./{path.name}")
    return held == path.read_bytes()


def is_before(first: str, second: str, folder: Path) -> bool:
    """Whether one commit is an ancestor of another, or the same."""
    return _git(folder, "merge-base", "--is-ancestor", first, second) is not None


def last_change(path: Path) -> str | None:
    """The last commit that changed a file; None where none did."""
    found = _git(path.parent, "log", "-1", "--format=%H", "--", path.name)
    return found.decode().strip() or None if found is not None else None


def is_repository(folder: Path) -> bool:
    """Whether a folder is inside a repository, and git is there to read it."""
    return _git(folder, "rev-parse", "--git-dir") is not None


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git prints, or None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
