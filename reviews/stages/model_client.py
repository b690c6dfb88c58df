"""The model client of stage llm: one per event loop, with circuit, rate limit and saved progress.

Adapters know neither settings nor tables; this module connects them to what all workers share.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, MutableMapping
from dataclasses import dataclass

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from criticizer.queue import outbox
from criticizer.resilience import gate, rate_limit
from criticizer.resilience.failures import DependencyUnavailable
from reviews import config, pipeline
from reviews.pipeline import StageClaim
from reviews.pipeline.async_executor import in_thread
from reviews.pipeline.executor import with_reconnect
from reviews.reviewers.anthropic import AnthropicClient
from reviews.reviewers.model import LlmConfig, ModelClient
from reviews.reviewers.openai import OpenAIClient

SHORT_SECONDS = 2.0  # shorter waits are slept: giving the attempt back costs more
PATIENCE_SECONDS = 10.0  # of such waits before one call; then the attempt is given back
_SHORTEST_SECONDS = 0.01
KEEP_SECONDS = 3.0  # a killed worker loses at most the answers of this time

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """The model of one event loop. `name` is that of the dependency; `slots` bound its calls."""

    name: str
    client: ModelClient
    slots: asyncio.Semaphore

    @contextlib.asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """Admit one call and report its outcome.

        Raises DependencyUnavailable when it must not start now, or when its failure uses no attempt.
        """
        permit = await _admitted(self.name)
        try:
            yield
        except BaseException as error:
            failure = error
            waiting = await asyncio.shield(in_thread(lambda: permit.report(failure)))
            if waiting is not None:
                raise waiting from error
            raise
        await asyncio.shield(in_thread(lambda: permit.report(None)))


async def _admitted(name: str) -> gate.Permit:
    """Return a permit, after short waits. Raises DependencyUnavailable for a longer one."""
    patience = outbox.scaled(PATIENCE_SECONDS)
    while True:
        try:
            return await _admit(name)
        except DependencyUnavailable as waiting:
            if not is_short(waiting) or patience <= 0:
                raise
            seconds = max(waiting.seconds, _SHORTEST_SECONDS)
        patience -= seconds
        await asyncio.sleep(seconds)


def is_short(waiting: DependencyUnavailable) -> bool:
    """Return whether a wait is slept instead of giving the attempt back."""
    return waiting.seconds <= outbox.scaled(SHORT_SECONDS)


async def _admit(name: str) -> gate.Permit:
    asked = asyncio.ensure_future(in_thread(lambda: with_reconnect(lambda: gate.acquire_permit(name))))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        # A half-open call or a slot that is not released would be missing to all workers for a while.
        with contextlib.suppress(DependencyUnavailable):
            permit = await asked
            await in_thread(permit.release)
        raise


# One client per event loop: its connections belong to the loop.
_models: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, tuple[Model, AsyncGenerator[ModelClient, None]]
] = weakref.WeakKeyDictionary()


async def open_model() -> Model | None:
    """Return this loop's model, or None with LLM_PROVIDER=none."""
    llm = config.model()
    if llm is None:
        return None
    loop = asyncio.get_running_loop()
    if loop not in _models:
        opened = _open(llm)
        name = config.model_dependency()
        # Above the limit that all workers share, calls could only be given back.
        slots = min(llm.max_concurrency, rate_limit.concurrency_limit_of(name) or llm.max_concurrency)
        _models[loop] = (Model(name, await anext(opened), asyncio.Semaphore(slots)), opened)
    return _models[loop][0]


def new_client(llm: LlmConfig) -> ModelClient:
    """Return a client of the configured provider, for one event loop."""
    return OpenAIClient(llm) if settings.LLM_PROVIDER == "openai" else AnthropicClient(llm)


async def _open(llm: LlmConfig) -> AsyncGenerator[ModelClient, None]:
    # asyncio.run closes unfinished generators at its end, and with this one the connections.
    client = new_client(llm)
    try:
        yield client
    finally:
        await client.aclose()


class ProgressKeeper:
    """Saves the finished parts of a running review, so that they survive a killed worker (guarantee G22).

    KEEP_SECONDS after the first unsaved part, all finished ones are written at once.
    """

    def __init__(self, claim: StageClaim, progress: MutableMapping[str, str]) -> None:
        self._claim = claim
        self._progress = progress
        self._kept = len(progress)
        self._task: asyncio.Task[None] | None = None
        self._is_writing = False

    def note(self) -> None:
        """Note that a part is finished."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_going())

    async def close(self) -> None:
        """End the background writes."""
        task, self._task = self._task, None
        if task is None:
            return
        if not self._is_writing:
            task.cancel()
        # A running write ends first: it must not overwrite a newer one.
        await asyncio.wait([task])

    async def keep_rest(self) -> None:
        """Write the finished parts, across a lost connection. For an attempt that ends early."""
        await self.close()
        if self._has_more():
            await asyncio.shield(in_thread(lambda: with_reconnect(self._write)))

    async def _keep_going(self) -> None:
        while self._has_more():
            await asyncio.sleep(KEEP_SECONDS)
            self._is_writing = True
            try:
                await in_thread(self._write)
            except (DatabaseError, InterfaceError) as error:
                log.warning("progress_not_kept", job=self._claim.job_id, error=type(error).__name__)
            finally:
                self._is_writing = False
            if self._task is None:
                return

    def _has_more(self) -> bool:
        return len(self._progress) > self._kept

    def _write(self) -> None:
        finished = dict(self._progress)
        pipeline.keep_progress(self._claim, finished)
        self._kept = len(finished)
