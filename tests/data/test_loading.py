import hashlib
import subprocess
import sys

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, homophily, is_undirected

from node2seq.data import COLUMNS, DATASETS, NAMES, load, normalize_features
from node2seq.errors import Node2SeqError

# SHA-256 of x, edge_index, y (and the three masks) as PyTorch Geometric's own dataset classes give them,
# after `to_undirected(remove_self_loops(...))`, and `LargestConnectedComponents` for Photo; its readers need
# scipy.
PYG = {
    "cora": "578877de49c6a6e1fc8f7a34e79a65bc1427718d44c30dd985bdf40ddb4f17c4",
    "citeseer": "1db25233d3983b76adaddf362bab193fabaa237a5a9af0d08f4892b759142c77",
    "pubmed": "22795a3401439120fef489ffd43c922921c40729e931f1d521d82cc29441847a",
    "photo": "dbfe45b26293f2e11519b92149d6a1be27ed7acf28a738cdac798ffea04a48af",
    "chameleon": "98ea4ee24aab0b68a94d28df20e13f45f42a59c1d8d0479b8fc0302bd343ac03",
    "squirrel": "e8805b87b79badbb19d771940ed996b6e013f592c1f2305912f4ed5ab5454472",
    "actor": "43b2712050b2baf33024b02d481ba08113ec30770d0f7e5968af3d90f9eafd94",
    "cornell": "1be97512824e6839ebc77d3c754277c594af112e15009661078939be731e7cf3",
    "texas": "4210430f93dbe5a3579e25621f0de23c721b35426bb6da14f1b3662a483e0fb4",
    "wisconsin": "a8c5312a8f49d2127432083513cdaede030c28316096572d95e333cb31772865",
    "karate": "c0d0717862fbc879654862feda782ffde5abf9f6c9101b8345267f696a1d200f",
}
# Nodes, undirected edges, features, classes after our preparation.
COUNTS = {
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "photo": (7487, 119043, 745, 8),
    "chameleon": (2277, 31371, 2325, 5),
    "squirrel": (5201, 198353, 2089, 5),
    "actor": (7600, 26659, 932, 5),
    "cornell": (183, 277, 1703, 5),
    "texas": (183, 279, 1703, 5),
    "wisconsin": (251, 450, 1703, 5),
    "karate": (34, 78, 34, 4),
}


def digest(data: Data, *, masks: bool) -> str:
    parts = [data.x, data.edge_index, data.y]
    parts += [data.train_mask, data.val_mask, data.test_mask] if masks else []
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part.contiguous().numpy().tobytes())
    return sha.hexdigest()


def test_the_names_are_the_eleven_columns_and_two_more():
    assert " ".join(COLUMNS) == (
        "cora-f cora-r citeseer-f citeseer-r amazon-r chameleon squirrel actor cornell texas wisconsin"
    )
    assert set(NAMES) - set(COLUMNS) == {"pubmed", "karate"}
    assert {column.dataset for column in NAMES.values()} == set(DATASETS) == set(PYG) == set(COUNTS)


@pytest.mark.parametrize("name", NAMES)
def test_every_set_is_bit_for_bit_what_pyg_gives(name, known):
    data = known(name)
    column = NAMES[name]
    if column.rule == "fixed" or column.dataset not in ("cora", "citeseer"):
        assert digest(data, masks=column.rule == "fixed") == PYG[column.dataset]
    else:  # the same graph as the fixed column's, without its masks
        assert digest(data, masks=False) == digest(known(name[:-1] + "f"), masks=False)
        assert "train_mask" not in data
    assert data.x.dtype == torch.float32
    assert data.y.dtype == data.edge_index.dtype == torch.int64
    assert data.name == name
    data.validate()


@pytest.mark.parametrize("dataset", COUNTS)
def test_the_recorded_facts_are_true(dataset, known):
    name = next(name for name, column in NAMES.items() if column.dataset == dataset)
    data, facts = known(name), DATASETS[dataset].facts
    counts = (data.num_nodes, data.num_edges // 2, data.num_features, int(data.y.max()) + 1)
    assert counts == COUNTS[dataset] == (facts.nodes, facts.edges, facts.features, facts.classes)
    assert homophily(data.edge_index, data.y, method="edge") == pytest.approx(facts.homophily, abs=5e-5)
    assert int(torch.bincount(data.edge_index[0]).max()) == facts.largest_degree
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)


@pytest.mark.parametrize(
    ("name", "entries", "self_loops"),
    [("chameleon", 36101, None), ("squirrel", 217073, None), ("actor", 30019, None),
     ("cornell", 298, 295), ("texas", 325, 309), ("wisconsin", 515, 499)],
)  # fmt: skip
def test_directed_keeps_the_file_without_self_loops(name, entries, self_loops, known):
    data = known(name, directed=True)
    assert not contains_self_loops(data.edge_index)
    assert not is_undirected(data.edge_index)
    assert data.num_edges < entries
    if self_loops is not None:  # the paper's Table 1 counts these three as directed, without self loops
        assert data.num_edges == self_loops
    source, target = data.edge_index
    both = torch.cat([data.edge_index, torch.stack([target, source])], dim=1)
    assert torch.equal(torch.unique(both, dim=1), known(name).edge_index)


def test_defects_that_the_listing_speaks_of(known):
    citeseer = known("citeseer-f")
    assert int((citeseer.x.sum(1) == 0).sum()) == 15
    assert 3327 - citeseer.edge_index[0].unique().numel() == 48
    assert int((known("chameleon").x.sum(1) == 0).sum()) == 233
    cornell, texas = known("cornell"), known("texas")
    assert torch.equal(cornell.x, texas.x)
    assert torch.equal(cornell.y, texas.y)
    assert torch.bincount(texas.y).min() == 1
    for name in ("cornell", "chameleon", "squirrel", "wisconsin"):
        assert DATASETS[name].defects


def test_normalize_features_divides_each_row_by_its_sum():
    x = torch.tensor([[1.0, 1.0, 2.0], [0.0, 0.0, 0.0]])
    assert normalize_features(x).tolist() == [[0.25, 0.25, 0.5], [0.0, 0.0, 0.0]]


def test_unknown_name():
    with pytest.raises(Node2SeqError) as caught:
        load("cora")
    assert str(caught.value) == (
        "data set 'cora': no such name. Take one of cora-f, cora-r, citeseer-f, citeseer-r, amazon-r, "
        "chameleon, squirrel, actor, cornell, texas, wisconsin, pubmed, karate."
    )


@pytest.mark.slow
def test_importing_and_loading_need_nothing_but_torch_pyg_and_numpy():
    # The readers of Planetoid's pickles, of Amazon's archive and of the text files all run without these.
    script = (
        "import sys\n"
        "for name in ('polars', 'pandas', 'scipy', 'rich', 'typer', 'pydantic', 'networkx'):\n"
        "    sys.modules[name] = None\n"
        "import node2seq.data as d\n"
        "for name in sys.argv[1:]:\n"
        "    data = d.load(name, offline=True)\n"
        "    print(name, len(d.make_split(data).train))\n"
    )
    wanted = {"karate": 19, "cora-f": 140, "amazon-r": 160, "texas": 107, "actor": 4559}
    there = [name for name in wanted if _offline(name)]
    command = [sys.executable, "-c", script, *there]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [word for name in there for word in (name, str(wanted[name]))]


def _offline(name: str) -> bool:
    try:
        return not load(name, offline=True).source.endswith("graphdatascience/cora")  # that one needs polars
    except Node2SeqError:
        return False
