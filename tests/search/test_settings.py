"""Seeds of a search are never those of reported figures."""

from __future__ import annotations

import pytest

from node2seq import Node2SeqError
from node2seq.search.bayes import Bayes
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


def test_splits_and_finalists_are_in_proportion_to_the_trials():
    few, many = Bayes.in_proportion(8), Bayes.in_proportion(64)
    assert (few.seeds, few.final_seeds) == ((100, 101), (200, 201))
    assert (few.finalists, few.batch) == (1, 2)
    assert few.trainings == 8 * 2 + 2 * 2
    assert (len(many.seeds), len(many.final_seeds), many.finalists, many.batch) == (5, 10, 8, 8)
    given = Halving.in_proportion(8, seeds=(100, 101, 102, 103), finalists=1)
    assert (given.seeds, given.finalists, len(given.final_seeds)) == ((100, 101, 102, 103), 1, 2)
    assert given.first_seeds == (100, 101)
    assert given.trainings == 8 * 2 + (8 // 3 + 4 + 1) * 2 + 2 * 2
