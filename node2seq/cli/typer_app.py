"""The commands as a typer app."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING
from typing import Annotated, Any

import typer

from node2seq.cli.commands import COMMANDS, Command
from node2seq.cli.flags import Definition, definitions


def _make_app() -> typer.Typer:
    app = typer.Typer(
        help="Graph convolutions over sorted neighbours: score, rank, convolve, read out.",
        epilog="Example: node2seq train cora-r --baseline gcn",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    data = typer.Typer(
        help="List, fetch and write the known data sets; check a graph of your own.", no_args_is_help=True
    )
    for name, command in COMMANDS.items():
        group, _, verb = name.rpartition(" ")
        (data if group else app).command(verb, epilog=command.epilog)(_function(command))
    app.add_typer(data, name="data")
    return app


def _function(command: Command) -> Callable[..., None]:
    """A function with the signature that typer reads a command's flags from."""
    known = list(definitions(command.flags))

    def call(**given: Any) -> None:
        lists = {each.field: tuple(given[each.field] or ()) for each in known if each.several}
        if status := command.execute(command.flags(**{**given, **lists})):
            raise typer.Exit(status)

    parameters = [_parameter(each) for each in known]
    call.__doc__ = command.flags.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _parameter(each: Definition) -> inspect.Parameter:
    about: dict[str, Any] = {
        "help": each.flag.help,
        "show_default": each.flag.shown,
        "metavar": each.flag.metavar,
        "min": each.flag.least,
        "max": each.flag.most,
        "rich_help_panel": each.flag.panel,
    }
    kind = typer.Argument(**about) if each.flag.positional else typer.Option(each.typed, **about)
    required = each.default is MISSING
    several = list[str] if required else list[str] | None
    return inspect.Parameter(
        each.field,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None if each.several else each.default,
        annotation=Annotated[several if each.several else each.annotation, kind],
    )


app = _make_app()
