"""All files have one version, and the classifiers follow the lower bound of Python."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

import partirvm

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text())["project"]


def test_all_files_have_the_same_version():
    """These are the package, its metadata, the citation and the image."""
    assert partirvm.__version__ == PROJECT["version"]
    assert (
        yaml.safe_load(ROOT.joinpath("CITATION.cff").read_text())["version"] == PROJECT["version"]
    )
    for name in ("compose.yaml", "Dockerfile"):
        found = re.findall(r"partirvm:([\d.]+)", ROOT.joinpath("deploy", name).read_text())
        assert set(found) == {PROJECT["version"]}, name
    assert f"## {PROJECT['version']}" in ROOT.joinpath("CHANGELOG.md").read_text()


def test_the_workflow_tests_every_classified_python():
    """The oldest one is the lower bound."""
    if not ROOT.joinpath(".github").exists():
        pytest.skip("the sdist holds no workflows")
    jobs = yaml.safe_load(ROOT.joinpath(".github/workflows/tests.yml").read_text())["jobs"]
    classified = [
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)
    ]
    assert jobs["tests"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"


def test_the_oldest_versions_are_the_lower_bounds():
    """A version in ``minimum-versions.txt`` may have more parts."""
    pinned = dict(
        re.findall(
            r"^([\w-]+)==(.+)$", ROOT.joinpath("minimum-versions.txt").read_text(), re.MULTILINE
        )
    )
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["plot"]]
    for name, bound in (re.match(r"([\w-]+)(?:\[.*\])?>=(.+)", line).groups() for line in asked):
        assert f"{pinned[name]}.".startswith(f"{bound}."), name


FIXED = {
    "bokeh": ("3.8.2", "CVE-2026-21883"),
    "click": ("8.3.3", "CVE-2026-7246"),
    "cryptography": ("50.0.0", "CVE-2026-69247"),
    "dask": ("2026.1.1", "CVE-2026-23528"),
    "distributed": ("2026.1.1", "CVE-2026-23528"),
    "flask": ("3.1.3", "CVE-2026-27205"),
    "flask-cors": ("6.0.0", "CVE-2024-6866"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "mlflow-skinny": ("3.13.0", "CVE-2026-8147"),
    "numpy": ("1.22.0", "CVE-2021-41495"),
    "onnx": ("1.22.0", "GHSA-hwpq-hmq9-wj77"),
    "psutil": ("5.6.7", "CVE-2019-18874"),
    "pyarrow": ("23.0.1", "CVE-2026-25087"),
    "pytest": ("9.0.3", "CVE-2025-71176"),
    "scikit-learn": ("1.5.0", "CVE-2024-5206"),
    "scipy": ("1.10.0", "CVE-2023-25399"),
    "skops": ("0.13.0", "CVE-2025-54886"),
}
"""The version of each dependency that fixed the last published vulnerability, and its number."""


@pytest.mark.parametrize("name", FIXED)
def test_lower_bounds_exclude_versions_with_known_vulnerabilities(name):
    """The dependencies and every extra are checked."""
    asked = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    bounds = [
        re.match(r"([\w-]+)(?:\[.*\])?>=(.+)", line) for line in [*PROJECT["dependencies"], *asked]
    ]
    found = [bound[2] for bound in bounds if bound and bound[1] == name]
    fixed, _ = FIXED[name]
    assert found
    assert all(Version(bound) >= Version(fixed) for bound in found)
