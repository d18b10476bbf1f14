"""``node2seq explore``: a run folder → a page on this machine that explains its nodes."""

from __future__ import annotations

from node2seq.cli.commands import echo, step_teller
from node2seq.cli.flags import ExploreFlags
from node2seq.explain.run import open_run
from node2seq.explain.server import serve
from node2seq.explain.view import Viewer


def explore(flags: ExploreFlags) -> None:
    """Open a run and serve its page until interrupted."""
    say = step_teller(False)
    run = open_run(flags.run, device=flags.device, both_directions=flags.both_directions, say=say)
    serve(Viewer(run), flags.port, echo)
