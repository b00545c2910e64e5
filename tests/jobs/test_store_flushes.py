"""What a local folder asks the disk to hold, and in which order: after a loss of power a name has all its bytes.

A disk keeps a file's bytes once the file is flushed, and a name once the folder that holds it is flushed after the name
was given. So bytes must be flushed before the name is given, the folder afterwards, and a tree from its leaves.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from partirvm.storage import Folder
from partirvm.storage.folder import flush


@pytest.fixture
def asked(monkeypatch):
    """Requests to the disk in order: ("flush", inode), and ("name", inode) for a name given to the file."""
    found = []
    give = {"link": os.link, "replace": os.replace}

    def named(how):
        def ask(source, target, **options):
            give[how](source, target, **options)
            found.append(("name", Path(target).stat().st_ino))

        return ask

    monkeypatch.setattr(os, "fsync", lambda handle: found.append(("flush", os.fstat(handle).st_ino)))
    for how in give:
        monkeypatch.setattr(os, how, named(how))
    return found


def inode(path):
    """By which a file or folder is known."""
    return path.stat().st_ino


@pytest.mark.parametrize("verb", ["write", "create", "create without links"])
def test_bytes_are_flushed_before_the_name_and_the_folder_after_it(tmp_path, asked, verb, monkeypatch):
    """A name that survives has its bytes, and when the call returns the name survives; so with the name of a folder."""

    def no_links(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    folder, file = Folder("here", tmp_path), tmp_path / "deep" / "object"
    if verb == "create without links":
        monkeypatch.setattr(os, "link", no_links)
    getattr(folder, verb.split()[0])("deep/object", b"1")
    assert file.read_bytes() == b"1"
    named = [] if "without" in verb else [("name", inode(file))]
    expected = [("flush", inode(file)), *named, ("flush", inode(file.parent))]
    assert asked[0] == ("flush", inode(tmp_path))
    assert asked[-len(expected) :] == expected
    assert len(asked) == 1 + len(expected) + ("without" in verb)


def test_flush_of_a_tree_begins_at_its_leaves(tmp_path, asked):
    """Every file and folder once, each before the folder that holds its name, which is flushed too."""
    for name in ("group/a/1", "group/a/2", "group/b/c/3", "group/4"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
    flush(tmp_path / "group")
    below = [tmp_path / "group", *(tmp_path / "group").rglob("*")]
    flushed = [which for _, which in asked]
    assert sorted(flushed) == sorted(inode(path) for path in [tmp_path, *below])
    for path in below:
        assert flushed.index(inode(path)) < flushed.index(inode(path.parent))
