"""Pull requests of code hosts, their reviewed heads, and the webhooks that reported them."""

from __future__ import annotations

from uuid import uuid4

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from criticizer.codehosts.events import Refused
from criticizer.codehosts.registry import sign_of
from reviews.models.jobs import ReviewJob


class HostInstallation(models.Model):
    """An installation of our App, as its webhooks report it.

    `reviews.intake.pull_requests` writes it.
    """

    class Status(models.TextChoices):
        ACTIVE = "active", "Active"
        SUSPENDED = "suspended", "Suspended"  # no review begins until it is resumed
        DELETED = "deleted", "Uninstalled"

    host = models.CharField(max_length=16)  # a name of `codehosts.registry.HOSTS`
    installation_id = models.BigIntegerField()
    account = models.CharField(max_length=255, blank=True, db_default="")  # whose repositories they are
    status = models.CharField(max_length=9, choices=Status.choices, db_default=Status.ACTIVE)
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "host_installations"
        verbose_name = "installation"
        constraints = [
            models.UniqueConstraint(fields=["host", "installation_id"], name="host_installations_once")
        ]

    def __str__(self) -> str:
        return f"{self.host} {self.account or self.installation_id}"


class HostChange(models.Model):
    """A pull request, known by its repository's number: names of repositories change.

    Holds what the host reported last. Only `reviews.intake.pull_requests` writes it.
    """

    class State(models.TextChoices):
        OPEN = "open", "Open"
        DRAFT = "draft", "Draft"
        CLOSED = "closed", "Closed"
        MERGED = "merged", "Merged"
        REMOVED = "removed", "No longer ours"  # its repository left the installation

    host = models.CharField(max_length=16)  # a name of `codehosts.registry.HOSTS`
    repository_id = models.BigIntegerField()
    number = models.IntegerField()
    full_name = models.CharField(max_length=255)  # of the repository, as the host writes it
    # In lower case: `gitea:<owner>/<repo>#<number>`, on GitLab with `!`.
    changelist_id = models.CharField(max_length=128)
    installation_id = models.BigIntegerField(null=True, blank=True)  # None: reported by a repository's hook
    state = models.CharField(max_length=8, choices=State.choices, db_default=State.OPEN)
    head_sha = models.CharField(max_length=64)
    base_sha = models.CharField(max_length=64)
    base_ref = models.CharField(max_length=255)
    # The host's own time of what it reported: an older event never replaces a newer head.
    reported_at = models.DateTimeField()
    is_mergeable = models.BooleanField(null=True, blank=True)  # None: the host had not found out
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "host_changes"
        verbose_name = "pull request"
        constraints = [
            models.UniqueConstraint(fields=["host", "repository_id", "number"], name="host_changes_once")
        ]
        indexes = [
            models.Index(fields=["changelist_id"], name="host_changes_changelist"),
            models.Index(fields=["host", "installation_id"], name="host_changes_installation"),
        ]

    def __str__(self) -> str:
        return f"{self.full_name}{sign_of(self.host)}{self.number}"


class HostVersion(models.Model):
    """A head of a pull request and its review.

    Made in the commit that makes the job, then only retired. `head_sha`, `base_sha` and `base_ref` are
    frozen: no later stage reads the name of a branch.
    """

    change = models.ForeignKey(HostChange, on_delete=models.CASCADE, related_name="versions", db_index=False)
    job = models.OneToOneField(ReviewJob, on_delete=models.CASCADE, related_name="host_version")
    head_sha = models.CharField(max_length=64)
    base_sha = models.CharField(max_length=64)
    base_ref = models.CharField(max_length=255)
    # Requested by a new head or base; False: by a person, on purpose, also of a head that has a review.
    is_automatic = models.BooleanField()
    # Its review was cancelled by the host, or the head came back after another one: it may have a new review.
    is_retired = models.BooleanField(db_default=False)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "host_versions"
        verbose_name = "reviewed head"
        constraints = [
            # One automatic review of a head and base, whatever delivers the event how often (G241).
            models.UniqueConstraint(
                fields=["change", "head_sha", "base_ref"],
                condition=Q(is_automatic=True, is_retired=False),
                name="host_versions_once",
            )
        ]
        indexes = [
            models.Index(fields=["change", "head_sha"], name="host_versions_head"),
            # Reviews of one commit in several pull requests: `reviews.check_runs`.
            models.Index(fields=["head_sha"], name="host_versions_commit"),
        ]

    def __str__(self) -> str:
        return f"{self.change_id} {self.head_sha[:12]}"

    @classmethod
    def of_job(cls, job: ReviewJob) -> HostVersion | None:
        """Return the version that a job reviews; None for a pull request that no host reported.

        A review that was not requested by the host gets the newest known head, and keeps it.
        """
        found = cls.objects.select_related("change").filter(job=job).first()
        if found is not None:
            return found
        change = HostChange.objects.filter(changelist_id=job.changelist_id).order_by("-reported_at").first()
        if change is None:
            return None
        frozen = {name: getattr(change, name) for name in ("head_sha", "base_sha", "base_ref")}
        made, _ = cls.objects.get_or_create(
            job=job, defaults={"change": change, "is_automatic": False, **frozen}
        )
        return made


class HostCheck(models.Model):
    """The check run of a reviewed head, and the last state of its review that the host was told.

    Only `reviews.check_runs` writes it: the attempt before the call, what was told after it.
    """

    ACTIVE = "active"  # `told` of a review that has not ended; else a JobStatus

    version = models.OneToOneField(HostVersion, on_delete=models.CASCADE, related_name="check_run")
    token = models.UUIDField(default=uuid4, editable=False)  # its external id, by which it is looked up
    check_id = models.BigIntegerField(null=True, blank=True)  # the host's number; None: not known to exist
    told = models.CharField(max_length=16, blank=True, db_default="")
    attempts = models.IntegerField(db_default=0)  # the fence: who counted last may record
    failures = models.IntegerField(db_default=0)  # in a row
    due_at = models.DateTimeField(null=True, blank=True)  # None: whenever its review has another state
    error_class = models.CharField(max_length=32, blank=True, db_default="")
    detail = models.CharField(max_length=255, blank=True, db_default="")

    class Meta:
        db_table = "host_checks"
        verbose_name = "check run"

    def __str__(self) -> str:
        return f"{self.version_id} {self.told}"


class HostDelivery(models.Model):
    """An authentic webhook, answered once. Only `reviews.intake.pull_requests` writes it."""

    host = models.CharField(max_length=16)  # a name of `codehosts.registry.HOSTS`
    delivery_id = models.CharField(max_length=128)  # the same on a redelivery
    event = models.CharField(max_length=64)  # with its action: `pull_request.opened`
    repository_id = models.BigIntegerField(null=True, blank=True)
    full_name = models.CharField(max_length=255, blank=True, db_default="")
    installation_id = models.BigIntegerField(null=True, blank=True)
    ignored = models.CharField(max_length=255, blank=True, db_default="")  # why it made no review
    job = models.ForeignKey(
        ReviewJob, on_delete=models.SET_NULL, null=True, blank=True, related_name="host_deliveries"
    )
    # The comment whose command made the job: none makes another, under however many delivery ids it comes.
    comment = models.BigIntegerField(null=True, blank=True)
    is_duplicate = models.BooleanField(db_default=False)  # its head had a review under another delivery
    received_at = models.DateTimeField(db_default=Now())
    repeats = models.IntegerField(db_default=0)
    repeated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "host_deliveries"
        verbose_name = "webhook delivery"
        verbose_name_plural = "webhook deliveries"
        constraints = [
            models.UniqueConstraint(fields=["host", "delivery_id"], name="host_deliveries_once"),
            models.UniqueConstraint(
                fields=["host", "repository_id", "comment"],
                condition=Q(comment__isnull=False),
                name="host_deliveries_comment",
            ),
        ]
        indexes = [models.Index(fields=["-received_at", "-id"], name="host_deliveries_newest")]

    def __str__(self) -> str:
        return f"{self.host} {self.event}"


class HostRefusal(models.Model):
    """The newest webhook that was refused for a reason; one row for each host and reason.

    Anyone can send one, so it holds nothing of body or signature. Only `reviews.intake.refusals` writes it.
    """

    class Reason(models.TextChoices):
        NONE_SET = Refused.NONE_SET.value, "No secret is set here"
        UNSIGNED = Refused.UNSIGNED.value, "It was not signed"
        WRONG = Refused.WRONG.value, "Its signature fits no secret"
        LATE = Refused.LATE.value, "Its time is not near ours"
        CONTENT_TYPE = Refused.CONTENT_TYPE.value, "It is not JSON"
        UNREADABLE = Refused.UNREADABLE.value, "It lacks a field"

    host = models.CharField(max_length=16)
    reason = models.CharField(max_length=16, choices=Reason.choices)
    delivery_id = models.CharField(max_length=128, blank=True, db_default="")  # as the sender names it
    remote_address = models.CharField(max_length=64, blank=True, db_default="")
    refused_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "host_refusals"
        verbose_name = "refused webhook"
        constraints = [models.UniqueConstraint(fields=["host", "reason"], name="host_refusals_once")]

    def __str__(self) -> str:
        return f"{self.host} {self.reason}"
