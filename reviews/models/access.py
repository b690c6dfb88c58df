"""API keys, the allow-list, viewing scopes, and the seals over their audit."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from criticizer.db.triggers import append_only, audited


class ApiKey(models.Model):
    """A key of a program that calls the API. The key itself is shown once and not stored."""

    class Role(models.TextChoices):
        TRIGGER = "trigger", "Trigger: posts changelists and reads reviews"
        REVIEWER = "reviewer", "Reviewer: reads reviews"
        OPERATOR = "operator", "Operator: reads reviews, dead letters and metrics, cancels"
        APPROVER = "approver", "Approver: reads reviews and dead letters"
        AUDITOR = "auditor", "Auditor: reads reviews and dead letters"
        AGENT = "agent", "Agent: takes tasks of its prefixes, with the redacted code, and submits results"

    name = models.CharField(max_length=64, unique=True)
    role = models.CharField(max_length=10, choices=Role.choices)
    key_sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12)
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    # Depot trees such as //depot/main/...; empty: every file (`reviews.recipients.viewing_scopes`).
    prefixes = models.JSONField(blank=True, db_default=[], default=list)

    class Meta:
        db_table = "api_keys"
        verbose_name = "API key"
        constraints = [
            # It is handed code: of which files must be said.
            models.CheckConstraint(
                condition=~Q(role="agent") | ~Q(prefixes=[]), name="api_keys_agents_have_prefixes"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"


@audited("allow-list edit")
class AllowListEntry(models.Model):
    """A line of the allow-list, inside the ceiling of DEPOT_ALLOW_LIST; audited by pghistory.

    Without any include line the ceiling itself applies; exclude lines always narrow it.
    """

    class Kind(models.TextChoices):
        INCLUDE = "include", "Include"
        EXCLUDE = "exclude", "Exclude"

    kind = models.CharField(max_length=7, choices=Kind.choices, default=Kind.INCLUDE)
    pattern = models.CharField(max_length=1024, help_text="Such as //depot/project/...")
    position = models.IntegerField(default=0, help_text="The last matching line decides.")
    reason = models.CharField(max_length=255, help_text="Why this line exists: a ticket or a sentence.")

    class Meta:
        db_table = "allow_list_entries"
        verbose_name = "allow-list entry"
        verbose_name_plural = "allow-list entries"
        ordering = ["position", "id"]
        constraints = [models.UniqueConstraint(fields=["kind", "pattern"], name="allow_list_once")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pattern}"


@audited("viewing-scope edit")
class ViewerScope(models.Model):
    """A depot tree that the members of a group may read. Audited like the allow-list."""

    group = models.ForeignKey("auth.Group", on_delete=models.CASCADE, related_name="viewer_scopes")
    prefix = models.CharField(max_length=1024, help_text="Such as //depot/project/...")
    reason = models.CharField(max_length=255, help_text="Why: a ticket or a sentence.")

    class Meta:
        db_table = "viewer_scopes"
        verbose_name = "viewing scope"
        ordering = ["group", "prefix"]
        permissions = [("view_all_files", "Can see the files of every review")]
        constraints = [
            models.UniqueConstraint(fields=["group", "prefix"], name="viewer_scopes_once"),
            # A line without a slash at the end of its last directory would match its neighbours as well.
            models.CheckConstraint(
                condition=Q(prefix__startswith="//") & Q(prefix__endswith="/..."), name="viewer_scopes_trees"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.group_id}: {self.prefix}"


class AuditSeal(models.Model):
    """One link of the hash chain over the audit rows of a table (`reviews.audit.hash_chain`).

    `rows_sha256` covers the rows `from_id < id <= to_id`; `chain` covers it and the link
    before; `mac` is keyed by a secret that is not in the database.
    """

    table = models.CharField(max_length=64, db_column="table_name")
    from_id = models.BigIntegerField()
    to_id = models.BigIntegerField()
    row_count = models.IntegerField()
    rows_sha256 = models.CharField(max_length=64)
    chain = models.CharField(max_length=64)
    mac = models.CharField(max_length=64)
    key_id = models.CharField(max_length=12)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "audit_seals"
        constraints = [
            # Refuses one of two processes that seal at once.
            models.UniqueConstraint(fields=["table", "from_id"], name="audit_seals_one_chain"),
            models.CheckConstraint(condition=Q(to_id__gt=F("from_id")), name="audit_seals_forward"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.table} {self.from_id} to {self.to_id}"


class FeedKey(models.Model):
    """Count of the resets of a person's feed links.

    A reset closes the links of before (`reviews.web.feeds`). A trigger on the accounts counts changes of the
    password and deactivations as well.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, primary_key=True)
    resets = models.IntegerField(db_default=0)

    class Meta:
        db_table = "feed_keys"

    def __str__(self) -> str:
        return f"{self.user_id}: {self.resets}"
