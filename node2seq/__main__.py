"""``python -m node2seq`` and the command ``node2seq``."""

from node2seq.cli.commands import main

if __name__ == "__main__":
    main()
