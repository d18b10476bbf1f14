"""Graphs drawn at random: each family has the trait that it is named for."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from node2seq.errors import Node2SeqError

FAMILIES = (
    "grid",
    "heterophilous",
    "hubs",
    "words",
    "text",
    "topics",
    "many-classes",
    "no-features",
    "noisy",
    "unscaled",
    "unequal",
    "posts",
    "replies",
    "articles",
)


@pytest.fixture(scope="module")
def families(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("families")


@pytest.fixture(scope="module")
def draw_graph(families: ModuleType) -> Callable[..., Any]:
    return families.draw_graph


def test_every_family_is_tested(families: ModuleType):
    assert tuple(families.FAMILIES) == FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_a_seed_gives_one_undirected_graph(draw_graph: Callable[..., Any], family: str):
    graph, again, other = (draw_graph(family, 300, seed) for seed in (1, 1, 2))
    assert graph.is_undirected()
    assert not graph.has_self_loops()
    assert graph.x.size(0) == graph.y.numel() >= 300
    assert graph.x.isfinite().all()
    assert torch.equal(graph.x, again.x)
    assert torch.equal(graph.edge_index, again.edge_index)
    assert not torch.equal(graph.edge_index, other.edge_index) or not torch.equal(graph.y, other.y)


def test_a_cell_shows_the_mines_around_it(draw_graph: Callable[..., Any]):
    graph = draw_graph("grid", 400)
    degree = torch.bincount(graph.edge_index[1])
    assert sorted(degree.unique().tolist()) == [3, 5, 8]
    mines = torch.zeros(400, dtype=torch.long).index_add_(
        0, graph.edge_index[1], graph.y[graph.edge_index[0]]
    )
    shown = graph.x[:, 9] == 0
    assert torch.equal(graph.x[shown, :9].argmax(1), mines[shown])
    assert not graph.x[~shown, :9].any()
    assert 0.1 < graph.y.float().mean() < 0.3


def test_neighbours_are_alike_where_the_family_says_so(draw_graph: Callable[..., Any]):
    def alike(family: str) -> float:
        graph = draw_graph(family)
        return (graph.y[graph.edge_index[0]] == graph.y[graph.edge_index[1]]).float().mean().item()

    assert alike("heterophilous") < 0.15
    assert alike("words") > 0.7
    assert alike("replies") < 0.15
    assert 0.3 < alike("posts") < alike("articles") < 0.65


def test_other_traits(draw_graph: Callable[..., Any]):
    hubs = torch.bincount(draw_graph("hubs").edge_index[1])
    assert hubs.max() > 15 * hubs.float().mean()
    assert draw_graph("many-classes").y.unique().numel() == 40
    assert draw_graph("unscaled").x.std(0).max() > 1e6 * draw_graph("unscaled").x.std(0).min()
    for family in ("words", "posts", "replies", "articles"):
        assert (draw_graph(family).x != 0).float().mean() < 0.05
    posts, articles = draw_graph("posts"), draw_graph("articles")
    assert posts.num_edges > 30 * posts.num_nodes
    assert articles.num_nodes == 2 * posts.num_nodes


def test_typical_words_are_more_frequent_in_their_class(draw_graph: Callable[..., Any]):
    graph = draw_graph("posts")
    first = graph.y == 0
    here, elsewhere = graph.x[first].mean(0), graph.x[~first].mean(0)
    often = elsewhere > 0.02
    share = (here[often] > 2 * elsewhere[often]).float().mean()
    assert 0.05 < share < 0.2


def test_an_unknown_family_is_named(draw_graph: Callable[..., Any]):
    with pytest.raises(Node2SeqError, match="family='gird'"):
        draw_graph("gird")
