"""What a user can get wrong on the command line, and the exact sentence that comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

KARATE = ("train", "karate", "--epochs", "2", "--set", "hidden_channels=4")

BAD = {
    "no graph": (
        ["train"],
        "Error: the graph: it is missing. Name a data set (`node2seq data list` shows them) or give "
        "--edges, --nodes and --label.",
    ),
    "name and files": (
        ["train", "karate", "--edges", "/e.csv"],
        "Error: the data set karate and /e.csv: these are two graphs. Give a name or files, not both.",
    ),
    "label of a data set": (
        ["train", "karate", "--label", "kind"],
        "Error: label with the data set karate: it applies to your own files only. Leave it out.",
    ),
    "unknown data set": (["train", "kartae"], "Error: data set 'kartae': no such name. Take one of "),
    "unknown model": (
        [*KARATE, "--model", "node2vec"],
        "Error: model 'node2vec': there is no such model. Perhaps node2seq was meant.",
    ),
    "unknown baseline": (
        [*KARATE, "--baseline", "gnc"],
        "Error: model 'gnc': there is no such model. Choose one of cheby, gat, gcn, ",
    ),
    "unknown option": (
        [*KARATE, "--set", "kernle_size=3"],
        "Error: --set kernle_size: there is no such setting. Perhaps kernel_size was meant.",
    ),
    "no value": (
        [*KARATE, "--set", "kernel_size"],
        "Error: --set kernel_size: there is no = in it. Write --set setting=value.",
    ),
    "no number": (
        [*KARATE, "--set", "lr=fast"],
        "Error: --set lr='fast': it should be a number. Give a value of that kind.",
    ),
    "kernel of nothing": ([*KARATE, "--set", "kernel_size=0"], "Error: kernel_size=0: "),
    "kernel longer than the graph": (
        [*KARATE, "--set", "kernel_size=100000"],
        "Error: kernel_size=100000: the graph has 34 nodes, so no node has that many neighbours. "
        "Give a small number, such as 3.",
    ),
    "model larger than the memory": (
        ["train", "karate", "--set", "hidden_channels=10000000"],
        "Error: hidden_channels=10000000, kernel_size=3: training this model takes about ",
    ),
    "model larger than can be counted": (
        ["train", "karate", "--set", "hidden_channels=100000000000000000000"],
        "Error: hidden_channels=100000000000000000000, kernel_size=3: training this model takes too much",
    ),
    "dropout of everything": ([*KARATE, "--set", "dropout=1"], "Error: dropout"),
    "no channels": (
        [*KARATE, "--set", "hidden_channels=0"],
        "Error: hidden_channels=0: a layer needs at least one. Give 1 or more.",
    ),
    "a crowd of workers": (
        [*KARATE, "--batch-size", "4", "--workers", "100000"],
        "Error: --workers 100000: each is a process of its own, and this machine has ",
    ),
    "no epochs": (
        ["train", "karate", "--epochs", "0"],
        "Error: epochs=0: training needs at least one epoch. Give 1 or more.",
    ),
    "negative seed": (
        [*KARATE, "--seed", "-1"],
        "Error: seed=-1: a seed cannot be negative. Give 0 or more.",
    ),
    "unknown device": ([*KARATE, "--device", "abacus"], "Error: device 'abacus': it cannot be used here ("),
    "no config file": (
        ["train", "--config", "no.toml"],
        "Error: no.toml: there is no such file. Check the path.",
    ),
    "config is not TOML": (["train", "--config", "bad.toml"], "Error: bad.toml: it is not TOML ("),
    "unknown key": (
        ["train", "--config", "key.toml"],
        "Error: key.toml: modle: there is no such setting. Perhaps model was meant.",
    ),
    "unknown setting": (
        ["train", "--config", "setting.toml"],
        "Error: setting.toml: settings: epoch: there is no such setting. Perhaps epochs was meant.",
    ),
    "unknown option in file": (
        ["train", "--config", "option.toml"],
        "Error: option.toml: options: kernelsize: there is no such setting. Perhaps kernel_size was meant.",
    ),
    "type in file": (
        ["train", "--config", "type.toml"],
        "Error: type.toml: settings: lr='high': it should be a number. Give a value of that kind.",
    ),
    "resume of nothing": (
        ["train", "--resume"],
        "Error: the folder runs: there is no run in it to resume. Name one: `--resume RUN`.",
    ),
    "resume of no run": (
        ["train", "--resume", "runs/none"],
        "Error: runs/none: there is no run in this folder to resume. Check the path.",
    ),
    "resume of no name": (
        ["train", "--resume", "nowhere"],
        "Error: nowhere: there is no run in this folder to resume. Check the path.",
    ),
    "true for a number": (
        ["train", "--config", "true.toml"],
        "Error: true.toml: settings: epochs=True: it should be a whole number. Give a value of that kind.",
    ),
    "no label": (
        ["train", "--edges", "e.csv", "--nodes", "there.csv"],
        "Error: --label: training needs the column to predict. Name it: --nodes FILE --label COLUMN.",
    ),
    "no label to search for": (
        ["tune", "--edges", "e.csv", "--nodes", "there.csv"],
        "Error: --label: training needs the column to predict. Name it: --nodes FILE --label COLUMN.",
    ),
    "something else in --out": (
        [*KARATE, "--out", "."],
        "Error: .: it exists and contains something other than a run. Give another folder with `--out`.",
    ),
    "evaluate nothing": (
        ["evaluate", "runs/none"],
        "Error: runs/none: there is no such run folder. Check the path.",
    ),
    "evaluate a folder": (
        ["evaluate", "empty"],
        "Error: empty: it has no config.json, so it is not a run folder. "
        "Give a folder that `node2seq train` made.",
    ),
    "predict nothing": (
        ["predict", "runs/none", "--out", "p.csv"],
        "Error: runs/none: there is no such run folder. Check the path.",
    ),
    "predict into a spreadsheet": (
        ["predict", "runs/none", "--out", "p.xlsx"],
        "Error: p.xlsx: its name has the ending of no format that can be written. "
        "End it in .csv, .tsv or .parquet.",
    ),
    "predict into nowhere": (
        ["predict", "runs/none", "--out", "no/p.csv"],
        "Error: no/p.csv: its folder does not exist. Create it first.",
    ),
    "predict over a file": (
        ["predict", "runs/none", "--out", "there.csv"],
        "Error: there.csv: it exists. Give another name, or --force to replace it.",
    ),
    "predict and embed into one file": (
        ["predict", "runs/none", "--out", "p.csv", "--embeddings", "empty/../p.csv"],
        "Error: empty/../p.csv: it is named for two tables. Give each a file of its own.",
    ),
    "export over a file": (
        ["data", "export", "karate", "--edges", "e.csv", "--nodes", "there.csv"],
        "Error: there.csv: it exists. Give another name, or --force to replace it.",
    ),
    "export into one file": (
        ["data", "export", "karate", "--edges", "e.csv", "--nodes", "e.csv", "--force"],
        "Error: e.csv: it is named for two tables. Give each a file of its own.",
    ),
    "search of no setting": (
        ["tune", "karate", "--fix", "colour=red", "--out", "new"],
        "Error: --fix colour: there is no such setting.",
    ),
    "series that cannot start": (
        [*KARATE, "--runs", "2", "--set", "kernel_size=100000", "--out", "new"],
        "Error: kernel_size=100000: the graph has 34 nodes",
    ),
    "info of nothing": (
        ["info", "runs/none"],
        "Error: runs/none: there is no such run folder. Check the path.",
    ),
    "info of no model": (
        ["info", "--model", "gcm"],
        "Error: model 'gcm': there is no such model. Choose one of cheby, gat, gcn, ",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(cli, case: str, tmp_path: Path):
    command, message = BAD[case]
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.csv").write_text("mine\n")
    (tmp_path / "bad.toml").write_text("model = \n")
    (tmp_path / "key.toml").write_text('modle = "gcn"\n')
    (tmp_path / "setting.toml").write_text('[source]\nname = "karate"\n[settings]\nepoch = 3\n')
    (tmp_path / "option.toml").write_text('[source]\nname = "karate"\n[options]\nkernelsize = 3\n')
    (tmp_path / "true.toml").write_text('[source]\nname = "karate"\n[settings]\nepochs = true\n')
    (tmp_path / "type.toml").write_text('[source]\nname = "karate"\n[settings]\nlr = "high"\n')
    before = sorted(tmp_path.iterdir())
    done = cli(*command)
    assert done.status == 2
    assert done.err.startswith(message)
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert sorted(tmp_path.iterdir()) == before  # no folder is left of a run that could not start


def test_options_of_a_resumed_run_are_refused(cli):
    assert cli(*KARATE).status == 0
    done = cli("train", "--resume", "runs/karate-node2seq-s0", "--epochs", "9")
    assert done.status == 2
    assert done.err == (
        "Error: --resume with --epochs: a resumed run keeps the settings that it was started with. "
        "Leave --epochs out, or start a new run.\n"
    )


def test_an_unfinished_run_is_not_overwritten(cli, tmp_path: Path):
    assert cli(*KARATE, "--out", "run").status == 0
    (tmp_path / "run" / "model.safetensors").unlink()
    done = cli(*KARATE, "--out", "run")
    assert done.status == 2
    assert done.err == (
        "Error: run: it holds an unfinished run, and nothing is overwritten. "
        "Give another folder with `--out`, or resume with `--resume`.\n"
    )
