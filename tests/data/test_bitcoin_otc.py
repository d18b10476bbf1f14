"""Bitcoin OTC: the counts of its description, and that nothing of a rating or of later ones reaches it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from node2seq.data import bitcoin_otc, load, load_bitcoin_otc, sources
from node2seq.data.datasets import BIPARTITE
from node2seq.data.times import tied_edges
from node2seq.errors import Node2SeqError

ROOT = os.environ.get("NODE2SEQ_DATA")  # before any test points it elsewhere
FACTS = BIPARTITE["bitcoin-otc"].facts


@pytest.fixture(scope="module")
def content() -> bytes:
    try:
        (found,) = sources.find("bitcoin-otc", root=ROOT, offline=True).files.values()
    except Node2SeqError as error:
        pytest.skip(f"data set bitcoin-otc cannot be had here: {error}")
    return found


@pytest.fixture(scope="module")
def table(content: bytes) -> np.ndarray:
    """Rater, ratee, value and time of every rating."""
    return np.array([line.split(",") for line in content.decode().splitlines()], dtype=np.int64)


@pytest.fixture(scope="module")
def data(content: bytes) -> Any:
    return load_bitcoin_otc(root=ROOT, age=True, offline=True)


def test_the_counts_of_its_description(data: Any, table: np.ndarray) -> None:
    rating, edges = data["rating"], data["earlier", "rating"]
    assert table.shape == (35592, 4)
    assert np.unique(table[:, :2]).size == 5881
    assert rating.num_nodes == FACTS.nodes == 22090
    assert edges.num_edges == FACTS.edges == 325191
    assert rating.x.size(1) + data["earlier"].x.size(1) == FACTS.features
    shares = {
        part: round(100 * rating.y[rating[f"{part}_mask"]].double().mean().item(), 1)
        for part in ("train", "test")
    }
    assert shares == {"train": 6.6, "test": 13.2}
    sizes = [int(rating[f"{part}_mask"].sum()) for part in ("train", "val", "test")]
    assert sizes == [13254, 4418, 4418]
    degree = torch.bincount(edges.edge_index[1], minlength=22090)
    assert (int(degree.min()), int(degree.max())) == (4, FACTS.largest_degree)
    source, target = edges.edge_index
    alike = (torch.from_numpy(table[:, 2] < 0)[source].long() == rating.y[target]).double().mean()
    assert round(alike.item(), 4) == FACTS.homophily
    assert tied_edges(edges.edge_index, edges.edge_order) == 0


def test_the_past_trains_and_the_future_tests(data: Any, table: np.ndarray) -> None:
    rating = data["rating"]
    time = torch.from_numpy(table[:, 3])[rating.number]
    assert (time.diff() >= 0).all()
    last = [time[rating[f"{part}_mask"]].max() for part in ("train", "val")]
    first = [time[rating[f"{part}_mask"]].min() for part in ("val", "test")]
    assert all(a < b for a, b in zip(last, first, strict=True))


def test_neighbours_are_the_latest_earlier_ratings_of_the_same_ratee(data: Any, table: np.ndarray) -> None:
    rating, edges = data["rating"], data["earlier", "rating"]
    source, target = edges.edge_index.numpy()
    number = rating.number.numpy()
    assert (source < number[target]).all()  # never itself, never a later one
    assert (table[source, 3] < table[number[target], 3]).all()
    assert (table[source, 1] == table[number[target], 1]).all()
    assert np.array_equal(edges.edge_order.numpy(), table[source, 3])
    age = np.log1p((table[number[target], 3] - table[source, 3]) / 86400)
    np.testing.assert_allclose(edges.edge_attr[:, 0].numpy(), age, rtol=1e-6)
    for node in np.random.default_rng(0).integers(rating.num_nodes, size=50):
        earlier = [i for i in range(number[node]) if table[i, 1] == table[number[node], 1]]
        assert len(earlier) >= bitcoin_otc.FEWEST_EARLIER
        assert sorted(source[target == node]) == earlier[-bitcoin_otc.MOST_EARLIER :]


def test_features_are_what_was_known(data: Any, table: np.ndarray) -> None:
    """Against a count of the rows before, for a few ratings; columns are compared up to their scale."""
    number = data["rating"].number.numpy()
    chosen = np.sort(np.random.default_rng(1).choice(number.size, size=60, replace=False))

    def known(row: int) -> list[float]:
        rater, before = table[row, 0], table[:row]
        given, got = before[before[:, 0] == rater, 2], before[before[:, 1] == rater, 2]
        mean = [values.mean() if values.size else 0.0 for values in (given, got)]
        return [np.log1p(given.size), mean[0], np.log1p(got.size), mean[1]]

    rows = number[chosen]
    about_rater = [known(row) for row in rows]
    received = [np.log1p(np.sum(table[:row, 1] == table[row, 1])) for row in rows]
    value, time = table[rows, 2], table[rows, 3]
    assert_same_up_to_scale(data["rating"].x[chosen], np.column_stack([about_rater, received, time]))
    shown = np.column_stack([value, np.sign(value), about_rater, time])
    assert_same_up_to_scale(data["earlier"].x[rows], shown)


def assert_same_up_to_scale(found: torch.Tensor, expected: np.ndarray) -> None:
    assert found.shape == expected.shape
    for one, other in zip(found.double().numpy().T, expected.T.astype(float), strict=True):
        slope, start = np.polyfit(other - other.mean(), one, 1)
        assert slope > 0
        np.testing.assert_allclose(one, slope * (other - other.mean()) + start, atol=2e-5)


def test_nothing_of_a_rating_or_of_later_ones_reaches_it(
    data: Any, table: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turn every rating from one of the last on into its opposite: what it is told does not change."""
    node = 20000
    row = int(data["rating"].number[node])
    turned = table.copy()
    turned[row:, 2] *= -1
    text = "".join(",".join(map(str, cells)) + "\n" for cells in turned.tolist()).encode()
    files = sources.DatasetFiles({"ratings": text}, "bitcoin_otc", "test")
    monkeypatch.setattr(bitcoin_otc, "find", lambda *args, **options: files)
    other = load_bitcoin_otc(age=True)
    assert torch.equal(other["rating"].x[: node + 1], data["rating"].x[: node + 1])
    assert not torch.equal(other["rating"].x, data["rating"].x)
    assert torch.equal(other["earlier"].x[:row], data["earlier"].x[:row])
    assert not torch.equal(other["earlier"].x[row], data["earlier"].x[row])
    for name in ("edge_index", "edge_order", "edge_attr"):
        assert torch.equal(other["earlier", "rating"][name], data["earlier", "rating"][name])
    turned_label = other["rating"].y != data["rating"].y
    assert turned_label[node:].all()
    assert not turned_label[:node].any()


def test_copies_of_the_file_that_differ_in_digits_are_the_same(
    content: bytes, data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODE2SEQ_CACHE", str(tmp_path / "cache"))
    lines = content.decode().splitlines()
    published = "".join(
        f"{line[:-1]}{int(line[-1]) - 1}.72836\r\n" if line[-1] != "0" else f"{line}.2\r\n" for line in lines
    )
    asked = []

    def serve(url: str, deadline: float) -> bytes:
        asked.append(url)
        return gzip.compress(published.encode())

    monkeypatch.setattr(sources, "_download", serve)
    found = load_bitcoin_otc(root=tmp_path)
    assert asked == ["https://snap.stanford.edu/data/soc-sign-bitcoinotc.csv.gz"]
    assert torch.equal(found["rating"].x, data["rating"].x)
    assert "edge_attr" not in found["earlier", "rating"]
    again = load_bitcoin_otc(root=tmp_path)  # from the cache
    assert len(asked) == 1
    assert torch.equal(again["earlier"].x, data["earlier"].x)
    raw = tmp_path / "bitcoin_otc" / "raw"
    raw.mkdir(parents=True)
    for wrong in (b"\x1f\x8bnothing", b"a,b\n", published.replace("1,15,1", "1,15,2").encode()):
        (raw / "soc-sign-bitcoinotc.csv").write_bytes(wrong)
        monkeypatch.setenv("NODE2SEQ_CACHE", str(tmp_path / "none"))
        with pytest.raises(Node2SeqError, match="so it was not opened"):
            load_bitcoin_otc(root=tmp_path, offline=True)


def test_load_says_where_it_is() -> None:
    with pytest.raises(Node2SeqError, match=r"it is bipartite.*load_bitcoin_otc\(\)"):
        load("bitcoin-otc")
