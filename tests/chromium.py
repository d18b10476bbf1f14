"""Drives Chromium by its DevTools protocol: enough to click through a page and to see what it requests."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import aiohttp

INSTALL = "Install it with `apt install chromium` (Debian) to drive the page in a real browser"
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The path of Chromium, or None where it is not installed."""
    return next((found for found in map(shutil.which, _NAMES) if found), None)


class Chromium:
    """A browser with one page. Console errors and the addresses that it requests are kept."""

    def __init__(self, folder: Path, width: int = 1280, height: int = 900) -> None:
        program = find_chromium()
        assert program is not None
        command = [program, "--headless=new", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
        # Neither updates nor a first run: nothing is requested but what a page asks for.
        command += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        command += ["--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [*command, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.errors: list[str] = []
        self.requested: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._loop.run_until_complete(self._connect(folder / "DevToolsActivePort"))

    async def _connect(self, port_file: Path) -> None:
        until = time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert time.monotonic() < until, "Chromium did not start"
            await asyncio.sleep(0.1)
        port = int(port_file.read_text().splitlines()[0])
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = await answer.json()
        address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._socket = await self._session.ws_connect(address, max_msg_size=0)
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._call(f"{domain}.enable")

    async def _call(self, method: str, **about: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": about})
        while number not in self._answers:
            self._take(json.loads((await self._socket.receive(timeout=60)).data))
        answer = self._answers.pop(number)
        assert "error" not in answer, answer
        return answer["result"]

    def _take(self, message: dict[str, Any]) -> None:
        about = message.get("params", {})
        if "id" in message:
            self._answers[message["id"]] = message
        elif message["method"] == "Network.requestWillBeSent":
            self.requested.append(about["request"]["url"])
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(about["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif message["method"] == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
            self.errors.append(str(about["args"]))

    def call(self, method: str, **about: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        return self._loop.run_until_complete(self._call(method, **about))

    def open(self, address: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=address)

    def run(self, code: str) -> Any:
        """The value of an expression on the page."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, code: str, seconds: float = 60) -> Any:
        """Wait until an expression is true, and return its value."""
        until = time.monotonic() + seconds
        while not (value := self.run(code)):
            assert time.monotonic() < until, f"never true: {code}"
            time.sleep(0.05)
        return value

    def press(self, key: str) -> None:
        """Press a key that has a character."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key if kind == "keyDown" else "")

    def look(self, width: int, height: int, scheme: str) -> None:
        """Show the page in another size, and dark or light."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(found["data"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run_until_complete(self._session.close())
        self._loop.close()
        self.process.terminate()
        self.process.wait(30)
