"""Benchmarks as evidence: what was measured, on what, beside PyTorch Geometric's layer, as one row per case.

Needs torch, torch_geometric and numpy alone. The scripts in ``benchmarks/`` and ``node2seq bench`` share it.
"""
