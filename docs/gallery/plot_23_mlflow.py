"""
Logging fits to MLflow
======================

A callback can log each round to an experiment tracker. This example logs two fits to MLflow, which
stores them in an SQLite file in a temporary folder, and then reads the metrics back and plots them.
It requires ``mlflow``, or ``mlflow-skinny`` with ``sqlalchemy`` and ``alembic``.
"""

import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"  # this example needs no network

import mlflow
from sklearn.datasets import make_friedman1

from partirvm import FitCallback, RVMRegressor, save_model

# %%
# A callback that logs
# --------------------
#
# A history entry contains numbers, strings and None values. The callback logs the numbers that describe the round.

FIGURES = ("vectors", "train_rmse", "held_out_rmse", "held_out_nlpd", "log_evidence", "seconds")


class LogToMlflow(FitCallback):
    """Logs the plan, each round and the end of a fit to the active run."""

    def on_plan(self, plan):
        self.step = 0
        mlflow.log_params(
            {
                name: plan.to_json()[name]
                for name in ("rows", "features", "strategy", "partition_size")
            }
        )

    def on_round(self, entry):
        self.step += 1
        figures = {name: entry[name] for name in FIGURES if entry.get(name) is not None}
        mlflow.log_metrics(figures, step=self.step)

    def on_end(self, termination):
        mlflow.set_tag("termination", termination.value)


# %%
# Two runs
# --------
#
# Each fit is one MLflow run. The saved model becomes an artifact of its run.

X, y = make_friedman1(2_500, n_features=8, noise=0.5, random_state=0)
train, held_out = slice(0, 2_000), slice(2_000, None)

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
mlflow.set_tracking_uri(f"sqlite:///{folder / 'runs.db'}")
experiment = mlflow.create_experiment("friedman", artifact_location=(folder / "artifacts").as_uri())

for gamma in ("learn-shared", "learn-per-feature"):
    model = RVMRegressor(
        "gaussian",
        gamma=gamma,
        partition_size=60,
        residual="none",
        reference="none",
        random_state=0,
    )
    with mlflow.start_run(experiment_id=experiment, run_name=gamma):
        mlflow.log_param("gamma", gamma)
        model.set_callbacks(LogToMlflow()).fit(
            X[train], y[train], X_val=X[held_out], y_val=y[held_out]
        )
        save_model(model, folder / gamma)
        mlflow.log_artifacts(str(folder / gamma), "model")

# %%
# Read the runs
# -------------

client = mlflow.MlflowClient()
runs = client.search_runs([experiment], order_by=["metrics.held_out_rmse ASC"])
for run in runs:
    figures = run.data.metrics
    print(
        f"{run.info.run_name:18} RMSE {figures['held_out_rmse']:.3f}  vectors "
        f"{figures['vectors']:.0f}",
        end="  ",
    )
    print(
        run.data.tags["termination"],
        [found.path for found in client.list_artifacts(run.info.run_id)],
    )

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for run, style, colour in zip(runs, ("o-", "s--"), ("#0072B2", "#D55E00"), strict=True):
    values = client.get_metric_history(run.info.run_id, "held_out_rmse")
    ax.plot(
        [point.step for point in values], [point.value for point in values], style, color=colour
    )
    ax.lines[-1].set_label(run.info.run_name)
ax.axhline(0.5, color="0.5", linestyle=":", label="standard deviation of the noise")
ax.set(
    xlabel="round",
    ylabel="RMSE of held-out rows",
    ylim=(0, None),
    title="Metrics that MLflow stored",
)
ax.legend(title="gamma")
plt.show()
scratch.cleanup()

# %% The plot shows the error curves of the two fits, as stored by MLflow. With one width per
# feature, the error is close to the noise after the first round; with one width for all features,
# it remains larger.
