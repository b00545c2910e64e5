"""Requests made by each step of a fit whose DATA, JOB and predictions are objects in an S3 bucket.

    python -m benchmarks.object_store [--rows N] [--rounds R] [--output FOLDER]

Needs moto and s3fs (``pip install ".[test]"``). An S3 server (moto's) runs on this machine and
counts requests and bytes. Each step is a separate command: ingest, plan, fit, a second fit that is
killed (``kill -9``) after its second round, its resume, predict, evaluate, report. The table lists
the requests of each step: ``read`` GET of an object, ``list`` GET of a listing, ``head`` HEAD,
``write`` PUT and POST, ``delete`` DELETE and POST ?delete. The last line says whether the models
and the predictions are bit-identical to those on a local disk.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import command_line, say, write

COLUMNS = {
    "step": "", "read": ",", "list": ",", "head": ",", "write": ",", "delete": ",", "mib_read": ".1f",
    "mib_written": ".1f", "seconds": ".1f",
}  # fmt: skip

NUMBERS = ("read", "list", "head", "write", "delete", "mib_read", "mib_written")

BUCKET = "s3://experiments"


def kind_of(method: str, query: str) -> str:
    """Return the column of the table to which a request belongs.

    >>> kind_of("GET", "list-type=2&prefix=a"), kind_of("GET", ""), kind_of("POST", "delete"), kind_of("PUT", "")
    ('list', 'read', 'delete', 'write')
    """
    if method == "GET":
        return "list" if "list-type" in query or "prefix=" in query else "read"
    if method == "DELETE" or (method == "POST" and query.startswith("delete")):
        return "delete"
    return "head" if method == "HEAD" else "write"


def serve() -> None:
    """Serve until the process is killed. Prints the port; ``GET /requests`` returns the counts."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store = DomainDispatcherApplication(create_backend_app)
    counts = Counter[str]()

    def counted(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/requests":
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(counts).encode()]
        counts[kind_of(environ["REQUEST_METHOD"], environ.get("QUERY_STRING", ""))] += 1
        counts["mib_written"] += int(environ.get("CONTENT_LENGTH") or 0)
        answer = list(store(environ, start))
        counts["mib_read"] += sum(map(len, answer))
        return answer

    server = make_server("127.0.0.1", 0, counted, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()


@contextmanager
def server() -> Iterator[str]:
    """Start the server in a process of its own, set the variables of AWS clients, and yield its
    address."""
    command = [sys.executable, "-m", "benchmarks.object_store", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        os.environ |= {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "anyone",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        try:
            yield address
        finally:
            process.kill()


class Steps:
    """Commands that are run one after the other, and the requests of each of them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.rows: list[dict[str, Any]] = []

    def counts(self) -> Counter[str]:
        """Return the requests and bytes so far."""
        with urllib.request.urlopen(f"{self.address}/requests") as answer:
            return Counter(json.load(answer))

    def run(self, step: str, *arguments: str, killed_at: int = 0) -> None:
        """Run a command and count its requests. ``killed_at`` is the round after which a fit is
        killed."""
        before = self.counts()
        began = time.perf_counter()
        if killed_at:
            kill_after(killed_at, *arguments)
        else:
            command(*arguments)
        found = self.counts()
        found.subtract(before)
        mib = {name: found[name] / 2**20 for name in ("mib_read", "mib_written")}
        row = {"step": step, **{name: found[name] for name in NUMBERS}, **mib}
        self.rows.append({**row, "seconds": time.perf_counter() - began})
        say(f"{step}: {sum(found[name] for name in NUMBERS[:5])} requests")


def command(*arguments: str) -> None:
    """Run ``partirvm`` with these arguments in a new process. Raises ``SystemExit`` if it fails."""
    done = subprocess.run([sys.executable, "-m", "partirvm", *arguments], capture_output=True)
    if done.returncode:
        raise SystemExit(
            f"partirvm {' '.join(arguments)}: status {done.returncode}: {done.stderr.decode()}"
        )


def kill_after(rounds: int, *arguments: str) -> None:
    """Run a fit and kill it when it prints the line of this round; no other request reaches the
    store meanwhile."""
    fit = subprocess.Popen(
        [sys.executable, "-m", "partirvm", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert fit.stderr is not None
    any(re.match(rf" +{rounds} ", line) for line in fit.stderr)
    fit.send_signal(signal.SIGKILL)
    if fit.wait() != -signal.SIGKILL:
        raise SystemExit(f"the fit ended before round {rounds}")


def generated(rows: int) -> pd.DataFrame:
    """Return a table of four features, and a target that is a function of three of them, with
    noise."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (rows, 4))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + np.cos(2 * X[:, 2]) + rng.normal(0, 0.1, rows)
    return pd.DataFrame({**{name: X[:, j] for j, name in enumerate("abcd")}, "y": y})


def bits(folder: str) -> None:
    """Print whether models and predictions in the bucket equal those in the local folder."""
    import s3fs

    from partirvm import load_model

    digests = [
        load_model(place).digest()
        for place in (f"{folder}/job", f"{BUCKET}/job", f"{BUCKET}/killed")
    ]
    here = Path(folder, "p.csv").read_bytes()
    there = s3fs.S3FileSystem().cat_file(f"{BUCKET[5:]}/p.csv")
    print(
        f"models have equal bits: {len(set(digests)) == 1}; predictions have equal bytes: "
        f"{here == there}"
    )


def measure(n_rows: int, rounds: int) -> list[dict[str, Any]]:
    """Run all steps in the bucket, and ingest, fit and predict on a local disk. Returns the rows of
    the table."""
    import s3fs

    fixed = (
        "--gamma",
        "0.5",
        "--partition-size",
        "50",
        "--max-rounds",
        str(rounds),
        "--effort",
        "thorough",
    )
    with tempfile.TemporaryDirectory() as folder, server() as address:
        s3fs.S3FileSystem().mkdir(BUCKET[5:])
        generated(n_rows).to_parquet(f"{folder}/table.parquet")
        command("ingest", f"{folder}/table.parquet", f"{folder}/data.zarr", "--target", "y")
        command("fit", f"{folder}/data.zarr", f"{folder}/job", *fixed)
        command("predict", f"{folder}/job", f"{folder}/data.zarr", f"{folder}/p.csv")
        steps = Steps(address)
        steps.run(
            "ingest", "ingest", f"{folder}/table.parquet", f"{BUCKET}/data.zarr", "--target", "y"
        )
        steps.run("plan", "plan", f"{BUCKET}/data.zarr", *fixed)
        steps.run("fit", "fit", f"{BUCKET}/data.zarr", f"{BUCKET}/job", *fixed)
        again = ("fit", f"{BUCKET}/data.zarr", f"{BUCKET}/killed", *fixed)
        steps.run("fit, killed after round 2", *again, killed_at=2)
        steps.run("resume", "resume", f"{BUCKET}/killed")
        steps.run("predict", "predict", f"{BUCKET}/job", f"{BUCKET}/data.zarr", f"{BUCKET}/p.csv")
        steps.run("evaluate", "evaluate", f"{BUCKET}/job", f"{BUCKET}/data.zarr")
        steps.run("report", "report", f"{BUCKET}/job", f"{BUCKET}/report.html")
        steps.run("status", "status", f"{BUCKET}/job")
        bits(folder)
        return steps.rows


def main() -> None:
    """Run the benchmark, or the server."""
    parser = command_line(__doc__, data=False)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--serve", action="store_true", help="only the server")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    write(arguments.output, "object_store", measure(arguments.rows, arguments.rounds), COLUMNS)


if __name__ == "__main__":
    main()
