"""Timing our layer and PyTorch Geometric's in one run: time, memory and ratio, one row a case.

Needs torch, torch_geometric and numpy alone. ``node2seq bench`` and the scripts in ``benchmarks/`` use it.
"""
