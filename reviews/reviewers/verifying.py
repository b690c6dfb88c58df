"""The second pass: a model tries to refute findings, each by a line that it quotes (G159).

    findings ─► questions, at most five findings of one part each ─► verdicts ─► kept, marked, folded
                                                                            └─► refuted

A refutation counts only if its quote is a line of code that was sent. The findings of a question that fails
stay: the pass takes findings away, but never all because it is broken (G183).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from criticizer.redaction import RedactedText, RedactionBlocked
from criticizer.resilience.failures import DependencyUnavailable, ErrorClass, Failure
from reviews.reviewers.answer import UnusableAnswer
from reviews.reviewers.base import (
    SEVERITY_ORDER,
    Fate,
    Fated,
    Finding,
    FindingSeverity,
    RawId,
    Stopped,
    Usage,
    Verification,
)
from reviews.reviewers.chunks import Chunk
from reviews.reviewers.finished import Finished
from reviews.reviewers.instructions import VERIFIER_VERSION
from reviews.reviewers.merging import shared, words_of
from reviews.reviewers.model import ModelClient
from reviews.reviewers.model_calls import Exchange, NoFurtherCall, parsed, together
from reviews.reviewers.model_review import ModelReview, PartResult
from reviews.reviewers.prompt import verify_text
from reviews.reviewers.prompt_leaks import marks_of, repeats
from reviews.reviewers.quote_readings import normal
from reviews.reviewers.quotes import ShownText
from reviews.reviewers.refutations import Proof, proof_of
from reviews.reviewers.verdicts import Verdict, parse_verdicts, verdict_schema
from reviews.reviewers.verifier_context import shown_again

MAX_FINDINGS = 5  # of one question
MAX_CLAIM_CHARS = 700
SHARE = 0.34  # of the text of the request that found them, where the instructions leave so much
MAX_REFUTED_BY_ONE_LINE = 3
MIN_SAME_TITLE = 0.5  # of its words
# Above this share of at least so many findings, the verifier is not believed about severe ones.
BELIEVED_UP_TO, COUNTED_FROM = 0.8, 5
SEVERE = (FindingSeverity.CRITICAL, FindingSeverity.HIGH)
NOT_VERIFIED = "not verified"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Verified:
    """Findings after the second pass.

    `claims` of the `asked` findings were called refuted, with or without proof.
    """

    findings: tuple[Finding, ...]
    refuted: tuple[Fated, ...] = ()
    usage: Usage = field(default_factory=Usage)
    asked: int = 0
    claims: int = 0
    unjudged: frozenset[RawId] = frozenset()  # findings about which there was no answer

    @property
    def unanswered(self) -> int:
        return len(self.unjudged)

    @property
    def is_unbelievable(self) -> bool:
        return self.asked >= COUNTED_FROM and self.claims > BELIEVED_UP_TO * self.asked


@dataclass(frozen=True, slots=True)
class _Question:
    """Findings of one part by their ids, and the lines that are sent with them."""

    findings: Mapping[str, Finding]
    chunk: Chunk
    request: RedactedText  # in which they were found
    claims: str
    model: str

    @property
    def digest(self) -> str:
        known = (VERIFIER_VERSION, self.model, self.request.text, self.claims)
        return "verify-" + hashlib.sha256("\0".join(known).encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class _Judged:
    verdict: Verdict | None  # None: no answer
    claimed: bool = False
    severity: str = ""
    why: str = ""
    proof: Proof | None = None


async def verified(asking: ModelReview, parts: Sequence[PartResult], findings: Sequence[Finding]) -> Verified:
    """Let the verifier judge the findings of the model; those of checks are never questioned.

    Its answers are kept in the progress like others. Raises PermanentFailure REDACTION_BLOCKED when
    the guard refuses a request, and what `may_continue` raises; nothing else that a verifier does ends
    the review.
    """
    verifier = asking.around.verifier
    if verifier is None or asking.calls.stopped is Stopped.ENDED or asking.limits.is_compact:
        return Verified(tuple(findings))
    questions = list(_questions(asking, verifier, parts, findings))
    if not questions:
        return Verified(tuple(findings))
    await asking.around.keep()  # what is paid for, before the next call
    judged: dict[RawId, _Judged] = {}
    usages: list[Usage] = []
    at_once = asyncio.Semaphore(asking.limits.max_parallel_calls)
    is_wanted = await asking.around.may_continue()
    before = len(asking.calls.endings)  # the model's own, of a review that is published all the same

    async def ask(question: _Question) -> None:
        async with at_once:
            answer, usage = await _answer(asking, question) if is_wanted else (None, Usage())
        usages.append(usage)
        for name, verdict in _judgements(question, answer).items():
            raw = question.findings[name].raw
            assert raw is not None
            judged[raw] = verdict

    await together(map(ask, questions))
    if len(asking.calls.endings) > before:  # no failures of the verifier: the review itself may not go on
        raise asking.calls.endings[before]
    return _applied(findings, judged, sum(usages, Usage()))


def _questions(
    asking: ModelReview, verifier: ModelClient, parts: Sequence[PartResult], findings: Sequence[Finding]
) -> Iterator[_Question]:
    of_part: dict[int, list[Finding]] = {}
    for finding in findings:
        if not finding.is_of_checks and not finding.carried and finding.raw is not None:
            of_part.setdefault(finding.raw.part, []).append(finding)
    for number, own in sorted(of_part.items()):
        part = parts[number - 1]
        request = asking.request_of(part)
        own.sort(key=lambda f: (f.file, f.line or 0))
        for at in range(0, len(own), MAX_FINDINGS):
            some = own[at : at + MAX_FINDINGS]
            named = {_name(finding): finding for finding in some}
            claims = "\n\n".join(_claim(*each) for each in named.items())
            # A question has at most SHARE of the first request's text.
            whole = len(asking.calls.system) + len(request)
            room = int(SHARE * whole) - (whole - part.part.characters + len(claims))
            chunk = shown_again(part.part.chunk, some, asking.prepared.paths, room)
            yield _Question(named, chunk, request, claims, verifier.model)


def _name(finding: Finding) -> str:
    """Return an id that does not show the order: models miscount ids that are numbered."""
    whole = f"{finding.raw}{finding.file}{finding.title}{finding.message}"
    letters = hashlib.shake_256(whole.encode(errors="surrogatepass")).digest(6)
    return "K-" + "".join(chr(ord("a") + byte % 26) for byte in letters)


def _claim(name: str, finding: Finding) -> str:
    line = f", line {finding.line}" if finding.line is not None else ""
    side = " before the change" if finding.side == "old" and line else ""
    claim = " ".join(finding.message.split())[:MAX_CLAIM_CHARS]
    return (
        f"id {name}\ntitle: {finding.title}\nat: {finding.file}{line}{side}\n"
        f"severity: {finding.severity}\nclaim: {claim}"
    )


async def _answer(asking: ModelReview, question: _Question) -> tuple[Mapping[str, Any] | None, Usage]:
    """Return the verdicts about a question, or None, and their cost."""
    if (known := Finished.of(asking.progress, question.digest)) is not None:
        return known.answer, known.usage
    exchange = Exchange(f"{asking.around.new_call_id()}-verify", asking.around.verifier)
    answer: Mapping[str, Any] | None = None
    try:
        answer = await _asked(asking, question, exchange)
    except NoFurtherCall:
        return None, Usage()
    except (Failure, DependencyUnavailable, UnusableAnswer) as error:
        if isinstance(error, Failure) and error.error_class is ErrorClass.REDACTION_BLOCKED:
            raise
        facts = error.facts if isinstance(error, Failure) else {"problem": str(error)[:200]}
        log.warning("findings_not_verified", call=exchange.call_id, findings=len(question.findings), **facts)
    usage = exchange.usage
    usage = replace(usage, repaired=0, verify_calls=usage.calls, verify_input_tokens=usage.input_tokens)
    if answer is not None:
        Finished(answer, usage).keep(asking.progress, question.digest)
        asking.around.on_progress()
    return answer, usage


async def _asked(asking: ModelReview, question: _Question, exchange: Exchange) -> Mapping[str, Any]:
    try:
        (claims,) = asking.around.redact([question.claims])
        user = verify_text(question.request, question.chunk, claims)
    except RedactionBlocked as blocked:
        raise UnusableAnswer(f"the findings cannot be sent: {blocked.reason_code}") from None
    reply = await asking.calls.call(user, exchange, schema=verdict_schema())
    answer = await parsed(reply.text, parse_verdicts)
    if asking.calls.is_cut(user, answer["seen"], reply, exchange.call_id):
        raise UnusableAnswer("the model server cut the request")
    marks = marks_of(user.text)
    return {"verdicts": [verdict for verdict in answer["verdicts"] if not repeats(verdict, marks)]}


def _judgements(question: _Question, answer: Mapping[str, Any] | None) -> dict[str, _Judged]:
    """Return the judgement of each finding, by its id."""
    by_id: dict[str, list[Mapping[str, str]]] = {}
    for verdict in answer["verdicts"] if answer else ():
        by_id.setdefault(verdict["id"], []).append(verdict)
    text = ShownText(question.chunk)
    judged = {
        # Two verdicts on one finding: its ids are confused.
        name: _judged(finding, by_id[name][0], question.chunk, text)
        if len(by_id.get(name, ())) == 1
        else _Judged(None)
        for name, finding in question.findings.items()
    }
    refuted = Counter(one.proof for one in judged.values())
    return {
        name: replace(one, verdict=Verdict.UNSURE)
        if one.proof is not None and refuted[one.proof] > MAX_REFUTED_BY_ONE_LINE
        else one
        for name, one in judged.items()
    }


def _judged(finding: Finding, answer: Mapping[str, str], chunk: Chunk, text: ShownText) -> _Judged:
    verdict, claimed = Verdict(answer["verdict"]), answer["verdict"] == Verdict.REFUTED
    proof = None
    if claimed:
        proof = proof_of(answer["quote"], chunk, text) if _is_about(answer["title"], finding) else None
        verdict = Verdict.REFUTED if proof else Verdict.UNSURE
    return _Judged(verdict, claimed, answer["severity"], answer["why"], proof)


def _is_about(title: str, finding: Finding) -> bool:
    same = normal(title).casefold() == normal(finding.title).casefold()
    return same or shared(words_of(title), words_of(finding.title)) >= MIN_SAME_TITLE


def _applied(findings: Sequence[Finding], judged: Mapping[RawId, _Judged], usage: Usage) -> Verified:
    done = Verified(
        (),
        usage=usage,
        asked=len(judged),
        claims=sum(one.claimed for one in judged.values()),
        unjudged=frozenset(raw for raw, one in judged.items() if one.verdict is None),
    )
    kept: list[Finding] = []
    refuted: list[Fated] = []
    for finding in findings:
        one = judged.get(finding.raw) if finding.raw else None
        if one is None:
            kept.append(finding)
        elif one.verdict is Verdict.REFUTED and not (done.is_unbelievable and finding.severity in SEVERE):
            refuted += finding.fates(Fate.REFUTED, _why(one))
        elif one.verdict is Verdict.CONFIRMED:
            severity = _moved(finding.severity, one.severity)
            kept.append(replace(finding, severity=severity, verification=Verification.CONFIRMED))
        else:
            is_weak = (
                one.verdict is Verdict.UNSURE and finding.severity not in SEVERE and finding.report_count < 2
            )
            folded = NOT_VERIFIED if is_weak else ""
            kept.append(replace(finding, verification=Verification.UNVERIFIED, folded=folded))
    return replace(done, findings=tuple(kept), refuted=tuple(refuted))


def _why(judged: _Judged) -> str:
    assert judged.proof is not None
    return f"{judged.proof.where}: {judged.why}" if judged.why else f"{judged.proof.where} refutes it."


def _moved(severity: FindingSeverity, wanted: str) -> FindingSeverity:
    """Return the severity moved by one step at most: a confirmation must not hide a finding."""
    if not wanted:
        return severity
    order = list(FindingSeverity)
    at, to = SEVERITY_ORDER[severity], SEVERITY_ORDER[FindingSeverity(wanted)]
    return order[max(at - 1, min(at + 1, to))]
