"""Training: fit, evaluate and predict, for one run or many together. Knows no files and no commands."""

from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import embed, evaluate, predict
from node2seq.train.inputs import SplitLike
from node2seq.train.progress import EpochRecord, FitResult
from node2seq.train.settings import BatchSettings, TrainSettings

__all__ = [
    "BatchSettings",
    "EpochRecord",
    "FitResult",
    "Fitter",
    "SplitLike",
    "TrainSettings",
    "embed",
    "evaluate",
    "fit",
    "predict",
]
