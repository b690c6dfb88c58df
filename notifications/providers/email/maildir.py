"""Mail into a local maildir: the default while no mail server is configured.

The file's name depends on the message alone, so its presence proves that the message was accepted, and its
absence that it was not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from criticizer.resilience.failures import ErrorClass
from criticizer.storage import sync
from notifications.providers.base import Capabilities, Evidence, LookUp, LookUpBy, Message, Question
from notifications.providers.email import mime
from notifications.providers.failures import misconfigured, retryable, uncertain


class Maildir:
    """Delivers as in maildir(5): written in `tmp`, then linked into `new` in one step."""

    name = "maildir"
    # A reader may move a message to `cur` between two sends, so only a look-up before a repetition prevents
    # duplicates.
    capabilities = Capabilities(
        look_up=frozenset({LookUpBy.KEY}),
        resends_after_absence=None,
        recipients_delete=True,
        absence="no file of the message's name in `new` or `cur`",
    )

    def __init__(self, directory: Path, sender: str) -> None:
        """Raises ValueError when `sender` is not a mail address."""
        mime.envelope_sender(sender)
        self._directory = directory
        self._sender = sender

    def send(self, message: Message) -> str:
        """Return the file's name in `new`.

        Raises PermanentFailure CONFIG_INVALID when the directory may not be written,
        RetryableFailure UPSTREAM_UNAVAILABLE when the disk is full or failing,
        UncertainFailure UPSTREAM_UNAVAILABLE when it failed after the message appeared.
        """
        name = self._name(message)
        content = mime.as_bytes(message, self._sender, linesep="\n")
        delivered = False
        try:
            with self._draft(name, content) as draft:
                # link, not rename: it refuses to replace what an earlier attempt delivered.
                with suppress(FileExistsError):
                    os.link(draft, self._directory / "new" / name)
                delivered = True
            sync(self._directory / "new")
        except OSError as error:
            detail = f"the maildir failed: {error.strerror}"
            if delivered:
                raise uncertain(ErrorClass.UPSTREAM_UNAVAILABLE, detail) from error
            if isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
                raise misconfigured(detail) from error
            raise retryable(ErrorClass.UPSTREAM_UNAVAILABLE, detail) from error
        return name

    def look_up(self, question: Question) -> LookUp:
        """Look for the file in `new` and, with any flags, in `cur`."""
        name = self._name(question.message)
        try:
            if (self._directory / "new" / name).exists():
                return LookUp(Evidence.FOUND, name)
            read = (self._directory / "cur").glob(f"{name}:*")
            return LookUp(Evidence.FOUND, name) if any(read) else LookUp(Evidence.ABSENT)
        except OSError as error:
            detail = f"the maildir failed: {error.strerror}"
            raise retryable(ErrorClass.UPSTREAM_UNAVAILABLE, detail) from error

    def probe(self) -> str:
        """Make the folders and write a draft that is removed again."""
        try:
            with self._draft("probe", b""):
                pass
        except OSError as error:
            raise misconfigured(f"the maildir cannot be written: {error.strerror}") from error
        return "The maildir can be written."

    @contextmanager
    def _draft(self, name: str, content: bytes) -> Iterator[Path]:
        """Write a file in `tmp` that is removed after the block.

        Makes the folders where they are missing.
        """
        for folder in ("tmp", "new", "cur"):
            (self._directory / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._directory / "tmp" / f"{name}.{os.getpid()}.{uuid4().hex}"
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    @staticmethod
    def _name(message: Message) -> str:
        return f"{message.created_at_epoch}.{message.token}.criticizer"
