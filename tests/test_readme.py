"""The README is true: its code runs and learns, its commands run as they stand, its links lead somewhere."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import node2seq
from node2seq.cli import app
from node2seq.data import load, write_graph

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
REPRODUCE = "reproduce 2 --columns cora-f --models gcn --jobs 2"
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_the_same_line_opens_readme_package_and_command_line():
    line = README.splitlines()[2].replace("**", "")
    assert node2seq.__doc__ is not None
    assert line == node2seq.__doc__.splitlines()[0] == app.info.help
    assert line == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]


def own_files(folder: Path, real_data) -> None:
    """The two files that the README speaks of."""
    write_graph(real_data("wisconsin", load), folder / "edges.csv", folder / "nodes.csv")
    header, rows = (folder / "nodes.csv").read_text().split("\n", 1)
    (folder / "nodes.csv").write_text(header.replace("label", "kind") + "\n" + rows)


def test_python_blocks_run_in_order_and_learn(real_data, tmp_path, monkeypatch):
    real_data("texas", load)
    own_files(tmp_path, real_data)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    code = blocks("python")
    assert len(code) == 5
    for block in code:
        exec(compile(block, "README.md", "exec"), names)
    assert names["accuracy"] > 0.8
    degree = int((names["data"].edge_index[1] == 0).sum())
    assert len(names["order"]) == degree + 1
    assert names["scores"].diff().le(0).all()
    assert names["metrics"].accuracy > 0.4
    assert names["probabilities"].shape == (251, 5)
    assert names["result"].test.accuracy > 0.6 > names["result"].test.largest_class
    unweighted = names["conv"](names["data"].x, names["data"].edge_index, None, names["years_and_hours"])
    assert not names["weighted"].allclose(unweighted)


@pytest.mark.slow
def test_commands_run_as_they_stand(tmp_path, real_data):
    own_files(tmp_path, real_data)
    commands = [
        line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")
    ]
    commands += re.findall(r"`(node2seq (?:train --resume|data list|train texas|bench)[^`]*)`", README)
    (tmp_path / "settings.toml").write_text(blocks("toml")[0])
    commands += re.findall(r"`(node2seq train --config [^`]*)`", README)
    # As they stand these take minutes: fewer epochs and runs.
    commands = [
        f"{command} --fix epochs=3 --seeds 100-101 --final-seeds 200" if " tune " in command else command
        for command in commands
    ]
    for command, less in (("train cora-r --baseline gcn", "--epochs 3"), (REPRODUCE, "--runs 1 --epochs 3")):
        assert f"node2seq {command}" in README
        commands.append(f"node2seq {command} {less}")
    assert len(commands) == 14
    for command in commands:
        verb, *arguments = shlex.split(command)
        assert verb == "node2seq"
        if "--resume" in arguments:  # the run is finished by now: there is nothing to go on with
            continue
        done = subprocess.run(
            [sys.executable, "-m", "node2seq", *arguments], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
    predictions = (tmp_path / "predictions.csv").read_text().splitlines()
    assert len(predictions) == 251 + 1
    assert (tmp_path / "runs/mine/report.html").exists()
    assert (tmp_path / "runs/search/report.html").exists()


def test_set_up_commands_name_what_is_there():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", "\n".join(blocks("bash")), re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
    assert "-c constraints.txt" in README
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / link).exists(), link
