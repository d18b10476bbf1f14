"""The same seed ends in the same weights, bit for bit: every model, on a graph with a hub."""

from __future__ import annotations

import bench_determinism
import pytest
import torch
from bench_determinism import MODEL_CASES, ModelCase, compiled_digest, hub_graph, weights_digest

from node2seq import MODELS, ops
from node2seq.data import load, make_split

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
CASES = pytest.mark.parametrize("case", MODEL_CASES, ids=lambda case: case.name)


def test_every_model_is_among_the_trained():
    assert {case.model for case in MODEL_CASES} == set(MODELS)
    assert any(case.options.get("hops") == 2 for case in MODEL_CASES)


@CASES
def test_same_bits_on_the_cpu(case: ModelCase, monkeypatch: pytest.MonkeyPatch):
    data = hub_graph(nodes=150, edges=400)
    degree = torch.bincount(data.edge_index[1])  # pyright: ignore[reportOptionalSubscript]
    assert degree[0] == 149
    split = make_split(data)

    def digest() -> str:
        ops.PLANS.clear()
        return weights_digest(case, data, split, torch.device("cpu"), epochs=3)

    first = digest()
    assert digest() == first
    monkeypatch.setattr(bench_determinism, "SEED", bench_determinism.SEED + 1)
    assert digest() != first


@needs_gpu
@pytest.mark.slow
@pytest.mark.parametrize("readout", ["max", "mean"])
def test_same_bits_with_cuda_graphs_between_the_steps(readout: str):
    data, device = hub_graph(), torch.device("cuda")

    def digest() -> str:
        torch._dynamo.reset()
        ops.PLANS.clear()
        return compiled_digest(readout, data.clone().to("cuda"), device, epochs=20)

    assert digest() == digest()


@needs_gpu
@pytest.mark.slow
@CASES
@pytest.mark.parametrize("graph", ["cora", "hub"])
def test_same_bits_on_the_gpu_after_200_epochs(case: ModelCase, graph: str, real_data):
    data = hub_graph() if graph == "hub" else real_data("cora-f", load)
    split = make_split(data, seed=0)
    device = torch.device("cuda")

    def digest() -> str:
        ops.PLANS.clear()
        return weights_digest(case, data.clone().to("cuda"), split, device, epochs=200)

    assert digest() == digest()
