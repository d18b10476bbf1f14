"""The same seed ends in the same weights, bit for bit: every model, on a graph with a hub."""

from __future__ import annotations

import pytest
import torch

from node2seq import MODELS, ops
from node2seq.benchmarking import determinism
from node2seq.benchmarking.determinism import TRAINED, hub_graph, thirds, weights_digest
from node2seq.data import load, make_split

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
CASES = pytest.mark.parametrize("trained", TRAINED, ids=lambda trained: trained.name)


def test_every_model_is_among_the_trained():
    assert {trained.model for trained in TRAINED} == set(MODELS)
    assert any(trained.options.get("hops") == 2 for trained in TRAINED)


@CASES
def test_same_bits_on_the_cpu(trained: determinism.Trained, monkeypatch: pytest.MonkeyPatch):
    data = hub_graph(nodes=150, edges=400)
    degree = torch.bincount(data.edge_index[1])  # pyright: ignore[reportOptionalSubscript]
    assert degree[0] == 149
    split = thirds(data)

    def digest() -> str:
        ops.PLANS.clear()
        return weights_digest(trained, data, split, torch.device("cpu"), epochs=3)

    first = digest()
    assert digest() == first
    monkeypatch.setattr(determinism, "SEED", determinism.SEED + 1)
    assert digest() != first


@needs_gpu
@pytest.mark.slow
@CASES
@pytest.mark.parametrize("graph", ["cora", "hub"])
def test_same_bits_on_the_gpu_after_200_epochs(trained: determinism.Trained, graph: str, real_data):
    if graph == "hub":
        data = hub_graph()
        split = thirds(data)
    else:
        data = real_data("cora-f", load)
        split = make_split(data, seed=0)
    device = torch.device("cuda")

    def digest() -> str:
        ops.PLANS.clear()
        return weights_digest(trained, data.clone().to("cuda"), split, device, epochs=200)

    assert digest() == digest()
