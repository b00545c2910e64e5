"""A notebook, run by nbclient in its own kernel: progress is printed; plan, job, model and report are HTML."""

from __future__ import annotations

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELLS = (
    """
import numpy as np, pandas as pd, partirvm
from partirvm import RVMRegressor, submit
rng = np.random.default_rng(0)
X = rng.uniform(-4, 4, (400, 1)); y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(400)
model = RVMRegressor(gamma=0.5, strategy="working-set", partition_size=20, max_rounds=2, verbose=True).fit(X, y)
""",
    "model.plan_",
    "model.model_",
    """
partirvm.ingest((X, y), "rows.zarr")
job = submit(RVMRegressor(gamma=0.5, strategy="working-set", partition_size=20, max_rounds=2), "rows.zarr", "job")
job.wait()
job
""",
    "job.report()",
)


# the kernel's own libraries warn of their own use of older functions
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_notebook_shows_progress_plan_model_job_and_report(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [[output.get("data", {}).get("text/html", "") for output in cell.outputs] for cell in notebook.cells]
    progress = "".join(output.text for output in notebook.cells[0].outputs)
    assert "400 rows × 1 feature" in progress
    assert "log evidence" in progress
    assert "<caption>Plan</caption>" in outputs[1][0]
    assert "<td>400 rows × 1 feature, 1 tile of " in outputs[1][0]
    assert "<caption>Model</caption>" in outputs[2][0]
    assert '<th scope="row">status</th><td>done</td>' in outputs[3][-1]
    assert outputs[4][0].startswith('<iframe title="Report of a job" sandbox srcdoc="&lt;!')
    assert not [output for cell in notebook.cells[1:] for output in cell.outputs if output.output_type == "stream"]
