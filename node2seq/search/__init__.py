"""Settings by validation accuracy: spaces, trials, and a search that trains a whole generation at once.

Needs torch, torch_geometric and numpy alone; :mod:`node2seq.search.bayes` needs optuna besides.
"""
