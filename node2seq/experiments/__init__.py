"""The paper's tables, reproduced: cells → trainings → rows → rendered tables.

Needs torch, torch_geometric and numpy alone, as ``python -m node2seq reproduce`` does.
"""
