"""What every verb shares: errors as sentences, and the exit status."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from node2seq.errors import Node2SeqError

EXTRAS = {"safetensors", "polars", "rich"}


class Root(TyperGroup):
    """Ends every verb's errors in one sentence on stderr instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except Node2SeqError as error:
            status, message = 2, f"Error: {error}"
        except KeyboardInterrupt as stop:
            # A run that could save its state says so, and knows the signal that asked for it.
            status, message = getattr(stop, "exit_status", 130), str(stop) or "Stopped."
        except MemoryError:
            status, message = 2, "Error: there is not enough memory for this graph and model."
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in EXTRAS:
                raise
            status, message = 2, f"Error: {package} is not installed. Run `pip install 'node2seq[cli]'`."
        typer.echo(message, err=True)
        raise typer.Exit(status)
