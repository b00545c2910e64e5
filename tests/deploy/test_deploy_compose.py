"""The compose file: its commands run as local processes, and its services have limits."""

import psutil
import pytest
import yaml
from clusters import free_port
from dask.utils import parse_bytes
from deployment import DEPLOY, commands, environment, replaced, run, split, started_servers, table
from distributed.cli.dask_worker import main as dask_worker

import partirvm

COMPOSE = yaml.safe_load(DEPLOY.joinpath("compose.yaml").read_text())
SERVICES = COMPOSE["services"]
SERVERS = ("scheduler", "worker")


class Machine:
    """The project on this machine, with processes as containers and a folder as the volume."""

    def __init__(self, folder, servers):
        self.folder = folder
        self.servers = servers
        self.port = free_port()
        self.checks = []
        folder.joinpath("data").mkdir()

    def __call__(self, line):
        """Run a `docker compose` line; return what its command printed."""
        words = split(line)[1]
        assert words[:4] == ["docker", "compose", "--file", "deploy/compose.yaml"]
        verb, *rest = words[4:]
        return getattr(self, verb)(*rest)

    def up(self, *options):
        assert options == ("--build", "--detach", "--wait")
        for name in SERVERS:
            for _ in range(SERVICES[name].get("deploy", {}).get("replicas", 1)):
                names = self.names(free_port())
                self.servers.start(replaced(SERVICES[name]["command"], names), environment())
                kind, *check = SERVICES[name]["healthcheck"]["test"]
                assert kind == "CMD"
                self.checks.append(replaced(check, names))
        for check in self.checks:
            self.servers.wait_for(lambda check=check: self.run_check(check) == 0, f"{check}")
        return ""

    def run(self, *words):
        names = self.names()
        arguments = list(words)
        while (option := arguments.pop(0)) != "partirvm":
            assert option in ("--rm", "--volume")
            if option == "--volume":
                there, here, mode = arguments.pop(0).split(":")
                assert (there, mode) == ("$PWD", "ro")
                names[here] = str(self.folder)
        command = replaced([*SERVICES["partirvm"]["entrypoint"], *arguments], names)
        done = run(command, self.folder, environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    def down(self):
        self.servers.stop()
        return ""

    def run_check(self, check):
        return run(check, self.folder, environment()).returncode

    def names(self, http=""):
        """Return the names that containers use, and their equivalents on this machine."""
        scheduler = f"127.0.0.1:{self.port}"
        names = {"scheduler:8786": scheduler, "8786": self.port, "8787": http}
        return names | {"/data": str(self.folder / "data")}


@pytest.mark.slow
def test_the_readmes_compose_commands_fit_a_model(tmp_path):
    """Health checks pass while the servers run, and fail without them."""
    table(tmp_path / "trips.csv")
    with started_servers(tmp_path) as servers:
        machine = Machine(tmp_path, servers)
        up, ingest, fit, down = commands("Docker compose")
        machine(up)
        assert len(machine.checks) == 3
        assert "400 rows × 2 features → fare" in machine(ingest)
        servers.wait_for(lambda: servers.logs().count("Register worker addr") == 2, "two workers")
        processes_here = [*psutil.process_iter()]
        nannies = [one for one in processes_here if machine.port in "".join(cmdline(one))]
        container = parse_bytes(SERVICES["worker"]["mem_limit"] + "iB")
        beyond_worker = container - parse_bytes(worker_options()["memory_limit"])
        assert max(nanny.memory_info().rss for nanny in nannies) < beyond_worker / 2
        assert "of 400 rows as relevance vectors" in machine(fit)
        machine(down)
        assert all(machine.run_check(check) != 0 for check in machine.checks)
    model = partirvm.load_model(tmp_path / "data" / "jobs" / "run1")
    assert model.predict([[0.0, 1.0]]) == pytest.approx([5], abs=0.3)


def cmdline(process):
    """Return the words that started a process; none if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def worker_options():
    """Return the options of the worker's command, as `dask worker` reads them."""
    program, verb, *options = SERVICES["worker"]["command"]
    assert (program, verb) == ("dask", "worker")
    return dask_worker.make_context("worker", options).params


def test_the_worker_fits_in_its_container():
    """Its threads and memory are within the limits of the container."""
    worker = SERVICES["worker"]
    options = worker_options()
    assert options["nthreads"] <= worker["cpus"]
    assert "--nworkers" not in worker["command"]
    assert float(options["death_timeout"]) <= 60
    assert parse_bytes(options["memory_limit"]) + 256 * 2**20 <= parse_bytes(
        worker["mem_limit"] + "iB"
    )


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_limits(name):
    service = SERVICES[name]
    assert service["image"] == f"partirvm:{partirvm.__version__}"
    assert service["mem_limit"] == service["memswap_limit"]
    assert "data:/data" in service["volumes"]
    assert not {"privileged", "network_mode", "user"} & set(service)
    if name in SERVERS:
        assert service["restart"] == "unless-stopped"
        assert {"interval", "timeout", "retries", "start_period"} <= set(service["healthcheck"])
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
