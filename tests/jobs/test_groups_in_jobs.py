"""Jobs on data with groups: models equal those of estimators, and resumes know the groups."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from partirvm import RVMClassifier, RVMRegressor, ingest, load_model, open_job, submit
from partirvm.data.row_groups import label_codes
from partirvm.model import known_rows
from partirvm.predict import predict

pytestmark = pytest.mark.filterwarnings("ignore:.* far from every relevance vector")


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 4)
    X = np.column_stack([rng.uniform(-1, 1, 30)[groups], rng.uniform(-1, 1, 120)])
    y = np.sin(2 * X[:, 1]) + rng.standard_normal(30)[groups] + 0.1 * rng.standard_normal(120)
    return X, y, groups


def frame(rows):
    import pandas as pd

    X, y, groups = rows
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "group": groups, "y": y})


def estimator(**options):
    return RVMRegressor(gamma=1.0, reference="none", random_state=0, **options)


def test_a_job_fits_like_an_estimator(rows, tmp_path):
    """The shuffled rows of DATA and of arrays with the same seed are the same, so are the bits."""
    X, y, groups = rows
    ingest(frame(rows), tmp_path / "data.zarr", target="y", groups="group")
    job = submit(estimator(), str(tmp_path / "data.zarr"), str(tmp_path / "job"))
    job.wait()
    model = job.model()
    expected = estimator().fit(X, y, groups=groups).model_
    assert_array_equal(model.known.codes, np.unique(label_codes(groups, 120)))
    for mine, theirs in zip(model.predict(X, True), expected.predict(X, True), strict=True):
        assert_array_equal(mine, theirs)
    known = model.of_known_groups(), expected.of_known_groups()
    assert_array_equal(*(one.predict(X, True)[1] for one in known))
    read = load_model(tmp_path / "job")
    assert_array_equal(read.predict(X, True)[1], model.predict(X, True)[1])


def test_a_job_of_classes_fits_like_an_estimator(rows, tmp_path):
    """The model of a job, which is read from its folder, has the effects of the groups; written
    predictions are those of the estimator at the groups of the dataset."""
    import pandas as pd

    X, y, groups = rows
    labels = np.where(y > 0, "up", "down")
    data = frame((X, labels, groups))
    ingest(data, tmp_path / "data.zarr", target="y", groups="group", classes=True)
    unfitted = RVMClassifier(gamma=1.0, likelihood="pooled", effort="quick", random_state=0)
    submit(unfitted, str(tmp_path / "data.zarr"), str(tmp_path / "job")).wait()
    expected = unfitted.fit(X, labels, groups=groups)
    predict(str(tmp_path / "job"), str(tmp_path / "data.zarr"), str(tmp_path / "out.csv"))
    written = pd.read_csv(tmp_path / "out.csv")
    assert_array_equal(written["p_up"], expected.predict_proba(X, groups=groups)[:, 1])
    model = load_model(tmp_path / "job")
    assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    assert len(model.known.codes) == 30


def test_predictions_take_groups_from_the_data(rows, tmp_path):
    """Rows of known groups get the effects of these groups and a smaller uncertainty, those of a
    new group do not."""
    import pandas as pd

    data = frame(rows)
    train = ingest(data, tmp_path / "data.zarr", target="y", groups="group")
    job = submit(estimator(), str(tmp_path / "data.zarr"), str(tmp_path / "job"))
    job.wait()
    new = data.assign(group=[0] * 60 + [999] * 60)
    ingest(new, tmp_path / "new.zarr", like=train, groups="group", shuffle=None)
    predict(str(tmp_path / "job"), str(tmp_path / "new.zarr"), str(tmp_path / "out.csv"))
    mean, std = pd.read_csv(tmp_path / "out.csv")[["mean", "std"]].to_numpy().T
    model = job.model()
    new_mean, new_std = model.predict(rows[0], True)
    assert_array_equal(mean[60:], new_mean[60:])
    assert_array_equal(std[60:], new_std[60:])
    codes = label_codes(np.zeros(120, dtype=int), 120)
    known_mean, known_std = known_rows(model, codes).predict(rows[0], True)
    assert_array_equal(mean[:60], known_mean[:60])
    assert_array_equal(std[:60], known_std[:60])
    assert np.all(std[:60] < new_std[:60])


def test_an_update_leaves_out_the_groups_of_all_rows(rows, tmp_path):
    data = frame(rows)
    ingest(data[:80], tmp_path / "data.zarr", target="y", groups="group")
    job = submit(estimator(), str(tmp_path / "data.zarr"), str(tmp_path / "job"))
    job.wait()
    assert len(job.model().known.codes) == 20
    ingest(data[80:], tmp_path / "data.zarr", append=True)
    job = open_job(str(tmp_path / "job")).update()
    job.wait()
    assert len(job.model().known.codes) == 30
