"""The redacting process: a raw change comes in, its redacted form goes out (guarantee G161).

It has no database, no settings and no environment; it gets the policy with each change and the
installation's own secrets, which it must find, once through its pipe. Each change is prepared in a
fork that ends with it, so that memory comes back and limits of the kernel end a fork that takes too
much. A fork that did not answer ends this process too, with a status that says why: `redactor`
starts another. Edits are proven here too, on the raw change: a word for each goes out. Documents are
verified here as well, because they are parsed like the code they are about.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Sequence
from typing import Any

from criticizer.redaction import Redactor, clean_stack, register_own_secrets
from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure
from criticizer.workers.child_process import Parent, fields_of, live_within
from reviews.drift import recording
from reviews.reviewers import prepared_change_codec
from reviews.reviewers.base import Edit
from reviews.reviewers.edit_proofs import why_refused
from reviews.reviewers.prepare import ReviewLimits, prepare
from reviews.sources import change_codec
from reviews.sources.base import Change

CPU_SECONDS = 15  # for a whole change: three times what 10 MB of ordinary code need
MEMORY_BYTES = 1_500_000_000  # address space

NO_MEMORY = 3  # exit status
SIGNALED = 64  # exit status of a process ended by a signal, less its number


def main() -> None:
    """Serve changes until the pipe is closed."""
    parent = Parent()
    register_own_secrets(json.loads(parent.receive() or b"[]"))
    gc.freeze()
    while options := parent.receive():
        if (fork := os.fork()) == 0:
            _serve(parent, json.loads(options))
        _, status = os.waitpid(fork, 0)
        # Without the clean-up of the interpreter: `redactor` waits for the status.
        if os.WIFSIGNALED(status):
            os._exit(SIGNALED + os.WTERMSIG(status))
        if status:
            os._exit(os.WEXITSTATUS(status))


def _serve(parent: Parent, options: dict[str, Any]) -> None:
    """Prepare one change within the limits, answer and end. In the fork."""
    live_within(options["memory_bytes"], options["cpu_seconds"])
    try:
        parent.send(_answer(parent.receive(), options))
    except MemoryError:
        os._exit(NO_MEMORY)
    except BaseException:  # noqa: BLE001  the parent has gone
        os._exit(1)
    os._exit(0)


def _answer(raw: bytes, options: dict[str, Any]) -> bytes:
    """Return `+` and the redacted change, or `-` and the failure."""
    try:
        if "documents" in options:
            return b"+" + recording.answer(raw)
        change = change_codec.from_json(raw)
        del raw
        if "edits" in options:
            return b"+" + json.dumps(_refusals(change, options["edits"])).encode()
        prepared = prepare(change, Redactor(options["policy"]), ReviewLimits(**options["limits"]))
        return b"+" + prepared_change_codec.to_json(prepared, options["recipe"])
    except Failure as failure:
        found = failure
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  its message may quote the change
        found = PermanentFailure(
            ErrorClass.INTERNAL_BUG,
            Component.INTERNAL,
            f"the preparation of the change failed: {type(error).__name__}",
            context={"stack": clean_stack(error)[-2000:]},
        )
    return b"-" + json.dumps(fields_of(found)).encode()


def _refusals(change: Change, edits: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return why each edit, with its file's path, must not be offered, "" where it is proven."""
    files = {file.path: file for file in change.files}
    return [why_refused(files.get(path), Edit.of(**fields)) for path, fields in edits]


if __name__ == "__main__":
    main()
