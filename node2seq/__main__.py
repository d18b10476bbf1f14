"""``python -m node2seq`` and the command ``node2seq``."""

import sys


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from node2seq.cli import app

        app(prog_name="node2seq")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("typer", "rich"):  # what typer itself needs, and typer
            raise
        sys.stderr.write(f"Error: {package} is not installed. Run `pip install 'node2seq[cli]'`.\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
