"""Requests to the page's server as a client makes them, without a library."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode, urlsplit


def ask(
    server: str, target: str, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, Any, str]:
    """The status, the body (read as JSON where it is) and the content type of an answer."""
    place = urlsplit(server)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        kind, text = answer.getheader("content-type", ""), answer.read().decode()
        return answer.status, json.loads(text) if "json" in kind else text, kind
    finally:
        connection.close()


def get(server: str, path: str, **query: Any) -> Any:
    """What the server's API answers."""
    status, found, _ = ask(server, f"/api/{path}?{urlencode(query, doseq=True)}")
    assert status == 200, found
    return found
