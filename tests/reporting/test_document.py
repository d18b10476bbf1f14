"""One document in three formats."""

from __future__ import annotations

import pytest
from chromium import INSTALL, Chromium, find_chromium

from node2seq.reporting.charts import Curve, line_chart
from node2seq.reporting.document import (
    Beside,
    Cards,
    Chart,
    Grid,
    Heading,
    Paragraph,
    Section,
    Shaded,
    pairs,
    percent,
    to_html,
    to_latex,
    to_markdown,
)

BLOCKS = [
    Heading("Title & more", 1),
    Paragraph("Use `a*b`.", "lead"),
    Cards({"accuracy": "81.5 %"}),
    Beside(
        [
            Section("First", [Grid(["", "0"], [["a", Shaded("7", 0.25, right=False)]], "seven")]),
            Section("Empty", []),
        ]
    ),
    Section("Settings", pairs({"lr": 0.1, "skip": None, "directed": True})),
    Chart("<svg></svg>", "A chart", "chart.svg"),
    Chart("<svg></svg>"),
]


def test_markdown_has_everything_but_the_layout():
    assert to_markdown(BLOCKS) == (
        "# Title & more\n\nUse `a\\*b`.\n\n|  |  |\n| --- | --- |\n| accuracy | 81.5 % |\n\n"
        "## First\n\n|  | 0 |\n| --- | --- |\n| a | 7 |\n\n"
        "## Settings\n\n|  |  |\n| --- | --- |\n| lr | 0.1 |\n| skip | none |\n| directed | yes |\n\n"
        "![A chart](chart.svg)\n"
    )


def test_html_is_one_page_with_the_layout():
    page = to_html(BLOCKS)
    assert page.count("<title>Title &amp; more</title>") == 1
    assert '<p class="lead">Use <code>a*b</code>.</p>' in page
    assert "<div><b>81.5 %</b><span>accuracy</span></div>" in page
    assert '<td class="wrong" style="--share:0.250">7</td>' in page
    assert '<p class="caption">seven</p>' in page
    assert "Empty" not in page
    assert '<table class="pairs"><tbody>' in page
    assert page.count("<figure><svg></svg></figure>") == 2
    assert ".grid {" in page  # charts have their style
    assert ".cards {" in page


def test_long_cells_may_be_broken():
    page = to_html([Grid(["", ""], [["a", "x" * 41], ["b", "short\n" * 20]])])
    assert page.count('<td class="text">') == 1


def test_latex_escapes_what_it_must() -> None:
    text = to_latex([Grid(["", "50 %"], [["a_b", "1 ± 2\n3 & 4"]])])
    assert r"a\_b & \begin{tabular}[t]{@{}r@{}}1 $\pm$ 2 \\ 3 \& 4\end{tabular} \\" in text
    assert r"50 \%" in text


def test_latex_has_the_tables_of_a_page():
    text = to_latex(BLOCKS)
    assert text.count(r"\begin{tabular}") == 3
    assert r"\section*{Title \& more}" in text
    assert r"\subsection*{Settings}" in text


def test_percent():
    assert (percent(0.8146), percent(0.8146, " %"), percent(None, " %")) == ("81.5", "81.5 %", "–")


@pytest.mark.slow
def test_nothing_is_cut_or_touches_in_a_browser(tmp_path):
    if find_chromium() is None:
        pytest.skip(f"Chromium is not installed. {INSTALL}")
    cell = Shaded("person 276\na rather lo… · −4.33", 0.4, right=True)
    lines = [["person 18\nclass a rather lo…, predicted a rather lo…", *[cell] * 8]]
    figures = ["training", "480", "42.3", "37.9", "96.6", "2.5", "1.961"]
    head = ["nodes", "number", "accuracy", "macro-F1", "ROC-AUC", "largest class", "loss"]
    chart = line_chart("ROC-AUC", [Curve("a", [0.1, 1.0], [1, 5000])], 1, "{:.0%}".format)
    page = to_html(
        [
            Section("Neighbours", [Grid(["node", *"12345678"], lines)]),
            Section("Metrics", [Grid(head, [figures])]),
            Section("Curves", [Chart(chart)]),
            Beside(
                [Section(f"{i}", pairs(dict.fromkeys("abcdefg"[: 7 - i], "1"))) for i in range(4)], "columns"
            ),
            Section("After", [Paragraph("x")]),
        ]
    )
    (tmp_path / "page.html").write_text(page)
    with Chromium(tmp_path / "profile") as browser:
        for width in (1200, 390):
            browser.look(width, 900, "light")
            browser.open((tmp_path / "page.html").as_uri())
            browser.wait("document.querySelectorAll('section').length === 8")
            part = "document.querySelectorAll('section')[{}]"
            name = part.format(0) + ".querySelector('tbody th')"
            assert browser.run(f"{name}.getBoundingClientRect().height") <= 105
            metrics = part.format(1) + ".querySelector('.wide')"
            assert browser.run(f"{metrics}.scrollWidth - {metrics}.clientWidth") <= 0
            attached = browser.run(f"getComputedStyle({metrics}).backgroundAttachment")
            assert attached == "local, local, scroll, scroll", "a shade where a table goes on"
            assert browser.run("getComputedStyle(document.querySelector('svg')).overflow") == "visible"
            bottoms = "Math.max(...[...document.querySelectorAll('.columns section')]"
            bottoms += ".map(each => each.getBoundingClientRect().bottom))"
            assert browser.run(f"{part.format(7)}.getBoundingClientRect().top - {bottoms}") >= 12
