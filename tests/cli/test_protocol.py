"""``node2seq protocol``: stages by name, and all of them with one stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_protocol import COMMIT, tiny_protocol

from node2seq.cli.flags import ProtocolFlags, ReproduceFlags
from node2seq.cli.protocol import protocol
from node2seq.cli.reproduce import reproduce
from node2seq.cli.settings import check_flags
from node2seq.errors import Node2SeqError
from node2seq.experiments.rows import RowStore


def call(folder: Path, stage: str = "all", **flags: object) -> tuple[int, str]:
    said: list[str] = []
    given = {
        "stage": stage,
        "folder": folder,
        "commit": COMMIT,
        "results": folder / "none",
        "device": "cpu",
        "docs": folder,
        **flags,
    }
    declared = tiny_protocol()
    declared = replace(declared, lines=declared.lines[:2])  # what follows a rule is trained for long
    status = protocol(ProtocolFlags(**given), said.append, declared)  # pyright: ignore[reportArgumentType]
    return status, "\n".join(said)


def test_all_stages_stop_once_for_a_commit(tmp_path):
    status, said = call(tmp_path)
    assert status == 1
    assert "search: 8 of 8 rows" in said
    assert "Commit it and the rows" in said
    assert not RowStore(tmp_path).rows
    status, said = call(tmp_path)
    assert status == 0
    assert "measure: 6 of 6 rows" in said
    assert "ablate: 4 of 4 rows" in said
    assert (tmp_path / "evidence.md").read_text().startswith("# Evidence")
    page = (tmp_path / "evidence.md").read_bytes()
    assert call(tmp_path, "render")[0] == 0
    assert (tmp_path / "evidence.md").read_bytes() == page


def test_a_folder_without_rows_replaces_no_page(tmp_path):
    (tmp_path / "evidence.md").write_text("kept")
    with pytest.raises(Node2SeqError, match=r"there is no chosen\.jsonl in it\. Run the stages"):
        call(tmp_path / "typo", "render", docs=tmp_path)
    with pytest.raises(Node2SeqError, match=r"there is no such file\. Train first"):
        reproduce(ReproduceFlags(render_only=True, results=tmp_path / "typo", docs=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["evidence.md"]
    assert (tmp_path / "evidence.md").read_text() == "kept"


def test_the_plan_tells_the_budget(tmp_path):
    status, said = call(tmp_path, "plan")
    assert status == 0
    assert "2 cells, 7 trainings each: 14" in said
    assert "round 1: 3 settings on 2 splits" in said


def test_graphs_are_packed_for_another_machine(tmp_path):
    status, said = call(tmp_path, "pack", graphs=tmp_path / "graphs.npz")
    assert status == 0
    assert "wrote" in said
    assert call(tmp_path, "search", graphs=tmp_path / "graphs.npz")[0] == 0


def test_an_unknown_stage_is_named(tmp_path):
    with pytest.raises(Node2SeqError, match="stage='test'"):
        check_flags(ProtocolFlags(stage="test"))
