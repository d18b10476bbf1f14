"""A finished run evaluates and predicts, and a damaged one says what is damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from node2seq.errors import Node2SeqError
from node2seq.runs.folder import RunFolder
from node2seq.runs.inference import evaluate_run, predict_run


def test_evaluating_gives_the_figures_of_training(finished: Path):
    assert evaluate_run(finished) == RunFolder(finished).result.metrics


def test_predicting_gives_every_node(finished: Path):
    prediction = predict_run(finished, embeddings=True)
    assert prediction.probabilities.shape == (34, 4)
    assert prediction.embeddings is not None
    assert prediction.embeddings.shape == (34, 8)
    assert prediction.node_ids == list(range(34))
    assert set(prediction.labels) <= {"0", "1", "2", "3"}


def edit(name: str, change):
    def apply(path: Path) -> None:
        file = path / name
        values = json.loads(file.read_text())
        change(values)
        file.write_text(json.dumps(values))

    return apply


def content(name: str, change):
    return lambda path: (path / name).write_bytes(change((path / name).read_bytes()))


DAMAGE = {
    "no folder": (lambda path: shutil.rmtree(path), "{run}: there is no such run folder. Check the path."),
    "no config": (
        lambda path: (path / "config.json").unlink(),
        "{run}: it has no config.json, so it is not a run folder. Give a folder that `node2seq train` made.",
    ),
    "truncated config": (content("config.json", lambda b: b[:100]), "{run}/config.json: it is not JSON"),
    "later version": (
        edit("config.json", lambda c: c.update(format=99)),
        "{run}/config.json: format=99: it was written by a later version of node2seq; this one reads formats "
        "up to 1. Update with `pip install --upgrade node2seq`.",
    ),
    "no version": (
        edit("config.json", lambda c: c.pop("format")),
        "{run}/config.json: format: it is missing. Restore the file from a copy.",
    ),
    "no model": (
        edit("config.json", lambda c: c.pop("model")),
        "{run}/config.json: model: it is missing. Restore the file from a copy.",
    ),
    "unknown model": (
        edit("config.json", lambda c: c["model"].update(name="node3seq")),
        "{run}/config.json: model 'node3seq': there is no such model. Perhaps node2seq was meant.",
    ),
    "unknown option": (
        edit("config.json", lambda c: c["model"]["options"].update(kernels=3)),
        "{run}/config.json: options of node2seq: kernels: there is no such setting.",
    ),
    "wrong type": (
        edit("config.json", lambda c: c["run"].update(seed="three")),
        "{run}/config.json: seed='three': it should be a whole number. Give a value of that kind.",
    ),
    "unknown setting": (
        edit("config.json", lambda c: c["run"]["settings"].update(epoch=3)),
        "{run}/config.json: settings: epoch: there is no such setting. Perhaps epochs was meant.",
    ),
    "edited seed": (
        edit("config.json", lambda c: c["run"].update(seed=4)),
        "{run}/model.safetensors: it was trained with another config.json or split.json than the ones "
        "beside it. Undo the edit of those files, or train again.",
    ),
    "edited split": (
        edit("split.json", lambda s: s["test"].pop()),
        "{run}/model.safetensors: it was trained with another config.json or split.json",
    ),
    "no split": (lambda path: (path / "split.json").unlink(), "{run}/split.json: there is no such file."),
    "truncated weights": (
        content("model.safetensors", lambda b: b[:-9]),
        "{run}/model.safetensors: it is not a whole safetensors file",
    ),
    "pickle as weights": (
        content("model.safetensors", lambda b: b"\x80\x04K\x01."),
        "{run}/model.safetensors: it is a pickle under another name, and opening a pickle can run any "
        "program. Save the weights as safetensors.",
    ),
    "unfinished": (
        lambda path: (path / "model.safetensors").unlink(),
        "{run}: the run is not finished. Finish it with `node2seq train --resume {run}`.",
    ),
    "truncated metrics": (
        content("metrics.jsonl", lambda b: b[:200]),
        "{run}/metrics.jsonl: the line with the final figures is missing. Restore the file.",
    ),
    "another graph": (
        edit("config.json", lambda c: c["graph"].update(sha256="0" * 64)),
        "{run}/model.safetensors: it was trained with another config.json or split.json",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damaged_run_folders(case: str, copied: Path):
    change, message = DAMAGE[case]
    change(copied)
    with pytest.raises(Node2SeqError) as caught:
        evaluate_run(copied)
    assert str(caught.value).startswith(message.format(run=copied))
