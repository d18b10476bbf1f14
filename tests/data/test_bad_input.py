"""Every way to hand over a graph that cannot be used, and the sentence that comes back, whole."""
# ruff: noqa: E501

import gzip
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from node2seq.cli import app
from node2seq.data import from_frames, read_graph
from node2seq.errors import Node2SeqError

EDGES = b"source,target\na,b\nb,c\nc,d\n"
NODES = b"id,age,label\na,1,x\nb,2,y\nc,3,x\nd,4,y\n"


def parquet(text: bytes) -> bytes:
    buffer = io.BytesIO()
    pl.read_csv(text).write_parquet(buffer)
    return buffer.getvalue()


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **arrays)
    return buffer.getvalue()


LISTS = io.BytesIO()
pl.DataFrame({"id": [[1], [2]]}).write_parquet(LISTS)


class Case:
    """A bad input: the bytes of the two files (None: no such file), their names, options, and the message."""

    def __init__(self, title: str, message: str, *, edges: bytes | None = EDGES, nodes: bytes | None = NODES,
                 edges_name: str = "edges.csv", nodes_name: str = "nodes.csv", **options: Any) -> None:  # fmt: skip
        self.title, self.message = title, message
        self.files = {edges_name: edges, nodes_name: nodes}
        self.edges_name, self.nodes_name = edges_name, nodes_name
        self.options = {"label": "label", **options}

    def write(self, folder: Path) -> None:
        for name, content in self.files.items():
            if content is not None and name:
                (folder / name).write_bytes(content)


_SAVE = "Save it as CSV, TSV, Parquet or NPZ, and let its name say which."
_AGAIN = "Make or download the file again."
CASES = [
    # The file as a whole.
    Case("no such file", "edges.csv: there is no such file. Check the path.", edges=None),
    Case("empty edges", "edges.csv: the file is empty. Give a file with a header line and at least one row.",
         edges=b""),
    Case("empty nodes", "nodes.csv: the file is empty. Give a file with a header line and at least one row.",
         nodes=b""),
    Case("only blank lines", "nodes.csv: it has no header line. Name the columns in its first line.", nodes=b"\n\n"),
    Case("a header and no rows", "nodes.csv: it has no rows. Give at least one node.", nodes=b"id,age,label\n"),
    Case("unknown ending", f"edges.xlsx: its name has '.xlsx', which is not a supported format. {_SAVE}",
         edges_name="edges.xlsx"),
    Case("no ending", f"edges: its name has no ending, which is not a supported format. {_SAVE}",
         edges_name="edges"),
    Case("Parquet renamed CSV",
         "nodes.csv: its name says CSV, but it holds Parquet data. Give the file the ending of its format.",
         nodes=parquet(NODES)),
    Case("NPZ renamed CSV",
         "nodes.csv: its name says CSV, but it holds zip or NPZ data. Give the file the ending of its format.",
         nodes=npz(id=np.arange(3))),
    Case("CSV renamed Parquet", f"nodes.parquet: its name says Parquet, but it holds something else. {_SAVE}",
         nodes_name="nodes.parquet"),
    Case("CSV renamed NPZ", f"nodes.npz: its name says NPZ, but it holds something else. {_SAVE}",
         nodes_name="nodes.npz"),
    Case("a pickle named NPZ", f"nodes.npz: its name says NPZ, but it holds something else. {_SAVE}",
         nodes_name="nodes.npz", nodes=pickle.dumps({"id": [1]})),
    Case("gzip truncated", f"edges.csv.gz: its gzip data is truncated or damaged. {_AGAIN}",
         edges_name="edges.csv.gz", edges=gzip.compress(EDGES)[:-9]),
    Case("gzip damaged", f"edges.csv.gz: its gzip data is truncated or damaged. {_AGAIN}",
         edges_name="edges.csv.gz", edges=gzip.compress(EDGES)[:12] + b"\xff" * 30),
    Case("Parquet truncated", f"nodes.parquet: its Parquet data is truncated or damaged. {_AGAIN}",
         nodes_name="nodes.parquet", nodes=parquet(NODES)[:-20]),
    Case("NPZ truncated", f"nodes.npz: its NPZ data is truncated or damaged. {_AGAIN}",
         nodes_name="nodes.npz", nodes=npz(id=np.arange(3))[:-30]),
    Case("pickled objects in an NPZ",
         "nodes.npz: it holds pickled Python objects, which are never opened. Save plain arrays instead.",
         nodes_name="nodes.npz", nodes=npz(id=np.array([{"a": 1}], dtype=object))),
    Case("a cube in an NPZ",
         "nodes.npz: array 'x' has 3 dimensions. Save columns [N] or matrices [N, C].",
         nodes_name="nodes.npz", nodes=npz(x=np.zeros((2, 2, 2)))),
    Case("columns of different lengths",
         "nodes.npz: 'id' has 3 entries, 'age' has 4. Give every column one entry per row.",
         nodes_name="nodes.npz", nodes=npz(id=np.arange(3), age=np.arange(4))),
    # Text.
    Case("UTF-16", "nodes.csv: it is UTF-16 text. Save it as UTF-8.", nodes=NODES.decode().encode("utf-16")),
    Case("Latin-1 in a cell", "nodes.csv: it is not UTF-8 text: it holds the byte 0xe9. Save it as UTF-8.",
         nodes=NODES + "é,1,x\n".encode("latin-1")),
    Case("Latin-1 in the header", "nodes.csv: it is not UTF-8 text: it holds the byte 0xe2. Save it as UTF-8.",
         nodes="id,âge,label\na,1,x\n".encode("latin-1")),
    Case("binary", f"nodes.csv: it holds binary data, not text. {_SAVE}", nodes=b"id\x00,label\x01"),
    Case("impossible delimiter", "delimiter '::': it must be a single character. Give for instance ';' or ',', "
         "or leave it out: it is detected in each file.", delimiter="::"),
    Case("a split with gaps as a feature", "nodes.csv: column 'part' holds the parts of a split. To split by it, "
         "give --split part; else --ignore part.", label="label",
         nodes=b"id,part,label\na,train,x\nb,,y\nc,val,x\nd,test,y\n"),
    Case("another delimiter", "delimiter ';': the cells are separated by ','. "
         "Leave it out: it is detected in each file.", delimiter=";"),
    Case("a delimiter without text", "delimiter ';': none of the files is text. "
         "Leave it out: it is detected in each file.", delimiter=";",
         edges_name="edges.npz", edges=npz(source=np.zeros(1), target=np.ones(1)),
         nodes_name="nodes.npz", nodes=npz(id=np.arange(3), age=np.arange(3), label=np.arange(3))),
    Case("a row with too many cells", "nodes.csv: row 5 has more cells than the header line. "
         'Correct the row, or quote cells: "a, b".', nodes=NODES + b"e,5,x,7\n"),
    Case("an unclosed quote", "nodes.csv: its rows cannot be read. Look for an unclosed quote, or another delimiter.",
         nodes=NODES + b'"e,5,x\n'),
    Case("line ends of old Macs", "nodes.csv: its lines end in a carriage return alone, as on old Macs. "
         "Save it with the line ends of Windows or Unix.", nodes=NODES.replace(b"\n", b"\r")),
    Case("an infinite number to predict", "nodes.csv: column 'age': inf in row 12 is too large to compute with "
         "in 32 bits. Correct it, or scale the column.", label="age",
         nodes=b"id,age\na,.1\nb,.2\nc,.3\nd,.4\ne,.5\nf,.6\ng,.7\nh,.8\ni,.9\nj,1.1\nk,1.2\nl,inf\n"),
    Case("a word among numbers to predict", "nodes.csv: column 'age': 'lots' in row 12 is not a number; the number "
         "is to be predicted. Correct it, or give --task classification.", label="age",
         nodes=b"id,age\na,.1\nb,.2\nc,.3\nd,.4\ne,.5\nf,.6\ng,.7\nh,.8\ni,.9\nj,1.1\nk,1.2\nl,lots\n"),
    Case("a column twice", "nodes.csv: column 'age' occurs more than once. Give each its own name.",
         nodes=NODES.replace(b"label", b"age")),
    # Columns.
    Case("no source column", "edges.csv: it has no column 'source'; its columns are 'p', 'q', 'r'. "
         "Name another one with source=NAME (--source NAME).", edges=b"p,q,r\na,b,c\n"),
    Case("an edge instead of names", "edges.csv: it has no column 'source'; its columns are '1', '2'. "
         "Name another one with source=NAME (--source NAME).", edges=b"1,2\n2,3\n"),
    Case("row numbers and one end", "edges.csv: it has no column 'source'; its columns are '', 'q'. "
         "Name another one with source=NAME (--source NAME).", edges=b",q\n0,b\n"),
    Case("a weight and one end", "edges.csv: it has no column 'source'; its columns are 'p', 'weight'. "
         "Name another one with source=NAME (--source NAME).", edges=b"p,weight\na,1\n"),
    Case("no target column", "edges.csv: it has no column 'target'; its columns are 'source', 'q', 'r'. "
         "Name another one with target=NAME (--target NAME).", edges=b"source,q,r\na,b,c\n"),
    Case("two source columns", "edges.csv: columns 'Source', 'SOURCE' could each be the source. "
         "Say which with source=NAME (--source NAME).", edges=b"Source,SOURCE,target\na,b,c\n"),
    Case("one column for both ends", "edges.csv: 'source' is named as source and as target. Name two columns.",
         target="source"),
    Case("no id column", "nodes.csv: it has no column 'id'; its columns are 'i', 'age', 'label'. "
         "Name another one with id=NAME (--id NAME).", nodes=NODES.replace(b"id,", b"i,", 1)),
    Case("a label column absent", "nodes.csv: it has no column 'kind'; its columns are 'id', 'age', 'label'. "
         "Name another one with label=NAME (--label NAME).", label="kind"),
    Case("a split column absent", "nodes.csv: it has no column 'part'; its columns are 'id', 'age', 'label'. "
         "Name another one with split=NAME (--split NAME).", split="part"),
    Case("a feature column absent", "nodes.csv: it has no column 'size'; its columns are 'id', 'age', "
         "'label'. Name another one with features=NAME (--feature NAME).", features=["size"]),
    Case("the label as a feature", "features=label: it is the column of the id, the label or the split. Leave it out.",
         features=["label"]),
    Case("one column as id and label", "nodes.csv: column 'id' is named as id and label. Name different columns.", label="id"),
    Case("a label without nodes", "label 'label': labels come from a table of nodes. Give one with nodes (--nodes FILE).",
         nodes_name=""),
    # Ids.
    Case("a label column with a capital letter", "nodes.csv: it has no column 'Label'; its columns are 'id', 'age', 'label'. "
         "Name another one with label=NAME (--label NAME); perhaps 'label' was meant.", label="Label"),
    Case("ids with leading zeros", "edges.csv: id '07' is not in nodes.csv, where '07' is written '7'. "
         "Write the ids alike in both files.", edges=EDGES + b"a,07\n", nodes=NODES + b"7,5,x\n"),
    Case("unknown ids in edges", "edges.csv: 4 ids ('z1', 'z3', 'z2' …) are not in nodes.csv. "
         "Add these nodes, or remove their edges.", edges=EDGES + b"z1,z2\nz3,z4\n"),
    Case("one unknown id", "edges.csv: id 'z' is not in nodes.csv. Add these nodes, or remove their edges.",
         edges=EDGES + b"a,z\n"),
    Case("negative numbers are ids like any other", "edges.csv: id '-1' is not in nodes.csv. "
         "Add these nodes, or remove their edges.", edges=EDGES + b"a,-1\n"),
    Case("ids with a point", "edges.csv: 2 ids ('1.0', '2.0') are not in nodes.csv, where '1.0' is written '1'. "
         "Write the ids alike in both files.", edges=b"source,target\n1.0,2.0\n",
         nodes=b"id,label\n1,x\n2,y\n3,x\n4,y\n"),
    Case("ids without a point", "edges.csv: 2 ids ('1', '2') are not in nodes.csv, where '1' is written '1.0'. "
         "Write the ids alike in both files.", edges=b"source,target\n1,2\n",
         nodes=b"id,label\n1.0,x\n2.0,y\n3.0,x\n4.0,y\n"),
    Case("duplicate node ids", "nodes.csv: id 'a' occurs more than once. Keep one row for each node.",
         nodes=NODES + b"a,9,x\n"),
    Case("many duplicate ids", "nodes.csv: 2 ids ('a', 'b') occur more than once. Keep one row for each node.",
         nodes=NODES + b"a,9,x\nb,9,x\n"),
    Case("a node without an id", "nodes.csv: row 5 has no id in column 'id'. Give every node an id.",
         nodes=NODES + b",9,x\n"),
    Case("an edge without an end", "edges.csv: row 4 has no id in column 'target'. Complete the row, or remove it.",
         edges=EDGES + b"a,\n"),
    Case("ids that are lists", "nodes.parquet: column 'id' holds List(Int64), neither text nor numbers. "
         "Leave it out, save a column for each number, or read it with `node2seq data convert`.", nodes_name="nodes.parquet", nodes=LISTS.getvalue(), label=None),
    # Features.
    Case("a word among numbers", "nodes.csv: column 'age': 'old' in row 3 is not a number; most other cells are. "
         "Correct it, or say categorical=age (--categorical age).", nodes=NODES.replace(b"3", b"old")),
    Case("a missing number", "nodes.csv: column 'age': 1 cell is missing, the first in row 2. Fill them with fill="
         "'mean' or a number (--fill mean), or leave the column out (--ignore).", nodes=NODES.replace(b"2", b"")),
    Case("NaN", "nodes.csv: column 'age': 2 cells are missing, the first in row 2. Fill them with fill="
         "'mean' or a number (--fill mean), or leave the column out (--ignore).",
         nodes=NODES.replace(b"2", b"NaN").replace(b"3", b"nan")),
    Case("infinity", "nodes.csv: column 'age': inf in row 3 is too large to compute with in 32 bits. "
         "Correct it, or scale the column.", nodes=NODES.replace(b"3", b"inf")),
    Case("a number beyond float32", "nodes.csv: column 'age': 1e+300 in row 3 is too large to compute with in 32 bits. "
         "Correct it, or scale the column.", nodes=NODES.replace(b"3", b"1e300")),
    Case("a number too large to scale", "nodes.csv: column 'age': -1e+26 in row 3 is too large to compute with in 32 "
         "bits. Correct it, or scale the column.", nodes=NODES.replace(b"3", b"-1e26"), standardize=True),
    Case("the label among the ignored", "ignore=label: it is the column of the id, the label or the split. Leave it out.",
         ignore=["label"]),
    Case("a feature that is ignored", "features and ignore: 'age': a column has one part. Leave one of them out.",
         features=["age"], ignore=["age"]),
    Case("a separator of nothing", "label_separator='': labels cannot be told apart by nothing. Give what stands between "
         "them, such as ;.", label_separator=""),
    Case("a missing category", "nodes.csv: column 'age': 1 cell is missing, the first in row 4. Fill them with fill="
         "'mean' or a number (--fill mean), or leave the column out (--ignore).",
         nodes=b"id,age,label\na,young,x\nb,old,y\nc,old,x\nd,,y\n"),
    Case("a column of names", "nodes.csv: column 'age' has 300 different values ('n0', 'n1', 'n10' …). "
         "Leave it out (--ignore age), or take it as categories (--categorical age).",
         nodes=b"id,age,label\n" + b"".join(b"%d,n%d,%d\n" % (i, i, i % 2) for i in range(300))
         + b"a,n1,1\nb,n1,1\nc,n1,1\nd,n1,1\n", features=["age"]),
    Case("an impossible fill", "fill='median': it is neither a number nor 'mean'. Give a number, or 'mean'.", fill="median"),
    Case("an infinite fill", "fill=inf: it is neither a number nor 'mean'. Give a number, or 'mean'.", fill=float("inf")),
    # Labels and split.
    Case("one class", "nodes.csv: all labels in column 'label' are 'x'. "
         "Give labels of at least two classes, or name another column.", nodes=NODES.replace(b"y", b"x")),
    Case("labels for no node", "nodes.csv: no node has a label in column 'label'. "
         "Label some nodes, or name another column.", nodes=NODES.replace(b"y", b"").replace(b"x", b"")),
    Case("a class with one node", "nodes.csv: column 'label': class 'z' has only one labelled node; two are needed, "
         "to train and to test. Label more nodes of it, clear its label, or give a split column.",
         nodes=NODES + b"e,5,z\n"),
    Case("a number column as label", "nodes.csv: column 'age': 4 classes ('1', '2', '3' …) have only one labelled "
         "node; two are needed, to train and to test. Label more nodes of it, clear its label, or give a split column.",
         label="age"),
    Case("a split with other words", "nodes.csv: column 'age' holds '1', '2', '3' …. "
         "Say train, val or test, or leave it empty.", split="age"),
    Case("a split without validation nodes", "nodes.csv: column 'age' puts no labelled node into val. "
         "Put some nodes into it.", split="age", nodes=b"id,age,label\na,train,x\nb,train,y\nc,test,x\nd,test,y\n"),
]  # fmt: skip


def test_the_table_is_long_enough():
    assert len({case.title for case in CASES}) == len(CASES) >= 50


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_bad_input(case: Case, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case.write(tmp_path)
    with pytest.raises(Node2SeqError) as caught:
        read_graph(case.edges_name, case.nodes_name or None, **case.options)
    assert str(caught.value) == case.message


def test_folders_and_nothing_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("edges.csv").mkdir()
    with pytest.raises(Node2SeqError) as caught:
        read_graph("edges.csv")
    assert str(caught.value) == "edges.csv: it is a folder, not a file. Give a file inside it."
    with pytest.raises(Node2SeqError) as caught:
        read_graph(None)
    assert str(caught.value) == "no file of edges: a graph needs one. Give it with edges=FILE (--edges FILE)."


def test_frames_that_are_none():
    with pytest.raises(Node2SeqError) as caught:
        from_frames([1, 2, 3])
    assert str(caught.value) == (
        "the edges frame of type list: no table. Give a polars or pandas DataFrame or a dict."
    )
    with pytest.raises(Node2SeqError) as caught:
        from_frames({"source": [1], "target": [2]}, colour="red")
    assert str(caught.value).startswith(
        "option 'colour': no such option. Take one of label, source, target, id"
    )


def test_a_new_graph_must_fit_the_schema():
    edges = {"source": [1], "target": [2]}
    trained = from_frames(edges, {"id": [1, 2], "age": [1, 2]})
    with pytest.raises(Node2SeqError) as caught:
        from_frames(edges, {"id": [1, 2], "size": [1, 2]}, schema=trained.schema)
    assert str(caught.value) == (
        "the nodes frame: the feature column 'age' is missing. Give the columns used in training."
    )
    with pytest.raises(Node2SeqError) as caught:
        from_frames(edges, schema=trained.schema)
    assert str(caught.value) == (
        "no table of nodes: the model was trained with the nodes' features. Give one (--nodes FILE)."
    )


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            {"age": [1, None], "kind": ["a", "b"]},
            "column 'age': 1 cell is missing, the first in row 2. Fill them with fill='mean' or a number "
            "(--fill mean).",
        ),
        (
            {"age": [1, 2], "kind": [None, "b"]},
            "column 'kind': 1 cell is missing, the first in row 1. Fill them with fill='mean' or a number "
            "(--fill mean).",
        ),
        (
            {"age": ["1", "old"], "kind": ["a", "b"]},
            "column 'age': 'old' in row 2 is not a number; the column was all numbers in training. Correct it.",
        ),
    ],
)
def test_advice_for_a_new_graph_names_what_can_be_done_with_one(cells, message: str):
    edges, nodes = {"source": [1], "target": [2]}, {"id": [1, 2], "age": [1, 3], "kind": ["a", "b"]}
    schema = from_frames(edges, nodes).schema
    with pytest.raises(Node2SeqError) as caught:
        from_frames(edges, {"id": [1, 2], **cells}, schema=schema)
    assert str(caught.value) == f"the nodes frame: {message}"


def test_a_new_graph_may_be_filled_although_the_first_was_not():
    edges, nodes = {"source": [1], "target": [2]}, {"id": [1, 2], "age": [1, 3], "kind": ["a", "b"]}
    schema = from_frames(edges, nodes).schema
    new = from_frames(
        edges, {"id": [1, 2], "age": [5, None], "kind": [None, "b"]}, schema=schema, fill="mean"
    )
    assert new.x is not None
    assert new.x.tolist() == [[5, 0, 0], [5, 0, 1]]
    assert new.schema == schema


def command_of(case: Case) -> list[str]:
    words = ["data", "check", "--edges", case.edges_name, "--label", str(case.options["label"])]
    return [*words, "--nodes", case.nodes_name] if case.nodes_name else words


PLAIN = [case for case in CASES if case.options == {"label": "label"}]


@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.title)
def test_the_command_ends_in_the_sentence(case: Case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case.write(tmp_path)
    result = CliRunner().invoke(app, command_of(case))
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: {case.message}"
    assert "Traceback" not in result.output
    assert result.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "title", ["unknown ids in edges", pytest.param("gzip damaged", marks=pytest.mark.slow)]
)
def test_a_real_process_shows_no_traceback(title, tmp_path):
    case = next(case for case in PLAIN if case.title == title)
    case.write(tmp_path)
    command = [sys.executable, "-m", "node2seq", *command_of(case)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"Error: {case.message}"
    assert "Traceback" not in done.stderr
