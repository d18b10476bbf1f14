"""How a cost grows with size: its exponent by least squares, and a log-log chart as an SVG file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 680, 400
LEFT, RIGHT, TOP, BOTTOM = 74, 180, 44, 52

# Colours that people with any kind of colour vision can tell apart; each curve has a marker of its own, too.
_COLOURS = (("#b3400f", "#f0906b"), ("#1f5fa8", "#7db4f0"), ("#2c7a4b", "#6fcf97"), ("#7a4b9e", "#c9a0e8"))
_STYLE = """
  .ground { fill: #ffffff } text { fill: #1f2328; font: 12px system-ui, sans-serif }
  .title { font-size: 14px; font-weight: 600 } .grid { stroke: #d8dee4 } .axis { stroke: #59636e }
  .curve { fill: none; stroke-width: 2 }"""
_DARK = """
    .ground { fill: #16181c } text { fill: #e6e6e6 } .grid { stroke: #33383f } .axis { stroke: #9198a1 }"""


@dataclass(frozen=True)
class Curve:
    """A cost over sizes."""

    label: str
    sizes: Sequence[float]
    costs: Sequence[float]


def growth_exponent(sizes: Sequence[float], costs: Sequence[float]) -> float | None:
    """The exponent a of cost ≈ c · size^a by least squares of the logarithms; none below three sizes."""
    if len(sizes) < 3:
        return None
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def loglog_chart(
    title: str, curves: Sequence[Curve], across: str, up: str, show: Callable[[float], str] = "{:g}".format
) -> str:
    """A file of its own, with a ground of its own: readable on light and dark pages alike.

    Args:
        title: Above the chart.
        curves: With positive sizes and costs.
        across: What the sizes are.
        up: What the costs are.
        show: How the powers of ten of the costs are written.
    """
    sizes = [size for curve in curves for size in curve.sizes]
    costs = [cost for curve in curves for cost in curve.costs]
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    x_low, x_high = _decades(sizes, 1.15)
    y_low, y_high = _decades(costs, 1.3)

    def x(size: float) -> float:
        return LEFT + (right - LEFT) * (math.log10(size) - x_low) / (x_high - x_low)

    def y(cost: float) -> float:
        return bottom - (bottom - TOP) * (math.log10(cost) - y_low) / (y_high - y_low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="{escape(title)}">',
        f"<style>{_STYLE}{_colours(0)}",
        f"  @media (prefers-color-scheme: dark) {{{_DARK}{_colours(1)}\n  }}\n</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
    ]
    for tick in _ticks(y_low, y_high):
        place = f"{y(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{place}" y2="{place}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{place}" dy="4" text-anchor="end">{escape(show(tick))}</text>')
    for tick in _ticks(x_low, x_high):
        place = f"{x(tick):.1f}"
        parts.append(f'<line class="grid" x1="{place}" x2="{place}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(f'<text x="{place}" y="{bottom + 18}" text-anchor="middle">{_millions(tick)}</text>')
    middle = (LEFT + right) / 2
    parts += [
        f'<path class="axis" fill="none" d="M{LEFT},{TOP}V{bottom}H{right}"/>',
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(16 {(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(up)}</text>",
    ]
    ends = _spread([y(curve.costs[-1]) for curve in curves])
    for number, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        points = [(x(a), y(b)) for a, b in zip(curve.sizes, curve.costs, strict=True)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<g class="c{number % len(_COLOURS)}"><polyline class="curve" points="{path}"/>')
        parts += [_marker(number, a, b) for a, b in points]
        parts.append(f"{_marker(number, right + 14, end)}</g>")
        parts.append(f'<text x="{right + 24}" y="{end:.1f}" dy="4">{escape(curve.label)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _colours(scheme: int) -> str:
    return "".join(
        f"\n  .c{i} {{ stroke: {pair[scheme]}; fill: {pair[scheme]} }}" for i, pair in enumerate(_COLOURS)
    )


def _decades(values: Sequence[float], margin: float) -> tuple[float, float]:
    """The logarithms of the smallest and the largest value, with some room."""
    return math.log10(min(values) / margin), math.log10(max(values) * margin)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten; powers alone where that would be too many."""
    every = [m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    inside = [tick for tick in every if low <= math.log10(tick) <= high]
    return inside if len(inside) <= 9 else [tick for tick in inside if math.log10(tick) % 1 < 1e-9]


def _millions(edges: float) -> str:
    return f"{edges / 1e6:g}M" if edges >= 1e6 else f"{edges / 1e3:g}k"


def _marker(number: int, x: float, y: float) -> str:
    """A circle, a square, a triangle or a diamond."""
    corners = ("", "-4,-4 4,-4 4,4 -4,4", "0,-5 5,4 -5,4", "0,-5 5,0 0,5 -5,0")[number % 4]
    if not corners:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    return f'<polygon transform="translate({x:.1f} {y:.1f})" points="{corners}"/>'


def _spread(places: Sequence[float], apart: float = 18) -> list[float]:
    """The places of the labels, moved down where two would overlap."""
    moved = dict.fromkeys(range(len(places)), 0.0)
    lowest = -math.inf
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        lowest = max(places[i], lowest + apart)
        moved[i] = lowest
    return [moved[i] for i in range(len(places))]
