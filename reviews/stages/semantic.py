"""The semantic step of documentation drift: ranks sections by similarity to the change.

    sections ─► vectors stored? ─ no ─► embeddings server ─► cosine with the changed files ─► joined ranking

Vectors are stored like other answers that are paid once: sealed, under a key of model, length and text, and
expiring. So vectors of different models are never compared. The candidates are bounded, so that Python
compares them and PostgreSQL needs no extension. The model that indexed a repository is stored too: another
model switches off this step, and nothing else, until the repository is indexed again (`forget`).
"""

from __future__ import annotations

import base64
import hashlib
import math
import uuid
from array import array
from binascii import Error as NoBase64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, pstdev
from typing import Any

import structlog
from django.conf import settings

from criticizer.redaction import RedactedText, RedactionBlocked
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass, Failure
from criticizer.texts import SEMANTIC_AWAY, SEMANTIC_OFF
from reviews import config
from reviews.models import ReviewUnit
from reviews.pipeline import StageClaim
from reviews.pipeline.async_executor import in_database
from reviews.reviewers.document_sections import ShownSection
from reviews.reviewers.embeddings import MAX_TEXTS, Embedded, EmbeddingsClient, Vector, similarity
from reviews.reviewers.model import LimitReached
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.units import AnsweredUnit
from reviews.sources.registry import depot_prefix
from reviews.stages import model_client, units
from reviews.token_ledger import TokenLedger

MAX_FILES = 10  # of the change
MAX_CHARS = 2_000  # of a text that is embedded
LEAST_MARGIN = 0.05  # above the mean of all sections, besides a standard deviation
_RANKS = 60  # of reciprocal rank fusion: the greater, the less the first place counts
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Sections in the order in which they are asked about.

    `units` are to be stored; `note` is for people.
    """

    sections: Sequence[ShownSection]
    note: str = ""
    units: tuple[AnsweredUnit, ...] = ()


async def ordered(claim: StageClaim, prepared: Prepared) -> Ordered:
    """Return the sections of a change, ranked by meaning too where embeddings are configured."""
    plain = Ordered([section for section in prepared.sections if section.files])
    llm, files = config.embeddings(), _files(prepared)
    if llm is None or not files:
        return plain
    key = _key("index", repository_of(claim.changelist_id))
    stored = await _known(claim, [key])
    state = stored.get(key)
    wanted = {"model": llm.model, "asked": settings.EMBEDDINGS_DIMENSIONS}
    if state is not None and {name: state[name] for name in wanted} != wanted:
        return _switched_off(plain, key, state, llm.model, settings.EMBEDDINGS_DIMENSIONS)
    texts = [section.text.truncated(MAX_CHARS) for section in prepared.sections]
    keys = [_key("vector", llm.model, str(wanted["asked"]), text.text) for text in texts]
    # Without an index all are asked for again: those that are stored may be of another length.
    found = await _known(claim, keys) if state is not None else {}
    known = {name: vector for name, value in found.items() if (vector := _read(value))}
    missing = {name: text for name, text in zip(keys, texts, strict=True) if name not in known}
    try:
        vectors = await _embedded(claim, [*files.values(), *missing.values()])
    except (Failure, DependencyUnavailable, LimitReached, RedactionBlocked) as error:
        facts = error.facts if isinstance(error, Failure) else {"why": type(error).__name__}
        log.warning("semantic_step_left_out", job=claim.job_id, model=llm.model, **facts)
        return replace(plain, note=SEMANTIC_AWAY.text)
    of_files = dict(zip(files, vectors, strict=False))
    new = dict(zip(missing, vectors[len(files) :], strict=True))
    dimensions = len(vectors[0])
    if state is not None and {len(vector) for vector in (*vectors, *known.values())} != {state["dimensions"]}:
        return _switched_off(plain, key, state, llm.model, dimensions)
    index = AnsweredUnit(key, [{**wanted, "dimensions": dimensions}], llm.model, 0)
    answered = tuple(
        AnsweredUnit(name, [{"vector": _written(vector)}], llm.model, 0) for name, vector in new.items()
    )
    fits = {
        number: max(((similarity(vector, known[name] if name in known else new[name]), file)
                     for file, vector in of_files.items()))
        for number, name in enumerate(keys)
    }  # fmt: skip
    return Ordered(_fused(prepared.sections, fits), units=(index, *answered))


def forget(repository: str) -> int:
    """Let the next review re-index a repository; return 0 if it was not indexed."""
    return ReviewUnit.objects.filter(key=_key("index", repository)).delete()[0]


def repository_of(changelist_id: str) -> str:
    """Return the folder of a change's repository; all of a Perforce server is one."""
    return depot_prefix(changelist_id) or "//"


def _switched_off(plain: Ordered, key: str, state: Mapping[str, Any], model: str, dimensions: int) -> Ordered:
    log.error(
        "embedding_model_changed",
        code=ErrorClass.SCHEMA_INVALID.value,
        stored_model=state["model"],
        stored_dimension=state["dimensions"],
        configured_model=model,
        query_dimension=dimensions,
    )
    # Stored again, so that it does not expire before people have noticed.
    kept = AnsweredUnit(key, [dict(state)], state["model"], 0)
    return replace(plain, note=SEMANTIC_OFF.text, units=(kept,))


def _files(prepared: Prepared) -> dict[int, RedactedText]:
    """Return the text of the change in each file that the model sees, by the file's index."""
    hunks: dict[int, list[RedactedText]] = {}
    for unit in prepared.units:
        for hunk in unit.hunks:
            hunks.setdefault(hunk.file, []).append(hunk.text)
    return {
        file: RedactedText.joined([prepared.text.manifest[file].path, *texts]).truncated(MAX_CHARS)
        for file, texts in list(hunks.items())[:MAX_FILES]
    }


async def _known(claim: StageClaim, keys: Sequence[str]) -> dict[str, Any]:
    found = await in_database(lambda: units.known_answers(claim, keys))
    return {key: answer for key, (answer, _) in found.items()}


async def _embedded(claim: StageClaim, texts: Sequence[RedactedText]) -> list[Vector]:
    llm = config.embeddings()
    assert llm is not None
    name, ledger = config.embeddings_dependency(), TokenLedger.of(claim)
    found: list[Vector] = []
    async with EmbeddingsClient(llm, settings.EMBEDDINGS_DIMENSIONS) as client:
        for at in range(0, len(texts), MAX_TEXTS):
            batch, call_id = texts[at : at + MAX_TEXTS], f"{uuid.uuid4().hex}-embeddings"
            reserve = partial(ledger.reserve, call_id, name, llm.model, sum(map(len, batch)))
            async with model_client.calling(name):
                answer = await model_client.settled(reserve, partial(client.embed, batch, call_id))
            assert isinstance(answer, Embedded)
            found += answer.vectors
    return found


def _fused(sections: Sequence[ShownSection], fits: Mapping[int, tuple[float, int]]) -> list[ShownSection]:
    """Return the sections that map to the change or stand out by meaning, ranked by both."""
    shares = [share for share, _ in fits.values()]
    least = fmean(shares) + max(pstdev(shares), LEAST_MARGIN) if shares else math.inf
    close = sorted((number for number in fits if fits[number][0] >= least), key=lambda n: -fits[n][0])
    scores: dict[int, float] = {}
    for ranking in ([number for number, one in enumerate(sections) if one.files], close):
        for place, number in enumerate(ranking):
            scores[number] = scores.get(number, 0.0) + 1 / (_RANKS + place)
    return [
        _by_meaning(sections[number], fits[number]) if number in close else sections[number]
        for number in sorted(scores, key=lambda number: (-scores[number], number))
    ]


def _by_meaning(section: ShownSection, fit: tuple[float, int]) -> ShownSection:
    share, file = fit
    files = section.files or (file,)
    return replace(
        section, files=files, score=max(section.score, round(share, 4)), how=(*section.how, "meaning")
    )


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(("embeddings", *parts)).encode(errors="surrogatepass")).hexdigest()


def _written(vector: Vector) -> str:
    return base64.b64encode(array("f", vector).tobytes()).decode()


def _read(stored: Mapping[str, Any]) -> Vector | None:
    with suppress(ValueError, NoBase64):
        vector = array("f")
        vector.frombytes(base64.b64decode(str(stored.get("vector", "")), validate=True))
        return tuple(vector) or None
    return None
