"""A screenshot of Dask's dashboard during a fit: ``docs/_static/dashboard_status.png``.

    python docs/figures/dashboard.py [--output FOLDER] [--browser chromium]

Needs ``pip install ".[dashboard]"`` and Chromium. A local cluster of two workers runs a fit of
generated rows. Headless Chromium has the page open from the start and takes a picture of it during
the pass of the fourth round. The build of the site does not run this script: its picture is
committed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import subprocess
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from tornado.websocket import websocket_connect

from partirvm import FitCallback, RVMRegressor, WorkingSet

PAGES = {"dashboard_status": "status"}
"""Pages of the dashboard by the name of their picture; more may be added."""

SIZES = {"dashboard_status": (1400, 780)}

ROUND = 4
"""The round whose pass is shown."""


class Page:
    """A page of headless Chromium, controlled by its DevTools protocol."""

    def __init__(self, port: int, url: str, size: tuple[int, int]) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?{url}", method="PUT")
        with urllib.request.urlopen(request) as answer:
            self._socket = json.load(answer)["webSocketDebuggerUrl"]
        self._size = size

    async def picture(self) -> bytes:
        """Return what the page shows, as PNG."""
        width, height = self._size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        calls = [
            ("Emulation.setDeviceMetricsOverride", metrics),
            ("Page.captureScreenshot", {"format": "png"}),
        ]
        return base64.b64decode((await self._call(calls))["data"])

    async def _call(self, calls: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
        """Send these calls in turn, each a second after the answer to the one before; return the
        last answer."""
        socket = await websocket_connect(self._socket, max_message_size=1 << 26)
        result: dict[str, Any] = {}
        for number, (method, parameters) in enumerate(calls, 1):
            await socket.write_message(
                json.dumps({"id": number, "method": method, "params": parameters})
            )
            while (answer := json.loads(str(await socket.read_message()))).get("id") != number:
                pass
            result = answer["result"]
            await asyncio.sleep(1)
        socket.close()
        return result


@contextmanager
def browser(command: str) -> Iterator[int]:
    """Start headless Chromium, and yield the port of its DevTools protocol."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ]
        flags += [
            "--remote-debugging-port=0",
            "--remote-allow-origins=*",
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            [command, *flags, "about:blank"], stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "DevTools listening on" in line)
            yield int(line.split("127.0.0.1:")[1].split("/")[0])
        finally:
            process.kill()
            process.wait()


class Camera(FitCallback):
    """Takes the pictures in a thread, while the workers run a pass."""

    def __init__(self, pages: dict[str, Page], folder: Path) -> None:
        self.pages, self.folder = pages, folder
        self.thread: threading.Thread | None = None
        self.rounds = 0

    def on_round(self, entry: dict[str, Any]) -> bool:
        """Count the rounds; end the fit after the pictures."""
        self.rounds = int(entry["number"])
        if self.thread is not None:
            self.thread.join()
        return self.thread is not None

    def on_pass(self, name: str, done: int, total: int) -> None:
        """Start the thread when a fifth of the tiles of the pass is done."""
        if (
            self.thread is None
            and self.rounds == ROUND - 1
            and name == "gram"
            and total / 5 < done < total
        ):
            self.thread = threading.Thread(target=lambda: asyncio.run(self._take()))
            self.thread.start()

    async def _take(self) -> None:
        taken = await asyncio.gather(*(page.picture() for page in self.pages.values()))
        for name, picture in zip(self.pages, taken, strict=True):
            (self.folder / f"{name}.png").write_bytes(picture)


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", default=str(Path(__file__).parents[1] / "_static"))
    parser.add_argument("--browser", default="chromium")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (2_000_000, 4))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) + rng.normal(0, 0.1, len(X))
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
        )
        client = stack.enter_context(Client(cluster))
        port = stack.enter_context(browser(arguments.browser))
        address = cluster.dashboard_link.rpartition("/")[0]
        pages = {name: Page(port, f"{address}/{page}", SIZES[name]) for name, page in PAGES.items()}
        fit = RVMRegressor(
            gamma=0.5, partition_size=100, effort="thorough", client=client, random_state=0
        )
        fit.set_params(strategy=WorkingSet(fit_rows="full"))
        fit.set_callbacks(Camera(pages, Path(arguments.output))).fit(X, y)


if __name__ == "__main__":
    main()
