"""Clients for measuring: one asks a model patiently and records it, one repeats the record."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from criticizer.resilience.failures import RetryableFailure
from reviews.reviewers.model import ModelAnswer, ModelClient, ModelRequest

PAUSES = (2.0, 10.0, 30.0, 60.0)  # seconds before each further try


class NotMeasured(Exception):
    """Raised where there is no figure to give; the message says why and what to do."""


class PatientClient:
    """A client that asks again after a retryable failure (`ModelClient`).

    So a rate limit does not end hours of measuring. It may record the answers in a file.
    """

    def __init__(self, client: ModelClient, record: Path | None = None) -> None:
        """Create `record` so that only its owner can read it: it quotes code.

        Raises NotMeasured when it cannot be written.
        """
        try:
            if record is not None:
                record.touch(mode=0o600)
        except OSError as error:
            raise NotMeasured(f"the answers cannot be recorded in {record}: {error.strerror}") from error
        self._client = client
        self._record = record

    @property
    def model(self) -> str:
        return self._client.model

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        for seconds in (*PAUSES, None):
            try:
                answer = await self._client.complete(request)
                break
            except RetryableFailure as failure:
                if seconds is None:
                    raise
                await asyncio.sleep(max(seconds, failure.retry_after_seconds or 0))
        if self._record is not None:
            line = json.dumps({"request": _digest(request), **asdict(answer)})
            with self._record.open("a") as file:
                file.write(f"{line}\n")
        return answer

    async def aclose(self) -> None:
        await self._client.aclose()


class Replay:
    """A client that answers as recorded (`ModelClient`).

    Raises NotMeasured for a request that has no recorded answer.
    """

    def __init__(self, file: Path) -> None:
        """Read the recording. Raises NotMeasured when the file holds none."""
        try:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            self._answers = {row.pop("request"): ModelAnswer(**row) for row in rows}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise NotMeasured(f"{file} holds no recorded answers: {error}") from error
        self.model = next((answer.model for answer in self._answers.values() if answer.model), "recorded")

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = self._answers.get(_digest(request))
        if answer is None:
            raise NotMeasured(
                "a request has no recorded answer: the corpus, the seed, the limits or the prompts changed "
                "since the recording. Record again with: evaluate real --record FILE"
            )
        return answer

    async def aclose(self) -> None:
        pass


def _digest(request: ModelRequest) -> str:
    return hashlib.sha256(f"{request.system}\0{request.user.text}".encode(errors="surrogatepass")).hexdigest()
