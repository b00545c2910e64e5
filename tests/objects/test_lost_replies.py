"""Jobs on a store of objects whose replies are lost, repeated, delayed or refused (``proxy``).

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
from proxy import KINDS, READ_TIMEOUT, proxy
from waiting import PATIENCE

pytest.importorskip("moto")
pytest.importorskip("s3fs")

from journals import REQUEST

from partirvm import RVMRegressor, ingest, jobs, save_model
from partirvm.errors import PartirvmError, StorageError
from partirvm.jobs import open_job
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
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
"""Kinds of objects, each with a pattern of the paths of requests that change them."""


def objects_of(requests):
    changing = [request.path for request in requests if request.changes]
    return {
        what
        for what, pattern in OBJECTS.items()
        if any(re.search(pattern, path) for path in changing)
    }


@pytest.fixture(scope="module")
def between(s3_server):
    """A proxy between the server and all clients of this module, which give up after
    ``READ_TIMEOUT`` seconds. s3fs repeats lost and throttled requests after 0.1 s, without
    botocore's longer pauses; it does not repeat failed ones.
    """
    import s3fs

    with proxy(s3_server) as made, pytest.MonkeyPatch.context() as patched:
        quick = {"read_timeout": READ_TIMEOUT, "connect_timeout": 5, "retries": {"max_attempts": 0}}
        patched.setitem(
            fsspec.config.conf, "s3", {"endpoint_url": made.address, "config_kwargs": quick}
        )
        s3fs.S3FileSystem().mkdir(BUCKET[5:])
        yield made


@dataclass(frozen=True)
class Undisturbed:
    """DATA on a local disk; digest and events of a job there after one round and, resumed, after
    two."""

    data: str
    after: tuple[tuple[str, list[str]], ...]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    data = ingest((X, np.sin(2 * X[:, 0]) * X[:, 1]), folder / "rows.zarr", tile_rows=128).url
    job = str(folder / "job")
    jobs.fit(data, job, OPTIONS)
    first = seen(job)
    go_on(job, data)
    return Undisturbed(data, (first, seen(job)))


def seen(job):
    """Return the digest of the model and the kinds of the events."""
    return open_job(job).model().digest(), [event["event"] for event in JobStore(job).events()]


def go_on(job, data):
    """Resume a job for one round more."""
    open_job(job).requeue(allow_data=data, max_rounds=2)
    assert jobs.run_job(job) is not None


def outcome(run, job, expected):
    """Return what came of ``run``, which fits the job."""
    try:
        run()
        return SAME if seen(job) == expected else "other bits or events"
    except Exception as error:
        return (
            f"{'refused' if isinstance(error, PartirvmError) else 'raw'}: {type(error).__name__}: "
            f"{error}"
        )


def wrong(kind, request):
    """True for requests whose reply goes wrong. Only exclusive creations fail, or are delayed,
    which takes long. Reads are repeated by s3fs if their reply is lost, or throttled with a body,
    which replies to HEAD do not have.
    """
    if kind in ("failed", "delayed"):
        return request.creates
    return request.changes or kind == "lost" or (kind == "throttled" and request.method == "GET")


@pytest.mark.parametrize("kind", some([*KINDS, "throttled"], set()))
def test_the_first_reply_at_every_object_goes_wrong(between, local, kind):
    """A fit has the bits and events of an undisturbed one: nothing of the writer's own is refused
    to it."""
    job = f"{BUCKET}/every-{kind}"

    def fault(request):
        return kind if request.first and wrong(kind, request) else None

    for run in (
        lambda: jobs.fit(local.data, job, OPTIONS),
        lambda: jobs.fit(local.data, job, OPTIONS, overwrite=True),
    ):
        between.begin(fault)
        came = outcome(run, job, local.after[0])
        assert came == SAME
        assert "claim" in objects_of(between.hits)
        assert open_job(job).status() is Status.DONE
    assert open_folder(job).list() == ["checkpoints", "events", "lease", "models", "spec.json"]


@pytest.mark.parametrize("kind", some(["lost", "repeated"], {"lost"}))
def test_the_lease_is_taken_released_and_taken_again(between, kind):
    """The holder never finds its own claim, and the next one never finds it alive after its
    release. A request to abort may be made again.
    """
    between.begin(lambda request: kind if request.changes and request.first else None)
    store = JobStore.create(f"{BUCKET}/lease-{kind}", REQUEST)
    for epoch in (1, 2):
        with store.acquire() as lease:
            assert lease.epoch == epoch
            lease.check()
    store.request("abort", 1)
    store.request("abort", 1)
    assert objects_of(between.hits) == OBJECTS.keys()


def test_an_object_of_another_writer_is_still_one_that_exists(between):
    """Only the writer's own bytes count as its success."""
    folder = open_folder(f"{BUCKET}/exclusive")
    between.begin(lambda request: "lost" if request.first else None)
    folder.create("one", b"mine")
    with pytest.raises(FileExistsError):
        folder.create("one", b"theirs")
    assert folder.read("one") == b"mine"


class ReadsOnly(BaseHTTPRequestHandler):
    """A bucket without objects that takes no write: a request to write gets no reply before the end
    of the test."""

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
def test_a_store_that_reads_and_never_takes_a_write(s3_server, monkeypatch):
    """StorageError after the limit, not a wait without end."""
    monkeypatch.setattr("partirvm.storage.folder.REPLY_SECONDS", 1.0)
    X = np.linspace(-3, 3, 60)[:, None]
    with ThreadingHTTPServer(("127.0.0.1", 0), ReadsOnly) as server:
        server.ended = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        options = {
            "endpoint_url": endpoint,
            "config_kwargs": {"read_timeout": 60, "retries": {"max_attempts": 0}},
        }
        monkeypatch.setitem(fsspec.config.conf, "s3", options)
        try:
            with pytest.raises(StorageError, match="s3://silent/new"):
                save_model(RVMRegressor(gamma=1.0).fit(X, np.sin(X[:, 0])), "s3://silent/new")
        finally:
            server.ended.set()
            server.shutdown()
