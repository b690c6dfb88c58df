"""A real Dovecot on loopback, with one user, one maildir and what a test delivers into it.

    with Dovecot(tls_pem) as imap:
        imap.deliver(raw)
        ... ask imap.url ...

It runs as whoever runs the tests; mailboxes never belong to root, whom Dovecot refuses to serve.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Self

USER, PASSWORD = "archive@reviews.test", "imap-for-tests"
_PATHS = "/usr/sbin:/usr/local/sbin"
_START_SECONDS = 20.0


def why_missing() -> str:
    """Return why no Dovecot can be started here, or nothing."""
    program = _program()
    if program is None:
        return "Dovecot is not installed (Debian: dovecot-imapd)"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    # 2.4 renamed most of what the configuration below says.
    return "" if version.startswith("2.3.") else f"Dovecot {version.split(' ')[0]} is not 2.3"


def _program() -> str | None:
    return shutil.which("dovecot") or shutil.which("dovecot", path=_PATHS)


class Dovecot:
    """A Dovecot with two ports: `port` speaks STARTTLS, `tls_port` TLS from the start.

    `pem` holds key and certificate.
    """

    def __init__(self, pem: Path, *, plain_login: bool = True) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="dovecot-", dir="/tmp"))
        self._pem = pem
        self._plain_login = plain_login
        self._numbers = count(1)
        self.maildir = self._folder / "Maildir"
        self.port, self.tls_port = _free_port(), _free_port()

    @property
    def url(self) -> str:
        return f"imap://{USER.replace('@', '%40')}:{PASSWORD}@127.0.0.1:{self.port}/INBOX"

    def __enter__(self) -> Self:
        self._write()
        program = _program()
        assert program is not None
        self._process = subprocess.Popen([program, "-F", "-c", str(self._folder / "dovecot.conf")])
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "log").read_text()
                self.__exit__()
                raise RuntimeError(f"Dovecot did not start: {said}")
            time.sleep(0.02)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(20)
        shutil.rmtree(self._folder, ignore_errors=True)

    def deliver(self, raw: bytes) -> None:
        """Put a mail into the mailbox as maildir(5) says."""
        name = f"{time.time_ns()}.{next(self._numbers)}.test"
        draft = self.maildir / "tmp" / name
        draft.write_bytes(raw.replace(b"\r\n", b"\n"))
        if os.geteuid() == 0:
            os.chown(draft, *_owner())
        draft.rename(self.maildir / "new" / name)

    def mails(self) -> list[bytes]:
        """Return what the mailbox holds."""
        return [
            path.read_bytes() for box in ("new", "cur") for path in sorted((self.maildir / box).iterdir())
        ]

    def empty(self) -> None:
        for box in ("new", "cur"):
            for path in (self.maildir / box).iterdir():
                path.unlink()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(2)
                return connection.recv(64).startswith(b"* OK")
        except OSError:
            return False

    def _write(self) -> None:
        self._folder.chmod(0o755)
        for box in ("tmp", "new", "cur"):
            (self.maildir / box).mkdir(parents=True, exist_ok=True)
        (self._folder / "home").mkdir()
        (self._folder / "users").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
        uid, gid = _owner()
        if os.geteuid() == 0:
            for path in (self.maildir, *self.maildir.iterdir(), self._folder / "home"):
                os.chown(path, uid, gid)
            users = "default_internal_user = dovecot\ndefault_login_user = dovenull"
        else:
            me = pwd.getpwuid(os.geteuid()).pw_name
            group = grp.getgrgid(os.getegid()).gr_name
            users = (
                f"default_internal_user = {me}\ndefault_internal_group = {group}\ndefault_login_user = {me}"
            )
        (self._folder / "dovecot.conf").write_text(f"""
protocols = imap
listen = 127.0.0.1
base_dir = {self._folder}/run
state_dir = {self._folder}/state
instance_name = {self._folder.name}
log_path = {self._folder}/log
{users}
ssl = yes
ssl_cert = <{self._pem}
ssl_key = <{self._pem}
disable_plaintext_auth = {"no" if self._plain_login else "yes"}
login_trusted_networks =
auth_mechanisms = plain
auth_failure_delay = 0
passdb {{
  driver = passwd-file
  args = {self._folder}/users
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={self._folder}/home
}}
first_valid_uid = 1
first_valid_gid = 1
mail_location = maildir:{self.maildir}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {self.port}
  }}
  inet_listener imaps {{
    port = {self.tls_port}
    ssl = yes
  }}
}}
""")


def _owner() -> tuple[int, int]:
    """Return (uid, gid) of the mailboxes."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
