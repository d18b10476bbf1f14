"""``python -m node2seq`` and the command ``node2seq``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it with a line, too."""
    try:
        from node2seq.cli import commands

        commands.main()
    except SystemExit as end:
        if not isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            raise
        sys.stderr.write("Stopped.\n")  # typer exits without a word
        raise
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
