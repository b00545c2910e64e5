"""Fixtures for command-line tests."""

import json
import signal

import pytest
from commandline import Tour, started

from partirvm.cli import main


@pytest.fixture(scope="session")
def tour(tmp_path_factory):
    return Tour(tmp_path_factory.mktemp("tour"))


@pytest.fixture(scope="session", autouse=True)
def ctrl_c():
    """Handle Ctrl-C, which shells make background jobs and their children ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    while started:
        with started.pop() as process:
            process.kill()


@pytest.fixture
def cli(capsys):
    """Return a function that runs a command here and returns exit status, stdout and stderr."""

    def run(*arguments):
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def cli_json(cli):
    """Return a function that runs a command here and parses its line of JSON."""

    def run(*arguments):
        status, out, err = cli(*arguments)
        assert status == 0, err
        assert out.count("\n") == 1
        return json.loads(out)

    return run
