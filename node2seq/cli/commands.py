"""The commands: which there are, how one is run, and how typer, or our own reader, gets to it.

Imports no torch, so that ``--help`` is quick, and typer only where it is used: some commands also run where
it is not installed.
"""

from __future__ import annotations

import errno
import importlib
import inspect
import io
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from node2seq import __version__
from node2seq.cli.definitions import Flag, definitions, read
from node2seq.cli.flags import (
    BenchFlags,
    DataCheckFlags,
    DataConvertFlags,
    DataExportFlags,
    DataFetchFlags,
    DataListFlags,
    EvaluateFlags,
    ExplainFlags,
    ExploreFlags,
    InfoFlags,
    PredictFlags,
    ProtocolFlags,
    ReproduceFlags,
    TrainFlags,
    TuneFlags,
)
from node2seq.errors import Node2SeqError

if TYPE_CHECKING:
    import typer
    from rich.console import Console
    from rich.table import Table

_EXTRAS = {
    **dict.fromkeys(("safetensors", "polars", "rich"), "cli"),
    **dict.fromkeys(("fastapi", "starlette", "uvicorn"), "page"),
}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
# torch has no type of its own for a processor's memory.
_OUT_OF_MEMORY = re.compile("can't allocate memory|out of memory")


def echo(line: str, *, error: bool = False) -> None:
    """Print a line at once, to stderr if it is an error."""
    stream = sys.stderr if error else sys.stdout
    stream.write(line + "\n")
    stream.flush()


def print_line(console: Console, text: str) -> None:
    """Print a line, with its markup, that is neither coloured by its words nor broken."""
    console.print(text, highlight=False, soft_wrap=True)


# No terminal is wider.
_WIDEST_TABLE = 1000
# So much of a name is shown in a table; names that begin alike may differ at the end.
_WIDEST_NAME = 32


def shortened(name: str, widest: int = _WIDEST_NAME) -> str:
    """A name of a class or a node without its middle, if it is long."""
    if len(name) <= widest:
        return name
    end = widest // 2
    return f"{name[: widest - end - 1]}…{name[-end:]}"


def make_table(
    header: Sequence[str],
    lines: Iterable[Sequence[str]],
    *,
    words: Collection[str] = (),
    unbroken: Collection[str] = (),
    **style: Any,
) -> Table:
    """A table of figures, which are aligned to the right.

    Args:
        header: The titles of the columns.
        lines: The cells.
        words: The columns that hold words instead.
        unbroken: The columns whose cells are not broken where space is short.
        **style: See :class:`rich.table.Table`.
    """
    from rich.table import Table

    table = Table(**style)
    for name in header:
        side, longest = "left" if name in words else "right", max(map(len, name.split()), default=0)
        table.add_column(name, justify=side, no_wrap=name in unbroken, min_width=longest)
    for line in lines:
        table.add_row(*line)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table whole: where the terminal is too narrow for it, its lines are broken, not cut."""
    least = console.measure(table, options=console.options.update(max_width=_WIDEST_TABLE)).minimum
    console.print(table, width=max(console.width, least), crop=False)


def import_rich() -> Any:
    """The package rich with what shows progress, or None where it is not installed."""
    try:
        import rich.box
        import rich.live
        import rich.progress
        import rich.table
    except ModuleNotFoundError:
        return None
    return rich


@contextmanager
def keeping_rows() -> Iterator[None]:
    """Say what is kept if the user stops a command that writes rows one by one."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("Stopped. Finished rows are kept; run the same command to resume.") from None


def step_teller(quiet: bool) -> Callable[[str], None]:
    """Return what tells the steps before training, which take a while on large files: lines on stderr."""
    return (lambda _: None) if quiet else lambda line: echo(line, error=True)


@dataclass(frozen=True)
class Command:
    """A verb of the command line.

    Args:
        flags: Its flags; their docstring is its help.
        function: ``module:function`` in this package. It takes the flags and returns the exit status, or
            None for success.
        examples: For the help; each is run by the tests.
        bare: Whether it needs nothing but torch, torch_geometric and numpy.
    """

    flags: type
    function: str
    examples: tuple[str, ...]
    bare: bool = False

    @property
    def epilog(self) -> str:
        """The examples as the help shows them."""
        return "\n\n".join(["Examples:" if len(self.examples) > 1 else "Example:", *self.examples])

    def read_and_execute(self, read_flags: Callable[[], Any]) -> int:
        """Run the verb with the flags that were read; a wrong value is one sentence, also without typer."""
        try:
            flags = read_flags()
        except Node2SeqError as error:
            echo(f"Error: {error}", error=True)
            return 2
        return self.execute(flags)

    def execute(self, flags: Any) -> int:
        """Run the verb; what ends it early becomes a sentence on stderr and an exit status."""
        try:
            if not isinstance(flags, DataListFlags):
                importlib.import_module("node2seq.cli.settings").check_flags(flags)
            module, _, name = self.function.partition(":")
            run: Callable[[Any], int | None] = getattr(
                importlib.import_module(f"node2seq.cli.{module}"), name
            )
            return run(flags) or 0
        except Node2SeqError as error:
            status, message = 2, f"Error: {error}"
        except KeyboardInterrupt as stop:
            # A run that could save its state says so, and knows the signal that asked for it.
            status, message = getattr(stop, "exit_status", 130), str(stop) or "Stopped."
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not _OUT_OF_MEMORY.search(str(error)):
                raise
            status, message = 2, "Error: there is not enough memory for this graph and model."
        except OSError as error:
            status, message = _end_output(error), ""
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            extra = _EXTRAS[package]
            status, message = 2, f"Error: {package} is not installed. Run `pip install 'node2seq[{extra}]'`."
        if message:
            echo(message, error=True)
        return status


def _end_output(error: OSError) -> int:
    """Say that the output cannot be written, and return the exit status; any other error is raised."""
    # Whatever writes a file says so itself, so this is the output.
    if error.errno != errno.ENOSPC or error.filename is not None:
        raise error
    sys.stdout = io.StringIO()  # what is left of it would fail again
    echo("Error: the output cannot be written: the disk is full. Free some space.", error=True)
    return 2


COMMANDS = {
    "train": Command(
        TrainFlags,
        "train:train",
        (
            "node2seq train karate --epochs 50",
            "node2seq train cora-r --baseline gcn",
            "node2seq train texas --runs 5 --json",
            "node2seq train --edges edges.csv --nodes nodes.csv --label kind",
            "node2seq train --resume runs/cora-r-node2seq-s0",
        ),
    ),
    "tune": Command(
        TuneFlags,
        "tune:tune",
        (
            "node2seq tune texas --trials 4 --fix epochs=10 --seeds 100-101 --final-seeds 200-201",
            "node2seq tune cornell --model gcn --sampler halving --trials 8 --fix epochs=10 "
            "--out runs/cornell",
            "node2seq tune --edges edges.csv --nodes nodes.csv --label kind --trials 4 --fix epochs=10",
        ),
        bare=True,
    ),
    "evaluate": Command(EvaluateFlags, "predict:evaluate", ("node2seq evaluate runs/cora-r-node2seq-s0",)),
    "predict": Command(
        PredictFlags,
        "predict:predict",
        (
            "node2seq predict runs/karate-node2seq-s0 --out predictions.csv",
            "node2seq predict runs/nodes-residual-node2seq-s0 --edges new_edges.csv --nodes new_nodes.csv "
            "--out new.parquet",
        ),
    ),
    "explain": Command(
        ExplainFlags,
        "explain:explain",
        (
            "node2seq explain runs/karate-node2seq-s0 --node 8",
            "node2seq explain runs/karate-node2seq-s0 --node 8 --without 32 --json",
            "node2seq explain runs/karate-node2seq-s0 --node 8 --html node8.html",
        ),
    ),
    "explore": Command(ExploreFlags, "explain:explore", ("node2seq explore runs/karate-node2seq-s0",)),
    "info": Command(
        InfoFlags,
        "info:info",
        ("node2seq info", "node2seq info --model node2seq", "node2seq info runs/cora-r-node2seq-s0"),
    ),
    "bench": Command(
        BenchFlags, "bench:bench", ("node2seq bench", "node2seq bench --device cpu --json rows.jsonl")
    ),
    "reproduce": Command(
        ReproduceFlags,
        "reproduce:reproduce",
        (
            "node2seq reproduce --list",
            "node2seq reproduce 2 --columns cora-f --models gcn --models sgc --jobs 2",
            "node2seq reproduce 2 3 --device cuda --jobs 8 --budget-seconds 540",
            "node2seq reproduce --check 5",
            "node2seq reproduce --render",
        ),
        bare=True,
    ),
    "protocol": Command(
        ProtocolFlags,
        "protocol:protocol",
        (
            "node2seq protocol plan",
            "node2seq protocol search --device cuda --jobs 16 --budget-seconds 540",
            "node2seq protocol render",
        ),
        bare=True,
    ),
    "data list": Command(DataListFlags, "data_list:list_sets", ("node2seq data list",)),
    "data fetch": Command(DataFetchFlags, "data:fetch", ("node2seq data fetch karate",)),
    "data export": Command(
        DataExportFlags,
        "data:export",
        ("node2seq data export karate --edges edges.csv --nodes nodes.csv",),
    ),
    "data check": Command(
        DataCheckFlags,
        "data:check",
        ("node2seq data check --edges edges.csv --nodes nodes.csv --label label",),
    ),
    "data convert": Command(
        DataConvertFlags,
        "data:convert_files",
        ("node2seq data convert --edges edges.csv --nodes nodes.csv --label kind --out graph.store",),
    ),
}


def main() -> None:
    """Run the command line; without typer the commands that need no extra, else say what to install."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every encoding has → and ─, as of a file on Windows
            stream.reconfigure(errors="replace")
    try:
        make_app()(prog_name="node2seq")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):  # typer itself needs rich
            raise
        sys.exit(_run_bare(sys.argv[1:], package))
    except OSError as error:  # of a help
        sys.exit(_end_output(error))


def _run_bare(arguments: list[str], missing: str) -> int:
    verb = arguments[0] if arguments else ""
    if verb not in COMMANDS or not COMMANDS[verb].bare:
        echo(f"Error: {missing} is not installed. Run `pip install 'node2seq[cli]'`.", error=True)
        return 2
    command = COMMANDS[verb]
    _note_repeated(_of_one_value(definitions(command.flags)), arguments[1:])
    return command.read_and_execute(lambda: read(command.flags, arguments[1:], f"node2seq {verb}"))


def _of_one_value(known: Iterable[Flag]) -> list[str]:
    """Those that take one value, as they are typed."""
    named = (each for each in known if not each.positional and not each.several)
    return [each.typed for each in named if each.annotation is not bool]


def _note_repeated(of_one_value: Collection[str], arguments: Sequence[str]) -> None:
    """Say which of these flags are given more than once: the last one counts."""
    texts = [*arguments, "--"]
    given = [text.partition("=")[0] for text in texts[: texts.index("--")]]
    for name in of_one_value:
        if given.count(name) > 1:
            times = f"{name} is given {given.count(name)} times and takes one value"
            echo(f"note: {times}: the last one counts", error=True)


@cache
def make_app() -> typer.Typer:
    """The commands as typer reads them."""
    import typer
    from typer.core import TyperCommand

    app = typer.Typer(
        help="Graph convolutions over sorted neighbours: score, rank, convolve, read out.",
        epilog="Example: node2seq train cora-r --baseline gcn",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    data = typer.Typer(
        help="List, fetch and write the known data sets; check or convert your own graph.",
        no_args_is_help=True,
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            echo(f"node2seq {__version__}")
            raise typer.Exit

    typed: list[str] = []  # of the command that runs: typer keeps the last value of a flag alone

    class Remembering(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            typed[:] = args
            return super().parse_args(ctx, args)

    shown = {"help": "Show the version.", "is_eager": True, "callback": show_version}

    @app.callback()
    def before_a_verb(version: bool = typer.Option(False, "--version", **shown)) -> None:
        pass

    for name, command in COMMANDS.items():
        group, _, verb = name.rpartition(" ")
        parts = data if group else app
        parts.command(verb, cls=Remembering, epilog=command.epilog)(_function(command, typed))
    app.add_typer(data, name="data")
    return app


def _function(command: Command, typed: Sequence[str]) -> Callable[..., None]:
    """A function with the signature that typer reads a command's flags from.

    Args:
        command: The command.
        typed: What is on its command line when it is called.
    """
    import typer

    known = list(definitions(command.flags))
    readers = {each.field: each.reader() for each in known}
    of_one_value = _of_one_value(known)

    def call(**given: Any) -> None:
        texts = {name: text for name, text in given.items() if text is not None}
        read_flags = lambda: command.flags(**{name: readers[name](text) for name, text in texts.items()})  # noqa: E731
        _note_repeated(of_one_value, typed)
        if status := command.read_and_execute(read_flags):
            raise typer.Exit(status)

    parameters = [_parameter(each) for each in known]
    call.__doc__ = command.flags.__doc__
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    call.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return call


def _parameter(each: Flag) -> inspect.Parameter:
    """A flag as text, which this package reads itself: typer's messages do not name the value."""
    import typer

    about: dict[str, Any] = {
        "help": each.help,
        "show_default": each.shown,
        "metavar": each.placeholder,
        "rich_help_panel": each.panel,
    }
    kind = typer.Argument(**about) if each.positional else typer.Option(each.typed, **about)
    required = each.default is MISSING
    text = bool if each.annotation is bool else list[str] if each.several else str
    default = each.default if each.annotation is bool or each.default is None else str(each.default)
    return inspect.Parameter(
        each.field,
        _KEYWORD,
        default=inspect.Parameter.empty if required else None if each.several else default,
        annotation=Annotated[text if required or text is bool else text | None, kind],
    )
