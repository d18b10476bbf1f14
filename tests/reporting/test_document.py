"""One document in three formats."""

from __future__ import annotations

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
