"""The command line: each verb is one file here, and one call to a public function.

Nothing here imports torch before a verb runs, so that ``--help`` is quick.
"""

from __future__ import annotations

import typer

from node2seq.cli import bench, data, evaluate, info, predict, reproduce, train, tune
from node2seq.cli.root import Root

app = typer.Typer(
    cls=Root,
    help="Graph convolutions over sorted neighbours: score, rank, convolve, read out.",
    epilog="Example: node2seq train cora-r --baseline gcn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train", epilog=train.EPILOG)(train.train)
app.command("tune", epilog=tune.EPILOG)(tune.tune)
app.command("evaluate", epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command("predict", epilog=predict.EPILOG)(predict.predict)
app.command("info", epilog=info.EPILOG)(info.info)
app.command("bench", epilog=bench.EPILOG)(bench.bench)
app.command("reproduce", epilog=reproduce.EPILOG)(reproduce.reproduce)
app.add_typer(data.app, name="data")
