"""The site as built: every link and anchor leads somewhere, and no page loads from another host.

MkDocs checks the links of Markdown files. This looks at what a browser gets: generated pages, tables of
contents and docstrings too. A fault is a warning, which `mkdocs build --strict` does not pass.
"""

from __future__ import annotations

import logging
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mkdocs.config.defaults import MkDocsConfig

log = logging.getLogger("mkdocs.hooks.links")

# What a browser requests by itself, unlike what a reader may follow.
_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
# The page that servers show instead of a missing one; its links are from the root of a server.
_LEFT_OUT = {"404.html"}


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is, leads to or loads."""
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (href := values.get("href")):
            self.links.append(href)
        address = values.get(_LOADED.get(tag, ""))
        # A canonical address or the next page is a link to be read, not a file to be loaded.
        if address and not (tag == "link" and values.get("rel") in ("canonical", "next", "prev")):
            self.loaded.append(address)


def faults(site: Path) -> list[str]:
    """What is wrong with the links of a built site, as sentences."""
    site = site.resolve()
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.relative_to(site).as_posix() not in _LEFT_OUT
    }
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loaded:
            if urlsplit(address).netloc:
                found.append(f"{name} loads {address} from another host")
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                found.append(f"{name} links to {address}, which is not there")
            elif anchor and target in pages and anchor not in pages[target].anchors | {"__top"}:
                found.append(f"{name} links to {address}, and the page has no such anchor")
    return found


def on_post_build(*, config: MkDocsConfig) -> None:
    """Warn about each fault of the site."""
    for fault in faults(Path(config.site_dir)):
        log.warning(fault)
