"""Regression and classification jobs of every strategy are updated with appended rows."""

from collections import Counter
from dataclasses import replace

import naive
import numpy as np
import pytest
from by_default import some
from numpy.testing import assert_allclose, assert_array_equal
from surfaces import saddle
from watchers import Broken, Stopper

from partirvm import ingest, jobs, open_job
from partirvm.jobs import JobStore, Status
from partirvm.kernels.functions import label_of
from partirvm.options import Request

QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

GAMMA = 0.5
BEFORE = 110
NEW = 70
REQUEST = Request(gamma=GAMMA, partition_size=30, noise="constant", residual="none", seed=0)
NAMES = {2: ("no", "yes"), 3: ("blue", "green", "réd")}


def rows(n, seed, low, high, classes=0):
    """Return rows of a function of two inputs, the first within bounds: numbers, or classes by
    size."""
    X, y = saddle(n, seed, low, high)
    if not classes:
        return X, y
    return X, np.array(NAMES[classes])[np.digitize(y, [-0.5, 0.5][: classes - 1])]


class Grown:
    """A job fitted to rows on the left, to whose DATA ``append`` adds rows on the right."""

    def __init__(self, folder, classes=0, **options):
        folder.mkdir(exist_ok=True)
        self.place = str(folder / "d.zarr")
        self.job = str(folder / "job")
        self.request = replace(REQUEST, **options)
        self.parts = rows(BEFORE, 0, -2, 0, classes), rows(NEW, 1, 0, 2, classes)
        ingest(self.parts[0], self.place, tile_rows=32, classes=bool(classes))

    def fit(self, **hooks):
        jobs.fit(self.place, self.job, self.request, **hooks)
        return self

    def append(self):
        ingest(self.parts[1], self.place, append=True)
        return self

    def update(self, **options):
        assert open_job(self.job).update(**options).wait(60) is Status.DONE
        return open_job(self.job)

    def dense(self, model):
        """Return the design of all rows, and their targets."""
        X, y = (np.concatenate([part[k] for part in self.parts]) for k in (0, 1))
        scaling = model.design.scaling
        bias = int(model.design.bias)
        kernels = naive.gaussian(scaling.inputs(X), scaling.inputs(model.design.centres), GAMMA)
        return np.column_stack([np.ones((len(X), bias)), kernels]), y


WAYS = [
    {"strategy": "basic"},
    {"strategy": "split-merge"},
    {"strategy": "incremental"},
    {"strategy": "incremental", "fit_rows": "sample", "sample_rows": 90},
    {"strategy": "working-set", "max_rounds": 1},
    {"strategy": "working-set", "fit_rows": "sample", "sample_rows": 90},
]


@pytest.mark.parametrize(
    "options",
    some(WAYS, [WAYS[1], WAYS[4]]),
    ids=lambda options: "-".join(map(str, options.values())),
)
@QUIET
def test_an_updated_regression_equals_a_fit_to_all_rows(tmp_path, options):
    """There is one pass over new rows, then rounds; Gram matrix, posterior and evidence equal dense
    ones."""
    case = Grown(tmp_path, **options).fit()
    first = open_job(case.job).model()
    job = case.append().update()
    model = job.model()
    history = job.state().history
    new = [line for line in history if line["rows"] == BEFORE + NEW]
    Phi, y = case.dense(model)
    scaling = model.design.scaling
    beta = model.design.scaling.t_scale[0] ** 2 / model.evidence_noise
    assert_array_equal(scaling.x_shift, first.design.scaling.x_shift)
    t = scaling.targets(y[:, None])
    assert [line["kind"] for line in history].count("final") == 1
    assert (new[0]["kind"], new[0]["passes"], new[0]["pass_rows"]) == ("round", 1, NEW)
    statistics = JobStore(case.job).restore().state.fit.statistics
    assert_allclose(statistics.gram, naive.gram(Phi, t)[0], rtol=1e-10, atol=1e-10)
    mean, _ = naive.posterior(Phi, t[:, 0], model.alpha, beta)
    assert_allclose(Phi @ model.mean, Phi @ mean, atol=1e-6)
    evidence = naive.log_evidence(Phi, t[:, 0], model.alpha, beta) - len(y) * np.log(
        scaling.t_scale[0]
    )
    assert model.log_evidence == pytest.approx(evidence, rel=1e-7)
    assert model.n_rows == BEFORE + NEW
    labels = model.design.rows
    assert (labels < BEFORE).any()
    assert (labels >= BEFORE).any()
    X, targets = rows(200, 5, 0, 2)
    before, after = (((fit.predict(X) - targets) ** 2).mean() for fit in (first, model))
    assert after < 0.5**2 * before


def test_an_updated_linear_basis_equals_a_fit_to_all_rows(tmp_path):
    """No row is a candidate; for the linear columns, only the new rows are read."""
    options = {"kernel": "none", "basis": "linear", "gamma": "learn", "partition_size": "auto"}
    case = Grown(tmp_path, **options)
    case.fit().append()
    job = case.update()
    model = job.model()
    (merged, last) = job.state().history
    assert (merged["kind"], merged["passes"], merged["pass_rows"]) == ("round", 1, NEW)
    assert (last["kind"], last["rows"]) == ("final", BEFORE + NEW)
    X, y = (np.concatenate([part[k] for part in case.parts]) for k in (0, 1))
    scaling = model.design.scaling
    Phi = np.column_stack([np.ones(len(X)), scaling.inputs(X)])
    t = scaling.targets(y[:, None])[:, 0]
    columns = [0] * int(model.design.bias) + [
        1 + k for k in range(2) if label_of(k) in model.design.leading
    ]
    mean, _ = naive.posterior(
        Phi[:, columns], t, model.alpha, scaling.t_scale[0] ** 2 / model.evidence_noise
    )
    expected = scaling.t_shift[0] + scaling.t_scale[0] * (Phi[:, columns] @ mean)
    assert_allclose(model.predict(X), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("classes", "options"),
    some(
        [
            (2, {"strategy": "basic", "class_weight": "balanced"}),
            (3, {"strategy": "incremental", "likelihood": "multinomial", "partition_size": 60}),
        ],
        [(2, {"strategy": "basic", "class_weight": "balanced"})],
    ),
)
@QUIET
def test_an_updated_classification_is_the_mode_for_all_rows(tmp_path, classes, options):
    """There Φᵀ(t − y) = Aw, with Laplace's evidence; balanced weights follow from all rows."""
    case = Grown(tmp_path, classes, **options).fit()
    job = case.append().update()
    model = job.model()
    Phi, y = case.dense(model)
    codes = np.searchsorted(NAMES[classes], y).astype(float)
    w = np.ones(len(y))
    if "class_weight" in options:
        counts = Counter(codes.tolist())
        w = np.array([len(y) / (classes * counts[code]) for code in codes.tolist()])
    prior = np.repeat(model.alpha[:, None], model.mean.shape[1], axis=1)
    slope = naive.logistic(model.likelihood, Phi, codes, model.mean, w)[1] - prior * model.mean
    assert_allclose(slope, 0, atol=1e-3)
    evidence = naive.penalised(model.likelihood, Phi, codes, prior, model.mean, w)
    curvature = naive.logistic(model.likelihood, Phi, codes, model.mean, w)[2]
    for k in range(model.mean.shape[1]):
        H = curvature[:, k, :, k] + np.diag(model.alpha)
        evidence += 0.5 * (np.log(model.alpha).sum() - np.linalg.slogdet(H)[1])
    assert model.log_evidence == pytest.approx(evidence, abs=1e-3)
    assert model.n_rows == BEFORE + NEW
    assert (model.design.rows >= BEFORE).any()
    X, labels = rows(200, 5, 0, 2, classes)
    assert np.mean(model.predict(X) == labels) > 0.8


@pytest.mark.usefixtures("interruptions")
@pytest.mark.parametrize(
    ("classes", "options", "after"),
    some(
        [
            (2, {"strategy": "working-set", "max_rounds": 2}, 1),
            (0, {"strategy": "working-set", "max_rounds": 2}, 1),
            (0, {"strategy": "basic"}, 0),
        ],
        [(0, {"strategy": "basic"}, 0)],
    ),
)
@QUIET
def test_an_interrupted_update_resumes_to_the_same_bits(tmp_path, classes, options, after):
    """It is interrupted in its first fit, or in the one after."""
    digests = []
    for broken in (False, True):
        case = Grown(tmp_path / str(broken), classes, **options).fit().append()
        job = open_job(case.job)
        attempt = job.requeue(grown=True).attempt
        lines = 0 if not broken else after + int(JobStore(case.job).restore().history)
        if broken:
            with pytest.raises(KeyboardInterrupt):
                jobs.run_job(case.job, attempt=attempt, watcher=Broken(lines))
            assert job.resume().wait(60) is Status.DONE
        else:
            jobs.run_job(case.job, attempt=attempt)
        digests.append(job.model().digest())
    assert digests[0] == digests[1]


@pytest.mark.slow
@QUIET
def test_an_update_that_reached_its_rounds_resumes_to_the_same_bits(tmp_path):
    """The resume allows more rounds; a second update continues from the last fit."""
    digests = []
    for number, rounds in enumerate((1, 3)):
        options = {"strategy": "working-set", "max_rounds": 2, "effort": "thorough"}
        case = Grown(tmp_path / str(number), **options).fit().append()
        job = case.update(max_rounds=rounds)
        if rounds == 1:
            assert job.resume(max_rounds=5).wait(60) is Status.DONE
        digests.append(job.model().digest())
    assert digests[0] == digests[1]
    extra = rows(40, 9, -2, 2)
    ingest(extra, case.place, append=True)
    case.parts = (*case.parts, extra)
    model = case.update().model()
    Phi, y = case.dense(model)
    t = model.design.scaling.targets(y[:, None])[:, 0]
    beta = model.design.scaling.t_scale[0] ** 2 / model.evidence_noise
    assert_allclose(
        Phi @ model.mean, Phi @ naive.posterior(Phi, t, model.alpha, beta)[0], atol=1e-6
    )
    assert job.state().history[-1]["number"] == 8, "an update has as many rounds as the one before"


def test_an_update_without_a_history_line_keeps_the_model(tmp_path):
    """The last fit is no longer in the history."""
    case = Grown(tmp_path, strategy="basic", solver="fast").fit().append()
    job = open_job(case.job)
    vectors = job.model().n_vectors
    job.requeue(grown=True)
    left = jobs.run_job(case.job, watcher=Stopper(0))
    assert left.model.n_vectors == vectors
    assert job.resume().wait(60) is Status.DONE
    assert [line["kind"] for line in job.state().history] == ["round", "final"]
