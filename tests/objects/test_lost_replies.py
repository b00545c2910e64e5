"""Jobs on a store of objects whose replies are lost, repeated, delayed or refused (``proxy``).

The full matrix, with its table: ``pytest tests/objects/test_lost_replies.py -m slow -s``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from by_default import some
from proxy import KINDS, READ_TIMEOUT, Proxy, Request, proxy
from waiting import PATIENCE, wait_for

pytest.importorskip("moto")
pytest.importorskip("s3fs")

from partirvm import ingest, jobs
from partirvm.errors import StorageError
from partirvm.jobs import open_job
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.jobs.submission import create
from partirvm.options import Request as Options
from partirvm.storage import open_folder

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

OPTIONS = Options(gamma=1.0, partition_size=30, max_rounds=2, strategy="working-set")
BUCKET = "s3://lost-replies"


@pytest.fixture(scope="module")
def between(s3_server: str) -> Iterator[Proxy]:
    """A proxy between the server and all clients of this module, which give up after ``READ_TIMEOUT`` seconds. s3fs
    repeats lost and throttled requests after 0.1 s, without botocore's longer pauses; it does not repeat failed ones.
    """
    import fsspec
    import s3fs

    with proxy(s3_server) as made, pytest.MonkeyPatch.context() as patched:
        quick = {"read_timeout": READ_TIMEOUT, "connect_timeout": 5, "retries": {"max_attempts": 0}}
        patched.setitem(fsspec.config.conf, "s3", {"endpoint_url": made.address, "config_kwargs": quick})
        s3fs.S3FileSystem().mkdir(BUCKET[5:])
        yield made


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """DATA, and the digest of the model of an undisturbed job on a local disk."""
    folder = tmp_path_factory.mktemp("local")
    X = np.random.default_rng(0).uniform(-2, 2, (300, 2))
    data = ingest((X, np.sin(2 * X[:, 0]) * X[:, 1]), folder / "rows.zarr", tile_rows=128).url
    jobs.fit(data, str(folder / "job"), OPTIONS)
    return data, digest(str(folder / "job"))


def digest(job: str) -> str:
    return open_job(job).model().digest()


def wrong(kind: str, request: Request) -> bool:
    """True for requests that change the store; only exclusive creations fail, or are delayed, which takes long."""
    return request.creates if kind in ("failed", "delayed") else request.number > 0


@pytest.mark.parametrize("kind", some([*KINDS, "throttled"], {"lost"}))
def test_the_first_reply_at_every_object_goes_wrong(between: Proxy, local: tuple[str, str], kind: str) -> None:
    """A fit, its overwriting and a resume have the bits and events of undisturbed ones; nothing of the writer's own is
    refused to it.
    """
    data, expected = local
    job = f"{BUCKET}/every-{kind}"
    between.begin(lambda request: kind if request.first and wrong(kind, request) else None)
    jobs.fit(data, job, OPTIONS)
    assert len([request for request in between.hits if request.creates]) > 10
    assert digest(job) == expected
    undisturbed = kinds(f"{data}/../job")
    assert kinds(job) == undisturbed
    jobs.fit(data, job, OPTIONS, overwrite=True)
    assert digest(job) == expected
    assert kinds(job) == undisturbed
    open_job(job).requeue(max_rounds=3)
    assert jobs.carry_out(job) is not None
    assert open_job(job).status() is Status.DONE


def test_a_job_of_a_bucket_is_overwritten(between: Proxy, local: tuple[str, str]) -> None:
    """As on a disk; a job that is discarded before its first model brings the job before back."""
    data, expected = local
    job = f"{BUCKET}/twice"
    between.begin()
    jobs.fit(data, job, replace(OPTIONS, max_rounds=1))
    before = digest(job)
    made = JobStore.create(job, {"run": 2}, overwrite=True)
    assert open_job(job).status() is Status.QUEUED
    made.discard()
    assert (open_job(job).status(), digest(job)) == (Status.DONE, before)
    jobs.fit(data, job, OPTIONS, overwrite=True)
    assert digest(job) == expected
    folder = open_folder(job)
    assert [name.partition("-")[0] for name in folder.list()] == ["lease", "run", "spec"], "the first job is gone"


def kinds(job: str) -> list[str]:
    return [event["event"] for event in JobStore(job).events()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "throttled"])
def test_one_reply_goes_wrong(between: Proxy, local: tuple[str, str], kind: str) -> None:
    """At every exclusive creation, and at every seventh of the other requests: a fit, or the overwriting of one."""
    data, expected = local
    job = f"{BUCKET}/one-{kind}"
    between.begin()
    jobs.fit(data, job, OPTIONS)
    between.begin()
    jobs.fit(data, job, OPTIONS, overwrite=True)
    writes = [
        request for request in between.writes if request.creates or (request.number % 7 == 0 and wrong(kind, request))
    ]
    assert len(writes) >= 15
    for request in writes:
        between.begin(lambda found, number=request.number: kind if found.number == number else None)
        jobs.fit(data, job, OPTIONS, overwrite=True)
        assert len(between.hits) == 1
        assert digest(job) == expected
        assert kinds(job) == kinds(f"{data}/../job")
        hit = between.hits[0]
        print(f"{kind:9} {hit.number:4} {hit.method:6} {hit.path:70} same bits, same events")


@pytest.mark.parametrize("kind", some(["lost", "repeated"], {"lost"}))
def test_the_lease_is_taken_released_and_taken_again(between: Proxy, kind: str) -> None:
    """The holder never finds its own claim, and the next one never finds it alive after its release."""
    between.begin(lambda request: kind if request.number and request.first else None)
    store = JobStore.create(f"{BUCKET}/lease-{kind}", {})
    for epoch in (1, 2):
        with store.acquire() as lease:
            assert lease.epoch == epoch
            lease.check()
    assert between.hits


def test_an_object_of_another_writer_is_still_one_that_exists(between: Proxy) -> None:
    """Only the writer's own bytes count as its success."""
    folder = open_folder(f"{BUCKET}/exclusive")
    between.begin(lambda request: "lost" if request.first else None)
    folder.create("one", b"mine")
    with pytest.raises(FileExistsError):
        folder.create("one", b"theirs")
    assert folder.read("one") == b"mine"


def test_two_processes_that_start_equal_jobs_at_once_do_not_both_start(tmp_path: Path) -> None:
    """Their requests differ by a token, so that neither takes the other's for its own."""
    specs = []
    for name in ("one", "two"):
        JobStore.create(tmp_path / name, {"asked": 1})
        specs.append((tmp_path / name / "spec.json").read_bytes())
    assert specs[0] != specs[1]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "said"), [("throttled", "reduce your request rate"), ("lost", "closed|disconnected")])
def test_a_store_that_answers_no_more(between: Proxy, local: tuple[str, str], kind: str, said: str) -> None:
    """StorageError with the place, after a limited number of tries; when it answers again, the job is resumed."""
    data, expected = local
    job = f"{BUCKET}/silent-{kind}"
    between.begin(lambda request: kind if len(between.writes) > 150 else None)
    with pytest.raises(StorageError, match=f"(?i){re.escape(job)}.*({said})"):
        jobs.fit(data, job, OPTIONS)
    between.begin()
    assert open_job(job).status() in {Status.INTERRUPTED, Status.RUNNING, Status.FAILED}
    wait_for(lambda: open_job(job).status() is not Status.RUNNING, "the end of its lease")
    open_job(job).requeue()
    assert jobs.carry_out(job) is not None
    assert digest(job) == expected


COMPETE = """
import sys
from partirvm import jobs
from partirvm.errors import LeaseError
print("ready", flush=True)
sys.stdin.readline()
try:
    done = jobs.carry_out(sys.argv[1], patience=0.0)
    print("nothing left" if done is None else "done", flush=True)
except LeaseError as error:
    print("refused", error, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_two_drivers_of_one_job(between: Proxy, local: tuple[str, str], number: int, s3_server: str) -> None:
    """Processes that begin at once, while replies to exclusive creations are lost: one runs the job, one is refused."""
    data, expected = local
    job = f"{BUCKET}/two-{number}"
    between.begin()
    create(data, job, OPTIONS, None, False)
    between.begin(lambda request: "lost" if request.creates and request.first else None)
    command, pipe = [sys.executable, "-c", COMPETE, job], subprocess.PIPE
    variables = {**os.environ, "AWS_ENDPOINT_URL": between.address}
    drivers = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables) for _ in range(2)]
    assert [driver.stdout.readline() for driver in drivers if driver.stdout] == ["ready\n"] * 2
    for driver in drivers:
        assert driver.stdin is not None
        driver.stdin.write("go\n")
        driver.stdin.flush()
    said = sorted(driver.communicate(timeout=PATIENCE)[0].split()[0] for driver in drivers)
    assert said in (["done", "refused"], ["done", "nothing"])
    assert digest(job) == expected
    assert kinds(job) == ["queued", *kinds(f"{data}/../job")[1:]]
