"""Two comparisons, from cells to a page: the paper's tables, and all models at equal budgets.

``reproduce``: cells → trainings → rows → docs/results.md. ``protocol``, declared before it was made: spaces →
search → chosen recipes → reserved rows → docs/evidence.md. Needs torch, torch_geometric and numpy alone, as
``python -m node2seq reproduce`` and ``python -m node2seq protocol`` do.
"""
