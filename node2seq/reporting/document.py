"""A document of headings, paragraphs, tables and charts, written as Markdown, LaTeX or HTML.

The HTML page stands alone: one file without script, link or font.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any

from node2seq.reporting import charts

_CODE = re.compile("`([^`]+)`")
# A cell of a table that is longer than this may be broken into lines.
_LONG_CELL = 40


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text with code between backticks; ``style`` is a class of ``page.css``."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True)
class Shaded:
    """A cell that HTML shades by a share from 0 to 1, in the colour for right or for wrong."""

    text: str
    share: float
    right: bool = True


@dataclass(frozen=True)
class Grid:
    """A table; a line break in a text is one in its cell. The first cell of a line names it."""

    header: Sequence[str]
    lines: Sequence[Sequence[str | Shaded]]
    caption: str = ""
    style: str = "figures"


@dataclass(frozen=True)
class Cards:
    """The figures that readers look for first: name and value."""

    figures: Mapping[str, str]


@dataclass(frozen=True)
class Chart:
    """A chart as HTML. Markdown shows the file that it is written to, if any; LaTeX leaves it out."""

    html: str
    title: str = ""
    file: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading; left out where it has no content."""

    title: str
    content: Sequence[Block]


@dataclass(frozen=True)
class Beside:
    """Blocks next to each other where there is room: in rows, or in ``columns`` that are filled."""

    content: Sequence[Block]
    style: str = "beside"


Block = Heading | Paragraph | Bullets | Grid | Cards | Chart | Section | Beside


def pairs(values: Mapping[str, Any], *header: str) -> list[Block]:
    """A table of names and values; nothing where there are none."""
    lines = [[str(name), plain(value)] for name, value in values.items()]
    return [Grid(header, lines, style="pairs")] if lines else []


def titled(
    title: str, header: Sequence[str], lines: Sequence[Sequence[str]], text: str = "", level: int = 2
) -> list[Block]:
    """A table with its heading and a paragraph; nothing where it has no lines."""
    if not lines:
        return []
    return [Heading(title, level), *([Paragraph(text)] if text else []), Grid(header, lines)]


def plain(value: Any) -> str:
    """A value as a person would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def percent(value: float | None, unit: str = "") -> str:
    """A share in percent with one digit, or a dash for none."""
    return "–" if value is None else f"{100 * value:.1f}{unit}"


def to_markdown(blocks: Sequence[Block]) -> str:
    """The document as GitHub-flavoured Markdown."""
    parts = []
    for block in _flat(blocks):
        match block:
            case Heading(text, level):
                parts.append(f"{'#' * level} {text}")
            case Paragraph(text):
                parts.append(text.replace("*", r"\*"))
            case Bullets(items):
                parts.append("\n".join(f"- {item}" for item in items))
            case Grid(header, lines):
                rows = [_markdown_row(header), _markdown_row(["---"] * len(header))]
                parts.append("\n".join([*rows, *map(_markdown_row, lines)]))
            case Chart(_, title, file) if file:
                parts.append(f"![{title}]({file})")
    return "\n\n".join(parts) + "\n"


def _flat(blocks: Iterable[Block]) -> list[Block]:
    """The blocks one below the other, without those that only a page has."""
    flat: list[Block] = []
    for block in blocks:
        match block:
            case Section(title, content):
                flat += [Heading(title), *_flat(content)] if content else []
            case Beside(content):
                flat += _flat(content)
            case Cards(figures):
                flat += pairs(figures, "", "")
            case Grid(header, lines) if not header:
                flat.append(Grid([""] * len(lines[0]), lines))
            case _:
                flat.append(block)
    return flat


def _text(cell: str | Shaded) -> str:
    return cell if isinstance(cell, str) else cell.text


def _markdown_row(cells: Sequence[str | Shaded]) -> str:
    texts = (_text(cell).replace("*", r"\*").replace("\n", "<br>") for cell in cells)
    return "| " + " | ".join(texts) + " |"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "ℓ": r"$\ell$",
    "β": r"$\beta$",
    "–": "--",
    "→": r"$\rightarrow$",
}


def to_latex(blocks: Sequence[Block]) -> str:
    """The document as the body of a LaTeX file; needs the package booktabs."""
    parts = []
    for block in _flat(blocks):
        match block:
            case Heading(text, level):
                command = {1: "section", 2: "subsection"}.get(level, "subsubsection")
                parts.append(f"\\{command}*{{{_latex(text)}}}")
            case Paragraph(text):
                parts.append(_CODE.sub(r"\\texttt{\1}", _latex(text)))
            case Bullets(items):
                listed = "\n".join(f"\\item {_latex(item)}" for item in items)
                parts.append(f"\\begin{{itemize}}\n{listed}\n\\end{{itemize}}")
            case Grid(header, lines):
                body = "\n".join(_latex_row(line) for line in lines)
                parts.append(
                    f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}\n\\toprule\n{_latex_row(header)}\n"
                    f"\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}"
                )
    return "\n\n".join(parts) + "\n"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: Sequence[str | Shaded]) -> str:
    return " & ".join(_latex_cell(_latex(_text(cell))) for cell in cells) + r" \\"


def _latex_cell(text: str) -> str:
    if "\n" not in text:
        return text
    lines = text.replace("\n", r" \\ ")
    return f"\\begin{{tabular}}[t]{{@{{}}r@{{}}}}{lines}\\end{{tabular}}"


def to_html(blocks: Sequence[Block]) -> str:
    """The document as one self-contained page."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    page_style = resources.files("node2seq.reporting").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title>\n<style>\n{charts.style()}{page_style}</style></head>\n<body><main>\n"
        f"{_html(blocks)}</main></body></html>\n"
    )


def _html(blocks: Iterable[Block]) -> str:
    return "".join(_html_block(block) + "\n" for block in blocks)


def _html_block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Paragraph(text, style):
            code = _CODE.sub(r"<code>\1</code>", escape(text))
            return f"<p{_class(style)}>{code}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"
        case Grid():
            return _html_table(block)
        case Cards(figures):
            shown = (
                f"<div><b>{escape(v)}</b><span>{escape(name)}</span></div>" for name, v in figures.items()
            )
            return f'<div class="cards">{"".join(shown)}</div>'
        case Chart(html):
            return f"<figure>{html}</figure>"
        case Section(title, content):
            return f"<section><h2>{escape(title)}</h2>\n{_html(content)}</section>" if content else ""
        case Beside(content, style):
            return f'<div class="{style}">\n{_html(content)}</div>'


def _html_table(grid: Grid) -> str:
    caption = f'<p class="caption">{escape(grid.caption)}</p>' if grid.caption else ""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in grid.header)
    head = f"<thead><tr>{names}</tr></thead>" if names else ""
    rows = "\n".join(
        f'<tr><th scope="row">{_html_text(line[0])}</th>{"".join(map(_html_cell, line[1:]))}</tr>'
        for line in grid.lines
    )
    style = "shaded" if any(isinstance(cell, Shaded) for line in grid.lines for cell in line) else grid.style
    table = f'<table class="{style}">{head}<tbody>\n{rows}\n</tbody></table>'
    return f'<div class="wide">{table}</div>{caption}'


def _html_cell(cell: str | Shaded) -> str:
    if isinstance(cell, Shaded):
        colour = "right" if cell.right else "wrong"
        return f'<td class="{colour}" style="--share:{cell.share:.3f}">{_html_text(cell)}</td>'
    longest = max(map(len, cell.split("\n")))
    return f"<td{_class('text' if longest > _LONG_CELL else '')}>{_html_text(cell)}</td>"


def _html_text(cell: str | Shaded) -> str:
    return escape(_text(cell)).replace("\n", "<br>")


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
