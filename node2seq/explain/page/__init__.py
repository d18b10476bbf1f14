"""The page: HTML, a style and one script of our own; served, or written as a file of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from node2seq.reporting import charts

HTML_TYPE = "text/html; charset=utf-8"


def page_files() -> dict[str, str]:
    """What the server sends: ``index.html``, ``page.css`` and ``page.js``."""
    return {name: _read(name) for name in ("index.html", "page.js")} | {"page.css": _style()}


def page_of(view: Mapping[str, Any]) -> str:
    """The page of one node as one file that needs no server and no network.

    Args:
        view: What :func:`node2seq.explain.view.full_view` gives.
    """
    # A name may hold any text; it must not end the script that it stands in.
    data = json.dumps(view).replace("<", "\\u003c")
    title = escape(f"{view['node']['node']['name']}: {view['run']['title']}")
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    page = _read("index.html")
    for known, put in (
        ("<title>node2seq explore</title>", f"<title>{title}</title>"),
        (
            '<link rel="stylesheet" href="page.css">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>\n{_style()}</style>',
        ),
        (
            '<script type="module" src="page.js"></script>',
            f'<script type="application/json" id="data">{data}</script>\n'
            f'<script type="module">\n{_read("page.js")}</script>',
        ),
    ):
        assert known in page
        page = page.replace(known, put)
    return page


def _read(name: str) -> str:
    return resources.files("node2seq.explain.page").joinpath(name).read_text(encoding="utf-8")


def _style() -> str:
    report = resources.files("node2seq.reporting").joinpath("page.css").read_text(encoding="utf-8")
    return charts.style() + report + _read("page.css")
