"""The package is as docs/architecture.md and the README say: imports go downwards, the core needs little."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import node2seq

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "node2seq"


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, names: set[str]) -> set[str]:
    """The modules of ours that a file imports, wherever in the file it does so."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else node.module)
    return {name for name in found if name in names and name != "node2seq"}


def floors() -> dict[str, int]:
    """The table of docs/architecture.md: the floor of each top-level module or package."""
    found = {}
    for floor, names in re.findall(
        r"^\| (\d+) \| ([^|]+) \|", (ROOT / "docs/architecture.md").read_text(), re.M
    ):
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} stands on two floors"
            found[name] = int(floor)
    return found


def unit(module: str) -> str:
    return module.split(".")[1]


def test_every_module_has_a_floor_and_imports_only_from_below():
    found, floor = modules(), floors()
    units = {unit(name) for name in found if name != "node2seq"}
    assert units == set(floor), "docs/architecture.md and the package differ"
    checked = 0
    for name, path in found.items():
        if name == "node2seq":
            continue  # hands out names from everywhere
        for imported in imports_of(path, set(found)):
            if unit(imported) != unit(name):
                checked += 1
                assert floor[unit(imported)] < floor[unit(name)], f"{name} imports {imported}"
    assert checked > 80


@pytest.mark.parametrize("package", sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py")))
def test_no_imports_go_in_circles_within_a_package(package):
    found = modules()
    inside = {name for name in found if name.startswith(f"node2seq.{package}")}
    home = f"node2seq.{package}"
    graph = {name: (imports_of(found[name], set(found)) & inside) - {home, name} for name in inside}
    assert len(list(TopologicalSorter(graph).static_order())) == len(inside)


def test_the_tree_in_the_readme_is_the_package():
    tree = re.search(r"^```text\nnode2seq/\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert tree, "README.md shows no tree of the package"
    named = {line.split()[0].rstrip("/") for line in tree[1].splitlines()}
    units = {
        path.name for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert named == units - {"__init__.py", "__main__.py"}


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_help_does_not_wait_for_torch():
    code = "import sys; from node2seq.cli import app; print(sorted({'torch', 'polars'} & set(sys.modules)))"
    assert run_python(code).strip() == "[]"


def test_the_core_imports_torch_and_pyg_only():
    """Layers, models, the training loop and the data sets work where nothing else is installed."""
    code = """
import sys
banned = {"typer", "rich", "safetensors", "polars", "matplotlib", "networkx", "scipy", "pandas"}
class Block:
    def find_spec(self, name, path=None, target=None):
        importer = sys._getframe(1)
        while importer and "importlib" in importer.f_code.co_filename:
            importer = importer.f_back
        ours = importer and "node2seq" in importer.f_globals.get("__name__", "")
        if ours and name.split(".")[0] in banned:
            raise ImportError(f"{name} is not installed")
sys.meta_path.insert(0, Block())
import node2seq, node2seq.nn.models, node2seq.train, node2seq.recipes, node2seq.data
import node2seq.benchmarking.short, node2seq.explain.view
print(len(node2seq.MODELS), node2seq.data.load("karate").num_nodes)
"""
    assert run_python(code).split() == [str(len(node2seq.MODELS)), "34"]


def test_public_names_are_these():
    assert node2seq.__all__ == [
        "MODELS",
        "GCNConv",
        "Node2Seq",
        "Node2SeqConv",
        "Node2SeqError",
        "Node2SeqPlus",
        "Trace",
    ]
    for name in node2seq.__all__:
        assert getattr(node2seq, name) is not None
        assert name in dir(node2seq)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = node2seq.Nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_functions_fit_on_a_screen_and_files_have_one_concern():
    long, seen = [], 0
    for name, path in modules().items():
        text = path.read_text()
        is_kernels = name == "node2seq.ops.native.kernels"  # numba's cache looks at one file
        if len(text.splitlines()) > 500 and not is_kernels:
            long.append(name)
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            seen += 1
            compiled = any("jit" in ast.unparse(decorator) for decorator in node.decorator_list)
            said = node.body[0] if ast.get_docstring(node) is not None else None
            words = 0 if said is None or said.end_lineno is None else said.end_lineno - said.lineno + 1
            assert node.end_lineno is not None
            if node.end_lineno - node.lineno + 1 - words > 60 and not (compiled or is_kernels):
                long.append(f"{name}.{node.name}")
    assert seen > 2_000, "hardly any function was looked at"
    assert not long, "over 60 lines without their docstring, or a file over 500"
