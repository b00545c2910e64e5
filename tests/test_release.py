"""A release needs a nightly run that passed within two days (``.ci/nightly_status.py``)."""

import importlib.util
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "nightly_status.py"
if not SCRIPT.exists():
    pytest.skip("the sdist holds no scripts of the repository", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("nightly_status", SCRIPT)
nightly_status = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(nightly_status)

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def run(hours, conclusion="success", status="completed"):
    """Return a run that started this many hours ago, as ``gh run list --json`` prints it."""
    started = NOW - timedelta(hours=hours)
    return {
        "createdAt": started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "conclusion": conclusion,
        "status": status,
        "url": f"run-{hours}",
    }


@pytest.mark.parametrize(
    "runs",
    [
        [run(1)],
        [run(48)],
        [run(0, "", "in_progress"), run(10)],
        [run(5), run(29, "failure")],
    ],
)
def test_a_recent_night_that_passed_allows_a_release(runs):
    assert nightly_status.refusal(runs, NOW) is None


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([], "no nightly run has finished"),
        ([run(0, "", "in_progress")], "no nightly run has finished"),
        ([run(5, "failure"), run(29)], "ended with failure: run-5"),
        ([run(5, "cancelled")], "ended with cancelled: run-5"),
        ([run(49)], "49 hours old"),
        ([run(0, "", "queued"), run(30, "timed_out")], "ended with timed_out"),
    ],
)
def test_an_old_or_failed_night_refuses_a_release(runs, reason):
    assert reason in nightly_status.refusal(runs, NOW)
