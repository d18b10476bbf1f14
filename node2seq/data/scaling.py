"""Columns of numbers brought to one scale, so that no network stalls on an income beside an age."""

from __future__ import annotations

import numpy as np

# A column of which so many cells are zero stays a column of zeros and a few numbers: it is not shifted.
_MOSTLY_ZERO = 0.5


def scale_of(values: np.ndarray) -> tuple[float, float]:
    """What to subtract from a column and what to divide it by then.

    Zeros and ones stay as they are. A column that is mostly zeros, as word counts are, is divided by its
    largest size, so that zeros stay zeros. Any other gets mean 0 and standard deviation 1.

    Args:
        values: The numbers of the column, without missing ones.
    """
    values = values.astype(np.float64, copy=False)
    if not values.size or ((values == 0) | (values == 1)).all():
        return 0.0, 1.0
    if (values == 0).mean() >= _MOSTLY_ZERO:
        return 0.0, float(np.abs(values).max())
    mean, deviation = float(values.mean()), float(values.std())
    # Equal numbers differ from their mean by a rounding at most.
    is_constant = deviation <= 1e-12 * max(abs(mean), 1e-300)
    return mean, 1.0 if is_constant else deviation


def standardize(x: np.ndarray) -> np.ndarray:
    """A matrix [N, C] with each of its columns scaled."""
    scales = np.array([scale_of(column) for column in x.T]).reshape(-1, 2)
    return ((x.astype(np.float64) - scales[:, 0]) / scales[:, 1]).astype(np.float32)
