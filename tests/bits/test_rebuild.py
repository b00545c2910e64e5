"""Fits find what they found when ``rebuild.json`` was recorded, bit for bit; ``rebuild.py`` says how it is."""

from __future__ import annotations

import json

import pytest
from by_default import some
from rebuild import ESTIMATORS, FITS, RECORD, fitted, key, outcome, write_data

pytestmark = pytest.mark.bits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rebuild")
    write_data(folder)
    return folder


LONG = {"families and directions", "regressor"}


@pytest.mark.parametrize("fit", some([*FITS, *ESTIMATORS], {*FITS, *ESTIMATORS} - LONG))
def test_a_fit_keeps_its_bits(fit, folder):
    known = json.loads(RECORD.read_text()).get(key(), {})
    if fit not in known:
        pytest.skip(f"{RECORD.name} holds no digest of this fit for {key()}")
    assert outcome(fitted(fit, folder)) == known[fit]
