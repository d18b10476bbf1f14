"""Training: fit, evaluate and predict, for one run or many as one program. Knows no files and no commands."""

from node2seq.train.fitter import EpochRecord, FitResult, Fitter, SplitLike, embed, evaluate, fit, predict
from node2seq.train.settings import TrainSettings

__all__ = [
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
