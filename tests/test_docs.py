"""The documentation is true: its code and its notebooks run, the site is built without a warning."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from chromium import Chromium, find_chromium
from rounding import assert_same_up_to_rounding
from torch_geometric.nn.models.basic_gnn import BasicGNN

from node2seq import Node2SeqConv
from node2seq.cli import app
from node2seq.data import load, make_split, write_graph
from node2seq.nn.models import ResidualNode2Seq
from node2seq.train import TrainSettings, fit, predict

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
COMPILER = any(map(shutil.which, ("c++", "g++", "clang++")))


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def write_files(text: str) -> None:
    """The CSV files of a page, each under the name that the sentence before it gives."""
    for name, rows in re.findall(r"`(\w+\.csv)`[^`]*:\n\n```csv\n(.*?)^```", text, re.M | re.S):
        Path(name).write_text(rows)


def run_python(name: str, **given: Any) -> dict[str, Any]:
    names = dict(given)
    for block in blocks(page(name), "python"):
        exec(compile(block, name, "exec"), names)
    return names


def run_commands(name: str) -> list[str]:
    commands = [
        line for block in blocks(page(name), "console") for line in block.splitlines() if line[:2] == "$ "
    ]
    for command in commands:
        program, *arguments = shlex.split(command[2:])
        assert program == "node2seq"
        app(arguments, standalone_mode=False)
    return commands


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_first_page_shows_an_order():
    found = run_python("index.md")
    assert 8 in found["order"]


def look_at(pages: list[Path], folder: Path, picture: str = "") -> None:
    """Open pages in Chromium, where it is installed: they request nothing, and fit on a phone.

    Args:
        pages: The files.
        folder: A place for the browser's profile.
        picture: What to call a picture of the last page's charts, which is written into the folder that
            NODE2SEQ_PICTURES names, if it does: ``NODE2SEQ_PICTURES=docs`` makes those of docs/ anew.
    """
    if find_chromium() is None:
        return  # tests/explain/test_page.py says how to install it
    with Chromium(folder / "profile") as browser:
        for path in pages:
            browser.open(path.as_uri())
            browser.wait("document.readyState === 'complete'")
            browser.look(390, 900, "dark")
            assert browser.run("document.documentElement.scrollWidth") <= 390, path
        if picture and os.environ.get("NODE2SEQ_PICTURES"):
            browser.run(
                "document.querySelectorAll('h1, .lead, .cards, section').forEach(each => "
                "{ if (!/^(Learned|How|Neighbours)/.test(each.innerText)) each.remove() })"
            )
            browser.look(1100, 900, "light")
            browser.look(1100, browser.run("document.querySelector('main').offsetHeight"), "light")
            browser.screenshot(ROOT / os.environ["NODE2SEQ_PICTURES"] / picture)
        outside = [each for each in browser.requested if not each.startswith(("file:", "data:", "about:"))]
        assert not outside
        assert not browser.errors


@pytest.mark.slow
def test_the_tutorial_leads_to_a_page(capsys, tmp_path):
    assert len(run_commands("tutorial.md")) == 5
    assert len(Path("predictions.csv").read_text().splitlines()) == 34 + 1
    assert "<svg" in Path("runs/karate-node2seq-s0/report.html").read_text()
    assert "<!doctype html>" in Path("member-8.html").read_text().lower()
    look_at([tmp_path / "runs/karate-node2seq-s0/report.html"], tmp_path, "report.png")
    found = run_python("tutorial.md")
    assert found["metrics"].accuracy > found["metrics"].largest_class
    assert found["scores"].diff().le(0).all()
    assert [neighbour.node for neighbour in found["found"].layers[0].sequence] == found["neighbours"].tolist()
    assert capsys.readouterr().out.count("without") >= len(found["found"].counterfactuals)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_own_data():
    write_files(page("own-data.md"))
    assert len(run_commands("own-data.md")) == 3
    found = run_python("own-data.md")
    assert found["probabilities"].shape == (10, 2)
    assert found["graph"].y.tolist()[-1] < 0  # unlabelled, and predicted all the same
    assert found["small"].num_nodes == 5
    assert found["back"].number_of_edges() == 78
    assert found["club"].class_names == ["Mr. Hi", "Officer"]


@pytest.mark.slow
def test_order_by_time():
    write_files(page("order-by-time.md"))
    assert len(run_commands("order-by-time.md")) == 4
    assert run_python("order-by-time.md")["times"].numel() == 10


@pytest.mark.slow
def test_stores(capsys):
    pytest.importorskip("duckdb")
    write_graph(load("karate"), "edges.csv", "nodes.csv")
    nodes = Path("nodes.csv")
    nodes.write_text(nodes.read_text().replace("label", "kind", 1))
    assert len(run_commands("stores.md")) == 4
    assert len(Path("sample.csv").read_text().splitlines()) == 10 + 1
    model = torch.nn.Linear(load("karate").num_features, 4)
    found = run_python("stores.md", model=lambda x, _: model(x))
    assert found["out"].shape == (10, 4)
    assert found["names"] == ["3", "8"]


@pytest.mark.slow
def test_large_graphs():
    graph = load("karate")
    split = make_split(graph, "karate", seed=0)
    network = ResidualNode2Seq(graph.num_features, 8, 4, num_layers=4)
    model = torch.nn.Linear(graph.num_features, 4)

    class Plain(torch.nn.Module):
        def forward(self, x, _):
            return model(x)

    given = {"graph": graph, "split": split, "network": network, "settings": TrainSettings(epochs=2)}
    found = run_python("large-graphs.md", fit=fit, predict=predict, model=Plain(), **given)
    assert found["probabilities"].shape == (34, 4)
    assert found["out"].size(0) == split.train.numel()


def test_a_basic_gnn_of_ones_own():
    network = run_python("pyg.md", BasicGNN=BasicGNN, Node2SeqConv=Node2SeqConv)["Node2SeqGNN"]
    data = load("karate")
    assert network(34, 8, num_layers=2, out_channels=4)(data.x, data.edge_index).shape == (34, 4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    find_spec("onnxruntime") is None or find_spec("onnxscript") is None,
    reason="docs/serving.md needs onnxruntime and onnxscript",
)
def test_serving(monkeypatch):
    text = page("serving.md")
    compiled = re.compile(r"<!-- needs a C\+\+ compiler -->\n```python\n.*?^```", re.M | re.S)
    assert compiled.search(text)
    if not COMPILER:
        monkeypatch.setitem(globals(), "page", lambda _: compiled.sub("", text))
    found = run_python("serving.md")
    model, half, data = found["model"], found["half"], found["data"]
    assert_same_up_to_rounding(torch.from_numpy(found["logits"]), model(half.x, half.edge_index).detach())
    if COMPILER:
        drawn, few = torch.randn(50, data.num_features), data.edge_index[:, :2].contiguous()
        for x, edges in [(half.x, half.edge_index), (drawn, data.edge_index), (drawn, few)]:
            assert_same_up_to_rounding(found["package"](x, edges), model(x, edges))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_no_outputs_and_their_links_lead_somewhere(path: Path):
    cells = json.loads(path.read_text())["cells"]
    assert len(NOTEBOOKS) == 2
    for cell in cells:
        assert not cell.get("outputs"), f"{path.name} has outputs: clear them"
        for link in re.findall(r"\]\((?!https?://)([^)#]+)", "".join(cell["source"])):
            assert (path.parent / link).exists(), link


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, capsys):
    """Cell by cell in one namespace: they use no magic of Jupyter, so no kernel has to be installed."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    printed = capsys.readouterr().out
    if path.stem == "own_files":
        assert names["by_time"] > 0.9 > 0.7 > names["at_random"]
        strongest = max(names["found"].layers[0].sequence, key=lambda one: abs(one.contribution))
        payer = names["latest"][names["graph"].node_ids[names["node"]]][0]
        assert names["graph"].node_ids[strongest.node] == payer
    else:
        assert names["test"].accuracy > names["test"].largest_class
        assert names["gap"] < 1e-4
    assert "adds" in printed


def test_the_release_page_lists_the_public_names():
    rows = re.findall(r"^\| `(node2seq[.\w]*)` \| (.*) \|$", page("release.md"), re.M)
    assert len(rows) == 6
    for package, listed in rows:
        assert re.findall(r"`(\w+)`", listed) == import_module(package).__all__, package


def tool(name: str) -> ModuleType:
    """A module of docs/tools."""
    pytest.importorskip("mkdocs", reason="the site needs the extra docs: `pip install 'node2seq[docs]'`")
    spec = spec_from_file_location(name, ROOT / f"docs/tools/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_a_site_are_checked(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.html").write_text(
        '<a href="b.html#here">1</a> <a href="b.html#no">2</a> <a href="c.html">3</a>'
    )
    (site / "b.html").write_text(
        '<h2 id="here"></h2><a href="https://pyg.org">4</a><script src="https://pyg.org/x.js"></script>'
    )
    assert tool("links").faults(site) == [
        "a.html links to b.html#no, and the page has no such anchor",
        "a.html links to c.html, which is not there",
        "b.html loads https://pyg.org/x.js from another host",
    ]


def test_docstrings_become_markdown():
    text = "A :math:`x_i` of :class:`~a.B`, `paper\n<https://pyg.org>`_.\n\n.. math::\n    a +\n    b\n\nEnd."
    markdown = tool("docstrings").to_markdown(text)
    assert markdown.count("<math") == 2
    assert "`a.B`" in markdown
    assert "[paper](https://pyg.org)" in markdown
    assert markdown.endswith("</math></div>\n\nEnd.")
    assert "math::" not in markdown


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("material", "mkdocstrings", "latex2mathml")),
    reason="the site needs the extra docs: `pip install 'node2seq[docs]'`",
)
def test_the_site_is_built_without_a_warning(tmp_path):
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout + done.stderr == ""
    assert tool("links").faults(site) == []
    assert len(list(site.rglob("*.html"))) >= 28
    layers = (site / "api/layers.html").read_text()
    assert layers.count("<math") > 20
    assert "kernel_size" in layers
    look_at([site / "index.html", site / "api/layers.html", site / "results.html"], tmp_path)
