"""Modes of measuring: each returns its figures and what they depend on as a JSON object."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from criticizer.redaction import Redactor
from criticizer.resilience.failures import ErrorClass, Failure, PermanentFailure
from reviews import config
from reviews.artifacts import recipe
from reviews.evaluation import changes, corpus, figures, judging, matching, public_sets
from reviews.evaluation.answers import NotMeasured, PatientClient, Replay
from reviews.evaluation.figures import Result
from reviews.evaluation.matching import Remark
from reviews.evaluation.oracle import Oracle
from reviews.reviewers.instructions import FINDER_VERSION, VERIFIER_VERSION
from reviews.reviewers.model import ModelClient
from reviews.reviewers.prepare import ReviewLimits
from reviews.reviewers.prepared_change import Prepared
from reviews.reviewers.review import review_prepared
from reviews.reviewers.review_context import ReviewContext
from reviews.sources.paths import encode_path
from reviews.stages.model_client import new_client

# After a failure of these classes the review counts as one without findings; others end the measuring.
_OF_THE_CHANGE = {
    ErrorClass.SCHEMA_INVALID,
    ErrorClass.POLICY_REJECTED,
    ErrorClass.REDACTION_BLOCKED,
    ErrorClass.TOKEN_LIMIT,
}
MIN_RUNS = 3
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared change with the remarks its review should make, and the secrets it holds."""

    name: str
    prepared: Prepared
    remarks: tuple[Remark, ...]
    secrets: tuple[str, ...] = ()


class Models(NamedTuple):
    """The model that finds, and the one that tries to refute (None: no second pass)."""

    finder: ModelClient
    verifier: ModelClient | None


async def reviewed(
    changes: Sequence[Ready],
    models_of: Callable[[str], Models],
    limits: ReviewLimits,
    seed: int,
    at_once: int = 1,
) -> list[Result]:
    """Review changes, `at_once` at a time, each with the models of its name.

    Raises as `review_prepared`.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(ready: Ready) -> Result:
        async with slots:
            return await _reviewed(ready, models_of(ready.name), limits, seed)

    tasks = [asyncio.ensure_future(one(ready)) for ready in changes]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _reviewed(ready: Ready, models: Models, limits: ReviewLimits, seed: int) -> Result:
    # The marker follows from name and seed, so that equal requests are equal to the byte.
    mark = hashlib.sha256(f"{seed} {ready.name}".encode()).hexdigest()[:12]
    around = ReviewContext(boundary=lambda: f"data-{mark}", is_last_attempt=True, verifier=models.verifier)
    try:
        outcome = await review_prepared(ready.prepared, models.finder, limits, {}, around)
    except PermanentFailure as failure:
        if failure.error_class not in _OF_THE_CHANGE:
            raise
        return Result(ready.name, (), ready.remarks, failed=len(ready.prepared.chunks))
    return Result(
        name=ready.name,
        # What a page folds away is not shown.
        findings=tuple(f for f in outcome.review.findings if f.source == "llm" and not f.folded),
        remarks=ready.remarks,
        leaked=sum(secret in prompt for prompt in outcome.prompts for secret in ready.secrets),
        failed=sum(outcome.failed.values()),
        calls=outcome.review.usage.calls,
        characters=sum(map(len, outcome.prompts)),
    )


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line, and the settings for git, redaction and limits."""

    corpus: Path
    git: str
    policy: Mapping[str, object]
    limits: ReviewLimits
    verify: str = "on"  # as LLM_VERIFY
    seed: int = 1
    runs: int = MIN_RUNS
    judge: str = ""
    record: Path | None = None
    answers: Path | None = None
    judged: Path | None = None
    goldens: Path | None = None
    samples: Path | None = None
    repositories: Path | None = None

    @classmethod
    def of(cls, settings: Any, options: Mapping[str, Any]) -> Options:
        known = {field.name: options[field.name] for field in fields(cls) if field.name in options}
        return cls(
            **known,
            git=settings.GIT_EXECUTABLE or "git",
            policy=settings.REDACTION_POLICY,
            limits=recipe.limits(),
            verify=settings.LLM_VERIFY,
        )


def ready_corpus(cases: Sequence[corpus.Case], options: Options) -> list[Ready]:
    """Return the changes of a corpus, fetched and prepared."""
    with tempfile.TemporaryDirectory(prefix="criticizer-evaluate-") as directory:
        return [ready_case(one, options) for one in changes.fetched(cases, Path(directory), options.git)]


def ready_case(fetched: changes.Fetched, options: Options) -> Ready:
    """Prepare a fetched change of a corpus."""
    return Ready(
        fetched.case.name,
        changes.prepared(fetched.change, options.policy, options.limits),
        tuple(map(matching.remark_of, fetched.case.defects)),
        fetched.case.secrets,
    )


def by_oracle(options: Options) -> dict[str, Any]:
    """Measure the pipeline with the oracle."""
    cases = corpus.load(options.corpus, options.seed)
    oracles = {case.name: Oracle(case, options.seed) for case in cases}
    ready = ready_corpus(cases, options)
    results = asyncio.run(
        reviewed(ready, lambda name: Models(oracles[name], oracles[name]), options.limits, options.seed)
    )
    rule = matching.by_words
    return _report(options, "oracle", figures.figures_of(results, rule), figures.missed(results, rule))


def by_replay(options: Options) -> dict[str, Any]:
    """Measure the pipeline with recorded answers of a real model."""
    if options.answers is None:
        raise NotMeasured("give the recorded answers with --answers FILE")
    client = Replay(options.answers)
    return _measured(options, Models(client, None if options.verify == "off" else client), None)


def by_model(options: Options) -> dict[str, Any]:
    """Measure the configured model on the corpus."""
    if options.runs < MIN_RUNS:
        raise NotMeasured(f"a model answers differently each time: --runs must be at least {MIN_RUNS}")
    return _measured(options, *_clients(options))


def martian(options: Options) -> dict[str, Any]:
    """Add up recorded judgements, or review the pull requests and let the judge compare."""
    if options.goldens is None:
        if options.judged is None:
            raise NotMeasured("give --judged FILE, or --goldens and --repositories with --judge MODEL")
        scores = public_sets.martian_scores(options.judged)
        rows = {
            f"{judge} {tool} {name}": round(share, 4)
            for judge, tools in scores.items()
            for tool, score in tools.items()
            for name, share in score._asdict().items()
        }
        return _report(options, "recorded judgements", rows)
    if not options.judge or options.judged is None:
        raise NotMeasured(
            "golden comments have no lines: give --judge MODEL, and --judged FILE to test it with"
        )
    return _pulls_measured(options, public_sets.martian_goldens(options.goldens))


def aacr(options: Options) -> dict[str, Any]:
    """Review pull requests of AACR-Bench; without a judge, a remark is found by its place."""
    if options.samples is None:
        raise NotMeasured("give the file positive_samples.json with --samples")
    return _pulls_measured(options, public_sets.aacr(options.samples))


MODES: dict[str, Callable[[Options], dict[str, Any]]] = {
    "oracle": by_oracle,
    "replay": by_replay,
    "real": by_model,
    "martian": martian,
    "aacr": aacr,
}


def _measured(options: Options, models: Models, judge: ModelClient | None) -> dict[str, Any]:
    cases = corpus.load(options.corpus, options.seed)
    pairs = public_sets.martian_pairs(options.judged) if options.judged else judging.pairs_of(cases)
    return asyncio.run(_runs(options, ready_corpus(cases, options), models, judge, pairs))


def _pulls_measured(options: Options, wanted: Sequence[public_sets.Pull]) -> dict[str, Any]:
    if options.repositories is None:
        raise NotMeasured("give the directory of clones with --repositories")
    ready: list[Ready] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(prefix="criticizer-evaluate-") as directory:
        for pull in wanted:
            try:
                change = public_sets.fetched_pull(pull, options.repositories, Path(directory), options.git)
                prepared = changes.prepared(change, options.policy, options.limits)
            except (NotMeasured, Failure) as error:
                missing.append(f"{pull.url}: {error}")
                continue
            depot = public_sets.depot_of(pull)
            remarks = tuple(
                replace(remark, file=f"//{depot}/{encode_path(remark.file)}") if remark.file else remark
                for remark in pull.remarks
            )
            ready.append(Ready(pull.url, prepared, remarks))
    if not ready:
        raise NotMeasured(f"none of {len(wanted)} pull requests can be read: {missing[0]}")
    models, judge = _clients(options)
    pairs = public_sets.martian_pairs(options.judged) if options.judged else []
    if judge is not None and not pairs:
        raise NotMeasured("give recorded judgements to test the judge with: --judged FILE")
    measured = asyncio.run(_runs(options, ready, models, judge, pairs))
    return {**measured, "pulls_not_read": missing}


def _clients(options: Options) -> tuple[Models, ModelClient | None]:
    """Return clients of the models that find, verify and judge.

    Raises NotMeasured when no model is configured.
    """
    llm = config.model()
    if llm is None:
        raise NotMeasured("no model is configured: set LLM_PROVIDER, LLM_BASE_URL and LLM_MODEL")
    finder = verifier = PatientClient(new_client(llm), options.record)
    if options.verify not in ("on", "off", llm.model):
        verifier = PatientClient(new_client(replace(llm, model=options.verify)), options.record)
    judge = PatientClient(new_client(replace(llm, model=options.judge))) if options.judge else None
    return Models(finder, None if options.verify == "off" else verifier), judge


async def _runs(
    options: Options,
    ready: Sequence[Ready],
    models: Models,
    judge_client: ModelClient | None,
    pairs: Sequence[judging.Pair],
) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        for client in filter(None, dict.fromkeys((*models, judge_client))):
            stack.push_async_callback(client.aclose)
        rule: matching.Rule = matching.by_place
        said: dict[str, Any] = {"judge": None}
        judge = judging.Judge(judge_client, Redactor(options.policy), AT_ONCE) if judge_client else None
        if judge is not None:
            agreement = await judge.kappa(judging.sample(pairs, options.seed))
            if agreement < judging.MIN_KAPPA:
                raise NotMeasured(
                    f"the judge {judge.model} agrees with recorded judgements at kappa {agreement:.2f} only: "
                    f"at least {judging.MIN_KAPPA} is needed; choose another --judge"
                )
            said = {"judge": judge.model, "judge_kappa": round(agreement, 4), "judge_prompt": judging.VERSION}
        runs: list[dict[str, float]] = []
        missed: list[list[str]] = []
        for run in range(options.runs):
            results = await reviewed(ready, lambda _: models, options.limits, options.seed + run, AT_ONCE)
            if judge is not None:
                rule = await judge.rule(results)
            runs.append(figures.figures_of(results, rule))
            missed.append(figures.missed(results, rule))
        always = [name for name in missed[0] if all(name in one for one in missed)]
        said["verifier"] = models.verifier.model if models.verifier else None
        return {**_report(options, models.finder.model, figures.spread(runs), always), **said, "runs": runs}


def _report(
    options: Options, model: str, measured: Mapping[str, Any], missed: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "model": model,
        "prompts": {"find": FINDER_VERSION, "verify": VERIFIER_VERSION},
        "seed": options.seed,
        "corpus": corpus.digest(options.corpus),
        "figures": dict(measured),
        "missed": list(missed),
    }
