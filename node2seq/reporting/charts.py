"""Charts as SVG text: lines, bars, dots, boxes, heat maps. They need no plotting library.

A chart uses the classes of ``charts.css``, which has colours for light and dark pages. A page includes that
style once; a chart in a file of its own brings it along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

import numpy as np

MAX_POINTS = 1000
COLOURS = 7


@dataclass(frozen=True)
class Curve:
    """Values ``y`` over ``x``: over 1, 2, … unless given."""

    label: str
    y: Sequence[float]
    x: Sequence[float] | None = None

    @property
    def points(self) -> list[tuple[float, float]]:
        """The pairs of ``x`` and ``y``."""
        return list(zip(self.x or range(1, len(self.y) + 1), self.y, strict=True))


@dataclass(frozen=True)
class Box:
    """Values whose quartiles are drawn, and a single value to mark beside them; either may be missing."""

    label: str
    values: Sequence[float] = ()
    mark: float | None = None


@dataclass(frozen=True)
class Dots:
    """A value for some or all rows of a chart, and how far its interval reaches to both sides."""

    label: str
    values: Mapping[str, float]
    margin: Mapping[str, float]


def line_chart(
    title: str,
    curves: Sequence[Curve],
    marked: int,
    show: Callable[[float], str] = "{:g}".format,
    limits: tuple[float | None, float | None] = (None, None),
) -> str:
    """Curves over epochs 1, 2, …, or over those given, with one epoch marked, as HTML with a legend.

    Args:
        title: Text for screen readers.
        curves: All of the same length.
        marked: The epoch to mark.
        show: Formats the numbers at the vertical axis.
        limits: Lowest and highest value of the vertical axis; None: taken from the curves.
    """
    shown = [marked, *(int(epoch) for curve in curves for epoch, _ in curve.points)]
    first, epochs = min(shown), max(shown)
    low = min(min(curve.y) for curve in curves) if limits[0] is None else limits[0]
    high = max(max(curve.y) for curve in curves) if limits[1] is None else limits[1]
    chart = _Chart(title, 440, 270)
    y = chart.y_axis([low, high], show)
    x = chart.x_axis([first, epochs], str, "epoch", _epoch_ticks(epochs), grid=False)
    chart.add("line", "marked", x1=x(marked), x2=x(marked), y1=chart.top, y2=chart.bottom)
    stride = math.ceil(max(len(curve.y) for curve in curves) / MAX_POINTS)
    for number, curve in enumerate(curves):
        points = curve.points
        chart.curve(number, [(x(a), y(b)) for a, b in [*points[:-1:stride], points[-1]]])
    for number, curve in enumerate(curves):
        for epoch, value in curve.points if curve.x else curve.points[marked - 1 : marked]:
            chart.add("circle", f"dot c{number % COLOURS}", cx=x(epoch), cy=y(value), r=4)
    keys = [(f"line c{number % COLOURS}", curve.label) for number, curve in enumerate(curves)]
    return _legend([*keys, ("marked", "chosen epoch")]) + chart.svg()


def bar_chart(
    title: str,
    names: Sequence[str],
    series: Mapping[str, Sequence[float]],
    across: str,
    line: tuple[str, float] | None = None,
    hints: Sequence[str] = (),
) -> str:
    """Shares from 0 to 100 % as bars, a group for each name, as HTML with a legend.

    Args:
        title: Text for screen readers.
        names: The groups, from the left.
        series: The share of each group, by the label of the bars.
        across: What the groups are.
        line: A label and a share to draw over all groups.
        hints: What a pointer shows at each group.
    """
    chart = _Chart(title, 440, 270)
    y = chart.y_axis([0, 1], "{:.0%}".format)
    wide = (chart.right - chart.left) / len(names)
    bar = min(wide * 0.8 / len(series), 40)
    every = math.ceil(max(map(len, names)) * 7 / wide)  # names that would overlap are left out
    for place, name in enumerate(names):
        centre = chart.left + (place + 0.5) * wide
        chart.text(name if place % every == 0 else "", centre, chart.bottom + 18)
        for number, shares in enumerate(series.values()):
            left, top = centre + (number - len(series) / 2) * bar, y(shares[place])
            hint = f"{name}: {shares[place]:.1%}" + (f", {hints[place]}" if hints else "")
            size = {"width": bar * 0.92, "height": chart.bottom - top}
            inside, style = f"<title>{escape(hint)}</title>", f"fill c{number % COLOURS}"
            chart.add("rect", style, inside, x=left, y=top, **size)
    chart.text(across, (chart.left + chart.right) / 2, chart.height - 8)
    keys = [(f"c{number % COLOURS}", label) for number, label in enumerate(series)] if len(series) > 1 else []
    if line is not None:
        chart.add("line", "marked", x1=chart.left, x2=chart.right, y1=y(line[1]), y2=y(line[1]))
        keys.append(("marked", line[0]))
    return _legend(keys) + chart.svg()


def heat_maps(matrices: Sequence[tuple[str, Sequence[Sequence[float]]]]) -> str:
    """Matrices on one scale as HTML, each with its title: strong values are dark, the sign is the colour.

    The colours are those of the page that explains a prediction.
    """
    largest = max((abs(value) for _, rows in matrices for row in rows for value in row), default=0.0) or 1.0
    drawn = []
    for title, rows in matrices:
        cell, levels = 112 / max(len(rows), len(rows[0])), 8
        cells: dict[tuple[bool, int], str] = {}
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                level = math.ceil(levels * abs(value) / largest)
                place = f"M{j * cell:.1f} {i * cell:.1f}h{cell:.2f}v{cell:.2f}h-{cell:.2f}z"
                cells[value > 0, level] = cells.get((value > 0, level), "") + place
        chart = _Chart(title, 112, 112)
        for (positive, level), path in sorted(cells.items()):
            opacity = f"{(level / levels) ** 0.8:.2f}"
            chart.add("path", f"fill c{1 if positive else 0}", d=path, **{"fill-opacity": opacity})
        drawn.append(f"<div><span>{escape(title)}</span>{chart.svg(fixed=True)}</div>")
    keys = [("c1", f"positive, {largest:.2g} at most"), ("c0", "negative")]
    return _legend(keys) + f'<div class="maps">{"".join(drawn)}</div>'


def reliability_chart(title: str, curves: Sequence[Curve]) -> str:
    """How often predictions are right over how sure they are, with the line on which both agree."""
    chart = _Chart(title, 440, 270)
    y = chart.y_axis([0, 1], "{:.0%}".format)
    x = chart.x_axis([0, 1], "{:.0%}".format, "probability of the predicted class")
    chart.add("line", "marked", x1=x(0), y1=y(0), x2=x(1), y2=y(1))
    for number, curve in enumerate(curves):
        chart.curve(number, points := [(x(a), y(b)) for a, b in curve.points])
        for point in points:
            chart.marker(number, *point)
    keys = [(f"line c{number}", curve.label) for number, curve in enumerate(curves)]
    return _legend([*keys, ("marked", "perfectly calibrated")]) + chart.svg()


def history_chart(
    title: str,
    dots: Sequence[Curve],
    best: Curve,
    marked: int,
    over: str,
    show: Callable[[float], str] = "{:g}".format,
) -> str:
    """Dots over their numbers, the best value so far as steps, and one number marked, as HTML with a legend.

    Args:
        title: Text for screen readers.
        dots: Kinds of dots; those without any are left out.
        best: The best value from each number on.
        marked: The number to mark.
        over: What the numbers count.
        show: Formats the numbers at the vertical axis.
    """
    dots = [kind for kind in dots if kind.y]
    last = max(number for kind in dots for number, _ in kind.points)
    chart = _Chart(title, 440, 270)
    ticks = [tick for tick in nice_ticks(0, last) if tick == int(tick) <= last]
    y = chart.y_axis([value for kind in dots for value in kind.y], show)
    x = chart.x_axis([0, last], "{:g}".format, over, ticks, grid=False, inset=8)
    chart.add("line", "marked", x1=x(marked), x2=x(marked), y1=chart.top, y2=chart.bottom)
    steps: list[tuple[float, float]] = []
    for number, value in best.points:
        steps += [(x(number), steps[-1][1])] if steps else []
        steps.append((x(number), y(value)))
    chart.curve(0, [*steps, (x(last), steps[-1][1])])
    for colour, kind in enumerate(dots, start=1):
        for number, value in kind.points:
            chart.marker(colour - 1, x(number), y(value), colour)
    keys = [(f"c{colour}", kind.label) for colour, kind in enumerate(dots, start=1)]
    return _legend([*keys, ("line c0", best.label), ("marked", f"chosen {over}")]) + chart.svg()


def loglog_chart(title: str, curves: Sequence[Curve], across: str, up: str) -> str:
    """Curves on logarithmic axes as an SVG file, with its own background for light and dark pages.

    Args:
        title: Shown above the chart.
        curves: With positive values.
        across: Name of the horizontal axis.
        up: Name of the vertical axis.
    """
    chart = _Chart(title, 680, 400, left=74, right=180, top=44, bottom=52)
    chart.text(title, chart.left, 26, "title", "start")
    y = chart.y_axis([b for curve in curves for b in curve.y], "{:g}".format, log_margin=1.3)
    x = chart.x_axis([a for curve in curves for a, _ in curve.points], _thousands, across, log_margin=1.15)
    chart.add("path", "axis", d=f"M{chart.left},{chart.top}V{chart.bottom}H{chart.right}")
    chart.text(up, 0, 0, transform=f"translate(16 {(chart.top + chart.bottom) / 2}) rotate(-90)")
    ends = _apart([y(curve.y[-1]) for curve in curves])
    for number, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        points = [(x(a), y(b)) for a, b in curve.points]
        chart.curve(number, points)
        for point in [*points, (chart.right + 14, end)]:
            chart.marker(number, *point)
        chart.text(curve.label, chart.right + 24, end + 4, anchor="start")
    return chart.file()


def scatter_chart(title: str, points: Sequence[tuple[float, float]], across: str, up: str) -> str:
    """Points on two axes of one scale, with the line on which both values are equal, as HTML with a legend.

    Args:
        title: Text for screen readers.
        points: Their values across and up.
        across: Name of the horizontal axis.
        up: Name of the vertical axis.
    """
    values = [value for point in points for value in point]
    chart = _Chart(title, 440, 380, left=72)
    chart.text(up, 0, 0, transform=f"translate(12 {(chart.top + chart.bottom) / 2}) rotate(-90)")
    y = chart.y_axis(values, "{:g}".format)
    x = chart.x_axis(values, "{:g}".format, across)
    chart.add("line", "marked", x1=x(x.low), y1=y(y.low), x2=x(x.high), y2=y(y.high))
    for a, b in points:
        chart.add("circle", "fill c1", cx=x(a), cy=y(b), r=2.2)
    return _legend([("line c1", up), ("marked", f"{up} = {across}")]) + chart.svg()


def dot_chart(title: str, rows: Sequence[str], series: Sequence[Dots], across: str) -> str:
    """Values with their intervals, a row for each name, as an SVG file for light and dark pages.

    Args:
        title: Shown above the chart.
        rows: The names at the vertical axis, from the top.
        series: What is drawn in each row, one below the other; their labels stand at the right.
        across: Name of the horizontal axis.
    """
    tall = 10 * len(series) + 8
    chart = _Chart(title, 760, 96 + tall * len(rows), left=180, right=150, top=44, bottom=52)
    ends = [
        one.values[row] + sign * one.margin[row] for one in series for row in one.values for sign in (-1, 1)
    ]
    chart.text(title, chart.left, 26, "title", "start")
    x = chart.x_axis(ends, "{:g}".format, across)
    if min(ends) < 0 < max(ends):  # above or below zero is what the dots tell
        chart.add("line", "axis", x1=x(0), x2=x(0), y1=chart.top, y2=chart.bottom)
    for place, row in enumerate(rows):
        start = chart.top + place * tall
        chart.add("line", "grid", x1=chart.left, x2=chart.right, y1=start, y2=start)
        chart.text(row, chart.left - 10, start + tall / 2 + 4, anchor="end")
        for number, one in enumerate(series):
            if row in one.values:
                value, margin, y = one.values[row], one.margin[row], start + 9 + 10 * number
                colour = f"stroke c{number % COLOURS}"
                chart.add("line", colour, x1=x(value - margin), x2=x(value + margin), y1=y, y2=y)
                chart.marker(number, x(value), y)
    chart.add("path", "axis", d=f"M{chart.left},{chart.top}V{chart.bottom}H{chart.right}")
    for number, one in enumerate(series):
        chart.marker(number, chart.right + 16, chart.top + 10 + 20 * number)
        chart.text(one.label, chart.right + 28, chart.top + 14 + 20 * number, anchor="start")
    return chart.file()


def box_plot(title: str, groups: Sequence[tuple[str, Sequence[Box]]], mark: str) -> str:
    """Groups of boxes on one scale, as HTML with a legend.

    A box spans the quartiles, its line is the median, its whiskers reach to the last value within 1.5
    interquartile ranges, and values beyond are dots.

    Args:
        title: Text for screen readers.
        groups: The name of each group and its boxes; boxes of one label share a colour.
        mark: What the diamonds are.
    """
    labels = list(dict.fromkeys(box.label for _, boxes in groups for box in boxes))
    values = [v for _, boxes in groups for box in boxes for v in (*box.values, box.mark) if v is not None]
    wide, between = 26, 26
    width = 70 + sum(len(boxes) * wide + between for _, boxes in groups)
    chart = _Chart(title, width, 290, bottom=28)
    y = chart.y_axis(values or [0.0, 100.0], "{:g}".format)
    start = chart.left + between / 2
    for name, boxes in groups:
        chart.text(name, start + len(boxes) * wide / 2, chart.bottom + 20)
        for place, box in enumerate(boxes):
            _draw_box(chart, y, start + (place + 0.5) * wide, box, labels.index(box.label), mark)
        start += len(boxes) * wide + between
    keys = [(f"c{number % COLOURS}", label) for number, label in enumerate(labels)]
    return _legend([*keys, ("diamond", mark)]) + f'<div class="wide">{chart.svg(fixed=True)}</div>'


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round numbers that span ``low`` to ``high``, about five of them."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def style() -> str:
    """The CSS that charts need."""
    return resources.files("node2seq.reporting").joinpath("charts.css").read_text(encoding="utf-8")


class _Axis:
    """Maps values to places between two ends, where values beyond stay; with a margin, logarithmic."""

    def __init__(
        self,
        values: Sequence[float],
        ends: tuple[float, float],
        ticks: Sequence[float] | None,
        log_margin: float,
    ) -> None:
        low, high = min(values), max(values)
        if log_margin:
            low, high = low / log_margin, high * log_margin
        self.ends, self.scale = ends, math.log10 if log_margin else float
        self.ticks = ticks or (_log_ticks if log_margin else nice_ticks)(low, high)
        shown = [self.scale(value) for value in (low, high, *self.ticks)]
        self.low, self.high = min(shown), max(shown)

    def __call__(self, value: float) -> float:
        share = (self.scale(value) - self.low) / ((self.high - self.low) or 1)
        start, end = self.ends
        return start + (end - start) * min(max(share, 0), 1)


class _Chart:
    """An SVG drawing with a frame for its values, put together part by part."""

    def __init__(
        self,
        title: str,
        width: int,
        height: int,
        left: int = 52,
        right: int = 14,
        top: int = 12,
        bottom: int = 42,
    ) -> None:
        self.title, self.width, self.height = title, width, height
        self.left, self.right, self.top, self.bottom = left, width - right, top, height - bottom
        self.parts: list[str] = []

    def add(self, tag: str, style: str, inside: str = "", **values: float | str) -> None:
        """Add an element; ``inside`` is SVG, and numbers are rounded to a tenth of a pixel."""
        shown = "".join(
            f' {name}="{value if isinstance(value, str) else format(value, ".1f")}"'
            for name, value in values.items()
        )
        self.parts.append(f'<{tag} class="{style}"{shown}' + (f">{inside}</{tag}>" if inside else "/>"))

    def text(
        self, text: str, x: float, y: float, style: str = "tick", anchor: str = "middle", **more: str
    ) -> None:
        """Add a text."""
        self.add("text", style, escape(text), x=x, y=y, **{"text-anchor": anchor}, **more)

    def y_axis(self, values: Sequence[float], show: Callable[[float], str], log_margin: float = 0.0) -> _Axis:
        """Add the numbers of the vertical axis and a line for each."""
        axis = _Axis(values, (self.bottom, self.top), None, log_margin)
        for tick in axis.ticks:
            y = axis(tick)
            self.add("line", "grid", x1=self.left, x2=self.right, y1=y, y2=y)
            self.text(show(tick), self.left - 8, y + 4, anchor="end")
        return axis

    def x_axis(
        self,
        values: Sequence[float],
        show: Callable[[float], str],
        name: str,
        ticks: Sequence[float] | None = None,
        *,
        log_margin: float = 0.0,
        grid: bool = True,
        inset: float = 0,
    ) -> _Axis:
        """Add the numbers of the horizontal axis, its name, and perhaps a line for each number."""
        axis = _Axis(values, (self.left + inset, self.right - inset), ticks, log_margin)
        for tick in axis.ticks:
            x = axis(tick)
            if grid:
                self.add("line", "grid", x1=x, x2=x, y1=self.top, y2=self.bottom)
            self.text(show(tick), x, self.bottom + 18)
        self.text(name, (self.left + self.right) / 2, self.height - 8)
        return axis

    def curve(self, number: int, points: Sequence[tuple[float, float]]) -> None:
        """Add a curve."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add("polyline", f"curve c{number % COLOURS}", points=path)

    def marker(self, number: int, x: float, y: float, colour_number: int | None = None) -> None:
        """Add a circle, square, triangle or diamond: curves can be told apart without colours.

        ``colour_number``: whose colour it has, if not that of ``number``.
        """
        colour = f"fill c{(number if colour_number is None else colour_number) % COLOURS}"
        corners = ("", "-4,-4 4,-4 4,4 -4,4", "0,-5 5,4 -5,4", "0,-5 5,0 0,5 -5,0")[number % 4]
        if corners:
            self.add("polygon", colour, transform=f"translate({x:.1f} {y:.1f})", points=corners)
        else:
            self.add("circle", colour, cx=x, cy=y, r=4)

    def svg(self, fixed: bool = False) -> str:
        """The drawing as part of a page; ``fixed``: not narrower than it is, where the page is narrow."""
        size = f' width="{self.width}" height="{self.height}"' if fixed else ""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}"{size} role="img" '
            f'aria-label="{escape(self.title)}">{"".join(self.parts)}</svg>'
        )

    def file(self) -> str:
        """The drawing as a file."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img" aria-label="{escape(self.title)}">',
                f"<style>\n{style()}</style>",
                f'<rect class="ground" width="{self.width}" height="{self.height}" rx="6"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )


def _legend(keys: Sequence[tuple[str, str]]) -> str:
    """The style and the label of each key."""
    entries = "".join(f'<span><i class="key {style}"></i>{escape(label)}</span>' for style, label in keys)
    return f'<div class="legend">{entries}</div>'


def _epoch_ticks(epochs: int) -> list[int]:
    if epochs <= 6:
        return list(range(1, epochs + 1))
    return [1, *(int(tick) for tick in nice_ticks(0, epochs) if 1 < tick <= epochs)]


def _log_ticks(low: float, high: float) -> list[float]:
    """At 1, 2 and 5 times powers of ten; at powers alone where that would be too many."""
    powers = [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    ticks = [m * power for power in powers for m in (1, 2, 5) if low <= m * power <= high]
    return ticks if len(ticks) <= 9 else [power for power in powers if low <= power <= high]


def _thousands(value: float) -> str:
    return f"{value / 1e6:g}M" if value >= 1e6 else f"{value / 1e3:g}k"


def _apart(places: Sequence[float], distance: float = 18) -> list[float]:
    """The places of labels, moved down where two would overlap."""
    moved, lowest = list(places), -math.inf
    for i in sorted(range(len(places)), key=places.__getitem__):
        lowest = moved[i] = max(places[i], lowest + distance)
    return moved


def _draw_box(chart: _Chart, y: _Axis, centre: float, box: Box, number: int, mark: str) -> None:
    half, colour = 9, f"c{number % COLOURS}"
    if box.values:
        values = np.array(box.values)
        first, median, third = (float(quartile) for quartile in np.percentile(values, [25, 50, 75]))
        reach = 1.5 * (third - first)
        inside = (values >= first - reach) & (values <= third + reach)
        low, high = values[inside].min(), values[inside].max()
        chart.add("line", f"stroke {colour}", x1=centre, x2=centre, y1=y(low), y2=y(high))
        hint = f"<title>{escape(f'{box.label}: mean {values.mean():.1f}, n = {len(values)}')}</title>"
        top, height = y(third), y(first) - y(third)
        chart.add("rect", f"box {colour}", hint, x=centre - half, y=top, width=2.0 * half, height=height)
        chart.add("line", f"curve {colour}", x1=centre - half, x2=centre + half, y1=y(median), y2=y(median))
        for value in values[~inside]:
            chart.add("circle", f"fill {colour}", cx=centre, cy=y(value), r=1.8)
    if box.mark is not None:
        hint = f"<title>{escape(f'{box.label}: {mark} {box.mark:g}')}</title>"
        chart.add("path", "diamond", hint, d=f"M{centre:.1f} {y(box.mark) - 5:.1f}l5 5l-5 5l-5 -5z")
