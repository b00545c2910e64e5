"""Hostile files, and processes that detect code, programs, connections and memory used by a
command."""

import io
import json
import os
import shutil
import struct
import sys
import time
import traceback
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from partirvm.storage import Folder, read_group, read_json, to_json, write_group
from partirvm.storage.codec import HEAD

CODE = "canary_module:run"
"""A function in a module that no command may import."""

HUGE = [10**12, 10**18, 10**400, -1, 1e308, float("nan"), float("inf")]

WRONG = [None, True, "", "os:system", CODE, [], {}, [[]], {"a": 1}, "..", "/etc", *HUGE]
WRONG += ["x" * 10**6, [0] * 10**5]
"""Values that replace others."""

WATCHED = *(f"os.{name}" for name in ("system", "exec", "posix_spawn", "spawn")), "subprocess.Popen"
WATCHED += "socket.connect", "pickle.find_class"


def leaves(value, path=()):
    """Yield the path of each part of a JSON value; of long lists only of the first two entries."""
    if isinstance(value, dict | list):
        parts = list(value.items()) if isinstance(value, dict) else list(enumerate(value))[:2]
        for key, part in parts:
            yield (*path, key)
            yield from leaves(part, (*path, key))


def forged(value, rng):
    """Return a copy in which one part is missing, of another type, or huge."""
    value = json.loads(json.dumps(value))
    *path, last = rng.choice(sorted(leaves(value), key=str))
    part = value
    for key in path:
        part = part[key]
    if rng.random() < 0.3:
        del part[last]
    else:
        part[last] = rng.choice(WRONG)
    return value


def rewrite(path, change):
    """Change an object of a job, or the head of a group, with a valid checksum."""
    root = next(
        folder for folder in path.parents if path.name == HEAD or (folder / "spec.json").exists()
    )
    name = path.relative_to(root).as_posix()
    path.write_bytes(to_json(name, change(read_json(Folder(str(root), root), name))))


def repack(group, kind, version, change):
    """Change the JSON and the arrays of a value, with valid checksums."""
    about = read_json(Folder(str(group), group), HEAD)["about"]
    tree, arrays = change(*read_group(str(group), kind, version))
    shutil.rmtree(group)
    write_group(tree, arrays, str(group), kind, version, about)


def forged_value(tree, arrays, rng):
    """Do the same as ``forged``, or give an array another shape."""
    if not arrays or rng.random() < 0.6:
        return forged(tree, rng), arrays
    k = rng.randrange(len(arrays))
    array = np.atleast_1d(arrays[k])
    other = rng.choice(
        [array[:-1], array[None], array.reshape(-1), np.concatenate([array, array]), array[:0]]
    )
    return tree, [*arrays[:k], other, *arrays[k + 1 :]]


def npz(path, **arrays):
    """Write an archive of these members, which are bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)


def npy(header, content=b"", version=(1, 0)):
    """Return the bytes of an array file with this header."""
    text = header.encode()
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + content


def pickled():
    """Return an array of objects whose pickle runs a program."""

    class Run:
        def __reduce__(self):
            return os.system, ("touch /tmp/canary",)

    buffer = io.BytesIO()
    np.save(buffer, np.array([Run()] * 3, dtype=object), allow_pickle=True)
    return buffer.getvalue()


def watched(words, pipe, case):
    """Run a command; send its outcome, message, forbidden actions and additional memory."""
    actions = []

    def hook(event, arguments):
        if event.startswith(WATCHED) or (event == "import" and "canary" in str(arguments[0])):
            actions.append(f"{event} {arguments!r:.200}")

    os.chdir(case)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmHWM")
    sys.addaudithook(hook)
    text = io.StringIO()
    with redirect_stderr(text), redirect_stdout(text):
        try:
            outcome = run(words)
        except BaseException:
            outcome = "raw"
            text.write(traceback.format_exc()[-1500:])
    message = text.getvalue()
    if outcome == "error" and "fault in the program" in message:
        outcome = "raw"
    pipe.send((outcome, message[-1500:], actions, memory("VmHWM") - before))


def run(words):
    """Run a command, or a function of the package."""
    from partirvm import load_model, open_job
    from partirvm.cli import main
    from partirvm.errors import PartirvmError

    verb, *arguments = words
    if verb not in ("load", "relevance"):
        quiet = ("ingest", "fit", "predict", "evaluate", "resume", "update")
        return "result" if main([*words, *["--quiet"] * (verb in quiet)]) == 0 else "error"
    try:
        if verb == "relevance":
            job = open_job(arguments[0])
            return "result" if (job.facts(), job.progress()) else ""
        model = load_model(arguments[0])
        inputs = np.zeros((3, 2))
        _ = model.predict(inputs) if hasattr(model, "get_params") else model.columns
    except PartirvmError as error:
        print(error)
        return "error"
    return "result"


def memory(field, process="self"):
    """Return an entry of a process's status, in MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0


def observe(context, words, case, limit, seconds):
    """Return outcome, message, forbidden actions and peak of a command in a process with limits."""
    receiver, sender = context.Pipe()
    child = context.Process(target=watched, args=(words, sender, case))
    child.start()
    sender.close()
    end = time.monotonic() + seconds
    peak = 0.0
    while not receiver.poll(0.05):
        if Path(f"/proc/{child.pid}/status").exists():
            peak = max(peak, memory("VmHWM", child.pid))
        if time.monotonic() > end or peak > 4 * limit:
            child.kill()
            child.join()
            return ("hang" if peak <= 4 * limit else "memory"), "", [], peak
    try:
        result = receiver.recv()
    except EOFError:
        result = ("crash", "", [], peak)
    child.join(5)
    if child.is_alive():
        child.kill()
    return result
