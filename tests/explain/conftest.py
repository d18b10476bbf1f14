"""A small run and its server, started once for all tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node2seq.explain.run import ExplainedRun, open_run
from node2seq.runs.folder import RunConfig, Source
from node2seq.runs.training import train_run
from node2seq.train.settings import TrainSettings


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explained") / "karate"
    settings = TrainSettings(epochs=15)
    options = {"hidden_channels": 8, "hops": 2}
    train_run(RunConfig(source=Source(name="karate"), options=options, settings=settings, seed=3), path)
    return path


@pytest.fixture(scope="session")
def explained(run_folder: Path) -> ExplainedRun:
    return open_run(run_folder, device="cpu")


@pytest.fixture(scope="session")
def server(run_folder: Path) -> Iterator[str]:
    """The address of the page of that run."""
    pytest.importorskip("fastapi", reason="the page needs `pip install 'node2seq[page]'`")
    import uvicorn

    from node2seq.explain.server import make_app
    from node2seq.explain.view import Viewer

    app = make_app(Viewer(open_run(run_folder, device="cpu")))
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="critical")
    socket = config.bind_socket()
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    running.should_exit = True
    thread.join(20)
