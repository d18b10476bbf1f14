"""From two files to predictions, and back to the built-in sets: the same graph gives the same model."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import polars
import pytest
import torch

from node2seq.data import load, make_split, read_graph, write_graph
from node2seq.recipes import recipe_for
from node2seq.runs.folder import Source
from node2seq.runs.recipe_file import write_recipe
from node2seq.storage import read_json, read_tensors

QUICK = ("--epochs", "12", "--set", "hidden_channels=16", "--seed", "2")


@pytest.fixture
def texas(cli, real_data):
    return real_data("texas", load)


def run_of(done) -> Path:
    assert done.status == 0, done.err
    return Path(done.json["run"])


def test_texas_as_files_trains_bit_for_bit_as_the_built_in_set(cli, texas):
    built_in = run_of(cli("train", "texas", "--json", *QUICK))
    # One class of Texas has a single node; files of one's own may have such only with a split of their own.
    write_graph(texas, "edges.csv", "nodes.csv", split=make_split(texas, seed=2))
    files = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "label", "--split", "split")
    # Files have no recipe of their own: they take that of the set.
    Path("texas.toml").write_text(
        write_recipe("node2seq", recipe_for("node2seq", "texas"), Source(), "as built in")
    )
    own = run_of(cli("train", *files, "--config", "texas.toml", "--json", *QUICK))
    left, right = (read_tensors(run / "model.safetensors")[0] for run in (built_in, own))
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name
    splits = [json.loads((run / "split.json").read_text()) for run in (built_in, own)]
    assert all(splits[0][part] == splits[1][part] for part in ("train", "val", "test"))
    config = json.loads((own / "config.json").read_text())
    assert [Path(file).name for file in config["graph"]["files"]] == ["edges.csv", "nodes.csv"]


def test_shuffled_rows_and_string_ids_are_predicted_the_same(cli, texas, tmp_path: Path):
    run = run_of(cli("train", "texas", "--json", *QUICK))
    assert cli("predict", run, "--out", "own.csv").status == 0
    write_graph(texas, "edges.csv", "nodes.csv")
    order = np.random.default_rng(0).permutation(int(texas.num_nodes))
    renamed = polars.format("page-{}", polars.col("id")).alias("id")
    polars.read_csv("nodes.csv")[order].with_columns(renamed).drop("label").write_csv("new_nodes.csv")
    edges = polars.read_csv("edges.csv")
    edges = edges.sample(fraction=1.0, shuffle=True, seed=1).select(
        polars.format("page-{}", polars.col(name)).alias(name) for name in ("source", "target")
    )
    edges.write_csv("new_edges.csv")
    new = ("--edges", "new_edges.csv", "--nodes", "new_nodes.csv")
    done = cli("predict", run, *new, "--out", "new.csv")
    assert done.status == 0, done.err

    own = polars.read_csv("own.csv").with_columns(renamed).sort("id")
    found = polars.read_csv("new.csv").sort("id")
    assert found["id"].to_list() == own["id"].to_list()
    assert found["label"].to_list() == own["label"].to_list()
    classes = own.columns[2:-1]
    assert np.allclose(found.select(classes).to_numpy(), own.select(classes).to_numpy(), atol=1e-5)


@pytest.mark.slow
def test_ten_percent_new_nodes_on_cora_are_all_predicted(cli, real_data):
    cora = real_data("cora-r", load)
    short = ("--epochs", "2", "--set", "hidden_channels=4")
    run = run_of(cli("train", "cora-r", "--json", *short))
    write_graph(cora, "edges.csv", "nodes.csv")
    nodes, edges = polars.read_csv("nodes.csv"), polars.read_csv("edges.csv")
    count = nodes.height // 10
    random = np.random.default_rng(0)
    added = nodes.sample(count, seed=0).with_columns((polars.int_range(count) + 10**9).alias("id"))
    ends = {
        "source": added["id"].to_numpy().repeat(3),
        "target": random.choice(nodes["id"].to_numpy(), 3 * count),
    }
    polars.concat([nodes, added]).drop("label").write_csv("more_nodes.csv")
    polars.concat([edges, polars.DataFrame(ends)]).write_csv("more_edges.csv")
    new = ("--edges", "more_edges.csv", "--nodes", "more_nodes.csv")
    done = cli("predict", run, *new, "--out", "more.parquet", "--embeddings", "embeddings.parquet")
    assert done.status == 0, done.err
    for name in ("more.parquet", "embeddings.parquet"):
        table = polars.read_parquet(name)
        assert table.height == nodes.height + count
        values = table.select(polars.col(polars.Float64, polars.Float32)).to_numpy()
        assert values.shape[1] >= 4
        assert np.isfinite(values).all()


def small_graph(folder: Path) -> None:
    random = np.random.default_rng(0)
    kinds = ["cat", "dog", "label"] * 10
    nodes = polars.DataFrame(
        {
            "id": [f"n{i}" for i in range(30)],
            "kind": kinds,
            "size": random.normal(size=30) + np.array([0, 3, 6] * 10),
            "colour": random.choice(["red", "blue"], 30).tolist(),
        }
    )
    pairs = random.integers(0, 30, (60, 2))
    edges = polars.DataFrame({"source": [f"n{a}" for a, _ in pairs], "target": [f"n{b}" for _, b in pairs]})
    nodes.write_csv(folder / "nodes.csv")
    edges.write_csv(folder / "edges.csv")


FILES = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")


def test_names_of_nodes_and_classes_come_back(cli, tmp_path: Path):
    small_graph(tmp_path)
    run = run_of(cli("train", *FILES, "--json", *QUICK))
    assert run == Path("runs/nodes-residual-node2seq-s2")
    assert cli("predict", run, "--out", "p.csv").status == 0
    table = polars.read_csv("p.csv")
    assert table["id"].to_list() == [f"n{i}" for i in range(30)]
    assert set(table["label"]) <= {"cat", "dog", "label"}
    assert table.columns == ["id", "label", "cat", "dog", "label (probability)", "unlabelled"]
    shown = cli("evaluate", run).out
    assert "cat" in shown
    assert "dog" in shown


def test_files_that_changed_are_noticed(cli, tmp_path: Path):
    small_graph(tmp_path)
    run = run_of(cli("train", *FILES, "--json", *QUICK))
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(nodes.read_text().replace(",red", ",blue", 1))
    done = cli("evaluate", run)
    assert done.status == 2
    assert done.err.endswith(
        f"Error: {nodes}: it has changed since the run in {run} was started. "
        "Restore the file, or start a new run.\n"
    )


def test_a_split_column_decides(cli, tmp_path: Path):
    small_graph(tmp_path)
    parts = ["train"] * 15 + ["val"] * 9 + ["test"] * 6
    nodes = polars.read_csv("nodes.csv").with_columns(polars.Series("part", parts))
    nodes.write_csv("nodes.csv")
    run = run_of(cli("train", *FILES, "--split", "part", "--json", *QUICK))
    split = json.loads((run / "split.json").read_text())
    assert (split["train"], split["test"]) == (list(range(15)), list(range(24, 30)))


def test_unlabelled_nodes_are_what_gets_predicted(cli, tmp_path: Path):
    small_graph(tmp_path)
    nodes = polars.read_csv("nodes.csv")
    hidden = polars.when(polars.int_range(30) < 25).then(polars.col("kind")).alias("kind")
    nodes.with_columns(hidden).write_csv("nodes.csv")
    run = run_of(cli("train", *FILES, "--json", *QUICK))
    split = json.loads((run / "split.json").read_text())
    assert max(split["train"] + split["val"] + split["test"]) < 25
    assert cli("predict", run, "--out", "p.csv").status == 0
    assert polars.read_csv("p.csv")["label"].null_count() == 0


def people(folder: Path, scale: float = 1.0) -> None:
    """Two classes 4 : 1, told apart by neighbours and by columns of very different sizes."""
    random = np.random.default_rng(1)
    rare = np.arange(200) % 5 == 0
    income = 50_000 + 20_000 * random.normal(size=200) + 40_000 * rare
    nodes = {"id": range(200), "age": 45 + 12 * random.normal(size=200), "income": income * scale}
    polars.DataFrame({**nodes, "kind": np.where(rare, "b", "a")}).write_csv(folder / "nodes.csv")
    pairs = random.integers(0, 200, (900, 2))
    alike = pairs[rare[pairs[:, 0]] == rare[pairs[:, 1]]]
    polars.DataFrame({"source": alike[:, 0], "target": alike[:, 1]}).write_csv(folder / "edges.csv")


@pytest.mark.slow
def test_unscaled_columns_and_unequal_classes_are_learned(cli, tmp_path: Path):
    people(tmp_path)
    epochs = ("--epochs", "40", "--set", "hidden_channels=16")
    found = json.loads(cli("train", *FILES, "--json", *epochs).out)
    assert (found["model"], found["metric"]) == ("residual-node2seq", "roc-auc")
    assert found["metrics"]["test"]["roc_auc"] > 0.9
    assert found["largest_class"]["test"] == 0.8
    assert found["warnings"] == []
    weighted = json.loads(cli("train", *FILES, "--json", "--class-weights", *epochs).out)
    recalls = [row["recall"] for row in weighted["metrics"]["test"]["per_class"]]
    assert min(recalls) > 0.6, "every class is predicted"

    # The scales are those of training, in whatever unit a new graph comes.
    cli("predict", found["run"], "--out", "before.csv")
    people(tmp_path, scale=3.0)
    cli("predict", found["run"], "--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "after.csv")
    before, after = (polars.read_csv(f"{name}.csv") for name in ("before", "after"))
    assert (after["b"].to_numpy() > before["b"].to_numpy() + 0.01).mean() > 0.2


def test_a_result_that_is_worth_nothing_is_said_aloud(cli, tmp_path: Path):
    people(tmp_path)
    done = cli(
        "train", *FILES, "--metric", "accuracy", "--epochs", "1", "--set", "lr=1e-9", "--set", "linear_hops=0"
    )
    assert "largest class: 80.0 % of the test nodes" in " ".join(done.out.split())
    assert "warning: residual-node2seq: The accuracy on test nodes is" in done.out
    assert "Predicting the most frequent class for all of them gives 80.0 %" in done.out


def test_what_the_linear_part_changes_is_said_and_stays_with_the_run(cli, tmp_path: Path):
    people(tmp_path)
    still = ("--metric", "accuracy", "--epochs", "1", "--set", "lr=1e-9")
    done = cli("train", *FILES, *still, "--out", "run")
    told = " ".join(done.out.split())
    assert re.search(
        r"with a linear model of the features within 4 hops, validation accuracy [\d.]+ % → 100.0 %", told
    )
    final = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    found = final["linear"]
    assert found["share"] > 0
    assert found["after"]["test"] == final["metrics"]["test"]["accuracy"] > found["before"]["test"]
    report = Path("run/report.html").read_text()
    assert "With a linear model of the features within 4 hops, accuracy in %" in report
    assert f"{100 * found['before']['test']:.1f}" in report
    again = cli("evaluate", "run", "--json").json
    assert again["test"]["accuracy"] == found["after"]["test"]
    # Trained to the end, the network needs none.
    assert cli("train", *FILES, "--metric", "accuracy", "--epochs", "60", "--out", "long").status == 0
    final = json.loads(Path("long/metrics.jsonl").read_text().splitlines()[-1])
    assert final["linear"]["share"] == 0
    assert "It was fitted and left out" in Path("long/report.html").read_text()


def test_a_new_graph_is_read_as_the_flags_of_predict_say(cli):
    names = [f"n{number}" for number in range(12)]
    edges = [f"{names[number - 1]},{names[number]}" for number in range(12)]
    # The label of the last two is not known.
    rows = [f"{names[number]},{'ab'[number % 2] if number < 10 else ''},{number}" for number in range(12)]
    Path("edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    Path("nodes.csv").write_text("\n".join(["id,kind,size", *rows]) + "\n")
    files = ("--edges", "edges.csv", "--nodes", "nodes.csv", "--label", "kind")
    assert cli("train", *files, "--epochs", "1", "--set", "hidden_channels=4", "--out", "run").status == 0
    own = cli("predict", "run", "--out", "own.csv")
    assert own.out == "12 nodes predicted, 2 of them unlabelled ('n10', 'n11'): own.csv\n"
    Path("edges.csv").write_text("\n".join(["von;nach", *edges]).replace(",", ";") + "\n")
    Path("nodes.csv").write_text("\n".join(["name;kind;size", *rows]).replace(",", ";") + "\n")
    new = ("predict", "run", "--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "new.csv")
    columns = ("--source", "von", "--target", "nach", "--id", "name")
    assert cli(*new, *columns, "--delimiter", ";").status == 0
    assert Path("new.csv").read_text() == Path("own.csv").read_text()
    alone = cli("predict", "run", "--out", "other.csv", "--fill", "mean")
    assert alone.err == "Error: --fill: it applies to a new graph only. Give --edges and --nodes too.\n"


def test_predicted_probabilities_are_calibrated_and_the_classes_are_the_same(cli, texas):
    run = run_of(cli("train", "texas", "--json", *QUICK))
    final = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    temperature = final["calibration"]["temperature"]
    assert temperature != 1.0
    assert cli("predict", run, "--out", "p.csv").status == 0
    assert "Expected calibration error" in (run / "report.html").read_text()
    # A run of an earlier version has no temperature: its probabilities are what the network gives.
    lines = (run / "metrics.jsonl").read_text().splitlines()
    del final["calibration"]
    (run / "metrics.jsonl").write_text("\n".join([*lines[:-1], json.dumps(final)]) + "\n")
    assert cli("predict", run, "--out", "raw.csv").status == 0
    own, raw = (polars.read_csv(name) for name in ("p.csv", "raw.csv"))
    assert own["label"].to_list() == raw["label"].to_list()
    classes = own.columns[2:-1]
    logits = np.log(raw.select(classes).to_numpy()) / temperature
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.allclose(own.select(classes).to_numpy(), expected, atol=1e-6)


def write_pairs(columns: str = "a,b") -> None:
    """A ring of six nodes in files whose edges have two columns of any names."""
    edges = [f"n{node},n{(node + 1) % 6}" for node in range(6)]
    Path("edges.csv").write_text("\n".join([columns, *edges]) + "\n")
    nodes = [f"n{node},{'xy'[node % 2]},{node}" for node in range(6)]
    Path("nodes.csv").write_text("\n".join(["id,kind,size", *nodes]) + "\n")


TAKEN = "edges.csv has two columns: 'a' is taken as the source and 'b' as the target of each edge"


def test_the_only_two_columns_are_the_ends_of_the_edges(cli):
    write_pairs()
    assert TAKEN in cli("data", "check", *FILES).out
    done = cli("train", *FILES, "--directed", "--epochs", "2", "--out", "run")
    assert done.status == 0, done.err
    schema = read_json(Path("run/config.json"))["graph"]["schema"]
    assert (schema["columns"]["source"], schema["columns"]["target"]) == ("a", "b")
    assert TAKEN in " ".join(read_json(Path("run/config.json"))["graph"]["summary"]["notes"])
    # As trained, in a file with more columns and in another order.
    edges = [f"1,n{(node + 1) % 6},n{node}" for node in range(6)]
    Path("more.csv").write_text("\n".join(["c,b,a", *edges]) + "\n")
    assert cli("predict", "run", "--out", "same.csv").status == 0
    other = cli("predict", "run", "--out", "p.csv", "--edges", "more.csv", "--nodes", "nodes.csv")
    assert other.status == 0, other.err
    assert Path("p.csv").read_text() == Path("same.csv").read_text()


@pytest.mark.parametrize(("columns", "ends"), [("to,other", ("other", "to")), ("x,source", ("source", "x"))])
def test_the_other_column_is_the_other_end(cli, columns: str, ends: tuple[str, str]):
    write_pairs(columns)
    schema = read_graph("edges.csv", "nodes.csv", "kind").schema
    assert (schema["columns"]["source"], schema["columns"]["target"]) == ends


def test_the_only_two_columns_are_the_ends_of_the_edges_of_a_store(cli):
    pytest.importorskip("duckdb")
    write_pairs()
    done = cli("data", "convert", *FILES, "--directed", "--out", "st")
    assert done.status == 0, done.err
    assert TAKEN in done.out
    columns = read_json(Path("st/manifest.json"))["schema"]["columns"]
    assert (columns["source"], columns["target"]) == ("a", "b")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes in folders")
def test_standard_input_is_not_read(cli):
    write_pairs()
    os.mkfifo("pipe.csv")
    for file in ("-", "pipe.csv"):
        done = cli("data", "check", "--edges", file, "--nodes", "nodes.csv")
        assert done.status == 2
        assert done.err == (
            f"Error: {file}: standard input and pipes are not read, since a graph is read more than once. "
            "Save it as a file, and give its name.\n"
        )
