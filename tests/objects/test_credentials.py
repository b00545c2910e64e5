"""Credentials in addresses are used, but never stored, shown or logged."""

import base64
import contextlib
import gzip
import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng

from partirvm import allow_protocols, ingest, load_model, open_job, save_model
from partirvm.cli import main
from partirvm.errors import PartirvmError, StorageError
from partirvm.storage import address, open_folder

PASSWORD = "pass/word+1"
SIGNATURE = "c2lnbmF0dXJl/x=="
SECRETS = (PASSWORD, "pass%2Fword", SIGNATURE, "c2lnbmF0dXJl", "pass/word")
NAMES = ("t.csv", "t.csv.gz", "t.parquet")
FIT = ["--gamma", "0.5", "--partition-size", "20", "--neighbours", "20", "--max-rounds", "1"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Return a folder with the same table as CSV, compressed CSV and Parquet."""
    folder = tmp_path_factory.mktemp("tables")
    rng = default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90)})
    table["y"] = table.a + 0.1 * rng.normal(size=90)
    table.to_csv(folder / "t.csv", index=False)
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    table.to_parquet(folder / "t.parquet")
    return folder


@pytest.fixture(scope="module")
def server(processes, tables):
    """Yield the address of a server that returns tables to GETs with a signature or a password."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = urlsplit(self.path)
            signed = parse_qs(parts.query).get("X-Amz-Signature") == [SIGNATURE]
            login = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
            file = tables / parts.path.strip("/")
            allowed = signed or self.headers.get("Authorization") == f"Basic {login}"
            if not allowed or not file.is_file():
                self.send_error(404 if signed else 403)
                return
            data = file.read_bytes()
            first = 0
            last = len(data) - 1
            if requested := self.headers.get("Range"):
                first, last = (
                    int(n) if n else last for n in requested.removeprefix("bytes=").split("-")
                )
            part = data[first : last + 1]
            self.send_response(206 if requested else 200)
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Accept-Ranges", "bytes")
            if requested:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(part)

        def do_HEAD(self):
            self.send_error(403)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture(autouse=True)
def http(separate_addresses):
    pytest.importorskip("aiohttp")
    allow_protocols("http")


def signed(server, name):
    """Return a URL signed as S3 does it."""
    signature = SIGNATURE.replace("/", "%2F").replace("=", "%3D")
    return f"http://{server}/{name}?X-Amz-Algorithm=AWS4&X-Amz-Credential=AK%2F2026&X-Amz-Signature={signature}"


def with_login(server, name):
    return f"http://me:{PASSWORD.replace('/', '%2F').replace('+', '%2B')}@{server}/{name}"


def assert_no_secret(*texts, folder=None):
    """Assert that no text, file name or file content contains a secret."""
    files = [] if folder is None else [path for path in folder.rglob("*") if path.is_file()]
    contents = [(path, f"{path.name}".encode() + path.read_bytes()) for path in files]
    contents += [(text, text.encode()) for text in texts]
    for where, content in contents:
        for secret in SECRETS:
            assert secret.encode() not in content, where


@pytest.mark.parametrize(
    ("url", "name"), some(list(product([signed, with_login], NAMES)), [(signed, "t.csv.gz")])
)
def test_tables_at_urls_with_credentials_are_read(
    server, tables, tmp_path, capsys, monkeypatch, url, name
):
    """Results equal those from the file; a fit shows the command without the credentials."""
    monkeypatch.chdir(tmp_path)
    place = url(server, name)
    assert main(["ingest", place, "d.zarr", "--target", "y", "--json"]) == 0
    assert main(["ingest", str(tables / name), "local.zarr", "--target", "y", "--quiet"]) == 0
    assert main(["fit", "d.zarr", "job", *FIT, "--quiet"]) == 0
    for table, output in ((place, "url.csv"), (str(tables / name), "file.csv")):
        assert main(["predict", "job", table, output]) == 0
        assert main(["evaluate", "job", table, "--quiet"]) == 0
    assert (tmp_path / "url.csv").read_bytes() == (tmp_path / "file.csv").read_bytes()
    assert main(["fit", place, "new"]) == 2
    printed = capsys.readouterr()
    assert "this is a table, not a dataset" in printed.err
    assert_no_secret(printed.out, printed.err, folder=tmp_path)


def test_errors_do_not_show_credentials(server, tmp_path, monkeypatch, capsys):
    """Messages, representations, causes and JSON show none, even if the store does not answer."""
    monkeypatch.chdir(tmp_path)
    wrong = f"http://me:{PASSWORD.replace('/', '%2F')}@{server}/t.csv".replace("me:", "you:")
    places = [signed(server, "none.csv"), wrong, signed("127.0.0.1:9", "t.csv")]
    places += [with_login("127.0.0.1:9", "t.csv")]
    places += [signed(server, "t.txt"), signed("::", "t.csv"), f"ssh://me:{PASSWORD}@host/t.csv"]
    for place in places:
        with pytest.raises(PartirvmError) as error:
            ingest(place, "d.zarr", target="y")
        text = "".join(traceback.format_exception(error.value))
        assert_no_secret(text, repr(error.value), str(error.value))
        for command in (
            ["fit", place, "j"],
            ["status", place],
            ["ingest", place, "d.zarr", "--target", "y", "--json"],
            ["predict", "job", "d.zarr", place],
            ["fit", "d.zarr", place],
            ["resume", "job", "--data", place],
        ):
            assert main(command) != 0
        printed = capsys.readouterr()
        assert_no_secret(printed.out, printed.err, folder=tmp_path)


def test_refused_stores_advise_credentials_in_the_environment(server, tmp_path):
    with pytest.raises(StorageError, match=r"403.*never stored: set them in the environment"):
        ingest(f"http://{server}/t.csv", tmp_path / "d.zarr", target="y")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_job_in_a_bucket_stores_no_credentials(s3_server, tables, tmp_path, monkeypatch, capsys):
    """Nothing in s3://key:secret@bucket, in outputs or in representations contains them.

    The secret begins like a port and a path. Another process without the key reports what is
    missing.
    """
    import s3fs

    s3fs.S3FileSystem().mkdir("vault")
    place = f"s3://AKEY:12/{PASSWORD}@vault/x"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["ingest", str(tables / "t.csv"), f"{place}/d.zarr", "--target", "y"]) == 0
    data = f"{place}/d.zarr"
    assert main(["fit", data, f"{place}/job", "--validation", data, *FIT]) == 0
    for verb in (["status"], ["status", "--json"], ["compare"], ["jobs"]):
        assert main([verb[0], f"{place}/job" if verb[0] != "jobs" else place, *verb[1:]]) == 0
    assert main(["report", f"{place}/job", f"{place}/r.html"]) == 0
    assert main(["report", f"{place}/job", str(tmp_path / "r.json")]) == 0
    assert main(["predict", f"{place}/job", data, f"{place}/p.csv"]) == 0
    assert main(["resume", f"{place}/job", "--max-rounds", "2", "--data", data, "--quiet"]) == 0
    job = open_job(f"{place}/job")
    save_model(job.model(), f"{place}/model")
    model = load_model(f"{place}/model")
    shown = [repr(job), str(job.progress()), str(job.asked()), repr(model), str(job.state())]
    printed = capsys.readouterr()
    folder = open_folder("s3://vault")
    names = folder._fs.find("vault")
    assert len(names) > 20
    contents = [folder._fs.cat_file(name).decode("latin1") + name for name in names]
    assert_no_secret(printed.out, printed.err, *shown, *contents, folder=tmp_path)
    assert not [text for text in (printed.out, printed.err, *shown, *contents) if "AKEY" in text]

    address._logins.clear()  # as in another process
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        assert main(["resume", "s3://vault/x/job", "--max-rounds", "3"]) != 0
        assert "set them in the environment" in capsys.readouterr().err
    finally:
        s3fs.S3FileSystem.clear_instance_cache()  # a later test uses credentials
