"""Seeds of a search are never those of reported figures."""

from __future__ import annotations

import pytest

from node2seq import Node2SeqError
from node2seq.search.halving import Halving
from node2seq.search.settings import parse_seeds


@pytest.mark.parametrize("seeds", ["0-19", "99", "100-104,3"])
def test_seeds_of_reported_figures_are_refused(seeds):
    with pytest.raises(Node2SeqError, match="kept for reported figures"):
        Halving(seeds=parse_seeds(seeds))
    with pytest.raises(Node2SeqError, match="kept for reported figures"):
        Halving(final_seeds=parse_seeds(seeds))


def test_seeds_are_read_and_checked():
    assert parse_seeds("100-102,107") == (100, 101, 102, 107)
    with pytest.raises(Node2SeqError, match="not whole numbers"):
        parse_seeds("a-b")
    with pytest.raises(Node2SeqError, match="once"):
        Halving(seeds=(100, 101), final_seeds=(101,))
