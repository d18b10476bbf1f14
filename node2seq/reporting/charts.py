"""Line charts as SVG text, drawn here so that a report needs no plotting library and no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 16, 42
MAX_POINTS = 1000


@dataclass(frozen=True)
class Line:
    """One curve; ``style`` is a CSS class that gives its colour."""

    label: str
    style: str
    values: Sequence[float]


def line_chart(
    title: str,
    lines: Sequence[Line],
    marked: int,
    show_value: Callable[[float], str] = "{:g}".format,
    limits: tuple[float | None, float | None] = (None, None),
    over: str = "epoch",
) -> str:
    """Draw curves over epochs 1, 2, … and mark one epoch.

    Args:
        title: For people who cannot see the chart.
        lines: Of equal length.
        marked: The epoch to mark.
        show_value: How the numbers at the left axis are written.
        limits: Lowest and highest value of the left axis; None: of the curves.
        over: What is counted along the lower axis.
    """
    epochs = max(len(line.values) for line in lines)
    low = min(min(line.values) for line in lines) if limits[0] is None else limits[0]
    high = max(max(line.values) for line in lines) if limits[1] is None else limits[1]
    ticks = nice_ticks(low, high)
    low, high = min(low, ticks[0]), max(high, ticks[-1])

    def across(epoch: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (epoch - 1) / max(epochs - 1, 1)

    def up(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / ((high - low) or 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">']
    for tick in ticks:
        y = f"{up(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end">{show_value(tick)}</text>'
        )
    bottom = HEIGHT - BOTTOM
    for tick in _epoch_ticks(epochs):
        parts.append(
            f'<text class="tick" x="{across(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick}</text>'
        )
    parts.append(
        f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{over}</text>'
    )
    x = f"{across(marked):.1f}"
    parts.append(f'<line class="marked" x1="{x}" x2="{x}" y1="{TOP}" y2="{bottom}"/>')
    stride = math.ceil(epochs / MAX_POINTS)
    for line in lines:
        points = list(enumerate(line.values, start=1))
        kept = points[::stride] if points[::stride][-1] == points[-1] else [*points[::stride], points[-1]]
        path = " ".join(f"{across(epoch):.1f},{up(min(max(v, low), high)):.1f}" for epoch, v in kept)
        parts.append(f'<polyline class="curve {line.style}" points="{path}"/>')
    for line in lines:
        if 1 <= marked <= len(line.values):
            y = f"{up(line.values[marked - 1]):.1f}"
            parts.append(f'<circle class="dot {line.style}" cx="{x}" cy="{y}" r="4"/>')
    parts.append("</svg>")
    legend = "".join(f'<span><i class="key {line.style}"></i>{escape(line.label)}</span>' for line in lines)
    return (
        f'<div class="legend">{legend}<span><i class="key marked"></i>chosen {over}</span></div>'
        + "".join(parts)
    )


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return round numbers that span ``low`` to ``high``, some ``about`` of them."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _epoch_ticks(epochs: int) -> list[int]:
    if epochs <= 6:
        return list(range(1, epochs + 1))
    return [1, *(int(tick) for tick in nice_ticks(0, epochs) if 1 < tick <= epochs)]
