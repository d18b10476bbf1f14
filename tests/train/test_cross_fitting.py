"""Cross-fitting: each validation node is judged at the epoch that nodes of other folds choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from node2seq.data import Split, fold_numbers, load
from node2seq.recipes import Recipe
from node2seq.train.cross_fitting import FOLDS, Folds
from node2seq.train.many import Training, TrainingOutcome, train_many, untrained
from node2seq.train.measured import measure
from node2seq.train.settings import TrainSettings
from node2seq.train.trainer import Trainer

# Fewer than, as many as, and more nodes than folds; a single one.
VALIDATION_NODES = (23, 1, 10, 4)
EPOCHS = (40, 25, 12, 31)


def noise(nodes: int, columns: int) -> Tensor:
    return torch.randn(nodes, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(scope="module")
def karate() -> Data:
    """With features that tell nothing, so that accuracies jump about from epoch to epoch."""
    graph = load("karate")
    return Data(x=noise(34, 12), edge_index=graph.edge_index, y=graph.y)


def split_of(nodes: int, train: int, val: int, seed: int) -> Split:
    mixed = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
    parts = [part.sort().values for part in (mixed[:train], mixed[train : train + val], mixed[:0])]
    return Split(*parts, rule="random", seed=seed, test_rest=mixed[:0])


def trainings(**settings: Any) -> list[Training]:
    made = []
    for run, (val, epochs) in enumerate(zip(VALIDATION_NODES, EPOCHS, strict=True)):
        given = {"epochs": epochs, "lr": 0.2, "patience": None, **settings}
        recipe = Recipe({"hidden_channels": 8, "dropout": 0.5}, TrainSettings(**given))
        made.append(Training("gcn", recipe, split_of(34, 10, val, run), seed=run, cross_fit=True))
    return made


def with_settings(training: Training, **changes: Any) -> Training:
    settings = replace(training.recipe.settings, **changes)
    return replace(training, recipe=replace(training.recipe, settings=settings))


def one_trainer(data: Data, runs: list[Training], *, judge: bool = True) -> Trainer:
    folds = [fold_numbers(training.split.val.numel(), FOLDS, training.seed) for training in runs]
    return Trainer(
        [untrained(training, data) for training in runs],
        data,
        [training.split for training in runs],
        [training.recipe.settings for training in runs],
        folds=folds if judge else None,
    )


def judged_plainly(data: Data, training: Training) -> tuple[float, set[int]]:
    """The rule in words, node by node, from the predictions of every epoch; and the epochs chosen."""
    trainer = one_trainer(data, [training])
    assert isinstance(data.y, Tensor)
    val, y = training.split.val.tolist(), data.y.tolist()
    fold_of = dict(zip(val, fold_numbers(len(val), FOLDS, training.seed).tolist(), strict=True))
    epochs = []
    while trainer.active:
        trainer.advance()
        logits = trainer.logits()[0]
        losses = F.cross_entropy(logits, data.y, reduction="none").tolist()
        hit = [int(guess) == label for guess, label in zip(logits.argmax(1), y, strict=True)]
        epochs.append((hit, losses))
    hits, chosen = 0, set()
    for node in val:
        choosers = [other for other in val if fold_of[other] != fold_of[node]] or [node]
        best, best_figures = 0, (-1, 0.0)
        for epoch, (hit, losses) in enumerate(epochs):
            figures = (sum(hit[n] for n in choosers), -sum(losses[n] for n in choosers))
            if figures > best_figures:
                best, best_figures = epoch, figures
        hits += epochs[best][0][node]
        chosen.add(best)
    return hits / len(val), chosen


def judged(outcomes: list[TrainingOutcome]) -> list[float | None]:
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return [outcome.cross_fitted for outcome in outcomes]


def test_each_run_is_judged_as_a_plain_loop_over_its_predictions_says(karate):
    runs = trainings()
    expected = [judged_plainly(karate, training) for training in runs]
    outcomes = train_many(karate, runs)
    assert judged(outcomes) == [accuracy for accuracy, _ in expected]
    assert len(expected[0][1]) > 1, "the folds choose different epochs, or nothing is tested"
    best = [outcome.result.best.val_accuracy for outcome in outcomes if outcome.result is not None]
    assert outcomes[0].cross_fitted is not None
    assert outcomes[0].cross_fitted < best[0]


def test_another_metric_chooses_the_epochs_and_judges_each_fold(karate):
    metric, run = "roc-auc", trainings(metric="roc-auc")[0]
    trainer, val = one_trainer(karate, [run]), run.split.val
    number = fold_numbers(val.numel(), FOLDS, run.seed)
    epochs: list[tuple[Tensor, Tensor]] = []
    while trainer.active:
        trainer.advance()
        logits = trainer.logits()[0, val]
        epochs.append((logits, F.cross_entropy(logits, karate.y[val], reduction="none")))
    total, nodes, chosen = 0.0, 0, set()
    for fold in range(FOLDS):
        inside, others = number == fold, number != fold
        rank = [
            (measure(logits[others], karate.y[val][others]).value(metric), -losses[others].sum().item())
            for logits, losses in epochs
        ]
        best = max(range(len(epochs)), key=lambda epoch: (rank[epoch], -epoch))
        own = measure(epochs[best][0][inside], karate.y[val][inside]).value(metric)
        chosen.add(best)
        if own is not None:
            total, nodes = total + own * int(inside.sum()), nodes + int(inside.sum())
    assert len(chosen) > 1
    assert 0 < nodes < val.numel(), "folds of a single class have no value"
    assert judged(train_many(karate, [run]))[0] == pytest.approx(total / nodes, abs=1e-9)


def test_a_single_node_chooses_and_judges_itself(karate):
    alone = trainings()[1]
    runs = [replace(alone, split=split_of(34, 10, 1, seed), seed=seed) for seed in range(6)]
    outcomes = train_many(karate, [trainings()[0], *runs])[1:]
    histories = [outcome.result.history for outcome in outcomes if outcome.result is not None]
    best = [max(record.val_accuracy for record in history) for history in histories]
    assert judged(outcomes) == best
    assert best != [history[0].val_accuracy for history in histories], "some were hit later on"


def test_a_fold_does_not_decide_about_its_epoch_by_a_rounding():
    folds = Folds([torch.tensor([0, 1])], torch.device("cpu"))
    tallies = torch.zeros(2, 1, FOLDS, 2, dtype=torch.float64)
    tallies[:, 0, 0] = torch.tensor([[1.0, 0.1], [0.0, 1e16]])  # hit first; its loss swallows the other's
    tallies[:, 0, 1] = torch.tensor([[0.0, 0.1], [0.0, 0.1]])  # sees no difference: the first epoch
    assert folds.judge(tallies, torch.tensor([2])).tolist() == [0.5]


def test_judging_changes_nothing_of_the_training(karate):
    runs = trainings()
    plain = train_many(karate, [replace(training, cross_fit=False) for training in runs])
    assert judged(plain) == [None] * len(runs)
    assert [one.result for one in plain] == [one.result for one in train_many(karate, runs)]


def test_runs_with_and_without_a_judge_are_trained_side_by_side(karate):
    runs = trainings()
    mixed = train_many(karate, [replace(t, cross_fit=run % 2 == 0) for run, t in enumerate(runs)])
    expected = judged(train_many(karate, runs))
    assert judged(mixed) == [expected[0], None, expected[2], None]


@pytest.mark.parametrize("patience", [None, 6])
def test_runs_that_end_early_are_judged_by_the_epochs_they_had(karate, monkeypatch, patience):
    runs = [with_settings(t, epochs=epochs) for t, epochs in zip(trainings(), (45, 5, 12, 22), strict=True)]
    runs[0] = with_settings(runs[0], patience=patience)
    sizes: list[int] = []
    whole = Trainer.take
    monkeypatch.setattr(Trainer, "take", lambda *args: sizes.append(len(args[1])) or whole(*args))
    outcomes = train_many(karate, runs)
    assert sizes, "training continued without those that ended"
    assert judged(outcomes) == [judged_plainly(karate, training)[0] for training in runs]
    if patience is not None:
        assert outcomes[0].result is not None
        assert len(outcomes[0].result.history) < 45


def test_a_run_that_is_cut_short_is_judged_by_the_epochs_it_had(karate):
    runs = trainings()
    stopped = train_many(karate, runs, on_epoch=lambda now: [now.epoch >= 20, False, False, False])
    expected = [with_settings(runs[0], epochs=20), *runs[1:]]
    assert judged(stopped) == [judged_plainly(karate, training)[0] for training in expected]


def test_a_run_that_fails_is_not_judged_and_leaves_the_others_alone(karate):
    runs = trainings()
    expected = judged(train_many(karate, runs))
    runs[2] = with_settings(runs[2], lr=1e300)
    outcomes = train_many(karate, runs)
    assert outcomes[2].error is not None
    assert [outcome.cross_fitted for outcome in outcomes] == [*expected[:2], None, expected[3]]


def test_a_resumed_trainer_knows_its_epochs(karate):
    runs = trainings(epochs=30)
    whole, first, again = (one_trainer(karate, runs) for _ in range(3))
    whole.advance(30)
    first.advance(20)
    again.load_state_dict(first.state_dict())
    again.advance(10)
    assert again.cross_fitted() == whole.cross_fitted()
    some = [3, 0]
    assert whole.take(some).cross_fitted() == [whole.cross_fitted()[run] for run in some]


def test_a_plain_training_keeps_no_tallies(karate):
    judging, plain = (one_trainer(karate, trainings(), judge=judge) for judge in (True, False))
    extra = judging.state_dict()["runs"].keys() - plain.state_dict()["runs"].keys()
    assert extra == {"tallies"}
    assert plain.cross_fitted() == [None] * len(VALIDATION_NODES)


def test_labels_that_cannot_be_learned_are_judged_as_chance():
    classes, nodes, runs = 4, 240, 24
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(nodes, (2, 3 * nodes), generator=generator)
    y = torch.randint(classes, (nodes,), generator=generator)
    data = Data(x=noise(nodes, 6).float(), edge_index=edges, y=y)
    recipe = Recipe({"hidden_channels": 8, "dropout": 0.5}, TrainSettings(epochs=60, lr=0.1, patience=None))
    outcomes = train_many(
        data,
        [Training("gcn", recipe, split_of(nodes, 40, 40, run), run, cross_fit=True) for run in range(runs)],
    )
    best = [outcome.result.best.val_accuracy for outcome in outcomes if outcome.result is not None]
    found = [accuracy for accuracy in judged(outcomes) if accuracy is not None]
    assert sum(best) / runs > 1 / classes + 0.08, "the best of many epochs is above what it is worth"
    assert sum(found) / runs == pytest.approx(1 / classes, abs=0.03)
