"""Messages, reports and certificates that several test modules share."""

from __future__ import annotations

import datetime as dt
import ssl
from ipaddress import IPv4Address
from pathlib import Path
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from criticizer.http_client import Limits
from notifications.providers.base import Message
from notifications.rendering import ExcerptLine, Report, ReportFile, ReportFinding

SENDER = "Criticizer <criticizer@reviews.test>"
# Plainly fake, assembled so that no scanner takes it for a real one.
SECRET_NEW = "whsec_" + "bmV3LXRlc3Qtc2VjcmV0LTAwMQ=="
SECRET_OLD = "whsec_" + "b2xkLXRlc3Qtc2VjcmV0LTAwMQ=="
# Only for a server that stays silent: on a busy machine any other may be slow to answer.
PATIENT, SHORT = Limits(), Limits(read_timeout_seconds=1.0)
REVIEWED_AT = dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC)


def message(address: str = "ann@example.com", token: int = 1, **changes: object) -> Message:
    fields: dict[str, object] = {
        "token": UUID(int=token, version=5),
        "address": address,
        "subject": "Review of 12345: 1 finding, 2 of 2 files read",
        "text": "One finding.\n.hidden starts with a dot\nümlaut\n",
        "html": "<!DOCTYPE html><html lang=en><body><p>One finding.</p></body></html>\n",
        "payload": {"type": "review.completed", "data": {"title": "ümlaut", "line": 3, "side": None}},
        "thread": "changelist:12345",
        "created_at_epoch": 1_772_600_767,
    }
    return Message(**{**fields, **changes})  # type: ignore[arg-type]


def reviewed(findings: int, *, url: str = "https://reviews.test/reviews/7/", **changes: object) -> Message:
    """Return the message of a review with so many findings, each with `changes`."""
    remark: dict[str, object] = {
        "file": "//depot/main/app.py",
        "line": 12,
        "end_line": 14,
        "severity": "high",
        "title": "The lock is not released",
        "message": "When read() raises, the lock stays taken.",
        "suggestion": "with lock:\n    read()",
        **changes,
    }
    data: dict[str, object] = {
        "title": "Read the file under a lock",
        "headline": f"{findings} findings, 1 of 2 files read",
        "url": url,
        "banner": "",
        "status_lines": [],
        "findings": [remark] * min(findings, 50),
        "findings_total": findings,
        "coverage": [
            {"file": "//depot/main/app.py", "status": "reviewed", "reason": ""},
            {"file": "//depot/main/logo.png", "status": "skipped", "reason": "binary"},
        ],
    }
    return message(payload={"type": "review.completed", "data": data})


def finding(**changes: object) -> ReportFinding:
    fields: dict[str, object] = {
        "file": "//depot/main/app.py",
        "severity": "high",
        "title": "The lock is not released",
        "message": "When read() raises, the lock stays taken.",
        "line": 12,
        "end_line": 14,
        "suggestion": "with lock:\n    read()",
        "source": "llm",
        "excerpt": (ExcerptLine("lock.acquire()", "+", 12), ExcerptLine("read()", " ", 13)),
    }
    return ReportFinding(**{**fields, **changes})  # type: ignore[arg-type]


def report(**changes: object) -> Report:
    fields: dict[str, object] = {
        "changelist_id": "12345",
        "review_version": 1,
        "title": "Read the file under a lock",
        "author": "bob",
        "url": "https://reviews.test/reviews/7/",
        "reviewed_at": REVIEWED_AT,
        "findings": (finding(),),
        "coverage": (
            ReportFile("//depot/main/app.py", "reviewed"),
            ReportFile("//depot/main/logo.png", "skipped", "binary"),
        ),
    }
    return Report(**{**fields, **changes})  # type: ignore[arg-type]


def tls_contexts(folder: Path, name: str = "127.0.0.1") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return (server, client that trusts it) of a fresh self-signed certificate for `name`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    general: x509.GeneralName = x509.IPAddress(IPv4Address(name)) if name[0].isdigit() else x509.DNSName(name)
    start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([general]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = folder / f"{name}.pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    client = ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
    return server, client
