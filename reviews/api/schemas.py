"""The fields of the API's answers.

`representations` reads rows by them, OpenAPI describes them.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from notifications.states import DeliveryStatus
from reviews.api.serializers import ANY_CHANNEL
from reviews.reviewers.base import CoverageStatus, Fate, FindingSeverity, Side, Verification
from reviews.reviewers.sarif_import import LEVELS
from reviews.states import VERDICTS, FindingStatus, JobStatus, Stage, StageStatus

VERDICT_CHOICES = [(kind.value, kind.label) for kind in VERDICTS]


class StageSerializer(serializers.Serializer[Any]):
    """One of the three stages of a review."""

    stage = serializers.ChoiceField(choices=Stage.choices, help_text="In the order fetch, llm, notify.")
    status = serializers.ChoiceField(choices=StageStatus.choices, help_text="The state of this stage.")
    attempts = serializers.IntegerField(help_text="Attempts begun. Waiting for a dependency uses none.")
    max_attempts = serializers.IntegerField(help_text="The most attempts the stage may use.")
    next_attempt_at = serializers.DateTimeField(
        allow_null=True, help_text="When the stage is due again; null when it is due now or done."
    )
    error_class = serializers.CharField(
        allow_blank=True,
        help_text="The class of the last failure (docs/failures.md); empty if no attempt failed.",
    )


class DeliverySerializer(serializers.Serializer[Any]):
    """The delivery to one recipient."""

    recipient = serializers.CharField(
        help_text=f"{ANY_CHANNEL}. Keys of the roles trigger and reviewer that did not request the review see"
        " only the host of a webhook."
    )
    status = serializers.ChoiceField(
        choices=DeliveryStatus.choices,
        help_text="`uncertain`: the message may have arrived; an operator decides. It is never sent twice.",
    )
    notification_id = serializers.CharField(
        allow_blank=True, help_text="The provider's id of the message; empty until the provider accepted it."
    )
    notified_at = serializers.DateTimeField(
        allow_null=True, help_text="When the provider accepted it; null until then."
    )
    waits_until = serializers.DateTimeField(
        allow_null=True, help_text="When the digest that will contain it is due; null without a digest."
    )


class FindingSerializer(serializers.Serializer[Any]):
    """One finding. Text is redacted."""

    file = serializers.CharField(help_text="Depot path; another text for a finding about the description.")
    line = serializers.IntegerField(allow_null=True, help_text="From 1; null for a whole file.")
    end_line = serializers.IntegerField(allow_null=True, help_text="Last line of a range; null for one line.")
    side = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in Side], help_text="The content in which lines are counted."
    )
    severity = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in FindingSeverity], help_text="The severity."
    )
    category = serializers.CharField(help_text="The category, such as bug, security or secret.")
    title = serializers.CharField(help_text="One line of text.")
    message = serializers.CharField(help_text="The problem, and when it matters.")
    suggestion = serializers.CharField(allow_blank=True, help_text="A better way; may be empty.")
    source = serializers.CharField(  # type: ignore[assignment]
        help_text="The check that found it, by name, or the language model."
    )
    evidence = serializers.ListField(
        child=serializers.CharField(), help_text="Depot paths of other files that it rests on."
    )
    rule = serializers.CharField(
        help_text="The rule that it cites: one of the team by name, a file of rules by path; or empty."
    )
    id = serializers.IntegerField(help_text="The finding.")
    confidence = serializers.IntegerField(
        allow_null=True, help_text="The model's own, of 100, less 30 where demoted; null: none."
    )
    demoted = serializers.BooleanField(
        help_text="Insufficient evidence: the text that it quotes is not in the change."
    )
    verification = serializers.ChoiceField(
        choices=[(v.value, v.value) for v in Verification if v],
        allow_blank=True,
        help_text="What the second pass said of it; empty where there was none.",
    )
    folded = serializers.CharField(help_text="Why pages and messages fold it; empty: they do not.")
    status = serializers.ChoiceField(
        choices=FindingStatus.choices,
        help_text="Compared with the versions before and after; `fixed`: its lines changed.",
    )
    verdict = serializers.ChoiceField(
        choices=VERDICT_CHOICES,
        allow_null=True,
        help_text="What people say of it, in every version; all but `useful` dismiss it.",
    )
    verdict_by = serializers.CharField(allow_null=True, help_text="Who gave the verdict.")
    verdict_at = serializers.DateTimeField(allow_null=True, help_text="When it was given.")


class FateCountSerializer(serializers.Serializer[Any]):
    """Number of raw findings that ended in the same way."""

    fate = serializers.ChoiceField(
        choices=[(fate.value, fate.value) for fate in Fate],
        help_text="`demoted` are shown without a line; `merged` ones are in another finding.",
    )
    reason = serializers.CharField(allow_blank=True, help_text="Why they were dropped; empty for others.")
    count = serializers.IntegerField(help_text="How many.")


class CoverageSerializer(serializers.Serializer[Any]):
    """Extent to which one file of the change was reviewed."""

    file = serializers.CharField(help_text="Depot path.")
    status = serializers.ChoiceField(
        choices=[(s.value, s.value) for s in CoverageStatus],
        help_text="`checked`: by the deterministic checks only.",
    )
    reason = serializers.CharField(
        allow_blank=True, help_text="Why it was not reviewed in full; may be empty."
    )


class JobLinksSerializer(serializers.Serializer[Any]):
    """URLs of the review."""

    self = serializers.URLField(help_text="The URL of this answer.")
    html = serializers.URLField(help_text="The URL of its page.")


class _ConfigurationFileSerializer(serializers.Serializer[Any]):
    source = serializers.CharField(  # type: ignore[assignment]
        allow_blank=True, help_text="Its depot path; empty: there was none."
    )
    revision = serializers.CharField(
        allow_blank=True, help_text="Where it was read: a commit, `@N` of Perforce, `#head` for a shelf."
    )
    digest = serializers.CharField(allow_blank=True, help_text="SHA-256 of the file.")
    warnings = serializers.ListField(
        child=serializers.CharField(), help_text="What is wrong with it, a sentence each; at most 50."
    )
    is_edited = serializers.BooleanField(help_text="The change edits it, which takes effect after merge.")
    proposed = serializers.ListField(
        child=serializers.CharField(), help_text="What is wrong with the file as the change leaves it."
    )


class ConfigurationOfJobSerializer(_ConfigurationFileSerializer):
    """The `.criticizer.yml` by which a change was reviewed, as it was before the change."""

    others = _ConfigurationFileSerializer(
        many=True, help_text="Those of further entries of the allow-list that a Perforce change touches."
    )


class _SectionSerializer(serializers.Serializer[Any]):
    document = serializers.CharField(help_text="Its depot path.")
    line = serializers.IntegerField(help_text="The section's first line.")
    verdict = serializers.ChoiceField(choices=["drifted", "holds", "uncertain"], help_text="The verdict.")
    reason = serializers.CharField(
        allow_blank=True, help_text="Why it is uncertain, a word; empty: the model said so."
    )
    confidence = serializers.IntegerField(help_text="From 0 to 100.")
    how = serializers.ListField(
        child=serializers.CharField(),
        help_text="What found the section: `reference`, `symbol`, `text`, `meaning`.",
    )


class SectionsByMeaningSerializer(serializers.Serializer[Any]):
    """The sections of documents that the model compared with the change."""

    drifted = serializers.IntegerField(help_text="Sections that may be out of date: findings `llm:drift`.")
    holds = serializers.IntegerField(help_text="Sections that the change leaves true.")
    uncertain = serializers.IntegerField(help_text="Sections without a verdict.")
    sections = _SectionSerializer(many=True, help_text="Each section, in the order of their ranking.")


class DocumentCountsSerializer(serializers.Serializer[Any]):
    """The claims of documents that a change could make untrue, by verdict."""

    summary = serializers.CharField(help_text="The counts in words, as messages and pages show them.")
    holds = serializers.IntegerField(help_text="Claims that hold after the change.")
    refuted = serializers.IntegerField(help_text="Claims that the change made untrue.")
    ambiguous = serializers.IntegerField(help_text="Claims that could mean several things.")
    uncheckable = serializers.IntegerField(help_text="Claims that nothing visible can tell.")
    unread = serializers.IntegerField(help_text="Documents left out.")
    left_out = serializers.IntegerField(help_text="Statements beyond the limits.")
    by_meaning = SectionsByMeaningSerializer(help_text="What the model said of sections of documents.")


class JobSerializer(serializers.Serializer[Any]):
    """A review job. Every key but the last five is always present."""

    id = serializers.IntegerField(help_text="The review's id.")
    idempotency_key = serializers.CharField(
        help_text="The key of the request that created it; empty for a key with prefixes that did not."
    )
    changelist_id = serializers.CharField(help_text="The requested changelist, normalised.")
    review_version = serializers.IntegerField(help_text="Counts the reviews of the changelist.")
    status = serializers.ChoiceField(
        choices=JobStatus.choices,
        help_text="The first three are active; all others are final, and finished_at is set.",
    )
    stage = serializers.ChoiceField(
        choices=Stage.choices, help_text="The first stage that has not succeeded; the last when all have."
    )
    deadline_at = serializers.DateTimeField(help_text="When an unfinished review times out (`timed_out`).")
    created_at = serializers.DateTimeField(help_text="When it was requested.")
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="When it became final; null while it is active."
    )
    is_late = serializers.BooleanField(help_text="True when the result came after the deadline.")
    partial = serializers.BooleanField(  # type: ignore[assignment]
        help_text="The review ended before its last part; the banner and the coverage say why."
    )
    banner = serializers.CharField(
        help_text="What did not run or was not read, such as skipped files; for a key with prefixes only that"
        " the review is partial."
    )
    footer = serializers.CharField(
        help_text="How little agents left unanswered, where it is no banner; empty for a key with prefixes."
    )
    stages = StageSerializer(many=True, help_text="All three stages.")
    deliveries = DeliverySerializer(
        many=True,
        help_text="One for each recipient, from stage notify on; at most 1,000, in a list 100. Empty for a"
        " key with prefixes that did not request the review.",
    )
    findings = FindingSerializer(
        many=True, help_text="From the end of stage llm on; at most 1,000, in a list of reviews none."
    )
    findings_left_out = serializers.IntegerField(
        help_text="Findings that this answer leaves out, counted up to 10,000: read them at …/findings/."
    )
    fates = FateCountSerializer(
        many=True,
        help_text="How the raw findings of checks and models ended, from the end of stage llm on; in a list"
        " of reviews none.",
    )
    coverage = CoverageSerializer(
        many=True,
        help_text="The files of the change, from the end of stage llm on; at most 1,000, in a list of reviews"
        " none.",
    )
    coverage_left_out = serializers.IntegerField(
        help_text="Files that this answer leaves out, counted up to 10,000: read them at …/coverage/."
    )
    dead_letter = serializers.IntegerField(
        allow_null=True, help_text="The id of the open dead letter; null without one."
    )
    links = JobLinksSerializer(help_text="URLs of this review.")
    configuration = ConfigurationOfJobSerializer(
        allow_null=True,
        help_text="The repository's file by which it was reviewed; null without one, or outside the scope.",
    )
    documents = DocumentCountsSerializer(
        allow_null=True,
        help_text="What came of verifying documents against the change, from the end of stage fetch on; null"
        " without it, and for a key with prefixes.",
    )
    limited_to = serializers.ListField(
        child=serializers.CharField(), required=False,
        help_text="The prefixes of the key that requested it: no other file was read; absent without any.",
    )  # fmt: skip
    duplicate = serializers.BooleanField(
        required=False, help_text="True in the answer to a POST that created no review; absent otherwise."
    )
    payload_mismatch = serializers.BooleanField(
        required=False,
        help_text="True with duplicate when the first request had another body; absent otherwise.",
    )
    message = serializers.CharField(
        required=False,
        help_text="Why a POST created no review and what to post instead, or why the review has no"
        " recipients; absent otherwise.",
    )
    recipients_not_added = serializers.ListField(
        child=serializers.CharField(), required=False,
        help_text="With duplicate: recipients of this request that the review does not notify.",
    )  # fmt: skip


class PageSerializer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="The number of rows, counted up to 10,000.")
    next = serializers.URLField(allow_null=True, help_text="URL of the next page; null on the last.")
    previous = serializers.URLField(allow_null=True, help_text="URL of the page before; null on the first.")


class JobPageSerializer(PageSerializer):
    """One page of jobs, newest first."""

    results = JobSerializer(many=True, help_text="At most 50.")


class ListedFindingSerializer(FindingSerializer):
    """One finding and the review that reported it last."""

    review = serializers.IntegerField(help_text="Its review.")
    changelist_id = serializers.CharField(help_text="The changelist of that review.")
    review_version = serializers.IntegerField(help_text="The version of that review.")


class FindingListSerializer(PageSerializer):
    """One page of findings, newest first."""

    results = ListedFindingSerializer(many=True, help_text="At most 50.")


class _ResultsPageSerializer(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True, help_text="URL of the next page; null on the last.")


class FindingPageSerializer(_ResultsPageSerializer):
    """Findings of a review."""

    results = FindingSerializer(many=True, help_text="At most 1,000.")


class CoveragePageSerializer(_ResultsPageSerializer):
    """Covered files of a review."""

    results = CoverageSerializer(many=True, help_text="At most 1,000.")


class LinterResultSerializer(serializers.Serializer[Any]):
    """One result of a linter, on changed lines."""

    tool = serializers.CharField(help_text="The name of the linter.")
    rule = serializers.CharField(allow_blank=True, help_text="The id of its rule; may be empty.")
    level = serializers.ChoiceField(choices=[(level, level) for level in LEVELS], help_text="As reported.")
    file = serializers.CharField(help_text="Depot path.")
    line = serializers.IntegerField(help_text="On the new side.")
    end_line = serializers.IntegerField(help_text="The last line.")
    message = serializers.CharField(help_text="Redacted, of at most 600 characters.")
    is_given = serializers.BooleanField(help_text="The model was asked with it.")
    received_by = serializers.CharField(help_text="The key that posted it.")


class LinterResultPageSerializer(_ResultsPageSerializer):
    """Results of linters on the changed lines of a review."""

    results = LinterResultSerializer(many=True, help_text="At most 1,000.")
    not_shown = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="How many are not shown, by why: `waiting` for the change, or `elsewhere` in its files.",
    )


class TriggerAnswerSerializer(serializers.Serializer[Any]):
    """The outcome of a Perforce event."""

    job = serializers.IntegerField(allow_null=True, help_text="The review that covers the event.")
    duplicate = serializers.BooleanField(help_text="True when that review existed before this event.")


class ErrorSerializer(serializers.Serializer[Any]):
    """The body of every error answer."""

    error = serializers.CharField(help_text="The name for programs to branch on, such as VERSION_CONFLICT.")
    code = serializers.CharField(help_text="`CRITICIZER_E<number>` (docs/failures.md).")
    message = serializers.CharField(help_text="A sentence for people.")
    details = serializers.DictField(help_text="Details by field or fact; may be empty.")
