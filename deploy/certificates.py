#!/usr/bin/env python
"""Make the certificates for TLS between the scheduler, the workers and the clients of a Dask
cluster.

    python deploy/certificates.py certificates

makes a certificate authority for one cluster and, signed by it, a certificate for each role:

    certificates/scheduler/   ca.pem  cert.pem  key.pem  tls.yaml
    certificates/worker/      the same
    certificates/client/      the same

Copy to each machine only the folder of its role. ``tls.yaml`` is ``deploy/tls.yaml`` with the paths
of that folder; ``DASK_CONFIG=certificates/worker/tls.yaml`` makes Dask use it.

Anyone with one of the keys can run code on the cluster: all files have mode 0600. Dask trusts every
certificate of this authority and does not check host names, so one certificate serves all machines
of a role. The key of the authority is not saved, so no further certificate can be signed. To renew
certificates or to revoke one, make all of them again (``--overwrite``) and restart the cluster.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROLES = ("scheduler", "worker", "client")
SERVERS = ("scheduler", "worker")
"""Roles that accept connections. They also open connections."""

CONFIG = Path(__file__).with_name("tls.yaml")
PLACE = "/etc/partirvm/tls"
"""Folder of a role in ``CONFIG``."""

SKEW = timedelta(hours=1)
"""Maximum difference of the machines' clocks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").replace("``", ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where to make the folders of the roles")
    parser.add_argument("--days", type=_days, default=365, help="days of validity  [default: 365]")
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    chosen = parser.parse_args(arguments)
    try:
        make(chosen.folder, chosen.days, overwrite=chosen.overwrite)
    except FileExistsError as error:
        print(
            f"certificates: {error.filename} exists; --overwrite replaces it and all others",
            file=sys.stderr,
        )
        return 2
    except OSError as error:
        print(f"certificates: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print("\n".join(str(chosen.folder / role) for role in ROLES))
    return 0


def make(folder: Path, days: int = 365, *, overwrite: bool = False) -> None:
    """Make a certificate authority and the folder of each role.

    Raises ``FileExistsError`` before anything is written if one of the files exists and
    ``overwrite`` is false.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name(f"partirvm cluster {x509.random_serial_number():x}"[:64])
    ca = (
        _certificate(ca_name, ca_name, ca_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    files: dict[Path, bytes] = {}
    for role in ROLES:
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [
            ExtendedKeyUsageOID.CLIENT_AUTH,
            *[ExtendedKeyUsageOID.SERVER_AUTH] * (role in SERVERS),
        ]
        cert = (
            _certificate(_name(f"partirvm {role}"), ca_name, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()),
                critical=False,
            )
            .sign(ca_key, hashes.SHA256())
        )
        place = folder / role
        files[place / "ca.pem"] = ca.public_bytes(serialization.Encoding.PEM)
        files[place / "cert.pem"] = cert.public_bytes(serialization.Encoding.PEM)
        files[place / "key.pem"] = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        files[place / "tls.yaml"] = (
            CONFIG.read_text().replace(PLACE, str(place.absolute())).encode()
        )
    _write(files, overwrite)


def _write(files: dict[Path, bytes], overwrite: bool) -> None:
    for path in files:
        if path.exists() and not overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    for path, content in files.items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 3650:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of days from 1 to 3650")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
