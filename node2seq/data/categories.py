"""Which texts of a column are its categories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from node2seq.data.tabular import as_text, first_few, pl
from node2seq.errors import Node2SeqError

#: A column of more different texts is left out.
MOST_CATEGORIES = 256
# Words for a missing cell of a column of categories; "none" and "-" may be categories.
NO_CATEGORY = ["na", "n/a", "nan", "null"]
# Words in dates and amounts: 31.03.2024, 3/31/24 10:30 PM, 31 March 2024, 12 %, 5 EUR, (0.5).
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_WORDS_IN_NUMBERS = re.compile(rf"(?<![a-z])(({_MONTHS})[a-z]*|am|pm|usd|eur|gbp)(?![a-z])")
# So many are not written by chance.
_MANY_CATEGORIES = 10


def has_missing_words(categories: Sequence[str]) -> bool:
    """Whether a word that stands for a missing cell is among categories."""
    return any(name.lower() in NO_CATEGORY for name in categories)


def choose_categories(
    column: pl.Series, title: str, fill: str | float | None, notes: list[str], *, forced: bool, wanted: bool
) -> dict[str, Any] | None:
    """How to encode a column of categories; None if it is left out because there are too many."""
    text = as_text(column, title)
    words = text.drop_nulls().unique()
    categories = sorted(
        words.filter(~words.str.to_lowercase().is_in([] if forced else NO_CATEGORY)).to_list()
    )
    if len(categories) > MOST_CATEGORIES and not forced:
        if not wanted:
            few = text.drop_nulls().unique(maintain_order=True).head(4).to_list()
            words = f"column {column.name!r} has {column.n_unique()} different texts ({first_few(few)})"
            notes.append(f"{words}: it is left out; to use it, give --categorical {column.name}")
            return None
        raise Node2SeqError(
            title,
            f"column {column.name!r} has {len(categories)} different values ({first_few(categories)})",
            f"Leave it out (--ignore {column.name}), or take it as categories (--categorical {column.name})",
        )
    if not forced:
        notes.extend(odd_categories(column.name, categories))
    return {
        "kind": "category",
        "name": column.name,
        "categories": categories,
        "fill": None if fill is None else "zero",
    }


def odd_categories(name: str, categories: list[str]) -> list[str]:
    """What to say of categories that look like dates, shares or amounts, if most of many do."""
    rest = {text: _WORDS_IN_NUMBERS.sub("", text.lower()) for text in categories}
    odd = [
        text for text in categories if re.search(r"\d", rest[text]) and not re.search(r"[^\W\d_]", rest[text])
    ]
    if len(categories) < _MANY_CATEGORIES or 2 * len(odd) < len(categories):
        return []
    return [
        f"column {name!r} is read as {len(categories)} categories ({first_few(odd)}); if it holds numbers or "
        "dates, write them as 12.5 or 2024-03-31"
    ]
