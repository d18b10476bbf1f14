"""A row: what is read is written back byte for byte, whatever version wrote it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from result_rows import result_row

from node2seq.experiments import Cell, ResultRow
from node2seq.nn.models.registry import complete

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "count"), [("runs", 4360), ("retired", 2180)])
def test_committed_rows_are_written_as_they_were_read(name: str, count: int) -> None:
    lines = (ROOT / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= count
    for line in lines:
        assert json.dumps(ResultRow.from_json(json.loads(line)).to_json(), ensure_ascii=False) == line


@pytest.mark.parametrize(("name", "count"), [("runs", 150), ("retired", 50)])
def test_the_network_of_every_committed_row_can_be_made(name: str, count: int) -> None:
    lines = (ROOT / "results" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    said = {(row["model"], json.dumps(row["recipe"]["options"])) for row in rows}
    assert len(said) >= count
    made = Counter(complete(model, json.loads(options), "row")[0] for model, options in said)
    assert made["node2seq"] > made["node2seq-plus"] > 5


def test_what_a_row_does_not_have_is_not_written() -> None:
    row = result_row(Cell("gcn", "texas"), 3)
    assert not {"together", "test_rest"} & row.to_json().keys()
    assert row.to_json()["commit"] is None
    assert ResultRow.from_json(row.to_json()) == row


@pytest.mark.parametrize("change", [{"text": "x"}, {"seed": None}, {"val": None}])
def test_missing_and_unknown_values_are_errors(change: dict) -> None:
    values = result_row(Cell("gcn", "texas"), 3, commit="abc").to_json() | change
    with pytest.raises((KeyError, TypeError)):
        ResultRow.from_json({name: value for name, value in values.items() if value is not None})
