"""One run, epoch by epoch: what it learns, and that an interruption changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from tiny_graph import SETTINGS, Tiny, assert_same_weights, make_graph, make_model
from torch import Tensor

from node2seq.errors import Node2SeqError
from node2seq.train.fitter import Fitter, fit
from node2seq.train.inference import evaluate
from node2seq.train.progress import EpochRecord


def test_fit_learns_and_leaves_the_best_weights_in_the_model():
    data, split = make_graph()
    seen: list[EpochRecord] = []
    model = make_model()
    result = fit(model, data, split, SETTINGS, on_epoch=seen.append)
    assert tuple(seen) == result.history
    assert len(seen) == 15
    assert seen[-1].loss < seen[0].loss
    assert result.best.val_accuracy > 0.8
    assert result.val.value("accuracy") == result.best.val_accuracy
    assert result.test is not None
    assert result.test == evaluate(model, data, split.test)
    assert result.val == evaluate(model, data, split.val)


def test_test_labels_change_nothing_but_the_test_figure():
    data, split = make_graph()
    other = data.clone()
    assert isinstance(other.y, Tensor)
    other.y[split.test] = (other.y[split.test] + 1) % 3
    model, twin = make_model(), make_model()
    result, blind = fit(model, data, split, SETTINGS), fit(twin, other, split, SETTINGS)
    assert_same_weights(model, twin)
    assert result.history == blind.history
    assert result.test != blind.test


@pytest.mark.parametrize("optimizer", ["adam", "nadam"])
@pytest.mark.parametrize("stop", [0, 1, 7, 14, 15])
def test_interrupted_and_resumed_is_bit_identical(stop: int, optimizer):
    data, split = make_graph()
    settings = replace(SETTINGS, optimizer=optimizer, conv_weight_decay=0.02)
    whole = make_model()
    expected = fit(whole, data, split, settings)

    first = Fitter(make_model(), data, split, settings)
    for _ in range(stop):
        first.step()
    state = copy.deepcopy(first.state_dict())
    model = make_model(seed=99)  # resuming must not depend on how the new model happened to start
    second = Fitter(model, data, split, settings)
    second.load_state_dict(state)
    while not second.done:
        second.step()
    if stop == 0:  # nothing had been learned, so only the weights count that were saved
        assert second.epoch == 15
    result = second.finish()
    assert result == expected
    assert_same_weights(model, whole)


def test_without_test_nodes_there_is_no_test_figure():
    data, split = make_graph()
    result = fit(make_model(), data, replace(split, test=split.test[:0]), SETTINGS)
    assert result.test is None


def test_divergence_is_named():
    data, split = make_graph()
    with pytest.raises(
        Node2SeqError, match=r"lr=1e\+38: the loss became .* in epoch \d+\. Train with a lower"
    ):
        fit(make_model(), data, split, replace(SETTINGS, lr=1e38, epochs=50))


def test_a_model_without_one_row_per_node_is_named():
    data, split = make_graph()

    class Pooled(Tiny):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return super().forward(x, edge_index).mean(0, keepdim=True)

    with pytest.raises(Node2SeqError, match=r"a model output of shape \[1, 3\]: the graph has 60 nodes"):
        fit(Pooled(8, 3), data, split, SETTINGS)


def test_a_run_that_has_ended_takes_no_further_step():
    data, split = make_graph()
    fitter = Fitter(make_model(), data, split, replace(SETTINGS, epochs=2))
    with pytest.raises(Node2SeqError, match="no epoch was trained: there is nothing to finish"):
        fitter.finish()
    while not fitter.done:
        fitter.step()
    with pytest.raises(Node2SeqError, match=r"epoch 3: training has ended\. Call finish\(\)"):
        fitter.step()
    assert fitter.epoch == 2


class Breaking(Tiny):
    """Gives no number from its fourth step on."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        logits = super().forward(x, edge_index)
        return logits / 0 if int(self.step) > 3 else logits


def test_what_was_reached_before_a_failure_is_kept():
    data, split = make_graph()
    fitter = Fitter(Breaking(8, 3), data, split, SETTINGS)
    for _ in range(3):
        fitter.step()
    for _ in range(2):
        with pytest.raises(Node2SeqError, match=r"the loss became .* in epoch 4"):
            fitter.step()
        assert fitter.done
    assert fitter.epoch == 3
    result = fitter.finish()
    assert result.best == fitter.best
    assert int(fitter.model.step) == result.best.epoch  # pyright: ignore[reportArgumentType]
