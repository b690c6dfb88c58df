"""Clients of models for stage llm, with circuit breaker, rate limit and saved progress.

Adapters know neither settings nor tables; this module connects them to those that all workers share.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError

from criticizer.queue import outbox
from criticizer.resilience import gate, rate_limit
from criticizer.resilience.failures import Component, DependencyUnavailable, Failure
from reviews import config, pipeline, token_ledger
from reviews.pipeline import StageClaim
from reviews.pipeline.async_executor import in_database, in_thread
from reviews.pipeline.dependencies import away
from reviews.pipeline.executor import with_reconnect
from reviews.reviewers.anthropic import AnthropicClient
from reviews.reviewers.model import LimitReached, LlmConfig, ModelAnswer, ModelClient, ModelRequest
from reviews.reviewers.model_calls import OF_THE_PART
from reviews.reviewers.openai import OpenAIClient
from reviews.token_ledger import TokenLedger

SHORT_SECONDS = 2.0  # shorter waits are slept: giving the attempt back costs more
PATIENCE_SECONDS = 10.0  # of such waits before one call; then the attempt is given back
_SHORTEST_SECONDS = 0.01
KEEP_SECONDS = 3.0  # a killed worker loses at most the answers of this time

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Model:
    """A model of one event loop; `name` is its dependency's, and `slots` bound its calls.

    `verifier` judges findings: the same client, that of another model of the server, or None.
    """

    name: str
    client: ModelClient
    verifier: ModelClient | None
    slots: asyncio.Semaphore


@contextlib.asynccontextmanager
async def calling(name: str, *, has_backup: bool = False) -> AsyncIterator[None]:
    """Admit one call to a dependency and report its outcome.

    Raises DependencyUnavailable when it must not start now, or when its failure uses no attempt.
    """
    permit = await _admitted(name, has_backup)
    try:
        yield
    except BaseException as error:
        failure = error
        waiting = await asyncio.shield(in_thread(lambda: permit.report(failure)))
        if waiting is not None:
            raise waiting from error
        raise
    await asyncio.shield(in_thread(lambda: permit.report(None)))


@dataclass(frozen=True, slots=True)
class Backed:
    """A client (`ModelClient`) of a model that may have a second one as its fallback.

    The second model is asked while the circuit of the first is not closed, and when a failure of the first
    one's server would end the job (guarantee G186). When the second fails too, the review ends or waits as it
    would without it.
    """

    models: tuple[Model, ...]
    ledger: TokenLedger
    is_last_attempt: bool = False

    @property
    def model(self) -> str:
        """Return the name of the first model, under which answers of the second count as well."""
        return self.models[0].client.model

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask each model at most once (see `ModelClient.complete`).

        Raises DependencyUnavailable and LimitReached as well.
        """

        async def ask(model: Model) -> ModelAnswer:
            reserve = partial(
                self.ledger.reserve, request.call_id, model.name, model.client.model, request.characters
            )
            async with calling(model.name, has_backup=model is not self.models[-1]):
                return await settled(reserve, partial(model.client.complete, request))

        first, *others = self.models
        try:
            return await ask(first)
        except (Failure, DependencyUnavailable) as error:
            if not others or not await self._falls_back(error):
                raise
            reason = error
        log.warning("model_fallback", call=request.call_id, dependency=first.name, fallback=others[0].name)
        try:
            return replace(await ask(others[0]), by_fallback=True)
        except Failure as error:
            if error.error_class in OF_THE_PART:
                raise
        except DependencyUnavailable as waiting:
            if isinstance(reason, DependencyUnavailable) and waiting.seconds < reason.seconds:
                raise
        raise reason

    async def _falls_back(self, error: Failure | DependencyUnavailable) -> bool:
        if isinstance(error, Failure):
            is_of_server = error.component is Component.REVIEWER and error.error_class not in OF_THE_PART
            return is_of_server and (self.is_last_attempt or not error.retryable)
        # A rate limit ends soon.
        return await _is_away(self.models[0].name)

    async def aclose(self) -> None:
        pass  # the loop closes its clients


async def settled(reserve: Callable[[], int], call: Callable[[], Awaitable[ModelAnswer]]) -> ModelAnswer:
    """Reserve the tokens of a call, make it and settle it in the token ledger (guarantee G390)."""
    reserving = asyncio.ensure_future(in_database(reserve))
    try:
        entry = await asyncio.shield(reserving)
    except asyncio.CancelledError:
        with contextlib.suppress(LimitReached):
            unsent = await reserving
            await in_thread(lambda: _settle(unsent, None))
        raise
    try:
        answer = await call()
    except BaseException as error:
        failure = error
        await asyncio.shield(in_thread(lambda: _settle(entry, failure)))
        raise
    await asyncio.shield(in_thread(lambda: _settle(entry, answer)))
    return answer


def _settle(entry: int, outcome: ModelAnswer | BaseException | None) -> None:
    """Settle a call in the token ledger, across a lost connection.

    Where that fails, the reserved estimate stays, and the answer is not lost.
    """
    try:
        with_reconnect(lambda: token_ledger.settle(entry, outcome))
    except (DatabaseError, InterfaceError) as error:
        log.warning("call_not_settled", entry=entry, error=type(error).__name__)


def verifier_of(models: Sequence[Model], ledger: TokenLedger, is_last_attempt: bool) -> ModelClient | None:
    """Return the client that judges findings, or None with LLM_VERIFY=off."""
    judges = tuple(replace(model, client=model.verifier) for model in models if model.verifier)
    return Backed(judges, ledger, is_last_attempt) if judges else None


def wait_of(models: Sequence[Model]) -> DependencyUnavailable | None:
    """Return the wait of a review for its models, or None when one may be called soon."""
    waits = []
    for model in models:
        try:
            gate.check(model.name)
            return None
        except DependencyUnavailable as waiting:
            if is_short(waiting):
                return None
            waits.append(waiting)
            if not away([model.name]):
                break
    return min(waits, key=lambda waiting: waiting.seconds)


async def _is_away(name: str) -> bool:
    return await in_database(lambda: bool(away([name])))


async def _admitted(name: str, has_backup: bool) -> gate.Permit:
    """Return a permit, after short waits. Raises DependencyUnavailable for a longer one."""
    patience = outbox.scaled(PATIENCE_SECONDS)
    while True:
        try:
            return await _admit(name)
        except DependencyUnavailable as waiting:
            if not is_short(waiting) or patience <= 0:
                raise
            if has_backup and await _is_away(name):
                raise
            seconds = max(waiting.seconds, _SHORTEST_SECONDS)
        patience -= seconds
        await asyncio.sleep(seconds)


def is_short(waiting: DependencyUnavailable) -> bool:
    """Return whether a wait is slept instead of giving the attempt back."""
    return waiting.seconds <= outbox.scaled(SHORT_SECONDS)


async def _admit(name: str) -> gate.Permit:
    asked = asyncio.ensure_future(in_database(lambda: gate.acquire_permit(name)))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        # A half-open call or a slot that is not released would be missing to all workers for a while.
        with contextlib.suppress(DependencyUnavailable):
            permit = await asked
            await in_thread(permit.release)
        raise


# Clients per event loop: their connections belong to the loop.
_models: weakref.WeakKeyDictionary[
    asyncio.AbstractEventLoop, tuple[tuple[Model, ...], list[AsyncGenerator[ModelClient, None]]]
] = weakref.WeakKeyDictionary()


async def open_models() -> tuple[Model, ...]:
    """Return the models of this event loop: the first, then its fallback if there is one.

    Empty with LLM_PROVIDER=none.
    """
    loop = asyncio.get_running_loop()
    if loop not in _models:
        models: list[Model] = []
        opened: list[AsyncGenerator[ModelClient, None]] = []
        for name, llm in config.models().items():
            opened.append(_open(llm))
            client = await anext(opened[-1])
            verifier = None if settings.LLM_VERIFY == "off" else client
            if not models and settings.LLM_VERIFY not in ("on", "off", llm.model):
                opened.append(_open(replace(llm, model=settings.LLM_VERIFY)))
                verifier = await anext(opened[-1])
            # Above the limit that all workers share, calls could only be given back.
            slots = min(llm.max_concurrency, rate_limit.concurrency_limit_of(name) or llm.max_concurrency)
            models.append(Model(name, client, verifier, asyncio.Semaphore(slots)))
        _models[loop] = (tuple(models), opened)
    return _models[loop][0]


def new_client(llm: LlmConfig) -> ModelClient:
    """Return a client of the configured provider, for one event loop."""
    return OpenAIClient(llm) if llm.provider == "openai" else AnthropicClient(llm)


async def _open(llm: LlmConfig) -> AsyncGenerator[ModelClient, None]:
    # asyncio.run closes unfinished generators at its end, and with this one the connections.
    client = new_client(llm)
    try:
        yield client
    finally:
        await client.aclose()


class ProgressKeeper:
    """Saves the finished parts of a review, so that they survive a killed worker (G22).

    KEEP_SECONDS after the first unsaved part, all finished ones are written at once.
    """

    def __init__(self, claim: StageClaim, progress: MutableMapping[str, str]) -> None:
        self._claim = claim
        self._progress = progress
        self._kept = len(progress)
        self._parts = (0, 0)
        self._task: asyncio.Task[None] | None = None
        self._is_writing = False

    def note_part(self, finished: int, total: int) -> None:
        """Note the progress for the page, in parts; the next write of answers stores it."""
        self._parts = finished, total

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
        """Write the finished parts of an attempt that ends early, across a lost connection."""
        await self.close()
        if self._has_more():
            await asyncio.shield(in_database(self._write))

    async def keep(self) -> None:
        """Write the finished parts now, or leave them to the next write if the database is lost."""
        await self.close()
        if self._has_more():
            await asyncio.shield(self._try_to_write())

    async def _keep_going(self) -> None:
        while self._has_more():
            await asyncio.sleep(KEEP_SECONDS)
            self._is_writing = True
            try:
                await self._try_to_write()
            finally:
                self._is_writing = False
            if self._task is None:
                return

    async def _try_to_write(self) -> None:
        try:
            await in_thread(self._write)
        except (DatabaseError, InterfaceError) as error:
            log.warning("progress_not_kept", job=self._claim.job_id, error=type(error).__name__)

    def _has_more(self) -> bool:
        return len(self._progress) > self._kept

    def _write(self) -> None:
        finished = dict(self._progress)
        pipeline.keep_progress(self._claim, finished, self._parts)
        self._kept = len(finished)
