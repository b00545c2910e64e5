"""kill −9 of ``save_model`` at each change to a file, while it copies the rows of local
residuals."""

import shutil
from dataclasses import replace

import pytest
from fault_cases import rows
from fault_processes import crash
from fits import small_cells
from numpy.testing import assert_array_equal

from partirvm import RVMRegressor, load_model, save_model
from partirvm.errors import DataWarning, ExistsError, MissingDataError


@pytest.fixture(scope="module")
def referring(tmp_path_factory):
    """Return the folder of a model whose residual rows are in another folder, X, and
    predictions."""
    folder = tmp_path_factory.mktemp("referring")
    X, y = rows(700, 0)
    patch = pytest.MonkeyPatch()
    small_cells(patch, 300)
    options = {"max_vectors": 20, "residual": "local", "random_state": 0}
    model = RVMRegressor(gamma=0.5, **options).fit(X, y).model_
    place = folder / "rows"
    cells = model.residuals.cells
    model = replace(model, residuals=replace(model.residuals, cells=cells.copied(str(place))))
    with pytest.warns(DataWarning, match="copy=True"):
        save_model(model, folder / "model", copy=False)
    yield folder, X[:20], model.predict(X[:20])
    patch.undo()


def loads(out):
    """Return True if a model can be loaded; otherwise it must be reported as missing."""
    if (out / "group.json").exists():
        load_model(out)
        return True
    with pytest.raises(MissingDataError, match="no model here, or it is incomplete"):
        load_model(out)
    return False


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_save_leaves_no_model_or_a_complete_one(forker, referring, tmp_path, step):
    """The next save replaces the remains, even if it is also killed."""
    folder, X, expected = referring
    work = {"work": "save_copy", "folder": str(tmp_path / "all"), "source": str(folder / "model")}
    changes = forker.call(crash, point=0, **work, out=str(tmp_path / "all" / "m")).end()
    assert changes > 10
    loaded = []
    for point in (*range(1, changes, step), changes):
        place = tmp_path / f"copy-{point}"
        out = place / "m"
        # the second save also removes files
        for number in dict.fromkeys((point, max(changes - point, 1))):
            child = forker.call(crash, **{**work, "folder": str(place)}, point=number, out=str(out))
            child.wait()
            if loads(out):
                break
        loaded.append(loads(out))
        if not loaded[-1]:
            save_model(load_model(folder / "model"), out)
        moved = shutil.move(folder / "rows", folder / "away")
        try:
            assert_array_equal(load_model(out).predict(X), expected)
        finally:
            shutil.move(moved, folder / "rows")
        with pytest.raises(ExistsError, match="already exists"):
            save_model(load_model(out), out)
    assert not all(loaded)


@pytest.mark.parametrize(
    "name", ["notes.txt", "000001", "000000", ".hidden", "cells/mine", "group.json"]
)
def test_a_foreign_folder_is_not_mistaken_for_an_unfinished_copy(referring, tmp_path, name):
    path = tmp_path / "m" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(ExistsError, match="choose another name"):
        save_model(load_model(referring[0] / "model"), tmp_path / "m")
    assert [file.read_text() for file in (tmp_path / "m").rglob("*") if file.is_file()] == ["mine"]
