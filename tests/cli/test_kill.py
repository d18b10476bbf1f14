"""``kill -9`` at random moments, real processes: nothing is lost, and the end is the same bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Imports and trains once, then forks: a child is a process of its own, killed and resumed as any other, but
# need not spend seconds on importing torch and on loading compiled loops. One thread, because a thread pool
# does not survive a fork.
FORKING = """
import os, random, signal, sys, time
from pathlib import Path
from node2seq.runs.training import train_run
from node2seq.runs.folder import RunConfig, Source
from node2seq.train.settings import TrainSettings

folder, repetitions = Path(sys.argv[1]), int(sys.argv[2])
config = RunConfig(
    Source(name="karate"), options={"hidden_channels": 16}, settings=TrainSettings(epochs=60, patience=50)
)

def start(path, resume):
    child = os.fork()
    if child == 0:
        try:
            train_run(config, path, resume=resume, checkpoint_seconds=0.01)
            os._exit(0)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(1)
    return child

train_run(config, folder / "whole")
expected = (folder / "whole" / "model.safetensors").read_bytes()
begun = time.monotonic()
assert os.waitpid(start(folder / "again", False), 0)[1] == 0
seconds = time.monotonic() - begun
assert (folder / "again" / "model.safetensors").read_bytes() == expected
moments = random.Random(0)
landed = 0
for i in range(5 * repetitions):
    if landed == repetitions:
        break
    path = folder / f"run{i}"
    child = start(path, True)
    time.sleep(moments.uniform(0, seconds))
    os.kill(child, signal.SIGKILL)
    if os.waitpid(child, 0)[1] == signal.SIGKILL:
        landed += 1
    else:  # it came after the end: the machine is faster now than it was
        seconds *= 0.8
    assert os.waitpid(start(path, True), 0)[1] == 0, f"run {i} did not go on"
    assert (path / "model.safetensors").read_bytes() == expected, f"run {i} differs"
    assert not list(path.glob("*.part")), f"run {i} left a temporary file"
    assert not (path / "checkpoint.safetensors").exists()
print(f"killed {landed}")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_random_moments_and_resumed_is_bit_identical(tmp_path: Path):
    environment, repetitions = {**os.environ, "OMP_NUM_THREADS": "1"}, 20
    command = [sys.executable, "-c", FORKING, str(tmp_path), str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) == repetitions


@pytest.mark.slow
def test_the_command_itself_killed_again_and_again(cli, tmp_path: Path):
    arguments = ["train", "karate", "--epochs", "300"]
    assert cli(*arguments, "--out", "whole").status == 0
    command = [sys.executable, "-m", "node2seq", *arguments]
    moments = random.Random(1)
    kills = 0
    for _ in range(20):
        process = subprocess.Popen(
            [*command, "--out", "run", "--resume", "--checkpoint-seconds", "0"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if kills < 2:
            assert process.stdout is not None
            for line in process.stdout:
                if "epoch" in line and "/300" in line:
                    break
            time.sleep(moments.uniform(0, 0.5))
            process.send_signal(signal.SIGKILL)
        out, _ = process.communicate(timeout=300)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, out
        kills += 1
    assert kills >= 2
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_two_processes_on_one_folder(cli, tmp_path: Path):
    arguments = ["train", "karate", "--out", "run", "--epochs", "100000"]
    command = [sys.executable, "-m", "node2seq", *arguments]
    first = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        while "epoch 1/" not in first.stdout.readline():
            assert first.poll() is None
        second = cli(*arguments, "--resume")
        assert second.status == 2
        assert second.err.startswith(f"Error: run: process {first.pid} on ")
        assert second.err.endswith(
            "is working in this folder. Wait until it ends, stop it, or give another folder with `--out`.\n"
        )
    finally:
        first.kill()
        first.communicate()
