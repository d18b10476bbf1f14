"""How far a row may be from the same training elsewhere."""

from __future__ import annotations

from dataclasses import replace

from result_rows import result_row

from node2seq.experiments.cells import Cell
from node2seq.experiments.check import Comparison


def test_the_tolerance_of_other_machines() -> None:
    large = result_row(Cell("gcn", "texas"), 0, val=0.5, test=0.5, epoch=3, test_nodes=1000)
    small = replace(large, test_nodes=39)
    assert Comparison(small, 0.1, 0.5 + 4 / 39, 9, same_bits=False).passed
    assert not Comparison(small, 0.1, 0.5 + 5 / 39, 9, same_bits=False).passed
    assert Comparison(large, 0.1, 0.53, 9, same_bits=False).passed
    assert not Comparison(large, 0.5, 0.531, 3, same_bits=False).passed
    assert not Comparison(large, 0.5, 0.5, 4, same_bits=True).passed
