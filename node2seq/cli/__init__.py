"""The command line: ``flags`` defines what each verb takes, ``commands`` runs it, and each verb is one file.

Nothing here imports torch before a verb runs, so that ``--help`` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer

    app: typer.Typer

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    # Late, because some commands also run where typer is not installed.
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from node2seq.cli.commands import make_app

    return make_app()
