"""The parts of a self-contained HTML page: no script, no link, no font."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any


def html(title: str, lead: str, sections: Iterable[str], footer: str) -> str:
    """Put a page together; all texts but the sections are escaped here."""
    style = resources.files("node2seq.reporting").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>"
        f"<h1>{escape(title)}</h1>"
        f'<p class="lead">{escape(lead)}</p>'
        f"{''.join(sections)}"
        f"<footer>{escape(footer)}</footer>"
        "</main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    """A part with a heading; nothing if it is empty."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def beside(*sections: str) -> str:
    """Sections next to each other where there is room."""
    return f'<div class="beside">{"".join(sections)}</div>'


def cards(figures: Mapping[str, str]) -> str:
    """The figures that are looked for first."""
    shown = "".join(
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in figures.items()
    )
    return f'<div class="cards">{shown}</div>'


def pairs(values: Mapping[str, Any], *heads: str) -> str:
    """Names and their values."""
    if not values:
        return ""
    rows = "".join(row(str(key), cell(plain(value))) for key, value in values.items())
    return framed((head(heads) if heads else "") + rows, "pairs")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Figures under heads; the first cell of a row names it."""
    return framed(head(heads) + "".join(row(r[0], "".join(map(cell, r[1:]))) for r in rows), "figures")


def framed(content: str, style: str, caption: str = "") -> str:
    """A table that may be wider than the page."""
    caption = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table class="{style}">{caption}{content}</table></div>'


def head(names: Iterable[str]) -> str:
    """The heads of a table's columns."""
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"


def row(name: str, cells: str) -> str:
    """A row of a table; ``cells`` are HTML."""
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'


def cell(text: str) -> str:
    """A cell of a table."""
    return f"<td>{escape(text)}</td>"


def plain(value: Any) -> str:
    """A value as a person would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def percent(value: float | None) -> str:
    """A share with one digit and its sign, or a dash for none."""
    return "–" if value is None else f"{100 * value:.1f} %"
