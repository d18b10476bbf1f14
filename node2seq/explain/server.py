"""The server of the page: reads only, answers this machine only. Needs the extra ``page``."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException as StarletteHTTPException

from node2seq.errors import Node2SeqError
from node2seq.explain.page import HTML_TYPE, page_files
from node2seq.explain.view import (
    Changes,
    Filter,
    Learned,
    NodeList,
    NodeView,
    Part,
    RunView,
    Viewer,
    check_classes,
)

LONGEST_NAME = 300
MOST_WITHOUT = 50
_LONGEST_TARGET = 32_768
#: The names by which this machine calls itself; a page elsewhere that points its own name here is refused.
HOSTS = ("127.0.0.1", "localhost")
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Guard:
    """Refuses requests for other hosts, with a body, or too long, before anything reads them.

    Args:
        app: What answers the others.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, with headers that let no other site use the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message.get("headers", [])}
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [
                    *message.get("headers", []),
                    *(pair for pair in added if pair[0] not in known),
                ]
            await send(message)

        refusal = _refusal(scope)
        answer = self.app if refusal is None else refusal
        try:
            await answer(scope, receive, send_with_headers)
        except Exception:  # the last resort: no client ever sees where it happened
            await _failure(500, "something went wrong in the server")(scope, receive, send_with_headers)


def _refusal(scope: Scope) -> JSONResponse | None:
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    hosts = [value for name, value in headers if name == "host"]
    if len(hosts) != 1 or (hosts[0].rpartition(":")[0] not in HOSTS and hosts[0] not in HOSTS):
        return _failure(400, "this server answers this machine only: open it as http://127.0.0.1")
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST_TARGET:
        return _failure(414, "the address is too long")
    told = dict(headers)
    if told.get("content-length", "0") != "0" or "transfer-encoding" in told:
        return _failure(413, "requests have no body here")
    return None


def _failure(status: int, words: str) -> JSONResponse:
    return JSONResponse({"error": words}, status)


Name = Annotated[str, Query(min_length=1, max_length=LONGEST_NAME, description="The id of a node.")]
Without = Annotated[
    list[Annotated[str, Query(max_length=LONGEST_NAME)]],
    Query(max_length=MOST_WITHOUT, description="Neighbours that are switched off."),
]
Class = Annotated[int | None, Query(ge=0, le=2**31, description="The number of a class.")]
_ERRORS: dict[int | str, dict[str, Any]] = {
    404: {"description": "There is no such node or class, or no such neighbour to switch off."},
}


def _misread(_: Request, error: Any) -> Response:
    return _failure(422, f"cannot be read: {', '.join(str(each['loc'][-1]) for each in error.errors())}")


#: A sentence for every error, and its status.
_HANDLERS: dict[Any, Any] = {
    Node2SeqError: lambda _, error: _failure(404, str(error)),
    RequestValidationError: _misread,
    StarletteHTTPException: lambda _, error: JSONResponse(
        {"error": str(error.detail)}, error.status_code, headers=error.headers
    ),
}


def make_app(viewer: Viewer) -> FastAPI:
    """The server of a run.

    Args:
        viewer: What it shows.
    """
    viewer.warm()
    off: dict[str, Any] = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="node2seq explore", version="1", exception_handlers=_HANDLERS, **off)
    app.add_middleware(Guard)
    files = page_files()

    @app.get("/", include_in_schema=False)
    def index() -> Response:
        return Response(files["index.html"], media_type=HTML_TYPE)

    @app.get("/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        kinds = {"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8"}
        if name not in kinds:
            raise HTTPException(404, "there is no such page")
        return Response(files[name], media_type=kinds[name])

    @app.get("/api/run")
    def run() -> RunView:
        """The run: its classes and confusion matrices."""
        return viewer.about()

    @app.get("/api/nodes", responses=_ERRORS)
    def nodes(
        query: Annotated[str, Query(max_length=LONGEST_NAME, description="Text in their id.")] = "",
        which: Filter = "all",
        part: Part = "all",
        label: Class = None,
        predicted: Class = None,
        offset: Annotated[int, Query(ge=0, le=2**31)] = 0,
    ) -> NodeList:
        """Search the nodes."""
        check_classes(len(viewer.about().class_names), label, predicted)
        return viewer.nodes(query, which=which, part=part, label=label, predicted=predicted, offset=offset)

    @app.get("/api/node", responses=_ERRORS)
    def node(name: Name, without: Without = []) -> NodeView:  # noqa: B006
        """A node, its prediction and its neighbours in their order."""
        return viewer.node(name, without)

    @app.get("/api/changes", responses=_ERRORS)
    def changes(name: Name, without: Without = []) -> Changes:  # noqa: B006
        """The prediction without each of the neighbours that are shown."""
        return viewer.changes(name, without)

    @app.get("/api/learned")
    def learned() -> Learned:
        """The learned matrices of the layers."""
        return viewer.learned()

    return app


def serve(viewer: Viewer, port: int, say: Callable[[str], None]) -> None:
    """Serve the page to this machine until interrupted.

    Args:
        viewer: What it shows.
        port: Where; 0 takes one that is free.
        say: Called with a line when it is ready.
    """
    import uvicorn

    app = make_app(viewer)
    config = uvicorn.Config(
        app, host=HOSTS[0], port=port, log_level="warning", server_header=False, access_log=False
    )
    try:
        opened = socket.create_server((HOSTS[0], port))
    except OSError as error:
        raise Node2SeqError(
            f"--port {port}", "something else listens there", "Give another port, or 0 for any that is free"
        ) from error
    address = f"http://{HOSTS[0]}:{opened.getsockname()[1]}"

    class Announced(uvicorn.Server):
        """Says where it is as soon as it answers."""

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            say(f"{viewer.run.title}: {address} (stop with Ctrl+C)")

    with opened:
        Announced(config).run(sockets=[opened])
