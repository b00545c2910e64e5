"""An S3 server on this machine (``benchmarks.object_store``)."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def s3_server(processes):
    """Yield the address of a server for the session; its clients' environment variables are set."""
    pytest.importorskip("moto")
    command = [sys.executable, "-m", "benchmarks.object_store", "--serve"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = f"http://127.0.0.1:{int(server.stdout.readline())}"
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("AWS_ENDPOINT_URL", address)
            patched.setenv("AWS_ACCESS_KEY_ID", "anyone")
            patched.setenv("AWS_SECRET_ACCESS_KEY", "anything")
            patched.setenv("AWS_DEFAULT_REGION", "us-east-1")
            yield address
        server.kill()
