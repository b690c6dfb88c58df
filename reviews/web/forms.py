"""Forms of the pages and of the reviews admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from django import forms
from django.conf import settings
from django.db.models import Model

from reviews.intake.api_keys import check_tree
from reviews.models import AllowListEntry, ApiKey
from reviews.sources.allowlist import AllowList, example_path, validate_line, validate_pattern, whole_folder

M = TypeVar("M", bound=Model)
T = TypeVar("T")


class ReasonedEdit(forms.ModelForm[M]):
    """Form of a row whose every change needs a new reason."""

    def clean_reason(self) -> str:
        reason = str(self.cleaned_data["reason"]).strip()
        if len(reason) < 3:
            raise forms.ValidationError("Enter a reason: a ticket, an incident or a sentence.")
        return reason

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if self.instance.pk and self.changed_data and "reason" not in self.changed_data:
            self.add_error("reason", "Enter a new reason: this one belongs to the previous change.")
        return cleaned


def accepted(check: Callable[..., T], *values: Any) -> T:
    """Return what a check makes of a field's values; its ValueError is shown at the field."""
    try:
        return check(*values)
    except ValueError as error:
        raise forms.ValidationError(str(error)) from error


def checked_pattern(text: str) -> str:
    """Return a pattern in the allow-list's language.

    Raises ValidationError, which says what to write instead.
    """
    pattern = whole_folder(text)
    if pattern.startswith("-"):
        raise forms.ValidationError("Write the path without the leading -: only the allow-list excludes.")
    return accepted(validate_pattern, pattern, "pattern")


class AllowListEntryForm(ReasonedEdit[AllowListEntry]):
    """An allow-list line: canonical, and inside the ceiling that DEPOT_ALLOW_LIST sets (G223)."""

    stops_changes = forms.BooleanField(
        required=False,
        label="End whole changes (for Exclude)",
        help_text="An excluded path is not skipped: every change that touches it ends as PATH_DENIED, with"
        " all its other files. To keep files from the model only, add them to Skipped paths instead.",
    )
    denies_others = forms.BooleanField(
        required=False,
        label="Deny all other paths (for the first Include)",
        help_text="Without an Include line, every path of DEPOT_ALLOW_LIST may be read. As soon as there is"
        " one, only included paths may be read.",
    )
    allows_others = forms.BooleanField(
        required=False,
        label="Allow all other paths (when the last Include goes)",
        help_text="Without an Include line, every path of DEPOT_ALLOW_LIST may be read again.",
    )

    class Meta:
        model = AllowListEntry
        fields = ("kind", "pattern", "position", "reason")
        help_texts: ClassVar = {
            "pattern": "Such as //depot/project/... (everything below), //depot/*/sql/*.sql or one file.",
            "position": "Lines are read from the lowest position up; the last that matches decides.",
        }

    def clean_pattern(self) -> str:
        pattern = str(self.cleaned_data["pattern"]).strip()
        if pattern.startswith("-"):
            raise forms.ValidationError("Write the path without the leading - and choose the kind Exclude.")
        return pattern

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        is_new = {"kind", "pattern"} & set(self.changed_data)
        stops = cleaned is not None and cleaned.get("kind") == AllowListEntry.Kind.EXCLUDE
        if stops and is_new and not self.cleaned_data.get("stops_changes"):
            self.add_error(
                "stops_changes",
                "A change that touches this path will end as PATH_DENIED, and none of its files will be"
                " reviewed. Tick the box to confirm.",
            )
        if not self.errors:
            self._check_line(self.cleaned_data["kind"], self.cleaned_data["pattern"])
        if not self.errors and not self.cleaned_data["denies_others"] and (denied := self._newly_denied()):
            self.add_error(
                "denies_others",
                f"This is the first Include. All other paths of the ceiling ({', '.join(denied)}) will be"
                " denied, and changes that touch them will end as PATH_DENIED. Tick the box to confirm.",
            )
        is_asked = stops and not self.errors and not self.cleaned_data["allows_others"]
        if is_asked and (allowed := newly_allowed(self.instance.pk)):
            self.add_error("allows_others", f"{_last_include(allowed)} Tick the box to confirm.")
        return cleaned

    def _newly_denied(self) -> list[str]:
        """Return the lines of the ceiling that this first Include denies at least in part.

        Empty when this line is no Include, or not the first.
        """
        includes = AllowListEntry.objects.filter(kind=AllowListEntry.Kind.INCLUDE)
        if self.cleaned_data["kind"] != AllowListEntry.Kind.INCLUDE or includes.exists():
            return []
        return _denied_by(self.cleaned_data["pattern"])

    def _check_line(self, kind: str, pattern: str) -> None:
        exclude = kind == AllowListEntry.Kind.EXCLUDE
        try:
            validate_line(f"-{pattern}" if exclude else pattern)
        except ValueError as error:
            self.add_error("pattern", str(error))
            return
        # A line that excludes can only narrow, wherever it points.
        if not exclude and not AllowList(settings.DEPOT_ALLOW_LIST).decide(example_path(pattern)).allowed:
            self.add_error(
                "pattern",
                "This is outside the ceiling that DEPOT_ALLOW_LIST sets: "
                f"{', '.join(settings.DEPOT_ALLOW_LIST)}. "
                "Choose a path below one of these, or ask an administrator to change DEPOT_ALLOW_LIST.",
            )


def newly_allowed(line: int | None) -> list[str]:
    """Return the lines of the ceiling of which more may be read without this line as an Include.

    The caller holds `Lock.ALLOW_LIST` until its edit is committed: without it, two edits at once could each
    see the other's Include, and both take theirs away.
    """
    includes = list(AllowListEntry.objects.filter(kind=AllowListEntry.Kind.INCLUDE)[:2])
    return _denied_by(includes[0].pattern) if [row.pk for row in includes] == [line] else []


def _denied_by(include: str) -> list[str]:
    """Return the lines of the ceiling that an only Include denies at least in part."""
    allowed = AllowList([include])
    lines = (line for line in settings.DEPOT_ALLOW_LIST if not line.startswith("-"))
    return [line for line in lines if not allowed.decide(example_path(line)).allowed]


def _last_include(allowed: list[str]) -> str:
    return f"This is the last Include. Without it, all of the ceiling ({', '.join(allowed)}) may be read."


class PathForm(forms.Form):
    """A depot path to check against the allow-list."""

    path = forms.CharField(
        max_length=2048, strip=False, label="Depot path", help_text="Such as //depot/project/src/main.c"
    )
    ignore_case = forms.BooleanField(
        required=False,
        label="The server ignores case",
        help_text='Tick this if `p4 info` prints "Case Handling: insensitive".',
    )


class DeletionForm(forms.Form):
    """Reason for deleting a row of an audited table."""

    reason = forms.CharField(
        min_length=3,
        max_length=255,
        strip=True,
        help_text="A ticket, an incident or a sentence.",
        error_messages={"required": "A reason is required."},
    )

    def __init__(self, data: Any, row: int | None) -> None:
        super().__init__(data)
        self.row = row


class AllowListDeletionForm(DeletionForm):
    """Reason for deleting an allow-list line (guarantee G223).

    Deleting the last Include needs a second consent.
    """

    def __init__(self, data: Any, row: int | None) -> None:
        super().__init__(data, row)
        if allowed := newly_allowed(row):
            self.fields["allows_others"] = forms.BooleanField(
                label="Allow all other paths",
                help_text=_last_include(allowed),
                error_messages={"required": f"{_last_include(allowed)} Tick the box to confirm."},
            )


class ApiKeyForm(forms.ModelForm[ApiKey]):
    """Name, role and prefixes of a new API key; the rest is generated."""

    prefixes = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 60}),
        help_text="Depot trees such as //depot/project/..., one a line: the key sees files below them only."
        " Empty: every file.",
    )

    class Meta:
        model = ApiKey
        fields = ("name", "role")

    def clean_prefixes(self) -> list[str]:
        lines = filter(None, map(str.strip, self.cleaned_data["prefixes"].splitlines()))
        return [accepted(check_tree, line) for line in lines]

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"]).strip()
        if not name.isprintable():
            raise forms.ValidationError("Use printable characters only.")
        return name
