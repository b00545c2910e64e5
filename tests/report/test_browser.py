"""A browser renders a job's page completely, runs nothing, and fits it on a phone."""

import json
import re
import shutil
import subprocess
from html import escape, unescape

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from waiting import PATIENCE

from partirvm import RVMRegressor, ingest, submit

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

MEASURE = """
<script>
addEventListener("load", () => {
  const found = [];
  for (const part of document.querySelectorAll(".value, h1, dd, p"))
    if (part.scrollWidth > part.clientWidth + 1) found.push("too wide: " + part.textContent);
  for (const image of document.images) if (!image.naturalWidth) found.push("not drawn: " + image.alt);
  const measured = {found, wide: document.documentElement.scrollWidth, seen: innerWidth, title: document.title};
  parent.document.body.dataset.measured = JSON.stringify(measured);
});
</script>
"""
"""Script that runs in the browser after the page and returns what does not fit or is not drawn."""


def browse(folder, source, width):
    """Return the measures of a page in a frame, because windows are wider than a phone."""
    inside = escape(source.replace("</body>", MEASURE + "</body>"))
    page = folder / "measured.html"
    page.write_text(
        f'<meta charset="utf-8"><iframe width="{width}" height="3000" srcdoc="{inside}"></iframe>'
    )
    quiet = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [CHROMIUM, *quiet.split(), profile, "--dump-dom", page.as_uri()]
    tree = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout
    return json.loads(unescape(re.search(r'data-measured="(.*?)"', tree)[1]))


@pytest.mark.usefixtures("processes")
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
@pytest.mark.parametrize("width", some([390, 1100], {390}))
def test_a_browser_renders_the_page(tmp_path, width):
    """The job's folder has the name of a script and a long word."""
    pytest.importorskip("matplotlib")
    rng = default_rng(5)
    X = rng.uniform(-3, 3, (300, 2))
    ingest((X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=300)), tmp_path / "d.zarr")
    name = "<script>document.title = 'taken'<!--" + "x" * 100
    model = RVMRegressor(
        gamma=0.5, strategy="working-set", partition_size=20, max_rounds=2, random_state=0
    )
    job = submit(model, tmp_path / "d.zarr", tmp_path / name)
    job.wait(60)
    measured = browse(tmp_path, job.report().html, width)
    assert measured["found"] == []
    assert measured["wide"] <= measured["seen"] == width
    assert measured["title"].startswith("<script>")
