"""Docstrings are reStructuredText, as those of PyTorch Geometric: the site needs Markdown."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import griffe
from latex2mathml.converter import convert

_FORMULA = re.compile(r"^( *)\.\. math::\n((?:\1 +.*\n?|\n)+)", re.M)
_LINK = re.compile(r"`([^`<]+?)\s*<(https?://[^>]+)>`_", re.S)
_ROLE = re.compile(r":(\w+):`~?([^`]+)`")


def to_markdown(text: str) -> str:
    """A docstring with its formulas as MathML, which browsers draw without a script."""
    text = _FORMULA.sub(_formula, text)
    text = _LINK.sub(lambda found: f"[{' '.join(found[1].split())}]({found[2]})", text)
    return _ROLE.sub(_role, text)


def _formula(found: re.Match[str]) -> str:
    # On one line, or Markdown would take it apart.
    drawn = convert(" ".join(dedent(found[2]).split()), display="block")
    return f'{found[1]}<div class="formula">{drawn}</div>\n\n'


def _role(found: re.Match[str]) -> str:
    # In a span, or Markdown would take a formula at the start of a line for a block.
    return f"<span>{convert(found[2])}</span>" if found[1] == "math" else f"`{found[2]}`"


class Docstrings(griffe.Extension):
    """Rewrites each docstring when it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe with each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
