"""kill −9 of ``save_model`` before each change to a file, while it copies the rows of local
residuals."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from fault_cases import rows
from fault_processes import crash
from waiting import wait_for

from partirvm import RVMRegressor, load_model, save_model
from partirvm.errors import DataWarning, ExistsError, MissingDataError


@pytest.fixture(scope="module")
def referring(tmp_path_factory):
    """A saved model whose local residual rows are in cells of another folder; X, and what it
    predicts there."""
    folder = tmp_path_factory.mktemp("referring")
    X, y = rows(700, 0)
    patch = pytest.MonkeyPatch()
    patch.setattr("partirvm.local.cells.CELL_ROWS", 300)
    model = (
        RVMRegressor(gamma=0.5, max_vectors=20, residual="local", random_state=0).fit(X, y).model_
    )
    place = folder / "rows"
    cells = model.residuals.cells
    model = replace(model, residuals=replace(model.residuals, cells=cells.copied(str(place))))
    with pytest.warns(DataWarning, match="copy=True"):
        save_model(model, folder / "model", copy=False)
    yield folder, X[:20], model.predict(X[:20])
    patch.undo()


def loads(out):
    """Whether a model loads; a model that does not must be reported as missing."""
    if (out / "group.json").exists():
        load_model(out)
        return True
    with pytest.raises(MissingDataError, match="no model here, or it is incomplete"):
        load_model(out)
    return False


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_leaves_no_model_or_an_independent_one(breeder, referring, tmp_path, step):
    """And the next call replaces what was left, also if it is killed itself."""
    folder, X, expected = referring
    work = {"work": "save_copy", "folder": str(tmp_path / "whole"), "source": str(folder / "model")}
    changes = breeder.call(crash, point=0, **work, out=str(tmp_path / "whole" / "m")).end()
    assert changes > 10
    found = []
    for point in (*range(1, changes, step), changes):
        place = tmp_path / f"copy-{point}"
        out = place / "m"
        for number in dict.fromkeys(
            (point, max(changes - point, 1))
        ):  # the second one also removes
            child = breeder.call(
                crash, **{**work, "folder": str(place)}, point=number, out=str(out)
            )
            wait_for(lambda child=child: child.gone, "the end of a process")
            if loads(out):
                break
        found.append(loads(out))
        if not found[-1]:
            save_model(load_model(folder / "model"), out)
        kept = shutil.move(folder / "rows", folder / "away")
        try:
            np.testing.assert_array_equal(load_model(out).predict(X), expected)
        finally:
            shutil.move(kept, folder / "rows")
        with pytest.raises(ExistsError, match="already exists"):
            save_model(load_model(out), out)
    assert not all(found)


@pytest.mark.parametrize(
    "name", ["notes.txt", "000001", "000000", ".hidden", "cells/mine", "group.json"]
)
def test_no_folder_of_somebody_else_counts_as_an_unfinished_copy(referring, tmp_path, name):
    path = tmp_path / "m" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(ExistsError, match="choose another name"):
        save_model(load_model(referring[0] / "model"), tmp_path / "m")
    assert [each.read_text() for each in (tmp_path / "m").rglob("*") if each.is_file()] == ["mine"]
