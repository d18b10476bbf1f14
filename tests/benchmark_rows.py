"""Rows of benchmarks for tests: PyG's layer, ours, and where they were measured."""

from node2seq.benchmarking.rows import BenchmarkRow, Machine

MACHINE = Machine(device="a processor", threads=2, versions={"torch": "2.0"}, commit="0123456789abcdef")
BASE = BenchmarkRow(
    "layer", "Cora", 2708, 10556, "GATConv", p20_ms=3.0, p50_ms=4.0, p80_ms=5.0, peak_bytes=1000
)
OURS = BenchmarkRow(
    "layer",
    "Cora",
    2708,
    10556,
    "Node2SeqConv",
    kernel_size=3,
    readout="max",
    backend="eager",
    p20_ms=0.5,
    p50_ms=1.0,
    p80_ms=2.0,
    peak_bytes=250,
)
