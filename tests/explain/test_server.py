"""The page's server: what it answers, and what it refuses."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from asking import ask, get
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node2seq.explain.page import page_of
from node2seq.explain.run import ExplainedRun
from node2seq.explain.view import Viewer, full_view


def test_it_answers_what_explain_gives(server: str, explained: ExplainedRun):
    about = get(server, "run")
    assert (about["nodes"], about["edges"]) == (34, 156)
    assert sum(map(sum, about["confusion"]["all"])) == 34
    known = explained.explainer.explain(8)
    view = get(server, "node", name="8")
    assert view["probabilities"] == pytest.approx(known.probabilities, rel=1e-5)
    (layer,) = view["layers"]
    listed = [*known.layers[0].sequence, *known.layers[0].rejected]
    assert [each["name"] for each in layer["neighbours"]] == [str(each.node) for each in listed]
    assert [each["position"] for each in layer["neighbours"]] == [each.position for each in listed]
    changes = {each["name"]: each for each in get(server, "changes", name="8")["changes"]}
    assert set(changes) == {str(each.node) for each in known.counterfactuals}
    for each in known.counterfactuals:
        assert changes[str(each.node)]["change"] == pytest.approx(each.change, abs=1e-5)
    first = known.counterfactuals[0]
    off = get(server, "node", name="8", without=[first.name])
    assert off["probabilities"] == pytest.approx(first.probabilities, abs=1e-5)
    assert off["before"] == pytest.approx(known.probabilities, rel=1e-5)
    assert [len(each["values"]) for each in get(server, "learned")["layers"][0]["matrices"]] == [8, 8, 8]


def test_searching(server: str, explained: ExplainedRun):
    assert [node["name"] for node in get(server, "nodes", query="3")["nodes"]][:3] == ["3", "30", "31"]
    assert get(server, "nodes")["total"] == 34
    predicted = explained.explainer.predictions.argmax(1)
    wrong = (predicted != explained.explainer.y).nonzero().view(-1).tolist()
    found = get(server, "nodes", which="mistakes")
    assert wrong
    assert sorted(int(node["name"]) for node in found["nodes"]) == wrong
    least = [node["sure"] for node in get(server, "nodes", which="uncertain")["nodes"]]
    assert least == sorted(least)
    confusion = get(server, "run")["confusion"]["test"]
    for label, counts in enumerate(confusion):
        for column, count in enumerate(counts):
            asked = {"label": label, "predicted": column, "part": "test"}
            assert get(server, "nodes", **asked)["total"] == count
    assert get(server, "nodes", offset=30)["nodes"][0]["name"] == "30"


def test_the_page_and_its_description(server: str):
    for target, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
        status, text, told = ask(server, target)
        assert status == 200
        assert told.startswith(kind)
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    _, schema, _ = ask(server, "/openapi.json")
    assert sorted(schema["paths"]) == ["/api/changes", "/api/learned", "/api/node", "/api/nodes", "/api/run"]
    for path in schema["paths"].values():
        answer = path["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer["$ref"].startswith("#/components/schemas/")


@pytest.mark.parametrize(
    ("target", "about", "status"),
    [
        ("/api/run", {"Host": "evil.example"}, 400),
        ("/api/run", {"Host": "127.0.0.1.evil.example:80"}, 400),
        ("/", {"Host": ""}, 400),
        ("/../../etc/passwd", {}, 404),
        ("/..%2f..%2fetc%2fpasswd", {}, 404),
        ("/page.css/../../__init__.py", {}, 404),
        ("/%2e%2e/server.py", {}, 404),
        ("/docs", {}, 404),
        ("/api/node?name=nobody", {}, 404),
        ("/api/node?name=8&without=8", {}, 404),
        ("/api/nodes?label=99", {}, 404),
        ("/api/node", {}, 422),
        ("/api/node?name=", {}, 422),
        ("/api/nodes?offset=-1", {}, 422),
        ("/api/nodes?offset=1e9", {}, 422),
        ("/api/nodes?which=everything", {}, 422),
        (f"/api/node?name={'a' * 400}", {}, 422),
        ("/api/node?name=8" + "&without=1" * 60, {}, 422),
        (f"/api/nodes?query={'a' * 40_000}", {}, 414),
        ("/api/run", {"method": "POST"}, 405),
        ("/api/run", {"method": "POST", "body": b"x" * 10_000}, 413),
        ("/api/run", {"method": "DELETE"}, 405),
    ],
)
def test_what_it_refuses(server: str, target: str, about: dict[str, Any], status: int):
    found, body, _ = ask(server, target, **about)
    assert found == status, body
    assert set(body) == {"error"}
    assert "Traceback" not in body["error"]
    assert ".py" not in body["error"]


def test_no_stack_trace_when_it_fails(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Viewer, "learned", lambda _: 1 / 0)
    status, body, _ = ask(server, "/api/learned")
    assert status == 500
    assert body == {"error": "something went wrong in the server"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["run", "nodes", "node", "changes", "learned", ""]),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["name", "without", "query", "which", "part", "label", "predicted", "offset", "x"]
            ),
            st.one_of(st.text(max_size=30), st.integers().map(str), st.sampled_from(["8", "0", "mistakes"])),
        ),
        max_size=5,
    ),
)
def test_whatever_is_asked_is_answered_in_words(server: str, path: str, query: list[tuple[str, str]]):
    target = f"/api/{path}?" + "&".join(f"{key}={quote(value.encode())}" for key, value in query)
    status, body, kind = ask(server, target)
    assert status in (200, 404, 422), body
    assert "json" in kind
    assert status == 200 or set(body) == {"error"}


@pytest.mark.slow
def test_it_answers_as_it_describes_itself(server: str):
    described: Any = schemathesis.openapi.from_url(f"{server}/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) == 5
    for operation in operations:

        @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(operation.as_strategy())
        def check(case: Any) -> None:
            case.call_and_validate()

        check()


def test_many_clients_at_once(server: str):
    names = [str(number % 34) for number in range(150)]
    with ThreadPoolExecutor(50) as pool:
        views = list(pool.map(lambda name: get(server, "node", name=name), names))
    assert [view["node"]["name"] for view in views] == names


def test_a_file_of_its_own(explained: ExplainedRun):
    view = full_view(Viewer(explained), "8")
    view["run"]["title"] = "</script><script>alert(1)</script>"
    page = page_of(view)
    assert "<script>alert" not in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "src=" not in page
    assert '<link rel="stylesheet"' not in page
