"""
Callbacks: early stop, and pruning of Optuna trials
===================================================

A callback is called after each round of a fit and can end the fit. This example ends a fit once the
held-out error falls only slowly, and lets Optuna end unpromising fits in a search over the kernel
width.
"""

import matplotlib.pyplot as plt
import numpy as np
import optuna

from partirvm import FitCallback, RVMRegressor

# %%
# Data
# ----
#
# The data are 2,000 training rows and 500 held-out rows of a function of two features, with noise of standard
# deviation 0.1.

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (2_500, 2))
y = np.sin(12 * np.hypot(X[:, 0] + 0.5, X[:, 1])) + 0.1 * rng.standard_normal(2_500)
train, held_out = slice(0, 2_000), slice(2_000, None)

# %%
# A callback that ends a fit
# --------------------------
#
# ``on_round`` receives the round's entry in ``history_``. If it returns True, the fit ends, and the estimator keeps the
# model of this round.


class SlowFall(FitCallback):
    """Ends a fit when a round lowers the held-out error by less than a given fraction."""

    def __init__(self, fraction):
        self.fraction = fraction
        self.errors = []

    def on_round(self, entry):
        self.errors.append(entry["held_out_rmse"])
        return len(self.errors) > 1 and self.errors[-1] > (1 - self.fraction) * self.errors[-2]


callback = SlowFall(0.05)
model = RVMRegressor(
    "gaussian", gamma=10.0, partition_size=40, effort="thorough", residual="none", random_state=0
)
model.set_callbacks(callback).fit(X[train], y[train], X_val=X[held_out], y_val=y[held_out])
print(
    model.termination_,
    "after",
    len(callback.errors),
    "rounds,",
    model.n_relevance_vectors_,
    "vectors",
)

# %% With a callback that never ends the fit, the same fit continues until the held-out error no
# longer falls.

everything = SlowFall(-np.inf)
model.set_callbacks(everything).fit(X[train], y[train], X_val=X[held_out], y_val=y[held_out])
print(
    model.termination_,
    "after",
    len(everything.errors),
    "rounds,",
    model.n_relevance_vectors_,
    "vectors",
)

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for errors, style, colour, name in (
    (everything.errors, "o--", "#E69F00", "without the callback"),
    (callback.errors, "s-", "#0072B2", "ended by the callback"),
):
    ax.plot(np.arange(1, len(errors) + 1), errors, style, color=colour, label=name)
ax.set(
    xlabel="round", ylabel="RMSE of held-out rows", ylim=(0, None), title="A fit that ends early"
)
ax.legend()
plt.show()

# %%
# Pruning of trials
# -----------------
#
# An exception raised in a callback ends the fit and propagates to the caller. A callback can therefore report each
# round to an Optuna trial and raise ``TrialPruned`` if the pruner asks for it. Here, from the second round on, the
# pruner ends a trial whose error is above the median of the earlier trials at the same round.


class Prune(FitCallback):
    """Reports the held-out error of each round to a trial and ends unpromising trials."""

    def __init__(self, trial):
        self.trial = trial
        self.round = 0

    def on_round(self, entry):
        self.round += 1
        self.trial.report(entry["held_out_rmse"], self.round)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def objective(trial):
    gamma = trial.suggest_float("gamma", 0.1, 300.0, log=True)
    model = RVMRegressor(
        "gaussian", gamma=gamma, partition_size=40, max_rounds=8, residual="none", random_state=0
    )
    model.set_callbacks(Prune(trial)).fit(X[train], y[train], X_val=X[held_out], y_val=y[held_out])
    return min(
        entry["held_out_rmse"] for entry in model.history_ if entry["held_out_rmse"] is not None
    )


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    sampler=optuna.samplers.TPESampler(seed=0),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2),
)
study.optimize(objective, n_trials=10)
states = [trial.state.name for trial in study.trials]
print(f"{states.count('COMPLETE')} complete, {states.count('PRUNED')} pruned")
print(f"best gamma {study.best_params['gamma']:.2f}, RMSE {study.best_value:.4f}")

# %%
# Each line is one trial. A cross marks the end of a pruned trial.

fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
seen = set()
for trial in study.trials:
    rounds, errors = zip(*sorted(trial.intermediate_values.items()), strict=True)
    pruned = trial.state is optuna.trial.TrialState.PRUNED
    colour, name = ("#D55E00", "pruned") if pruned else ("#0072B2", "complete")
    ax.plot(rounds, errors, color=colour, label=None if name in seen else name)
    ax.plot(rounds[-1], errors[-1], "x" if pruned else "o", color=colour)
    seen.add(name)
ax.set(xlabel="round", ylabel="RMSE of held-out rows", ylim=(0, None), title="Trials of gamma")
ax.legend()
plt.show()

# %% The callback ends the first fit where its curve levels off. In the search, unpromising trials
# end after two rounds, which leaves more time for the others.
