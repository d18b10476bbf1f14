"""The page in a real browser, or, where there is none, the same calls to its server."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from asking import get
from chromium import INSTALL, Chromium, find_chromium

from node2seq.explain.page import page_of
from node2seq.explain.run import ExplainedRun
from node2seq.explain.view import Viewer, full_view

ROWS = "[...document.querySelectorAll('#strip tbody tr')]"
SHARES = (
    "Object.fromEntries([...document.querySelectorAll('#probabilities .value')]"
    ".map(each => [each.dataset.class, parseFloat(each.textContent)]))"
)


def shown_shares(browser: Chromium) -> dict[int, float]:
    return {int(number): share for number, share in browser.run(SHARES).items()}


def in_percent(probabilities: tuple[float, ...]) -> dict[int, float]:
    return {number: round(100 * share, 1) for number, share in enumerate(probabilities)}


@pytest.fixture
def browser(tmp_path: Path):
    if find_chromium() is None:
        pytest.skip(f"Chromium is not installed. {INSTALL}")
    with Chromium(tmp_path / "profile") as opened:
        yield opened


@pytest.mark.slow
def test_a_walk_through_the_page(browser: Chromium, server: str, explained: ExplainedRun, tmp_path: Path):
    known = explained.explainer.explain(8)
    browser.open(server)
    browser.wait(f"{ROWS}.length")
    browser.press("/")
    assert browser.run("document.activeElement.id") == "query"
    browser.call("Input.insertText", text="8")
    browser.wait("document.querySelector('#nodes button')?.dataset.name === '8'")
    browser.run("document.getElementById('search').requestSubmit()")
    browser.wait("document.getElementById('name').textContent === '8'")
    listed = [*known.layers[0].sequence, *known.layers[0].rejected]
    assert browser.run(f"{ROWS}.map(row => row.dataset.name)") == [str(each.node) for each in listed]
    assert shown_shares(browser) == pytest.approx(in_percent(known.probabilities), abs=0.11)

    off = known.counterfactuals[0]
    browser.run(f"document.querySelector('#strip tr[data-name=\"{off.name}\"] input').click()")
    browser.wait("location.hash.includes('off=')")
    browser.wait("document.querySelector('#facts dd:last-of-type').textContent !== 'none'")
    assert shown_shares(browser) == pytest.approx(in_percent(off.probabilities), abs=0.11)
    assert off.change != 0

    browser.run("document.querySelector('#strip tr[data-kind=local] .row-name').click()")
    browser.wait("document.getElementById('name').textContent !== '8'")
    assert not browser.run("location.hash.includes('off=')")
    browser.run("history.back()")
    browser.wait("document.getElementById('name').textContent === '8'")

    matrix = get(server, "run")["confusion"]["all"]
    label, predicted = next(
        (row, column)
        for row, counts in enumerate(matrix)
        for column, count in enumerate(counts)
        if count and row != column
    )
    browser.run(
        f'document.querySelector(\'#confusion [data-label="{label}"][data-predicted="{predicted}"]\').click()'
    )
    browser.wait(f"location.hash.includes('label={label}') && location.hash.includes('node=')")
    names = [node["name"] for node in get(server, "nodes", label=label, predicted=predicted)["nodes"]]
    browser.wait(f"{json.dumps(names)}.includes(document.getElementById('name').textContent)")

    address = browser.run("location.href")
    browser.open("about:blank")
    browser.open(address)
    browser.wait(f"document.getElementById('name')?.textContent === '{names[0]}'")
    for width, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
        browser.look(width, 900, scheme)
        browser.wait("document.querySelectorAll('#matrices canvas').length === 3")
        assert browser.run("document.documentElement.scrollWidth") <= width
        browser.screenshot(tmp_path / f"{scheme}-{width}.png")
    pictures = [path.read_bytes() for path in tmp_path.glob("*.png")]
    assert len(set(pictures)) == 3
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    elsewhere = [each for each in browser.requested if not each.startswith((server, "data:", "about:"))]
    assert not elsewhere
    assert not browser.errors


@pytest.mark.slow
def test_a_file_of_its_own(browser: Chromium, explained: ExplainedRun, tmp_path: Path):
    file = tmp_path / "node.html"
    file.write_text(page_of(full_view(Viewer(explained), "8")))
    browser.open(file.as_uri())
    browser.wait(f"{ROWS}.length")
    known = explained.explainer.explain(8)
    off = known.counterfactuals[0]
    browser.run(f"document.querySelector('#strip tr[data-name=\"{off.name}\"] input').click()")
    browser.wait("location.hash.includes('off=')")
    assert shown_shares(browser) == pytest.approx(in_percent(off.probabilities), abs=0.11)
    assert {each.partition("#")[0] for each in browser.requested if not each.startswith("data:")} == {
        file.as_uri()
    }
    assert not browser.errors


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forty_classes_have_forty_colours_and_long_names_leave_room(
    browser: Chromium, explained: ExplainedRun, tmp_path: Path, theme: str
):
    shown = full_view(Viewer(explained), "8")
    names = [f"a class whose name goes on and on, number {number} of forty" for number in range(40)]
    shown["run"]["class_names"] = names
    shares = [(number + 1) / 820 for number in range(40)]
    shown["node"]["probabilities"] = shares
    for change in shown["changes"]["changes"]:
        change["probabilities"] = shares[::-1]  # another class
    browser.look(390, 900, theme)
    (tmp_path / "node.html").write_text(page_of(shown))
    browser.open((tmp_path / "node.html").as_uri())
    browser.wait(f"{ROWS}.length")
    found = browser.run(
        "[...Array(40).keys()].map(number => { const spot = document.createElement('i'); "
        "spot.className = `c${number}`; document.body.append(spot); spot.style.color = 'var(--own)'; "
        "return getComputedStyle(spot).color; })"
    )
    assert len(set(found)) == 40
    assert "number 0 of forty" not in browser.run("document.getElementById('strip').textContent")
    assert browser.run(
        "(strip => strip.scrollWidth <= strip.clientWidth)(document.getElementById('strip'))"
    ), "the switches are in sight"
    assert not browser.errors


@pytest.mark.slow
def test_numbers_of_any_size_are_written_out(browser: Chromium, explained: ExplainedRun, tmp_path: Path):
    shown = full_view(Viewer(explained), "8")
    shown["run"]["class_names"] = []
    shown["node"]["probabilities"] = [-2431.79]
    shown["node"]["node"] |= {"label": None, "labels": ["2542.9"]}
    for change, amount in zip(shown["changes"]["changes"], (-163.4, 116.2, 0.0123), strict=False):
        change |= {"change": amount, "probabilities": [0.0]}
    browser.look(390, 900, "light")
    (tmp_path / "node.html").write_text(page_of(shown))
    browser.open((tmp_path / "node.html").as_uri())
    browser.wait(f"{ROWS}.length")
    assert browser.run("document.getElementById('verdict').textContent") == (
        "−2431.8 is predicted; in the files it is 2542.9"
    )
    effects = set(browser.run("[...document.querySelectorAll('.effect')].map(cell => cell.textContent)"))
    assert {"−163", "+116", "+0.012"} <= effects
    assert not browser.errors


def test_the_label_of_a_node_is_its_number_in_regression():
    explainer = SimpleNamespace(y=torch.tensor([2542.91, float("nan")]).double(), class_names=None)
    run = cast(ExplainedRun, SimpleNamespace(explainer=explainer))
    assert [ExplainedRun.label_names(run, node) for node in (0, 1)] == [["2542.9"], None]


def test_the_same_walk_without_a_browser(server: str, explained: ExplainedRun):
    known = explained.explainer.explain(8)
    assert get(server, "nodes", query="8")["nodes"][0]["name"] == "8"
    view = get(server, "node", name="8")
    assert view["probabilities"] == pytest.approx(known.probabilities, rel=1e-5)
    off = known.counterfactuals[0]
    changed = get(server, "node", name="8", without=[off.name])
    assert changed["probabilities"] == pytest.approx(off.probabilities, abs=1e-5)
    neighbour = next(each for each in view["layers"][0]["neighbours"] if each["kind"] == "local")
    assert get(server, "node", name=neighbour["name"])["node"]["name"] == neighbour["name"]
