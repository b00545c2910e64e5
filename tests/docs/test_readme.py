"""The README: its links point to files, and its Python code prints what the text says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text()


def test_links_and_images_in_the_readme_exist():
    """Links to other sites are not checked."""
    targets = re.findall(r"\]\(((?!https?:|#)[^)#]+)", TEXT)
    assert len(targets) > 10
    assert not [target for target in targets if not (ROOT / target).exists()]


@pytest.mark.usefixtures("snippets")
def test_the_readmes_python_code_runs(tmp_path):
    """By the formula of Friedman#1, features 0 to 4 have an effect and features 5 to 9 have
    none."""
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    output = re.search(
        r"R² (0\.\d+) with (\d+) of 1500 rows\n([\d.]+)% in the 95 % intervals", done.stdout
    )
    assert float(output[1]) > 0.94
    assert int(output[2]) < 100
    assert 92 <= float(output[3]) <= 97
    assert "used: [ True  True  True  True  True False False False False False]" in done.stdout
