"""``python -m node2seq`` and the command ``node2seq``."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from node2seq.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(f"Error: {error.name} is not installed. Run `pip install 'node2seq[cli]'`.")
    app(prog_name="node2seq")


if __name__ == "__main__":
    main()
