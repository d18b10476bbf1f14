"""``node2seq protocol``: one comparison at equal budgets, declared before it was made."""

from __future__ import annotations

from pathlib import Path

from node2seq.cli.commands import echo, keeping_rows
from node2seq.cli.flags import ProtocolFlags
from node2seq.errors import Node2SeqError
from node2seq.experiments import graphs, stages
from node2seq.experiments.declaration import PROTOCOL, Protocol
from node2seq.experiments.evidence_page import render
from node2seq.experiments.rows import CHOSEN
from node2seq.experiments.stages import Say
from node2seq.storage import make_folder


def protocol(flags: ProtocolFlags, say: Say = echo, declared: Protocol = PROTOCOL) -> int:
    """Run a stage, or all that are missing, and return the exit status: 1 while rows are missing.

    Args:
        flags: What to do.
        say: Prints a line.
        declared: The protocol.
    """
    if flags.stage == "plan":
        _tell_plan(declared, flags.folder, say)
    elif flags.stage == "pack":
        path = flags.graphs or Path("runs/protocol.npz")
        make_folder(path.parent)
        columns = (*declared.columns, *declared.further)
        graphs.pack(path, ((name, graphs.read_graph_of(name, flags.data_root)) for name in columns))
        say(f"wrote {path}: {path.stat().st_size / 2**20:.1f} MB")
    elif flags.stage == "choose":
        say(f"wrote {stages.choose(declared, flags.folder)}; commit it before its rows are made")
    elif flags.stage == "render":
        _render(declared, flags, say)
    elif flags.stage == "all":
        return _run_all(declared, flags, say)
    else:
        return min(_run(declared, flags.stage, flags, say), 1)
    return 0


def _tell_plan(declared: Protocol, folder: Path, say: Say) -> None:
    cells = len(declared.searched)
    say(f"wrote {stages.declare(declared, folder)}")
    say(f"{cells} cells, {declared.trainings_per_cell} trainings each: {cells * declared.trainings_per_cell}")
    for number, rung in enumerate(declared.rungs, 1):
        say(f"round {number}: {rung.settings} settings on {len(rung.seeds)} splits, seeds {rung.seeds}")
    further = sum(own in line.columns for line in declared.lines for own in declared.further.values())
    finals = sum(len(line.columns) for line in declared.lines) + further
    studies = sum(len(study.columns) for study in declared.studies)
    runs = len(declared.final_seeds)
    say(f"final: {finals} cells and {studies} of studies, {runs} trainings each: {(finals + studies) * runs}")


def _run_all(declared: Protocol, flags: ProtocolFlags, say: Say) -> int:
    """Search, choose, measure and render; before measuring, what was chosen has to be committed."""
    if not (flags.folder / CHOSEN).exists():
        if not _run(declared, "search", flags, say):
            path = stages.choose(declared, flags.folder)
            say(f"wrote {path}. Commit it and the rows; run the same command to resume.")
        return 1
    missing = sum(_run(declared, stage, flags, say) for stage in ("measure", "ablate"))
    _render(declared, flags, say)
    return 1 if missing else 0


def _render(declared: Protocol, flags: ProtocolFlags, say: Say) -> None:
    if not (flags.folder / CHOSEN).exists():  # a page of nothing would replace the one that is there
        raise Node2SeqError(
            str(flags.folder),
            f"there is no {CHOSEN} in it",
            "Run the stages before this one, or name another folder with --folder",
        )
    for path in render(declared, flags.folder, flags.results, flags.docs):
        say(f"wrote {path}")


def _run(declared: Protocol, stage: str, flags: ProtocolFlags, say: Say) -> int:
    with keeping_rows():
        missing = stages.run_stage(
            declared,
            stage,
            flags.folder,
            device=flags.device,
            jobs=flags.jobs,
            graphs=flags.graphs,
            root=flags.data_root,
            commit=flags.commit,
            budget_seconds=flags.budget_seconds,
            say=say,
        )
    if missing:
        say(f"{missing} rows are missing; run the same command to resume")
    return missing
