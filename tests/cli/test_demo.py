"""The demo with few cells, and as a slow test the full one."""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from commandline import measured

from partirvm import predict
from partirvm.cli import demo, main
from partirvm.cli.commands import partirvm
from partirvm.cli.demo import Terrain, load_terrain
from partirvm.errors import UsageError

matplotlib_image = pytest.importorskip("matplotlib.image")

SMALL = ("--gamma", "30", "--partition-size", "40", "--max-rounds", "2", "--neighbours", "10")


@pytest.mark.usefixtures("snippets")
@pytest.mark.filterwarnings("ignore::partirvm.errors.DataWarning")
def test_a_small_demo_shows_commands_scores_and_a_picture(tmp_path, capsys):
    """The scores belong to the saved model; with ``quiet`` nothing is shown."""
    heights, x, y = load_terrain()
    coarse = Terrain(heights[::12, ::12], x[::12], y[::12])
    folder = tmp_path / "demo folder"
    assert demo.run(partirvm, str(folder), 2 << 30, False, terrain=coarse, options=SMALL) == 0
    captured = capsys.readouterr()
    commands = re.findall(r"^\$ partirvm (\w+)", captured.err, re.MULTILINE)
    assert commands == ["ingest"] * 4 + ["fit", "evaluate", "predict"]
    assert f"'{folder}/job'" in captured.err
    assert captured.err.count("--memory-limit 2048MiB") == 5
    assert "next:" not in captured.out
    scores = predict.evaluate(str(folder / "job"), str(folder / "test.zarr"))
    assert f"test RMSE {scores['rmse']:.2f} m" in captured.out
    assert f"picture: {folder / 'terrain.png'}" in captured.out
    names = ("train", "validation", "test", "grid")
    tables = {name: pd.read_parquet(folder / f"{name}.parquet") for name in names}
    grid = tables.pop("grid").to_numpy()
    cells = pd.concat(tables.values()).to_numpy()
    assert sorted(map(tuple, cells)) == sorted(map(tuple, grid))
    assert len(tables["train"]) == pytest.approx(0.8 * len(grid), abs=1)
    height, width, _ = matplotlib_image.imread(folder / "terrain.png").shape
    assert width > 900
    assert height > 800
    coarser = Terrain(heights[::32, ::32], x[::32], y[::32])
    assert demo.run(partirvm, str(folder), 2 << 30, True, terrain=coarser, options=SMALL) == 0
    assert capsys.readouterr().err == ""


def test_the_demo_without_matplotlib_names_the_extra(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.cbook", None)
    with pytest.raises(UsageError, match=r"pip install \"partirvm\[plot\]\""):
        load_terrain()
    assert main(["demo", "--output", str(tmp_path / "demo")]) == 2
    assert "partirvm[plot]" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_predicts_within_its_memory_limit(tmp_path):
    """A test error below 4 m of heights with a deviation of 133 m, and VmHWM within 640 MiB."""
    arguments = ["demo", "--output", str(tmp_path / "demo"), "--quiet"]
    status, peak, out, stderr = measured(*arguments)
    assert status == 0, stderr
    assert peak <= 640
    scores = next(json.loads(line) for line in out.splitlines() if line.startswith("{"))
    assert scores["rmse"] < 4
    assert 0.93 < scores["coverage_95"] < 0.97
    assert Path(tmp_path, "demo", "terrain.png").stat().st_size > 100_000


@pytest.mark.parametrize("name", ["train.parquet", "terrain.png", ".hidden"])
def test_the_demo_does_not_overwrite_foreign_files(name, tmp_path, capsys):
    (tmp_path / name).write_text("mine")
    assert main(["demo", "--output", str(tmp_path), "--quiet"]) == 2
    assert "choose another folder" in capsys.readouterr().err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize("output", ["memory://demo", "s3://bucket/demo"])
def test_the_demo_needs_a_folder_on_this_machine(output, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--output", output, "--quiet"]) == 2
    assert "pass a path" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
