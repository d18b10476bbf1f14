"""Pages of the site that do not lie in ``docs/``: the changelog, how to contribute, the notebooks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
_MARKDOWN = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in ``docs/``."""
    for page, source in _MARKDOWN.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        # They lie beside docs/, the pages in it.
        text = text.replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=as_markdown(path)))
    return files


def as_markdown(path: Path) -> str:
    """A notebook as a page: its texts, its code, and which file it is."""
    cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, *rest = parts
    # Links of a notebook lead from examples/ to the pages.
    rest = [re.sub(r"\]\(\.\./docs/", "](../", part) for part in rest]
    return "\n\n".join([title, f"*This page is the notebook `examples/{path.name}`.*", *rest, ""])
