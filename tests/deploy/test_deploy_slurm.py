"""The Slurm launcher: its scripts as Slurm reads them, and runs with sbatch starting local jobs."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from dask.utils import parse_bytes
from deployment import DEPLOY, commands, environment, prepared, run
from distributed.cli.dask_worker import main as dask_worker
from waiting import wait_for

import partirvm

SBATCH = f"""#!{sys.executable}
# Starts a job at once, in a session of its own, and prints what sbatch prints.
import pathlib, shutil, subprocess, sys, tempfile
if sys.argv[1] == "--test-only":
    sys.exit(subprocess.run(["bash", "-n"]).returncode)
spool = pathlib.Path(tempfile.mkdtemp(dir="spool"))
script = shutil.copy(sys.argv[1], spool / "script")
with open(spool / "log", "wb") as log:
    job = subprocess.Popen(["bash", script, *sys.argv[2:]], start_new_session=True, stdout=log, stderr=log)
(spool / "pid").write_text(str(job.pid))
print("Submitted batch job", job.pid)
"""

SCANCEL = f"""#!{sys.executable}
import os, signal, sys
os.killpg(int(sys.argv[1]), signal.SIGTERM)
"""


class Slurm:
    """A folder for submitting jobs, with local replacements for sbatch and scancel."""

    def __init__(self, folder):
        self.folder = prepared(folder)
        self.env = environment()
        self.env["PATH"] = f"{folder / 'bin'}{os.pathsep}{self.env['PATH']}"
        for name in ("bin", "spool"):
            folder.joinpath(name).mkdir()
        self.command("sbatch", SBATCH)
        self.command("scancel", SCANCEL)

    def command(self, name, text):
        """Write a replacement for a command."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def __call__(self, line):
        """Run a shell line to its end."""
        return run(line, self.folder, self.env)

    def jobs(self):
        """Return the process groups of running jobs."""
        return [
            pid for path in self.folder.glob("spool/*/pid") if alive(pid := int(path.read_text()))
        ]

    def logs(self):
        """Return the output of all jobs."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("spool/*/log")))

    def rounds(self, job):
        """Return the number of finished rounds of a fit."""
        events = [
            json.loads(path.read_text())
            for path in self.folder.joinpath(job).glob("events/0*.json")
        ]
        return sum(event["event"] == "fit" for event in events)


def alive(group):
    """Return True if a process group has a member that is not a zombie."""
    output = subprocess.run(
        ["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    return any(
        int(pgid) == group and state[0] != "Z"
        for pgid, state in map(str.split, output.splitlines())
    )


@pytest.fixture
def slurm(tmp_path):
    """Yield a folder for submitting jobs, which end with the test."""
    launcher = Slurm(tmp_path)
    yield launcher
    for group in launcher.jobs():
        os.killpg(group, signal.SIGKILL)


@pytest.mark.slow
def test_the_readmes_slurm_commands_fit_the_same_model(slurm):
    """Bits are equal although workers are submitted as jobs; no job is left."""
    install, batch, direct = commands("Slurm")
    assert install == 'pip install ".[deploy]"'
    submitted = slurm(batch)
    assert submitted.stdout.startswith("Submitted batch job "), submitted.stderr
    wait_for(lambda: not slurm.jobs(), f"the end of the jobs\n{slurm.logs()}")
    assert "of 400 rows as relevance vectors" in slurm.logs()
    assert len(list(slurm.folder.glob("spool/*"))) == 1 + 4
    done = slurm(direct)
    assert done.returncode == 0, done.stderr
    assert "of 400 rows as relevance vectors" in done.stdout
    wait_for(lambda: not slurm.jobs(), f"the end of the worker jobs\n{slurm.logs()}")
    first, second = (
        partirvm.load_model(slurm.folder / "jobs" / name).predict([[0.0, 1.0]])
        for name in ("run1", "run2")
    )
    assert first == second == pytest.approx([5], abs=0.3)


@pytest.mark.slow
def test_a_batch_job_that_runs_out_of_time_keeps_the_model(slurm):
    """The signal from fit.sbatch stops the fit, whose model can predict."""
    script = DEPLOY.joinpath("fit.sbatch").read_text()
    directives = dict(re.findall(r"^#SBATCH --(\S+)=(\S+)$", script, re.MULTILINE))
    assert set(directives) == {"job-name", "output", "cpus-per-task", "mem", "time", "signal"}
    receiver, name, _ = re.split("[:@]", directives["signal"])
    assert receiver == "B"
    long = "--gamma 20 --partition-size 10 --max-rounds 500 --selection random"
    group = int(slurm(f"sbatch deploy/fit.sbatch trips.zarr jobs/run1 {long}").stdout.split()[-1])
    wait_for(lambda: slurm.rounds("jobs/run1") >= 2, f"two rounds\n{slurm.logs()}")
    os.kill(group, signal.Signals[f"SIG{name}"])
    wait_for(lambda: not slurm.jobs(), f"the end of the jobs\n{slurm.logs()}")
    assert "Aborted by a user: the model so far, if any, is usable" in slurm.logs()
    assert partirvm.load_model(slurm.folder / "jobs" / "run1").predict([[0.0, 1.0]]).shape == (1,)


@pytest.mark.slow
def test_the_worker_script_contains_the_options(slurm):
    """They are read as by Slurm and `dask worker`; sbatch is not needed."""
    slurm.env["PATH"] = environment()["PATH"]
    options = (
        "--threads 8 --memory 16GiB --time 02:00:00 --partition long --account sun --logs out "
        "--print-script"
    )
    done = slurm(f"python deploy/slurm.py {options} -- fit trips.zarr job")
    assert done.returncode == 0, done.stderr
    directives = dict(
        line.split()[1:]
        for line in done.stdout.splitlines()
        if line.startswith("#SBATCH -") and "=" not in line
    )
    assert directives.pop("-o") == "out/partirvm-worker-%J.out"
    assert directives.pop("-e") == "out/partirvm-worker-%J.err"
    expected = {"-J": "partirvm-worker", "-p": "long", "-A": "sun", "-n": "1", "-t": "02:00:00"}
    assert directives == expected
    assert "#SBATCH --cpus-per-task=8\n" in done.stdout
    assert "#SBATCH --mem=16384M\n" in done.stdout
    python, flag, module, *words = shlex.split(done.stdout.splitlines()[-1])
    assert (python, flag, module) == (sys.executable, "-m", "distributed.cli.dask_worker")
    worker = dask_worker.make_context("worker", words).params
    assert worker["scheduler"].startswith("tcp://")
    assert (worker["nthreads"], worker["nanny"], worker["death_timeout"]) == (8, True, "60")
    assert 0.85 * 2**34 < parse_bytes(worker["memory_limit"]) <= 0.9 * 2**34
