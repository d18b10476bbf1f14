"""The own features' weights beside those of the taps: one product serves both."""

from __future__ import annotations

from torch import Tensor


def split_taps(table: Tensor, products: int, kernel_size: int) -> tuple[Tensor, Tensor | None]:
    """A gradient [C, products * D] as that of the taps, [K, C, D], and that of the root, [D, C], if any."""
    by_product = table.unflatten(-1, (products, -1)).transpose(-3, -2)
    if products == kernel_size:
        return by_product, None
    return by_product[..., :kernel_size, :, :], by_product[..., kernel_size, :, :].mT
