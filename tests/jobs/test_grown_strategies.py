"""Jobs of every strategy, of numbers and of classes, that go on with rows which were appended to
their DATA."""

from collections import Counter
from dataclasses import replace

import naive
import numpy as np
import pytest
from by_default import some
from watchers import Broken, Stopper

from partirvm import ingest, jobs, open_job
from partirvm.jobs.state import Status
from partirvm.jobs.store import JobStore
from partirvm.kernels.functions import label_of
from partirvm.options import Request

GAMMA = 0.5
BEFORE = 110
NEW = 70
ASKED = Request(gamma=GAMMA, partition_size=30, noise="constant", seed=0)
NAMES = {2: ("no", "yes"), 3: ("blue", "green", "réd")}


def rows(n, seed, low, high, classes=0):
    """Rows of one function of two inputs, the first between these bounds: numbers, or classes by
    their size."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(low, high, n), rng.uniform(-2, 2, n)])
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=n)
    return (
        (X, np.array(NAMES[classes])[np.digitize(y, [-0.5, 0.5][: classes - 1])])
        if classes
        else (X, y)
    )


class Grown:
    """A job of rows on the left; ``append`` adds those on the right to its DATA."""

    def __init__(self, folder, classes=0, **options):
        self.place, self.job, self.asked = (
            str(folder / "d.zarr"),
            str(folder / "job"),
            replace(ASKED, **options),
        )
        self.parts = rows(BEFORE, 0, -2, 0, classes), rows(NEW, 1, 0, 2, classes)
        ingest(self.parts[0], self.place, tile_rows=32, classes=bool(classes))

    def fit(self, **hooks):
        jobs.fit(self.place, self.job, self.asked, **hooks)
        return self

    def append(self):
        ingest(self.parts[1], self.place, append=True)
        return self

    def update(self, **options):
        assert open_job(self.job).update(**options).wait(60) is Status.DONE
        return open_job(self.job)

    def dense(self, model):
        """The design of all rows, and their targets."""
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
    some(WAYS, [WAYS[0], WAYS[1], WAYS[3], WAYS[4]]),
    ids=lambda options: "-".join(map(str, options.values())),
)
@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_a_fit_of_numbers_goes_on(tmp_path, options):
    """One pass over the new rows alone brings what the vectors kept lack; then rounds with new rows
    as candidates. In the end Gram matrix, posterior and evidence are those of dense formulas over
    all rows; new ground is learned."""
    case = Grown(tmp_path, **options).fit()
    first = open_job(case.job).model()
    job = case.append().update()
    model = job.model()
    history = job.state().history
    new = [line for line in history if line["rows"] == BEFORE + NEW]
    Phi, y = case.dense(model)
    scaling = model.design.scaling
    beta = model.design.scaling.t_scale[0] ** 2 / model.evidence_noise
    np.testing.assert_array_equal(scaling.x_shift, first.design.scaling.x_shift)
    t = scaling.targets(y[:, None])
    assert [line["kind"] for line in history].count("final") == 1
    assert (new[0]["kind"], new[0]["passes"], new[0]["pass_rows"]) == ("round", 1, NEW)
    statistics = JobStore(case.job).restore().state.fit.statistics
    np.testing.assert_allclose(statistics.gram, naive.gram(Phi, t)[0], rtol=1e-10, atol=1e-10)
    mean, _ = naive.posterior(Phi, t[:, 0], model.alpha, beta)
    np.testing.assert_allclose(Phi @ model.mean, Phi @ mean, atol=1e-6)
    evidence = naive.log_evidence(Phi, t[:, 0], model.alpha, beta) - len(y) * np.log(
        scaling.t_scale[0]
    )
    assert model.log_evidence == pytest.approx(evidence, rel=1e-7)
    assert model.n_rows == BEFORE + NEW
    labels = model.design.rows
    assert (labels < BEFORE).any()
    assert (labels >= BEFORE).any()
    X, there = rows(200, 5, 0, 2)
    errors = [np.sqrt(((each.predict(X) - there) ** 2).mean()) for each in (first, model)]
    assert errors[1] < 0.5 * errors[0]


def test_a_fit_without_a_kernel_goes_on(tmp_path):
    """No row is a candidate: the linear columns are fitted to all rows, of which the new ones alone
    are read for it."""
    case = Grown(
        tmp_path,
        kernel="none",
        basis="linear",
        gamma="learn",
        partition_size="auto",
        noise="constant",
    )
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
    kept = [0] * int(model.design.bias) + [
        1 + k for k in range(2) if label_of(k) in model.design.leading
    ]
    mean, _ = naive.posterior(
        Phi[:, kept], t, model.alpha, scaling.t_scale[0] ** 2 / model.evidence_noise
    )
    expected = scaling.t_shift[0] + scaling.t_scale[0] * (Phi[:, kept] @ mean)
    np.testing.assert_allclose(model.predict(X), expected, atol=1e-6)


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
@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_a_fit_of_classes_goes_on(tmp_path, classes, options):
    """In the end the weights are the mode over all rows, where Φᵀ(t − y) = Aw, and the evidence is
    Laplace's there; balanced weights are those of all rows."""
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
    np.testing.assert_allclose(slope, 0, atol=1e-3)
    evidence = naive.penalised(model.likelihood, Phi, codes, prior, model.mean, w)
    curvature = naive.logistic(model.likelihood, Phi, codes, model.mean, w)[2]
    for k in range(model.mean.shape[1]):
        H = curvature[:, k, :, k] + np.diag(model.alpha)
        evidence += 0.5 * (np.log(model.alpha).sum() - np.linalg.slogdet(H)[1])
    assert model.log_evidence == pytest.approx(evidence, abs=1e-3)
    assert model.n_rows == BEFORE + NEW
    assert (model.design.rows >= BEFORE).any()
    X, there = rows(200, 5, 0, 2, classes)
    assert np.mean(model.predict(X) == there) > 0.8


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
@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_an_update_that_breaks_off_is_resumed(tmp_path, classes, options, after):
    """Left in its first fit, or in the one after: the model has the bits of an update that was
    never broken."""
    found = []
    for broken in (False, True):
        (tmp_path / str(broken)).mkdir()
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
        found.append(job.model().digest())
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_an_update_that_reached_its_rounds_is_resumed(tmp_path):
    """With more rounds it is the update that was given these; a second update goes on from the last
    fit."""
    found = []
    for number, rounds in enumerate((1, 3)):
        (tmp_path / str(number)).mkdir()
        case = (
            Grown(tmp_path / str(number), strategy="working-set", max_rounds=2, effort="thorough")
            .fit()
            .append()
        )
        job = case.update(max_rounds=rounds)
        if rounds == 1:
            assert job.resume(max_rounds=5).wait(60) is Status.DONE
        found.append(job.model().digest())
    assert found[0] == found[1]
    extra = rows(40, 9, -2, 2)
    ingest(extra, case.place, append=True)
    case.parts = (*case.parts, extra)
    model = case.update().model()
    Phi, y = case.dense(model)
    t = model.design.scaling.targets(y[:, None])[:, 0]
    beta = model.design.scaling.t_scale[0] ** 2 / model.evidence_noise
    np.testing.assert_allclose(
        Phi @ model.mean, Phi @ naive.posterior(Phi, t, model.alpha, beta)[0], atol=1e-6
    )
    assert job.state().history[-1]["number"] == 8, (
        "rounds of the last update are as many as it was given before"
    )


def test_an_update_that_is_left_before_its_first_line_tells_of_the_model_that_stands(tmp_path):
    """The last fit is no more in the history, but its model is there."""
    case = Grown(tmp_path, strategy="basic", solver="fast").fit().append()
    job = open_job(case.job)
    vectors = job.model().n_vectors
    job.requeue(grown=True)
    left = jobs.run_job(case.job, watcher=Stopper(0))
    assert left.model.n_vectors == vectors
    assert job.resume().wait(60) is Status.DONE
    assert [line["kind"] for line in job.state().history] == ["round", "final"]
