"""Folders of every kind: what is there before anything was written, and what counts as something."""

from __future__ import annotations

from partirvm.storage import open_folder
from partirvm.storage.snapshots import Snapshots


def test_a_folder_that_is_not_there_is_empty(place):
    """As it is for one who asks while another process removes it."""
    folder = open_folder(place)
    assert not folder.exists()
    assert folder.empty()
    assert folder.list() == []


def test_a_folder_with_a_hidden_name_lists_nothing_and_is_not_empty(place):
    """Hidden names are those still being written."""
    folder = open_folder(place)
    folder.write(".hidden", b"1")
    assert folder.list() == []
    assert not folder.empty()
    folder.remove(".hidden")
    folder.write("seen", b"1")
    assert folder.list() == ["seen"]
    assert not folder.empty()
    folder.remove()
    assert folder.empty()


def test_snapshots_begin_at_zero(place):
    """The mark of a series in which nothing is: a claim that takes it makes void all that older writers add."""
    snapshots = Snapshots(open_folder(place), "models")
    assert (snapshots.current(), snapshots.mark()) == (None, (0, 0))
