"""Training: fit, evaluate and predict, for one run or many together. Knows no files and no commands.

Names are imported when they are first asked for: settings are checked without waiting for torch.
"""

from typing import TYPE_CHECKING

from node2seq.environment import lazy_names

if TYPE_CHECKING:
    from node2seq.train.fitter import Fitter, fit
    from node2seq.train.inference import embed, evaluate, predict
    from node2seq.train.inputs import SplitLike
    from node2seq.train.progress import EpochRecord, FitResult
    from node2seq.train.settings import BatchSettings, TrainSettings

_HOME = {
    "fitter": ("Fitter", "fit"),
    "inference": ("embed", "evaluate", "predict"),
    "inputs": ("SplitLike",),
    "progress": ("EpochRecord", "FitResult"),
    "settings": ("BatchSettings", "TrainSettings"),
}

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


__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
