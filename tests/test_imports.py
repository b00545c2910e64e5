"""Imports between the parts, read from the sources, and what importing the package loads."""

import ast
import graphlib
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from sources import parsed

import partirvm

ROOT = Path(partirvm.__file__).parent
VALUES = {"errors", "types", "scaling", "options", "quoting", "process"}
"""Small frozen value types, message quoting, the BLAS thread limit and process memory: importable
by all."""

PARTS_OF_FITS = VALUES | {"storage", "core", "kernels", "data", "model", "planning"}
PARTS_OF_FITS |= {"spec", "likelihoods", "strategies", "execution", "learning"}

ARROWS = {
    "quoting": set(),
    "errors": {"quoting"},
    "types": {"errors"},
    "scaling": {"errors", "types"},
    "process": {"errors"},
    "options": {"errors"},
    # Folders, snapshots and leases, with which jobs, models, data and outputs are written.
    "storage": VALUES,
    "core": VALUES,
    "kernels": VALUES,
    # Errors of a fit's rows, which a model keeps.
    "local": VALUES | {"storage", "core", "kernels"},
    # A model as a graph of operations: the kind of a kernel determines its operations.
    # Explanations accept data frames.
    "export": VALUES | {"storage", "kernels", "data.frame_rows"},
    "planning": VALUES,
    # A likelihood determines which model its fits leave.
    "spec": VALUES | {"core", "kernels", "model"},
    "likelihoods": VALUES | {"core", "kernels", "model", "local", "spec"},
    "strategies": VALUES | {"core", "kernels", "planning", "spec", "likelihoods", "local"},
    "data": VALUES | {"storage", "core", "kernels"},
    # Rows of a data frame are read as in ingest.
    "model": VALUES
    | {"storage", "core", "kernels", "local", "export", "data.frame_rows", "data.labels"},
    # Passes and the machine are value types, defined next to the code that decides on them.
    "execution": VALUES
    | {"core", "kernels", "data", "model", "spec", "likelihoods"}
    | {"planning.machine", "planning.plan", "storage.address"},
    # Small fits to a sample of rows, before a fit and between its rounds.
    "learning": VALUES
    | {
        "storage",
        "core",
        "kernels",
        "spec",
        "likelihoods",
        "strategies",
        "data",
        "execution",
        "local",
        "planning.memory",
    },
    "resolve": PARTS_OF_FITS | {"local"},
    # Specs are run with the rows in this process: local residuals and comparisons end a fit.
    "fit": PARTS_OF_FITS | {"local", "resolve"},
    # The stored parts of a fit, and its life cycle.
    "jobs": PARTS_OF_FITS | {"local", "resolve", "fit"},
    "predict": PARTS_OF_FITS | {"jobs", "resolve"},
    # Progress and pages show sizes, durations, the peak memory of the process, and the course of
    # strategies.
    "report": VALUES
    | {
        "core",
        "strategies",
        "fit.driver",
        "jobs",
        "storage",
        "model.feature_effects",
        "model.summary",
        "planning.plan",
    },
    # Estimators fit sources other than DATA on disk: they run fits with a journal in memory.
    "estimators": VALUES
    | {"resolve", "fit", "jobs", "predict", "report", "data", "model", "execution", "core"}
    | {"export"},
    # No other part may know how the sources are stored.
    "literature": VALUES | {"core", "kernels", "spec", "likelihoods", "data", "model", "resolve"},
    # Estimators in other libraries.
    "integrations": {"estimators", "export", "data.frame_rows"},
    "cli": VALUES
    | {
        "storage.address",
        "resolve",
        "jobs",
        "predict",
        "report",
        "export",
        "data.ingest",
        "model.facts",
    },
    "__main__": {"cli"},
}
"""What each part may import from the others: a whole part, or one of its modules."""

EXCEPTIONS = {
    "cli.running": {"execution.cluster.connect"},
    "estimators.saving": {"kernels.functions.require_no_code", "storage.reading"},
    # Parameters that are functions need permission.
    "estimators.base": {"kernels.permission.FunctionParameters"},
    # A handle shows its page and its figures; the imports are inside the methods.
    "jobs.job": {"report.page.report_of", "report.text.job_facts", "report.text.status_rows"},
}
"""Single names beyond the table, each with a reason. Do not add to them."""

THIRD_PARTIES = {
    "quoting": set(),
    "errors": set(),
    "types": {"numpy"},
    "scaling": {"numpy"},
    "process": {"numpy", "psutil", "scipy", "threadpoolctl"},
    "options": set(),
    "storage": {"fsspec"},
    "storage.records": {"numpy", "numcodecs", "google_crc32c", "zarr"},
    "storage.codec": {"numpy"},
    "core": {"numpy", "scipy"},
    "kernels": {"numpy", "scipy"},
    "export": {"numpy", "jinja2", "onnx", "sklearn"},
    "planning": {"numpy", "scipy"},
    "spec": {"numpy"},
    "likelihoods": {"numpy"},
    "local": {"numpy", "scipy"},
    "likelihoods.noise_fit": {"scipy"},
    "strategies": {"numpy", "scipy"},
    "data": {"numpy", "zarr", "fsspec", "pyarrow", "pandas", "dask", "numcodecs"},
    "data.labels": {"sklearn"},
    "data.problems": {"rich"},
    "data.spreadsheets": {"python_calamine"},
    "model": {"numpy", "zarr"},
    "execution": {"numpy"},
    "execution.kernel_store": {"numpy", "zarr"},
    "execution.cluster": {"distributed"},
    "execution.dask": {"distributed"},
    "jobs": {"numpy", "zarr"},
    "fit": {"numpy"},
    "fit.comparison": {"sklearn", "scipy", "threadpoolctl"},
    "fit.judged": {"sklearn", "threadpoolctl"},
    "fit.left_out_refits": {"scipy"},
    "report": {"numpy", "rich", "matplotlib"},
    "report.page": {"jinja2"},
    "resolve": {"numpy"},
    "learning": {"numpy"},
    "learning.exact_process": {"scipy"},
    "learning.escalation": {"sklearn"},
    "learning.boosting": {"sklearn", "threadpoolctl"},
    "learning.jump_search": {"scipy"},
    "learning.left_out_scores": {"scipy"},
    "learning.left_out_judge": {"scipy", "sklearn", "threadpoolctl"},
    "learning.unused_rows": {"scipy"},
    "predict": {"numpy", "zarr", "pyarrow", "fsspec"},
    "literature": {"numpy", "scipy", "sklearn"},
    "estimators": {"numpy", "scipy", "sklearn"},
    "integrations.skl2onnx": {"skl2onnx"},
    "integrations.mlflow": {"mlflow", "numpy", "pandas"},
    "integrations": set(),
    "cli.demo": {"numpy", "zarr", "matplotlib", "pyarrow"},
    "cli": {"click", "distributed"},
    "__main__": set(),
}
"""Third-party packages of each part, or of one module that needs more than its part."""


def modules():
    """Yield every module by its dotted name within the package, except the package itself."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            yield name, path


MODULES = dict(modules())


@cache
def imports(path):
    """Yield every absolute name that a module imports, also inside functions and type-checking
    blocks."""
    found = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} has a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def within(name, allowed):
    """Return True if a dotted name is one of the allowed names or inside one."""
    return any(name == other or name.startswith(other + ".") for other in allowed)


def test_imports_follow_the_table():
    beyond = {}
    for name, path in MODULES.items():
        part = name.partition(".")[0]
        assert part in ARROWS, f"{part} is a new part: say whom it may know"
        found = {
            target.removeprefix("partirvm.")
            for target in imports(path)
            if target.startswith("partirvm.")
        }
        beyond[name] = {target for target in found if not within(target, ARROWS[part] | {part})} - {
            "__version__"
        }
    assert {name: targets for name, targets in beyond.items() if targets} == EXCEPTIONS


def test_each_part_imports_only_its_third_party_packages():
    strange = {}
    for name, path in MODULES.items():
        allowed = THIRD_PARTIES[name.partition(".")[0]] | THIRD_PARTIES.get(name, set())
        tops = {target.partition(".")[0] for target in imports(path)}
        strange[name] = tops - set(sys.stdlib_module_names) - {"partirvm", "__future__"} - allowed
    assert {name: tops for name, tops in strange.items() if tops} == {}


LAZY = {
    # Their ``__init__`` loads public names at their first use, from modules that may import
    # the package.
    "partirvm",
    "partirvm.jobs",
}


def module_at(target, known):
    """Return the module that an imported name is or belongs to."""
    while target not in known:
        target = target.rpartition(".")[0]
    return target


def neighbours():
    """Return each module with the modules of the package that it imports anywhere."""
    paths = {f"partirvm.{name}": path for name, path in MODULES.items()} | {
        "partirvm": ROOT / "__init__.py"
    }
    for name, path in paths.items():
        if name not in LAZY:
            own = {
                module_at(target, paths)
                for target in imports(path)
                if target.partition(".")[0] == "partirvm"
            }
            yield name, own - {name} - LAZY


def test_there_are_no_import_cycles():
    """Imports inside functions count."""
    graphlib.TopologicalSorter(dict(neighbours())).prepare()  # raises CycleError


TELL = "print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def loaded(statement, tell=TELL):
    """Return the top-level modules of a new interpreter after a statement."""
    code = f"import sys\n{statement}\n{tell}"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(found.stdout.split())


HEAVY = {
    "sklearn",
    "pandas",
    "pyarrow",
    "dask",
    "distributed",
    "zarr",
    "matplotlib",
    "rich",
    "scipy",
    "numpy",
}


@pytest.mark.usefixtures("processes")
def test_importing_the_package_loads_nothing_heavy():
    """Names are loaded when they are first used."""
    assert not loaded("import partirvm") & HEAVY


def test_every_public_name_is_lazy_and_has_an_example():
    assert set(partirvm.__all__) <= set(dir(partirvm))
    for name in {*partirvm.__all__} - {"__version__"}:
        _, heading, example = inspect.getdoc(getattr(partirvm, name)).partition(
            "Examples\n--------\n>>> "
        )
        assert heading, name
        assert name in example
    with pytest.raises(AttributeError, match="nothing"):
        _ = partirvm.nothing


def test_type_checkers_see_every_public_name():
    """The imports under ``TYPE_CHECKING`` equal the lazy names."""
    tree = ast.parse((ROOT / "__init__.py").read_text())
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imported = {name.name: node.module for node in block.body for name in node.names}
    assert set(imported) == {*partirvm.__all__} - {"__version__"}
    assert imported == partirvm._MODULES


@pytest.mark.usefixtures("processes")
def test_fits_from_the_command_line_load_no_table_or_cluster_packages():
    assert not loaded("from partirvm.jobs import fit") & {
        "sklearn",
        "pandas",
        "pyarrow",
        "distributed",
        "matplotlib",
    }


WITHOUT = {
    "pandas",
    "pyarrow",
    "dask",
    "distributed",
    "tornado",
    "jinja2",
    "click",
    "matplotlib",
    "rich",
}
"""Packages that are not needed to fit arrays and to predict with a saved model."""

ARRAYS_ALONE = f"""
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {WITHOUT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refuse())
import numpy as np
import partirvm
X = np.linspace(-4, 4, 60)[:, None]
y = np.sin(X[:, 0])
partirvm.save_model(partirvm.RVMRegressor(gamma=1.0).fit(X, y), "r.rvm")
partirvm.save_model(partirvm.RVMClassifier(gamma=1.0).fit(X, np.where(y > 0, "high", "low")), "c.rvm")
means, _ = partirvm.load_model("r.rvm").predict(X, return_std=True)
assert np.abs(means - y).max() < 0.1
assert partirvm.load_model("c.rvm").predict_proba(X).shape == (60, 2)
"""

PREDICTIONS_ALONE = """
import numpy as np
import sklearn.base, sklearn.metrics
before = set(sys.modules)
from partirvm import load_model
load_model("r.rvm").predict_interval(np.zeros((3, 1)))
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


@pytest.mark.slow
def test_fits_to_arrays_and_predictions_need_no_table_or_cluster_packages(tmp_path, monkeypatch):
    """These packages need not be installed; predictions load only scikit-learn."""
    monkeypatch.chdir(tmp_path)
    loaded(ARRAYS_ALONE)
    assert not loaded(PREDICTIONS_ALONE, "") & WITHOUT
