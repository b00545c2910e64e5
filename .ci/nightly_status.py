"""Refuse a release unless the last nightly run passed within two days.

Reads the JSON of ``gh run list --workflow nightly.yml --json conclusion,status,createdAt,url`` from
stdin, newest run first, and prints the reason for a refusal.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

MAXIMUM_AGE = timedelta(days=2)
"""A nightly run that started earlier says nothing about the commits of the release."""


def refusal(runs: list[dict[str, Any]], now: datetime) -> str | None:
    """Return why a release is refused, or None if the last finished run passed recently."""
    completed = [run for run in runs if run["status"] == "completed"]
    if not completed:
        return "no nightly run has finished: run the workflow `nightly`"
    last = completed[0]
    age = now - datetime.fromisoformat(last["createdAt"])
    if last["conclusion"] != "success":
        return f"the last nightly run ended with {last['conclusion']}: {last['url']}"
    if age > MAXIMUM_AGE:
        hours = age.total_seconds() / 3600
        return f"the last nightly run is {hours:.0f} hours old (at most 48): {last['url']}"
    return None


if __name__ == "__main__":
    sys.exit(refusal(json.load(sys.stdin), datetime.now(UTC)))
