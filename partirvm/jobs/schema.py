"""The schemas of a job's objects (``storage.records``): fields that readers use. Objects may have further fields."""

from __future__ import annotations

from typing import Any

from partirvm.core.termination import Termination
from partirvm.storage.records import MOST, TIME, Schema

POINTER = {"history": int, "final": bool, "rows": int}
"""The pointer of a checkpoint."""

FINGERPRINT = {"n_rows": int, "n_features": int, "hashes": [str], "about": str, "moments": str}

SPEC = {
    "data": str,
    "validation": (str, None),
    "fingerprint": FINGERPRINT,
    "validation_fingerprint": (FINGERPRINT, None),
    "parameters": {"kernel": Any, "basis": Any},
    "versions": {"*": str},
}

EVENT = {
    "event": str,
    "time": TIME,
    "epoch": int,
    "token": str,
    "model?": str,
    "reason?": str,
    "cluster?": str,
    "history?": int,
    "seconds?": (TIME, None),
    "changes?": {},
    "data?": str,
    "validation?": (str, None),
    "fingerprint?": FINGERPRINT,
    "rounds?": (int, None),
}

REQUEST = {"time": TIME, "reason": str}
"""A request to end a job."""

NUMBER = (float, None)

PLAN = {
    "rows": int,
    "features": int,
    "strategy": str,
    "fit_rows": str,
    "sample_rows": (int, None),
    "selection": str,
    "partition_size": (int, None),
    "partitions": (int, None),
    "rho": NUMBER,
    "passes": int,
    "rounds": int,
    "max_rounds": (int, None),
    "max_vectors": (int, None),
    "max_columns": int,
    "threads": int,
    "workers": int,
    "seconds": range(MOST),
    "memory_limit": int,
    "memory_peak": int,
    "notes": [str],
}

FIT = {
    "kind": frozenset({"round", "part", "heuristic", "kernel", "early", "final"}),
    "number": int,
    "rows": int,
    "candidates": int,
    "vectors": int,
    "iterations": int,
    "termination": frozenset(each.value for each in Termination),
    "log_evidence": float,
    "noise_variance": NUMBER,
    "train_rmse": NUMBER,
    "level": (int, None),
    "held_out_rmse": NUMBER,
    "held_out_nlpd": NUMBER,
    "train_log_loss": NUMBER,
    "train_error": NUMBER,
    "held_out_log_loss": NUMBER,
    "held_out_error": NUMBER,
    "gain": NUMBER,
    "taken": (bool, None),
    "choice": ({}, None),
    "noise_sd": NUMBER,
    "diagnostics": [{}],
    "reference?": {"rows": int, "rmse": float, "others": {"*": float}, "remarks": [str]},
    "seconds": TIME,
    "pass_seconds": TIME,
    "passes": int,
    "pass_rows": int,
    "solve_seconds": TIME,
    "solve_began": float,
    "peak_memory": int,
}

OWN: dict[str, Schema] = {"plan": PLAN, "fit": FIT}
"""Further fields of some kinds of events."""
