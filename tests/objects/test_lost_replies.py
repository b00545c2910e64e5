"""Jobs in an object store whose replies are lost, repeated, delayed or refused (``proxy``).

All kinds of faults: ``pytest tests/objects/test_lost_replies.py -m "slow or not slow"``.
"""

import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from proxy import KINDS, READ_TIMEOUT, proxy
from waiting import PATIENCE

pytest.importorskip("moto")
pytest.importorskip("s3fs")

from journals import REQUEST

from partirvm import RVMRegressor, ingest, jobs, save_model
from partirvm.errors import PartirvmError, StorageError
from partirvm.jobs import JobStore, Status, open_job
from partirvm.options import Request as Options
from partirvm.storage import open_folder

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

OPTIONS = Options(gamma=1.0, partition_size=30, max_rounds=1, strategy="working-set")
BUCKET = "s3://lost-replies"
SAME = "same bits, same events"

OBJECTS = {
    "spec": r"/spec\.json",
    "claim": r"/lease/\d+\.json",
    "release": r"\.over\.json",
    "request": r"/control/",
}
"""Kinds of objects, each with a pattern for the paths of requests that change them."""


def objects_of(requests):
    """Return the kinds of objects that these requests change."""
    changing = [request.path for request in requests if request.changes]
    return {
        what
        for what, pattern in OBJECTS.items()
        if any(re.search(pattern, path) for path in changing)
    }


@pytest.fixture(scope="module")
def between(s3_server):
    """Yield a proxy between the server and all clients of this module, which wait ``READ_TIMEOUT``.

    s3fs repeats lost and throttled requests after 0.1 s, and does not repeat failed ones.
    """
    import s3fs

    with proxy(s3_server) as running, pytest.MonkeyPatch.context() as patched:
        quick = {"read_timeout": READ_TIMEOUT, "connect_timeout": 5, "retries": {"max_attempts": 0}}
        patched.setitem(
            fsspec.config.conf, "s3", {"endpoint_url": running.address, "config_kwargs": quick}
        )
        s3fs.S3FileSystem().mkdir(BUCKET[5:])
        yield running


@dataclass(frozen=True)
class Undisturbed:
    """DATA on a disk; digest and events of a job of one round, and of two after a resume."""

    data: str
    after: tuple[tuple[str, list[str]], ...]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    X = default_rng(0).uniform(-2, 2, (300, 2))
    data = ingest((X, np.sin(2 * X[:, 0]) * X[:, 1]), folder / "rows.zarr", tile_rows=128).url
    job = str(folder / "job")
    jobs.fit(data, job, OPTIONS)
    first = result_of(job)
    resume(job, data)
    return Undisturbed(data, (first, result_of(job)))


def result_of(job):
    """Return the digest of the model and the kinds of the events."""
    return open_job(job).model().digest(), [event["event"] for event in JobStore(job).events()]


def resume(job, data):
    """Resume a job for one more round."""
    open_job(job).requeue(allow_data=data, max_rounds=2)
    assert jobs.run_job(job) is not None


def outcome(run, job, expected):
    """Return the outcome of ``run``, which fits the job."""
    try:
        run()
        return SAME if result_of(job) == expected else "other bits or events"
    except Exception as error:
        kind = "refused" if isinstance(error, PartirvmError) else "raw"
        return f"{kind}: {type(error).__name__}: {error}"


def has_fault(kind, request):
    """Return True if the reply to a request can have a fault of this kind.

    Only exclusive creations fail or are delayed. s3fs repeats reads whose reply is lost, or is
    throttled with a body, which replies to HEAD do not have.
    """
    if kind in ("failed", "delayed"):
        return request.creates
    return request.changes or kind == "lost" or (kind == "throttled" and request.method == "GET")


@pytest.mark.parametrize("kind", some([*KINDS, "throttled"], set()))
def test_a_fault_in_the_first_reply_for_every_object_does_not_change_bits(between, local, kind):
    """Events also equal those of an undisturbed fit."""
    job = f"{BUCKET}/every-{kind}"

    def fault(request):
        return kind if request.first and has_fault(kind, request) else None

    for run in (
        lambda: jobs.fit(local.data, job, OPTIONS),
        lambda: jobs.fit(local.data, job, OPTIONS, overwrite=True),
    ):
        between.begin(fault)
        result = outcome(run, job, local.after[0])
        assert result == SAME
        assert "claim" in objects_of(between.hits)
        assert open_job(job).status() is Status.DONE
    assert open_folder(job).list() == ["checkpoints", "events", "lease", "models", "spec.json"]


@pytest.mark.parametrize("kind", some(["lost", "repeated"], {"lost"}))
def test_faults_do_not_block_the_lease(between, kind):
    """The holder does not mistake its claim for a foreign one; requests to abort can be
    repeated."""
    between.begin(lambda request: kind if request.changes and request.first else None)
    store = JobStore.create(f"{BUCKET}/lease-{kind}", REQUEST)
    for epoch in (1, 2):
        with store.acquire() as lease:
            assert lease.epoch == epoch
            lease.check()
    store.request("abort", 1)
    store.request("abort", 1)
    assert objects_of(between.hits) == OBJECTS.keys()


def test_an_object_written_by_another_process_exists_despite_a_fault(between):
    """Only bytes from the same writer count as its success."""
    folder = open_folder(f"{BUCKET}/exclusive")
    between.begin(lambda request: "lost" if request.first else None)
    folder.create("one", b"mine")
    with pytest.raises(FileExistsError):
        folder.create("one", b"theirs")
    assert folder.read("one") == b"mine"


class ReadsOnly(BaseHTTPRequestHandler):
    """An empty bucket that does not answer write requests before the end of the test."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self._reply(404, b"")

    def do_GET(self):
        listing = b"<ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>"
        self._reply(
            *(
                (200, listing)
                if "list-type" in self.path
                else (404, b"<Error><Code>NoSuchKey</Code></Error>")
            )
        )

    def do_PUT(self):
        self.server.ended.wait(PATIENCE)
        self.close_connection = True

    def handle_expect_100(self):
        self.do_PUT()
        return False

    def log_message(self, format, *parts):
        """Print nothing."""

    def _reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")


@pytest.mark.slow
def test_a_store_that_does_not_answer_writes_raises_an_error(s3_server, monkeypatch):
    """The error is raised after the limit, without an endless wait."""
    monkeypatch.setattr("partirvm.storage.folder.REPLY_SECONDS", 1.0)
    X = np.linspace(-3, 3, 60)[:, None]
    with ThreadingHTTPServer(("127.0.0.1", 0), ReadsOnly) as server:
        server.ended = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        config = {"read_timeout": 60, "retries": {"max_attempts": 0}}
        options = {"endpoint_url": endpoint, "config_kwargs": config}
        monkeypatch.setitem(fsspec.config.conf, "s3", options)
        try:
            with pytest.raises(StorageError, match="s3://silent/new"):
                save_model(RVMRegressor(gamma=1.0).fit(X, np.sin(X[:, 0])), "s3://silent/new")
        finally:
            server.ended.set()
            server.shutdown()
