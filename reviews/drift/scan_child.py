"""Scanning process: reads a commit with git and sends the verdicts of each document.

    in:  {git, sha, is_whole, kinds}         then an answer to each question
    out: {"ask": paths}                      which of them may be seen?
         {"choose": paths}                   which of these documents are to be read?
         {"found": [[path, claims, unread]], "beyond": documents, "left_out": statements,
              "cut": sentences}
                                             and which of them are to be verified?
         {"begin": path}, {"document": …}    one after the other, with the files that did not parse so far
         {"defect": type}                    the document met an exception of this type; the process ends
         {"end": true} or {"failure": …}

A message is JSON. Documents and code are of others: what parses them has neither a database nor settings nor
an environment, and limits of the kernel end it. What goes wrong in a document ends the process without a
failure: the parent knows which document it was, and leaves it out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from criticizer.resilience.failures import Component, ErrorClass, Failure, PermanentFailure
from criticizer.workers.child_process import Parent, fields_of, live_within
from reviews.drift.claims import Claim, Judgement, Kind
from reviews.drift.scanner import Scanner
from reviews.drift.walk import Document
from reviews.sources.git_command import GitCommand

MEMORY_BYTES = 1_500_000_000  # address space
GIT_SECONDS = 60.0  # of one command
NO_MEMORY, DEFECT = 3, 4  # exit statuses


class _Pipe:
    def __init__(self) -> None:
        self._parent = Parent()

    def send(self, message: Mapping[str, Any]) -> None:
        self._parent.send(json.dumps(message).encode())

    def receive(self) -> Any:
        if not (message := self._parent.receive()):
            sys.exit(1)  # the parent has gone
        return json.loads(message)

    def ask(self, message: Mapping[str, Any]) -> Any:
        self.send(message)
        return self.receive()


def main() -> None:
    """Serve one scan."""
    live_within(MEMORY_BYTES)
    pipe = _Pipe()
    try:
        _scan(pipe, pipe.receive())
    except Failure as failure:
        found = failure
    except MemoryError:
        found = PermanentFailure(
            ErrorClass.POLICY_REJECTED, Component.INTERNAL, "the documents take more memory than a scan may"
        )
    except Exception as error:  # noqa: BLE001  its message may quote a document
        found = PermanentFailure(
            ErrorClass.INTERNAL_BUG, Component.INTERNAL, f"the scan failed: {type(error).__name__}"
        )
    else:
        return
    pipe.send({"failure": fields_of(found)})


def _scan(pipe: _Pipe, asked: Mapping[str, Any]) -> None:
    name, repository, executable = asked["git"]
    git = GitCommand(name, Path(repository), executable, GIT_SECONDS)

    def sees(paths: Sequence[str]) -> Sequence[bool]:
        return list(pipe.ask({"ask": list(paths)}))

    scanner = Scanner(git, asked["sha"], sees, is_whole=asked["is_whole"])
    chosen = pipe.ask({"choose": scanner.paths})
    documents, beyond = scanner.documents(chosen, [Kind(kind) for kind in asked["kinds"]])
    found = [[each.path, len(each.claims), each.unread] for each in documents]
    counts = {"beyond": beyond, "left_out": scanner.report.left_out, "cut": scanner.report.cut}
    wanted = set(pipe.ask({"found": found, **counts}))
    left = [each for each in documents if each.path in wanted]
    scanner.look_for(left)
    for document in left:
        pipe.send({"begin": document.path})
        _verify(pipe, scanner, document)
    pipe.send({"end": True})


def _verify(pipe: _Pipe, scanner: Scanner, document: Document) -> None:
    """Send the verdicts of a document. A defect that it alone causes ends the process."""
    try:
        claims = [_fields(claim, judged) for claim, judged in scanner.verified(document)]
        pipe.send({"document": document.path, "claims": claims, "not_indexed": scanner.unparsed})
    except MemoryError:
        os._exit(NO_MEMORY)
    except Failure as failure:
        if failure.error_class is not ErrorClass.POLICY_REJECTED:  # git took too much time for this document
            raise
        os._exit(DEFECT)
    except Exception as error:  # noqa: BLE001  its message may quote the document
        pipe.send({"defect": type(error).__name__})
        os._exit(DEFECT)


def _fields(claim: Claim, judged: Judgement) -> dict[str, Any]:
    said = {"line": claim.line, "kind": claim.kind, "text": claim.text, "key": list(claim.key)}
    return {**said, **judged._asdict()}


if __name__ == "__main__":
    main()
