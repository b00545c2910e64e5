"""Places for jobs, and the way to the simulator of strategies."""

import sys
import uuid
from pathlib import Path

import fsspec
import pytest

sys.path.append(str(Path(__file__).parents[1] / "strategies"))


@pytest.fixture(params=["folder", "memory"])
def place(request, tmp_path):
    """A place for a job, of each kind of store."""
    if request.param == "folder":
        yield str(tmp_path / "deep" / "job")
    else:
        name = f"jobs-{uuid.uuid4().hex}"
        yield f"memory://{name}/one"
        fs = fsspec.filesystem("memory")
        if fs.exists(f"/{name}"):
            fs.rm(f"/{name}", recursive=True)
