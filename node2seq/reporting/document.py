"""A small document of headings, paragraphs, grids and pictures, written as Markdown, LaTeX or HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

_CODE = re.compile("`([^`]+)`")


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph of plain text; code stands between backticks."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of plain texts."""

    items: Sequence[str]


@dataclass(frozen=True)
class Grid:
    """A table of texts; a line break in a text is one in its cell."""

    header: Sequence[str]
    lines: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Picture:
    """An SVG drawing, which only HTML shows."""

    svg: str


Block = Heading | Paragraph | Bullets | Grid | Picture


def to_markdown(blocks: Sequence[Block]) -> str:
    """The document as GitHub-flavoured Markdown."""
    parts = []
    for block in blocks:
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
            case Picture():
                pass
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("*", r"\*").replace("\n", "<br>") for cell in cells) + " |"


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
    for block in blocks:
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
            case Picture():
                pass
    return "\n\n".join(parts) + "\n"


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_row(cells: Sequence[str]) -> str:
    broken = [_latex_cell(cell) for cell in cells]
    return " & ".join(broken) + r" \\"


def _latex_cell(cell: str) -> str:
    text = _latex(cell)
    if "\n" not in text:
        return text
    lines = text.replace("\n", r" \\ ")
    return f"\\begin{{tabular}}[t]{{@{{}}r@{{}}}}{lines}\\end{{tabular}}"


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #16181c; color: #e6e6e6; } th, td { border-color: #444; }
}
"""


def to_html(blocks: Sequence[Block]) -> str:
    """The document as one self-contained page."""
    parts, title = [], ""
    for block in blocks:
        match block:
            case Heading(text, level):
                title = title or text
                parts.append(f"<h{level}>{html.escape(text)}</h{level}>")
            case Paragraph(text):
                code = _CODE.sub(r"<code>\1</code>", html.escape(text))
                parts.append(f"<p>{code}</p>")
            case Bullets(items):
                parts.append("<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>")
            case Grid(header, lines):
                head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
                body = "\n".join(_html_row(line) for line in lines)
                parts.append(f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>")
            case Picture(svg):
                parts.append(svg)
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}'
        f"</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html_row(cells: Sequence[str]) -> str:
    return (
        "<tr>" + "".join(f"<td>{html.escape(cell).replace(chr(10), '<br>')}</td>" for cell in cells) + "</tr>"
    )
