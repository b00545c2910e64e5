"""Exports are written to files and URLs, and never replace foreign files."""

import fsspec
import numpy as np
import pytest
from exported import run_alone
from numpy.random import default_rng

from partirvm import RVMRegressor, ingest, jobs
from partirvm.cli import main
from partirvm.errors import ExistsError, UsageError
from partirvm.options import Request

ENDINGS = ["npz", "h", "onnx"]
OTHER_NAMES = [("Größe", "Gr__e"), ("'''", "___"), ("_", "_")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a job and an estimator."""
    folder = tmp_path_factory.mktemp("made")
    rng = default_rng(0)
    X = rng.normal(size=(80, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=80)
    ingest((X, y), folder / "d.zarr")
    request = Request(
        gamma=0.2, strategy="working-set", partition_size=10, max_rounds=1, residual="none"
    )
    jobs.fit(str(folder / "d.zarr"), str(folder / "job"), request)
    return str(folder / "job"), RVMRegressor(gamma=0.2, residual="none").fit(X, y)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_command_writes_to_a_url(ending, made, here, capsys):
    """The bytes equal those of a file, and nothing is written to the working folder."""
    url = f"memory://exports/{ending}/m.{ending}"
    assert main(["export", made[0], url]) == 0
    assert f"{url}: written, " in capsys.readouterr().out
    assert not list(here.iterdir())
    assert main(["export", made[0], url]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["export", made[0], url, "--overwrite"]) == 0
    assert main(["export", made[0], f"m.{ending}"]) == 0
    names = {"npz": ["m.npz", "m_predict.py"]}.get(ending, [f"m.{ending}"])
    assert sorted(each.name for each in here.iterdir()) == names
    for name in names:
        written = fsspec.filesystem("memory").cat_file(f"/exports/{ending}/{name}")
        assert (here / name).read_bytes() == written or name == "m.npz"  # an archive contains times


@pytest.mark.parametrize("ending", ENDINGS)
def test_methods_write_to_urls_and_paths(ending, made, here):
    method = {"npz": made[1].to_numpy, "h": made[1].to_c, "onnx": made[1].to_onnx}[ending]
    for place in ("memory://methods/a", f"file://{here}/b", "c"):
        method(f"{place}.{ending}")
    method(here / f"d.{ending}")
    assert fsspec.filesystem("memory").exists(f"/methods/a.{ending}")
    assert {path.stem for path in here.glob(f"*.{ending}")} == {"b", "c", "d"}


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/m.npz", "file:///x::memory://m.npz", "nowhere://a/m.npz"]
)
def test_other_protocols_and_chained_urls_are_refused(url, made, here, capsys):
    assert main(["export", made[0], url]) == 2
    said = capsys.readouterr().err
    assert "--allow-protocol" in said or "'::'" in said
    with pytest.raises(UsageError, match=r"--allow-protocol|'::'"):
        made[1].to_numpy(url)
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    "content", [b"# my own file", b"", b'"""Predict with my own code."""', b"\xff\xfe"]
)
def test_a_reader_does_not_replace_another_file(content, made, here, capsys):
    """Not even --overwrite replaces it; the model is not written either."""
    (here / "m_predict.py").write_bytes(content)
    (here / "partirvm_predict.py").write_bytes(content)
    for flags in ([], ["--overwrite"]):
        assert main(["export", made[0], "m.npz", *flags]) == 2
        assert "another name" in capsys.readouterr().err
    with pytest.raises(ExistsError, match="m_predict"):
        made[1].to_numpy("m.npz")
    assert main(["export", made[0], "other.npz"]) == 0
    found = {
        each.name: each.read_bytes() for each in here.iterdir() if not each.name.startswith("other")
    }
    assert found == {"m_predict.py": content, "partirvm_predict.py": content}


def test_a_folder_is_not_replaced_by_a_reader(made, here):
    (here / "m_predict.py").mkdir()
    with pytest.raises(ExistsError, match="m_predict"):
        made[1].to_numpy("m.npz")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    ("name", "module"),
    [("m", "m"), ("my-model.v2", "my_model_v2"), ("2024", "model_2024"), *OTHER_NAMES],
)
def test_a_reader_can_be_imported(name, module, made, here):
    """Its name is a valid module name; an older reader is replaced."""
    for _ in range(2):
        made[1].to_numpy(here / f"{name}.npz")
    assert sorted(each.name for each in here.iterdir()) == sorted(
        [f"{name}.npz", f"{module}_predict.py"]
    )
    load = f"m.load({f'{name}.npz'!r})"
    mean = run_alone(f"import {module}_predict as m; print({load}([[0.5, 0.5]])['mean'][0])", here)
    assert float(mean) == pytest.approx(float(made[1].predict([[0.5, 0.5]])[0]), abs=1e-9)
