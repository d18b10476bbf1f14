"""``python -m node2seq`` and the command ``node2seq``."""

import sys

from node2seq.errors import Node2SeqError


def main() -> None:
    """Run the command line; without typer the commands that need no extra, else say what to install."""
    try:
        from node2seq.cli import app

        app(prog_name="node2seq")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):  # typer itself needs rich
            raise
        sys.exit(_run_bare(sys.argv[1:], package))


def _run_bare(arguments: list[str], missing: str) -> int:
    from node2seq.cli.commands import COMMANDS
    from node2seq.cli.flags import read
    from node2seq.cli.output import echo

    verb = arguments[0] if arguments else ""
    if verb not in COMMANDS or not COMMANDS[verb].bare:
        echo(f"Error: {missing} is not installed. Run `pip install 'node2seq[cli]'`.", error=True)
        return 2
    try:
        flags = read(COMMANDS[verb].flags, arguments[1:], f"node2seq {verb}")
    except Node2SeqError as error:
        echo(f"Error: {error}", error=True)
        return 2
    return COMMANDS[verb].execute(flags)


if __name__ == "__main__":
    main()
