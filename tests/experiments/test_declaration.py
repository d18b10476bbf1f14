"""The declared protocol: equal budgets, fresh seeds, settings that every network takes, and its history."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from node2seq.experiments.declaration import PROTOCOL
from node2seq.experiments.rows import CHOSEN, DECLARATION, RUNS, SEARCH, SearchStore
from node2seq.experiments.stages import declared, draw_settings, is_held
from node2seq.search.settings import RESERVED_SEEDS
from node2seq.storage import read_lines
from node2seq.train.settings import complete

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results/protocol"
# What has to be committed before rows are made.
GOVERNED_BY = {SEARCH: (DECLARATION,), RUNS: (DECLARATION, CHOSEN)}


def test_the_committed_declaration_is_that_of_the_code():
    assert json.loads((FOLDER / DECLARATION).read_text()) == json.loads(json.dumps(declared(PROTOCOL)))


def test_every_line_and_column_is_given_the_same_budget():
    cells = PROTOCOL.searched
    assert len(cells) == 152
    assert {len(draw_settings(PROTOCOL, *cell)) for cell in cells} == {PROTOCOL.rungs[0].settings}
    assert len(PROTOCOL.columns) == 11
    by_label = {line.label: line for line in PROTOCOL.lines}
    for label in ("GCN", "GAT", "SGC", "Cheby", "LGCN", "MLP", "Node2Seq"):
        assert by_label[label].columns == by_label[f"{label}, plus"].columns


def test_training_ranges_and_stopping_are_the_same_for_every_line():
    for column in PROTOCOL.columns:
        cells = [PROTOCOL.spaces[line.cell(column)] for line, own in PROTOCOL.searched if own == column]
        assert len({(cell.base.settings.epochs, cell.base.settings.patience) for cell in cells}) == 1
        for name in ("weight_decay", "input_dropout"):
            assert len({repr(cell.space.free[name]) for cell in cells}) == 1
    extra = ("own", "views")
    for line, column in PROTOCOL.searched:
        ranges = PROTOCOL.spaces[line.cell(column)].space.ranges
        if line.model != "mlp":
            assert all((name in ranges) == (line.variant != "paper") for name in extra)


def test_seeds_of_the_search_were_never_used():
    seeds = {seed for rung in PROTOCOL.rungs for seed in rung.seeds}
    assert PROTOCOL.final_seeds == tuple(RESERVED_SEEDS)
    assert not seeds & set(RESERVED_SEEDS)
    used: set[int] = set()
    for path in (ROOT / "results").glob("*.jsonl"):
        used |= {int(seed) for seed in re.findall(r'"seed": ?(\d+)', path.read_text())}
        for listed in re.findall(r'seeds": ?"?\[?([\d, -]+)', path.read_text()):
            used |= {int(number) for number in re.findall(r"\d+", listed)}
    assert len(used) > 100
    assert not used & (seeds | set(RESERVED_SEEDS))


def test_every_setting_is_one_that_its_network_takes():
    checked = 0
    for line, column in PROTOCOL.searched:
        for settings in draw_settings(PROTOCOL, line, column):
            recipe = PROTOCOL.spaces[line.cell(column)].base.updated(**settings)
            complete(line.model, recipe.options, "here")
            checked += 1
        base = PROTOCOL.spaces[PROTOCOL.ours.cell(column)].base
        for study in PROTOCOL.studies:
            complete("node2seq", base.updated(**study.changes).options, "here")
    assert checked == 152 * 20


def test_kept_rows_are_of_the_settings_that_were_drawn():
    for row in SearchStore(FOLDER).rows.values():
        line = next(own for own in PROTOCOL.lines if (own.model, own.variant) == row.key[:2])
        assert row.settings == draw_settings(PROTOCOL, line, row.key.column)[row.key.setting]
        assert tuple(row.seeds) == PROTOCOL.rungs[row.key.rung - 1].seeds


def test_commits_come_before_the_rows_that_they_govern():
    if is_held("HEAD", FOLDER / DECLARATION) is None:
        pytest.skip("this is no git repository, or git is not installed: the history cannot be read")
    if _git(ROOT, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("the clone is shallow: the history cannot be read")
    assert violations(FOLDER) == []


def test_rows_without_their_commit_are_found(tmp_path):
    _git(tmp_path, "init", "-q")
    for setting in ("user.name=n", "user.email=e@x", "commit.gpgsign=false"):
        _git(tmp_path, "config", *setting.split("="))
    early = _commit(tmp_path, DECLARATION, "{}")
    chosen = _commit(tmp_path, CHOSEN, "chosen")
    _commit(tmp_path, SEARCH, json.dumps({"commit": early}) + "\n")
    _commit(tmp_path, RUNS, json.dumps({"commit": chosen}) + "\n")
    assert violations(tmp_path) == []
    (tmp_path / RUNS).write_text(json.dumps({"commit": early}) + "\n")
    assert violations(tmp_path) == [
        f"runs.jsonl: 1 rows of the commit {early}, which does not hold chosen.jsonl as it is"
    ]
    last = _commit(tmp_path, RUNS, json.dumps({"commit": chosen}) + "\n\n")
    later = _commit(tmp_path, DECLARATION, "{}\n")
    (tmp_path / RUNS).write_text(json.dumps({"commit": later}) + "\n")
    found = violations(tmp_path)
    assert (
        f"runs.jsonl: 1 rows of the commit {later}, which does not come before {last}, where they are"
        in found
    )
    assert any("search.jsonl" in text and "declaration.json" in text for text in found)


def violations(folder: Path) -> list[str]:
    """Which rows name a commit that does not hold what governs them, or that is younger than they are."""
    found = []
    for name, governing in GOVERNED_BY.items():
        last = _git(folder, "log", "-1", "--format=%H", "--", name)
        for commit, count in Counter(row["commit"] for row in read_lines(folder / name)).items():
            told = f"{name}: {count} rows of the commit {commit}"
            found += [
                f"{told}, which does not hold {other} as it is"
                for other in governing
                if not is_held(commit, folder / other)
            ]
            is_ancestor = ["git", "merge-base", "--is-ancestor", commit, last]
            if last and subprocess.run(is_ancestor, cwd=folder, capture_output=True).returncode:
                found.append(f"{told}, which does not come before {last}, where they are")
    return found


def _commit(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    _git(folder, "add", name)
    _git(folder, "commit", "-q", "-m", name)
    return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, check=True, text=True
    ).stdout.strip()
