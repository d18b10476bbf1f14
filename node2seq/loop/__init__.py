"""The training loop, for one run or R of them as one program; knows no model, files or commands."""

from node2seq.loop.folds import FOLDS
from node2seq.loop.program import Program, Standing
from node2seq.loop.settings import TrainSettings

__all__ = ["FOLDS", "Program", "Standing", "TrainSettings"]
