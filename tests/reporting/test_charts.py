"""Charts: every point where it belongs, and SVG that parses."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from node2seq.reporting.charts import (
    Box,
    Curve,
    Dots,
    bar_chart,
    box_plot,
    dot_chart,
    heat_maps,
    line_chart,
    loglog_chart,
    nice_ticks,
    reliability_chart,
    scatter_chart,
)


def drawing(chart: str) -> ElementTree.Element:
    """The SVG element of a chart."""
    return ElementTree.fromstring(chart[chart.index("<svg") : chart.index("</svg>") + len("</svg>")])


@pytest.mark.parametrize("epochs", [1, 2, 7, 2500])
def test_line_charts_of_any_length(epochs: int):
    values = [1 / (1 + i) for i in range(epochs)]
    chart = line_chart("Loss", [Curve("a", values)], marked=epochs)
    assert "nan" not in chart
    (line,) = drawing(chart).findall(".//polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert min(epochs, 500) <= len(points) <= 1001
    assert all(0 <= x <= 440 and 0 <= y <= 270 for x, y in points)
    (dot,) = drawing(chart).findall(".//circle")
    assert (float(dot.attrib["cx"]), float(dot.attrib["cy"])) == points[-1]


def test_what_lies_beyond_the_limits_stays_at_the_edge():
    chart = drawing(line_chart("Loss", [Curve("a", [0.5, 9.0])], marked=1, limits=(0.0, 1.0)))
    (line,) = chart.findall(".//polyline")
    assert [float(point.split(",")[1]) for point in line.attrib["points"].split()] == [120.0, 12.0]


def test_labels_are_text_not_markup():
    for chart in (
        line_chart("<b>", [Curve("<i>", [1.0])], marked=1),
        loglog_chart("<b>", [Curve("<i>", [1.0], [1.0])], "<u>", "<s>"),
        dot_chart("<b>", ["<u>"], [Dots("<i>", {"<u>": 1.0}, {"<u>": 0.5})], "<s>"),
        box_plot("<b>", [("<u>", [Box("<i>", [1.0], 2.0)])], "<s>"),
        bar_chart("<b>", ["<u>"], {"<i>": [0.5], "<u>": [1.0]}, "<s>", ("<i>", 0.5), ["<b>"]),
        heat_maps([("<b>", [[1.0]])]),
        reliability_chart("<b>", [Curve("<i>", [0.5], [0.5])]),
    ):
        assert not re.search("<(b|i|u|s)>", chart)
        drawing(chart)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.62, 1, [0.6, 0.7, 0.8, 0.9, 1.0]),
        (0, 1.93, [0, 0.5, 1, 1.5, 2]),
        (3, 3, [3, 4, 5, 6]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_nice_ticks(low: float, high: float, ticks: list[float]):
    assert nice_ticks(low, high) == ticks


def test_a_loglog_chart_shows_every_point_of_every_curve():
    curves = [Curve("one & only", [1, 10, 100], [1e6, 1e7, 1e8]), Curve("two", [5, 60], [1e6, 1e7])]
    chart = ElementTree.fromstring(loglog_chart("Time", curves, "edges", "ms"))
    lines = [line.attrib["points"].split() for line in chart.findall(".//{*}polyline")]
    assert [len(points) for points in lines] == [3, 2]
    across, down = zip(*(map(float, point.split(",")) for point in lines[0]), strict=True)
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)  # a decade each
    assert down[0] > down[1] > down[2]
    texts = {text.text for text in chart.findall(".//{*}text")}
    assert {"Time", "one & only", "two", "edges", "ms", "10M", "100"} <= texts
    assert "prefers-color-scheme: dark" in (chart.findtext("{*}style") or "")


def test_zero_stands_out_in_a_dot_chart_with_values_on_both_sides():
    def zeros(low: float) -> list[ElementTree.Element]:
        dots = Dots("one", {"a": low, "b": 4.0}, {"a": 1.0, "b": 0.0})
        chart = ElementTree.fromstring(dot_chart("Gaps", ["a", "b"], [dots], "points"))
        (zero,) = (text for text in chart.findall(".//{*}text") if text.text == "0")
        lines = chart.findall(".//{*}line[@class='axis']")
        assert all(line.attrib["x1"] == line.attrib["x2"] == zero.attrib["x"] for line in lines)
        return lines

    assert len(zeros(-4.0)) == 1
    assert not zeros(1.0)  # zero is the end of the axis


def test_a_dot_chart_shows_each_value_with_its_interval():
    one = Dots("one", {"a": 20.0, "b": 40.0}, {"a": 10.0, "b": 0.0})
    chart = ElementTree.fromstring(
        dot_chart("Figures", ["a", "b"], [one, Dots("two", {"b": 50.0}, {"b": 0.0})], "%")
    )
    first, second = (float(dot.attrib["cx"]) for dot in chart.findall(".//{*}circle")[:2])
    reach = chart.findall("{*}line[@class='stroke c0']")[0]
    low, high = float(reach.attrib["x1"]), float(reach.attrib["x2"])
    assert first == pytest.approx((low + high) / 2, abs=0.1)
    assert second - first == pytest.approx(high - low, abs=0.2)  # twenty units, as the interval is long
    assert len(chart.findall(".//{*}polygon")) == 2  # the second series has one value, and its key
    assert {"Figures", "a", "b", "one", "two", "%"} <= {text.text for text in chart.findall(".//{*}text")}


def test_a_box_plot_shows_quartiles_whiskers_outliers_and_marks():
    values = [10.0, 20.0, 30.0, 40.0, 50.0, 100.0]
    chart = drawing(box_plot("Accuracy", [("Cora", [Box("a", values, 35.0), Box("b", mark=20.0)])], "paper"))
    ticks = {line.attrib["y1"] for line in chart.findall("line[@class='grid']")}
    assert ticks == {"12.0", "62.0", "112.0", "162.0", "212.0", "262.0"}  # 100, 80, … 0: 2.5 pixels each

    def y(value: float) -> float:
        return 262 - 2.5 * value

    (box,) = chart.findall("rect")
    assert float(box.attrib["y"]) == pytest.approx(y(47.5), abs=0.1)
    assert float(box.attrib["height"]) == pytest.approx(y(22.5) - y(47.5), abs=0.1)
    (whiskers,) = chart.findall("line[@class='stroke c0']")
    assert (float(whiskers.attrib["y1"]), float(whiskers.attrib["y2"])) == (y(10), y(50))
    (median,) = chart.findall("line[@class='curve c0']")
    assert float(median.attrib["y1"]) == y(35)
    (outlier,) = chart.findall("circle")
    assert float(outlier.attrib["cy"]) == y(100)
    titles = [title.text for title in chart.iter("title")]
    assert titles == ["a: mean 41.7, n = 6", "a: paper 35", "b: paper 20"]
    assert {text.text for text in chart.findall("text")} >= {"Cora", "100", "0"}


def test_a_scatter_has_a_dot_for_each_point_and_the_line_of_equal_values():
    points = [(0.0, 10.0), (5.0, 5.0), (10.0, 0.0)]
    html = scatter_chart("Numbers", points, "true", "predicted")
    dots = re.findall(r'<circle class="fill c1" cx="([\d.]+)" cy="([\d.]+)"', html)
    (left, top), (middle, centre), (right, bottom) = ((float(x), float(y)) for x, y in dots)
    assert left < middle < right
    assert top < centre < bottom
    ends = re.search(r'<line class="marked" x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"', html)
    assert ends is not None
    assert [float(end) for end in ends.groups()] == [left, bottom, right, top]
    assert "predicted = true" in html


def test_equal_numbers_can_be_drawn():
    assert scatter_chart("Numbers", [(3.0, 3.0)], "true", "predicted").count("<circle") == 1


def test_curves_over_given_epochs_have_a_dot_for_each():
    curve = Curve("a", [0.5, 0.7, 1.0], [0, 10, 100])
    chart = drawing(line_chart("Order", [curve], marked=50, limits=(0.0, 1.0)))
    across = [float(dot.attrib["cx"]) for dot in chart.findall(".//circle")]
    assert len(across) == 3
    assert across[1] - across[0] == pytest.approx((across[2] - across[0]) / 10, abs=0.2)


def test_an_epoch_beyond_the_last_one_given_is_marked_where_it_is():
    chart = drawing(line_chart("Order", [Curve("a", [0.5, 1.0], [0, 50])], marked=100))
    (line,) = chart.findall("line[@class='marked']")
    (_, last) = (float(dot.attrib["cx"]) for dot in chart.findall(".//circle"))
    assert float(line.attrib["x1"]) > last + 100


def test_bars_are_as_high_as_their_shares():
    series = {"before": [0.5, 0.25], "after": [1.0, 0.0]}
    html = bar_chart("Shares", ["1", "2"], series, "place", ("all", 0.75), ["7 nodes", "3 nodes"])
    chart = drawing(html)
    bars = {bar.findtext("title"): float(bar.attrib["height"]) for bar in chart.findall(".//rect")}
    assert list(bars.values()) == pytest.approx([108.0, 216.0, 54.0, 0.0])
    assert next(iter(bars)) == "1: 50.0%, 7 nodes"
    (line,) = chart.findall("line[@class='marked']")
    assert float(line.attrib["y1"]) == pytest.approx(228 - 0.75 * 216)
    assert "before" in html
    assert "before" not in bar_chart("Shares", ["1"], {"before": [0.5]}, "place")  # one kind needs no legend


def test_names_that_would_overlap_are_left_out():
    names = [f"a rather long name {number}" for number in range(20)]
    chart = drawing(bar_chart("Shares", names, {"a": [0.5] * 20}, "class"))
    assert 1 <= len([text for text in chart.findall("text") if (text.text or "").startswith("a rather")]) <= 3


def test_heat_maps_share_one_scale_and_tell_signs_apart():
    html = heat_maps([("tap 1", [[1.0, -0.5], [0.0, 0.25]]), ("tap 2", [[-0.5]])])
    assert "positive, 1 at most" in html
    first, second = (drawing(f"{part}</svg>") for part in html.split("</svg>")[:2])
    shades = {path.attrib["class"]: [] for path in first}
    for path in first:
        shades[path.attrib["class"]].append(float(path.attrib["fill-opacity"]))
    assert shades["fill c1"] == sorted(shades["fill c1"])
    assert max(shades["fill c1"]) == 1.0
    (path,) = second
    assert path.attrib["class"] == "fill c0"
    assert float(path.attrib["fill-opacity"]) == max(shades["fill c0"])


def test_a_matrix_of_zeros_can_be_drawn():
    assert "nan" not in heat_maps([("tap 1", [[0.0, 0.0]])])


def test_perfect_calibration_lies_on_the_line():
    html = reliability_chart("Calibration", [Curve("a", [0.5, 1.0], [0.5, 1.0]), Curve("b", [0.2], [0.8])])
    chart = drawing(html)
    (line,) = chart.findall("line[@class='marked']")
    first, last = ((float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in chart.findall(".//circle"))
    assert last == (float(line.attrib["x2"]), float(line.attrib["y2"]))
    middle = [(float(line.attrib[f"{a}1"]) + float(line.attrib[f"{a}2"])) / 2 for a in "xy"]
    assert first == pytest.approx(middle, abs=0.1)
