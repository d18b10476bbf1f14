import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from node2seq.cli import app
from node2seq.data import DATASETS, NAMES, load, make_split, to_frames, write_graph

run = CliRunner()


def test_list_shows_every_set_and_every_defect():
    shown = run.invoke(app, ["data", "list"])
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.stdout.splitlines()]
    rows = {words[0]: words for words in lines if words and words[0] in NAMES}
    assert list(rows) == list(NAMES)
    assert rows["texas"][1:] == ["183", "279", "1703", "5", "0.06", "104", "60/20/20"]
    text = " ".join(shown.stdout.split())
    defects = [defect for dataset in DATASETS.values() for defect in dataset.defects]
    assert len(defects) >= 10
    assert [defect for defect in defects if " ".join(defect.split()) not in text] == []


def test_list_as_json():
    rows = json.loads(run.invoke(app, ["data", "list", "--json"]).stdout)
    assert [row["name"] for row in rows] == list(NAMES)
    assert rows[5]["largest_degree"] == 732
    assert all(set(rows[0]) == set(row) for row in rows)


def test_fetch():
    result = run.invoke(app, ["data", "fetch", "karate"])
    assert (result.exit_code, result.stdout) == (0, "karate: 34 nodes, from built in\n")
    result = run.invoke(app, ["data", "fetch", "karate", "--json"])
    assert json.loads(result.stdout) == [{"name": "karate", "nodes": 34, "source": "built in"}]
    result = run.invoke(app, ["data", "fetch", "cora"])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: data set 'cora': no such name. Take one of cora-f")


def test_export_and_check(tmp_path):
    edges, nodes = str(tmp_path / "e.csv"), str(tmp_path / "n.csv")
    result = run.invoke(app, ["data", "export", "karate", "--edges", edges, "--nodes", nodes, "--seed", "3"])
    assert result.exit_code == 0, result.output
    karate = load("karate")
    assert (tmp_path / "n.csv").read_text() == to_frames(karate, make_split(karate, seed=3))[1].write_csv()
    check = ["data", "check", "--edges", edges, "--nodes", nodes, "--label", "label", "--split", "split"]
    result = run.invoke(app, check)
    assert result.exit_code == 0, result.output
    assert "nodes              34 (0 without a neighbour)" in result.stdout
    assert "edges              78 (undirected); largest degree 17" in result.stdout
    assert "homophily          0.756 of the edges join nodes of one class" in result.stdout
    assert "(an estimate)" in result.stdout
    assert "reading the edges of" in result.stderr
    summary = json.loads(run.invoke(app, [*check, "--json"]).stdout)
    assert (summary["nodes"], summary["edges"], summary["classes"], summary["components"]) == (34, 78, 4, 1)
    directed = json.loads(run.invoke(app, [*check, "--json", "--directed"]).stdout)
    assert directed["directed"] is True
    assert directed["edges"] == 78


def test_check_says_what_training_would_refuse_and_what_only_numbers_the_rows(tmp_path):
    (tmp_path / "e.csv").write_text("source,target\n0,0\n")
    (tmp_path / "n.csv").write_text(",id,kind\n" + "".join(f"{i},{i},{'ab'[i % 2]}\n" for i in range(10)))
    files = ["--edges", str(tmp_path / "e.csv"), "--nodes", str(tmp_path / "n.csv"), "--label", "kind"]
    shown = run.invoke(app, ["data", "check", *files]).stdout
    assert "warning: there are no edges between different nodes" in shown
    assert "the largest has 1 node\n" in shown
    assert "'': number, standardised (" in shown
    assert "if it only numbers the rows, as a saved index does, give --ignore ''" in shown
    left_out = run.invoke(app, ["data", "check", *files, "--ignore", ""]).stdout
    assert "'': not used" in left_out


def test_check_of_a_known_set_and_of_both():
    assert json.loads(run.invoke(app, ["data", "check", "karate", "--json"]).stdout)["nodes"] == 34
    result = run.invoke(app, ["data", "check", "karate", "--edges", "e.csv"])
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: the data set karate and e.csv: these are two graphs. Give a name or files, not both.\n"
    )


@pytest.mark.slow
def test_check_as_a_process_prints_plain_lines(tmp_path):
    write_graph(load("karate"), tmp_path / "e.parquet", tmp_path / "n.parquet")
    command = [sys.executable, "-m", "node2seq", "data", "check", "--edges", str(tmp_path / "e.parquet")]
    done = subprocess.run(
        [*command, "--nodes", str(tmp_path / "n.parquet")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "note: column 'label' is read as a feature; to predict it, give --label label" in done.stdout
