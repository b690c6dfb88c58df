"""Viewing scopes: viewers see the files under the prefixes of their groups, and no others.

Fails closed: without a scope no file is shown, and a review without a visible file answers "not found".
A review whose files are not known yet is hidden too. Superusers and holders of `reviews.view_all_files`
see everything; so does an API key without prefixes. Paths are compared byte for byte, also where a
server ignores case: that can only hide.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.postgres.fields import ArrayField
from django.db.models import BooleanField, Exists, F, Func, OuterRef, Q, QuerySet, TextField, Value

from reviews.models import CoverageRow, FindingRow, ReviewJob, ViewerScope
from reviews.models.jobs import SCAN
from reviews.roles import READ

SEES_ALL = "reviews.view_all_files"
PERMISSIONS = "django.contrib.auth.backends.ModelBackend"  # answers permissions; does not log in


class _AllBegin(Func):
    """True if each text of an array begins with one of a list; true for an empty array."""

    template = "NOT EXISTS (SELECT FROM unnest(%(expressions)s))"
    arg_joiner = ") element WHERE NOT element ^@ ANY ("
    output_field = BooleanField()


@dataclass(frozen=True, slots=True)
class Scope:
    """The files that may be seen. `prefixes` end in a slash: `//depot/main/`."""

    everything: bool = False
    prefixes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if no file may be seen."""
        return not self.everything and not self.prefixes

    def __and__(self, other: Scope) -> Scope:
        """Return the scope of the files that both allow."""
        if self.everything or other.everything:
            return other if self.everything else self
        both = {*filter(self.allows, other.prefixes), *filter(other.allows, self.prefixes)}
        return Scope(prefixes=tuple(sorted(both)))

    def allows(self, path: str) -> bool:
        return self.everything or path.startswith(self.prefixes)

    def may_touch(self, directory: str) -> bool:
        """Return whether some file below a depot directory such as `//app/` may be seen."""
        return self.allows(directory) or any(prefix.startswith(directory) for prefix in self.prefixes)

    def files(self) -> Q:
        """Return the condition on `file` of coverage rows, and of findings, that may be seen.

        A finding about the description names no depot path; it goes with the review.
        """
        if self.everything:
            return Q()
        return self.within() | ~Q(file__startswith="//") if self.prefixes else self.within()

    def findings(self) -> Q:
        """Return the condition on findings that may be seen: their file and all they rest on (G179)."""
        return Q() if self.everything else self.files() & self._all_within("evidence")

    def _all_within(self, paths: str) -> Q:
        return Q(_AllBegin(F(paths), Value(list(self.prefixes), ArrayField(TextField()))))

    def within(self, path: str = "file") -> Q:
        """Return the condition that a depot path may be seen; `path` is its field."""
        if self.everything:
            return Q()
        visible = Q(pk__in=())
        for prefix in self.prefixes:
            visible |= Q(**{f"{path}__startswith": prefix})
        return visible

    def of_jobs(self, job: str = "pk", of: str = "job") -> Q:
        """Return the condition on jobs with at least one file that may be seen.

        `job` is the lookup of the job from the rows that are narrowed, `of` that of the same from a file.
        """
        if self.everything:
            return Q()
        if not self.prefixes:
            return Q(pk__in=())
        within = self.within()
        return Q(Exists(CoverageRow.objects.filter(within, **{of: OuterRef(job)}))) | Q(
            Exists(FindingRow.objects.filter(within, **{of: OuterRef(job)}))
        )

    def of_whole_jobs(self, job: str = "pk", of: str = "job") -> Q:
        """Return the condition on jobs that hold only files that may be seen, as `of_jobs` does."""
        if self.everything:
            return Q()
        hidden = CoverageRow.objects.filter(~self.within(), **{of: OuterRef(job)})
        about_hidden = FindingRow.objects.filter(~self.findings(), **{of: OuterRef(job)})
        own = {of.removeprefix("job").removeprefix("__") or "pk": OuterRef(job)}
        read_hidden = ReviewJob.objects.filter(~self._all_within("context_files"), **own)
        return self.of_jobs(job, of) & ~Q(Exists(hidden) | Exists(about_hidden) | Exists(read_hidden))

    def of_events(self) -> Q:
        """Return the condition on security events that may be seen.

        They are of no review, or of one whose files may all be seen. An event may name a path that the
        stored reviews of its changelist do not have.
        """
        path = Q() if self.everything else self.within("path") | ~Q(path__startswith="//")
        return Q(changelist_id="") | path & self.of_whole_jobs("changelist_id", "job__changelist_id")

    def jobs(self) -> QuerySet[ReviewJob]:
        """Return the reviews that may be seen."""
        return ReviewJob.objects.filter(self.of_jobs())


EVERYTHING = Scope(everything=True)


def scope_of(user: Any) -> Scope:
    """Return the scope of a person: everything, or the prefixes of their groups."""
    if not user.is_active:
        return Scope()
    if user.has_perm(SEES_ALL):
        return EVERYTHING
    lines = ViewerScope.objects.filter(group__user=user).values_list("prefix", flat=True)
    return scope_of_lines(lines)


def visible_to(user: Any) -> Scope | None:
    """Return the scope of a person for the admin (`viewing_scope.Visible`), None for everything."""
    scope = scope_of(user)
    return None if scope.everything else scope


def scopes_of(users: Collection[Any]) -> dict[int, Scope]:
    """Return, by id, what many people may see of reviews in messages; three queries.

    It is what `scope_of` shows them, for those whose role lets them read reviews: others read no page either.
    """
    having = get_user_model().objects.with_perm(READ, backend=PERMISSIONS)  # active ones only
    active = set(having.filter(pk__in={user.pk for user in users}).values_list("pk", flat=True))
    lines: dict[int, list[str]] = {user_id: [] for user_id in active}
    stored = ViewerScope.objects.filter(group__user__in=active)
    for user_id, prefix in stored.values_list("group__user", "prefix"):
        lines[user_id].append(prefix)
    holders = get_user_model().objects.with_perm(SEES_ALL, backend=PERMISSIONS).filter(pk__in=active)
    see_all = set(holders.values_list("pk", flat=True))
    return {
        user.pk: EVERYTHING if user.pk in see_all else scope_of_lines(lines.get(user.pk, ()))
        for user in users
    }


def scope_of_lines(lines: Any) -> Scope:
    """Return the scope of stored lines such as `//depot/main/...`."""
    return Scope(prefixes=tuple(sorted({line.removesuffix("...") for line in lines if _is_tree(line)})))


def scope_of_key(prefixes: Any) -> Scope:
    """Return the scope of an API key. A key without prefixes sees everything its role may."""
    return scope_of_lines(prefixes) if prefixes else EVERYTHING


def scope_of_job(job: ReviewJob) -> Scope:
    """Return the scope of the API key that requested a review, as it was then (guarantee G150).

    No key limits a scan: it has no files but those of its path.
    """
    is_limited = job.series and job.kind != SCAN
    return Scope(prefixes=tuple(job.scope_prefixes)) if is_limited else EVERYTHING


def _is_tree(line: object) -> bool:
    # Any other line would match the beginning of a name, or everything.
    return isinstance(line, str) and line.startswith("//") and line.endswith("/...") and len(line) > 6
