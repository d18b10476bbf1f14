from __future__ import annotations

import pytest

from node2seq.train import budget
from node2seq.train.budget import Budget, OutOfTime


def test_a_budget_ends_where_the_next_piece_of_work_would_not_fit(monkeypatch: pytest.MonkeyPatch):
    Budget().check()
    spending = Budget(60.0, started=1000.0)
    monkeypatch.setattr(budget.time, "time", lambda: 1059.0)
    assert spending.spent == 59.0
    spending.check()
    spending.reserve = 2.0
    with pytest.raises(OutOfTime):
        spending.check()
    with pytest.raises(OutOfTime):
        Budget(59.0, started=1000.0).check()
