"""A TLS cluster started by the README's commands accepts only clients with its certificates."""

import shutil
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from by_default import some
from clusters import free_port
from cryptography import x509
from deployment import (
    DEPLOY,
    commands,
    environment,
    prepared,
    replaced,
    run,
    split,
    started_servers,
)
from waiting import PATIENCE

import partirvm

ROLES = ("scheduler", "worker", "client")
FILES = ("ca.pem", "cert.pem", "key.pem", "tls.yaml")


class Cluster:
    """The README's scheduler and worker, with a free port."""

    def __init__(self, folder, servers):
        self.folder = prepared(folder)
        self.servers = servers
        self.port = free_port()
        make, scheduler, worker, self.fit, _ = commands("TLS")
        assert run(make, folder, environment()).returncode == 0
        ports = {
            "scheduler": ["--port", self.port, "--dashboard-address", ":0"],
            "worker": ["--death-timeout", "60"],
        }
        for line in (scheduler, worker):
            variables, words = split(line)
            servers.start([*self.here(words), *ports[words[1]]], environment(**variables))
        servers.wait_for(
            lambda: "Register worker addr: tls://" in servers.logs(), "a worker over TLS"
        )

    def here(self, words):
        """Return the words of a command, with this cluster's port."""
        return replaced(words, {"localhost:8786": f"127.0.0.1:{self.port}"})


@pytest.fixture(scope="module")
def cluster(processes, tmp_path_factory):
    """Yield a running cluster, its certificates, those of another authority, and a mixture."""
    folder = tmp_path_factory.mktemp("tls")
    with started_servers(folder) as servers:
        running = Cluster(folder, servers)
        other = folder / "other"
        mixed = folder / "mixed"
        script = [sys.executable, "deploy/certificates.py", "other"]
        assert run(script, folder, environment()).returncode == 0
        # trusts the cluster, but presents a certificate of the other authority
        shutil.copytree(other / "client", mixed)
        shutil.copy(folder / "certificates" / "client" / "ca.pem", mixed)
        text = mixed.joinpath("tls.yaml").read_text()
        mixed.joinpath("tls.yaml").write_text(text.replace(str(other / "client"), str(mixed)))
        yield running


@pytest.mark.slow
def test_a_fit_over_tls_has_the_same_bits_as_a_local_fit(cluster):
    """The fit uses the README's commands."""
    variables, words = split(cluster.fit)
    done = run(cluster.here(words), cluster.folder, environment(**variables))
    assert done.returncode == 0, done.stderr
    assert "Receive client connection" in cluster.servers.logs()
    local = ["partirvm", "fit", "trips.zarr", "alone"]
    assert run(local, cluster.folder, environment()).returncode == 0
    jobs = [cluster.folder / "jobs" / "run1", cluster.folder / "alone"]
    assert len({partirvm.load_model(job).predict([[0.0, 1.0]])[0] for job in jobs}) == 1
    assert cluster.servers.logs().count("TLS handshake failed") == 0


REFUSED = [(None, "tcp"), ("other/client", "tls"), ("certificates/client", "tcp")]
REFUSED += [(name, "tls") for name in (None, "mixed", "nowhere")]


@pytest.mark.parametrize(("config", "scheme"), some(REFUSED, ()))
def test_a_client_without_the_certificates_is_refused(cluster, config, scheme):
    """The error gives advice, and nothing is written."""
    environ = environment()
    if config == "nowhere":
        shutil.copy(DEPLOY / "tls.yaml", cluster.folder / "nowhere.yaml")
        environ = environment(DASK_CONFIG="nowhere.yaml")
    elif config:
        environ = environment(DASK_CONFIG=f"{config}/tls.yaml")
    address = f"{scheme}://127.0.0.1:{cluster.port}"
    fit = ["partirvm", "fit", "trips.zarr", "refused", "--scheduler", address]
    done = run(fit, cluster.folder, environ)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"no Dask scheduler responds at '{address}'" in done.stderr
    assert "pass its tls:// address, and set DASK_CONFIG to a tls.yaml" in done.stderr
    assert not cluster.folder.joinpath("refused").exists()


@pytest.mark.parametrize("shown", [None, "other/client", "certificates/client"])
def test_the_scheduler_requires_a_certificate(cluster, shown):
    """The scheduler answers only to the cluster's certificates, whatever the client checks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if shown:
        context.load_cert_chain(
            cluster.folder / shown / "cert.pem", cluster.folder / shown / "key.pem"
        )
    with socket.create_connection(("127.0.0.1", int(cluster.port)), timeout=PATIENCE) as plain:
        try:
            with context.wrap_socket(plain) as tls:
                greeting = tls.recv(1)
        except (ssl.SSLError, ConnectionError):
            greeting = b""
    assert bool(greeting) is (shown == "certificates/client")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Return certificates made by the script."""
    folder = tmp_path_factory.mktemp("certificates")
    command = [sys.executable, DEPLOY / "certificates.py", folder, "--days", "30"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.usefixtures("processes")
def test_certificates_are_private_and_expire(certificates):
    """They have mode 0600, 256-bit keys, 30 days, and an authority that signed nothing else."""
    assert sorted(
        path.relative_to(certificates).as_posix() for path in certificates.rglob("*.*")
    ) == sorted(f"{role}/{name}" for role in ROLES for name in FILES)
    assert {path.stat().st_mode & 0o777 for path in certificates.rglob("*.*")} == {0o600}
    authorities = set()
    for role in ROLES:
        ca, cert = (
            x509.load_pem_x509_certificate((certificates / role / name).read_bytes())
            for name in FILES[:2]
        )
        authorities.add(ca)
        cert.verify_directly_issued_by(ca)
        assert cert.public_key().key_size == ca.public_key().key_size == 256
        assert cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
        purposes = cert.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert (x509.ExtendedKeyUsageOID.SERVER_AUTH in purposes) is (role != "client")
        assert (
            timedelta(days=29) < cert.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=30)
        )
        assert cert.not_valid_before_utc < datetime.now(UTC)
        tls = yaml.safe_load((certificates / role / "tls.yaml").read_text())["distributed"]["comm"]
        assert (tls["require-encryption"], tls["default-scheme"]) == (True, "tls")
        assert tls["tls"]["ca-file"] == str(certificates / role / "ca.pem")
        assert all(
            tls["tls"][name]["key"] == str(certificates / role / "key.pem") for name in ROLES
        )
    assert len(authorities) == 1


@pytest.mark.usefixtures("processes")
def test_certificates_are_overwritten_only_on_request(certificates, tmp_path):
    """This holds even if only one of the files exists; new files have mode 0600 again."""
    script = [sys.executable, str(DEPLOY / "certificates.py")]
    one = tmp_path / "worker" / "key.pem"
    one.parent.mkdir()
    one.write_text("precious")
    done = run([*script, str(tmp_path)], tmp_path, environment())
    assert done.returncode == 2
    assert f"{one} exists; --overwrite" in done.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [one]
    one.chmod(0o644)
    assert run([*script, str(tmp_path), "--overwrite"], tmp_path, environment()).returncode == 0
    assert "PRIVATE KEY" in one.read_text()
    assert one.stat().st_mode & 0o777 == 0o600
