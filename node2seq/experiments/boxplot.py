"""Box plots of the runs as SVG, with the paper's means beside them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from node2seq.experiments.paper import Figure
from node2seq.experiments.summary import Sample

_HEIGHT, _TOP, _BOTTOM, _LEFT = 300, 24, 54, 44
_BOX, _GAP, _GROUP_GAP = 18, 8, 26
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d", "#e45756", "#72b7b2")


@dataclass(frozen=True)
class Box:
    """One box: the runs of a cell (or none), and what the paper prints for it (or nothing)."""

    label: str
    sample: Sample | None
    paper: Figure | None


def draw(title: str, groups: Sequence[tuple[str, Sequence[Box]]]) -> str:
    """One group of boxes for each column of a table, on a common scale of test accuracy in percent."""
    values = [v for _, boxes in groups for box in boxes for v in _values(box)]
    low, high = _bounds(values)
    width = _LEFT + sum(len(boxes) * (_BOX + _GAP) + _GROUP_GAP for _, boxes in groups) + 10

    def y(value: float) -> float:
        return round(_TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" width="{width}" '
        f'role="img" font-family="sans-serif" font-size="11" fill="currentColor"><title>{html.escape(title)}'
        "</title>"
    ]
    step = 5 if high - low <= 50 else 10
    for tick in range(int(low), int(high) + 1, step):
        parts.append(
            f'<line x1="{_LEFT}" x2="{width}" y1="{y(tick)}" y2="{y(tick)}" stroke="currentColor" '
            f'opacity=".15"/><text x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{tick}</text>'
        )
    x = _LEFT + _GROUP_GAP / 2
    labels: dict[str, str] = {}
    for column, boxes in groups:
        middle = round(x + len(boxes) * (_BOX + _GAP) / 2, 1)
        parts.append(
            f'<text x="{middle}" y="{_HEIGHT - 34}" text-anchor="middle">{html.escape(column)}</text>'
        )
        for number, box in enumerate(boxes):
            colour = labels.setdefault(box.label, _COLOURS[number % len(_COLOURS)])
            parts.append(_box(box, round(x, 1), y, colour))
            x += _BOX + _GAP
        x += _GROUP_GAP
    parts.append(_legend(labels))
    return "\n".join([*parts, "</svg>"])


def _values(box: Box) -> list[float]:
    runs = list(box.sample.tests.values()) if box.sample else []
    return runs + ([box.paper.mean] if box.paper else [])


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    """The scale: fives around everything that is drawn."""
    if not values:
        return 0.0, 100.0
    return 5.0 * np.floor(min(values) / 5), 5.0 * np.floor(max(values) / 5 + 1)


def _box(box: Box, x: float, y, colour: str) -> str:
    """Quartiles, whiskers to the farthest run within 1.5 interquartile ranges, the runs beyond as dots."""
    centre = round(x + _BOX / 2, 1)
    parts = []
    if box.sample:
        runs = np.array(list(box.sample.tests.values()))
        first, median, third = (float(q) for q in np.percentile(runs, [25, 50, 75]))
        reach = 1.5 * (third - first)
        inside = runs[(runs >= first - reach) & (runs <= third + reach)]
        bottom, top = float(inside.min()), float(inside.max())
        summary = f"{box.label}: mean {box.sample.mean:.1f}, n = {box.sample.n}"
        parts.append(
            f"<g><title>{html.escape(summary)}</title>"
            f'<line x1="{centre}" x2="{centre}" y1="{y(bottom)}" y2="{y(top)}" stroke="{colour}"/>'
            f'<rect x="{x}" y="{y(third)}" width="{_BOX}" height="{round(y(first) - y(third), 1)}" '
            f'fill="{colour}" fill-opacity=".35" stroke="{colour}"/>'
            f'<line x1="{x}" x2="{x + _BOX}" y1="{y(median)}" y2="{y(median)}" stroke="{colour}" '
            'stroke-width="2"/></g>'
        )
        outside = runs[(runs < first - reach) | (runs > third + reach)]
        parts += [
            f'<circle cx="{centre}" cy="{y(run)}" r="1.8" fill="{colour}"/>' for run in outside.tolist()
        ]
    if box.paper:
        at = y(box.paper.mean)
        parts.append(
            f'<path d="M{centre} {round(at - 5, 1)}l5 5l-5 5l-5 -5z" fill="none" stroke="currentColor">'
            f"<title>{html.escape(f'{box.label}: the paper prints {box.paper.mean:g}')}</title></path>"
        )
    return "".join(parts)


def _legend(labels: dict[str, str]) -> str:
    parts, x = [], float(_LEFT)
    for label, colour in labels.items():
        parts.append(
            f'<rect x="{x}" y="{_HEIGHT - 20}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{x + 14}" y="{_HEIGHT - 11}">{html.escape(label)}</text>'
        )
        x += 26 + 7 * len(label)
    return "".join(parts) + f'<text x="{x}" y="{_HEIGHT - 11}">◇ the paper</text>'
