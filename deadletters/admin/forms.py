"""Forms of the dead-letter console: one for each step of the workflow, each action and each batch.

They check what was typed; whether a step may be taken is the workflow's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.core.validators import MaxValueValidator, MinValueValidator, URLValidator
from django.utils import timezone

from criticizer.admin_site.bulk_actions import AdminForm, reason_field
from deadletters.types import DataField, FieldKind

MAX_TEXT = 2000
MAX_DATA = 60_000  # characters of one part of a job's data
MAX_LINK = 500
MAX_SNOOZE_HOURS = 14 * 24
# What each category means to who has to choose one (000, 8.5).
CATEGORIES = (
    ("transient", "Transient: what it needs was away or busy and comes back by itself"),
    ("data", "Data: the change, the recipients or the model's answer cannot be worked with as they are"),
    ("auth_config", "Credentials or configuration: a key, a permission, an address or a setting is wrong"),
    ("code_defect", "Code defect: Criticizer itself is wrong and has to be corrected"),
)


def _reason(**kwargs: Any) -> forms.CharField:
    words = "A ticket, an incident or a sentence. It becomes part of the letter's history."
    return reason_field(**{"max_length": MAX_TEXT, "help_text": words, **kwargs})


def _evidence_link() -> forms.CharField:
    return forms.CharField(
        required=False,
        max_length=MAX_LINK,
        strip=True,
        label="Link to the ticket or incident",
        widget=forms.URLInput(attrs={"placeholder": "https://"}),
        validators=[URLValidator(schemes=["http", "https"])],
    )


class ReasonForm(AdminForm):
    """Why an operator acts. Kept in the letter's history."""

    reason = _reason()


class NothingForm(AdminForm):
    """Asks for nothing but the button."""


class RowVersion(forms.Form):
    """The hidden number by which a change that came in between is noticed."""

    row_version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    seen = forms.IntegerField(min_value=0, required=False, widget=forms.HiddenInput)


# -- the steps --------------------------------------------------------------------------------------


class TriageForm(AdminForm):
    """What kind of failure it is."""

    category = forms.ChoiceField(
        choices=CATEGORIES,
        widget=forms.RadioSelect,
        error_messages={"required": "Choose a category."},
    )
    note = forms.CharField(
        required=False,
        max_length=MAX_TEXT,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="What you found out, if it is not plain from the error.",
    )


class TriageManyForm(TriageForm):
    """What kind of failure many letters are; each may go by its own error class."""

    category = forms.ChoiceField(
        choices=(("", "Each by what its error class suggests"), *CATEGORIES),
        required=False,
        initial="",
        widget=forms.RadioSelect,
    )


class RemediateForm(AdminForm):
    """What was done about it, and where that is written down."""

    checklist = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label="Done", choices=()
    )
    evidence_link = _evidence_link()
    evidence_note = forms.CharField(
        required=False,
        min_length=3,
        max_length=MAX_TEXT,
        strip=True,
        label="What was done",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="A link, a sentence, or both: this is the evidence that a replay asks for.",
    )

    def __init__(self, *args: Any, checklist: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        lines = list(checklist)
        field: Any = self.fields["checklist"]
        field.choices = [(line, line) for line in lines]
        if not lines:
            del self.fields["checklist"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors and not (cleaned.get("evidence_link") or cleaned.get("evidence_note")):
            self.add_error("evidence_note", "Give a link to a ticket, or say what was done.")
        return cleaned


class OverrideForm(AdminForm):
    """Why the letter may be replayed although a check failed."""

    override_reason = _reason(
        label="Why it may be replayed all the same",
        help_text="The failed checks and this reason become part of the letter's history.",
    )


class ManyValidateForm(AdminForm):
    """Why letters may be replayed although a check of theirs failed; empty: they may not."""

    override_reason = _reason(
        required=False,
        label="Override failed checks because",
        help_text="Leave it empty to let letters with failed checks stay where they are.",
    )


class ReplayForm(AdminForm):
    """Where the job begins again, and why now."""

    start = forms.ChoiceField(
        label="Begin at",
        choices=(("stage", ""), ("restart", "")),
        initial="stage",
        widget=forms.RadioSelect,
    )
    reason = _reason()

    def __init__(self, *args: Any, stage: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["start"]
        field.choices = [
            ("stage", f"Stage {stage}, where it failed, with a fresh budget of attempts"),
            (
                "restart",
                "The first stage: the change is fetched and reviewed anew. Who was told already is not "
                "told twice",
            ),
        ]


class ResolveForm(AdminForm):
    """How the incident ended."""

    resolution = _reason(
        label="Resolution",
        error_messages={"required": "Say how it ended."},
        help_text="What was wrong and what solved it, for whoever meets this failure next.",
    )


class EditForm(AdminForm):
    """The new data of a job, a field to each part of it that is not locked, and why."""

    reason = _reason()

    def __init__(self, *args: Any, data: Sequence[DataField], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.field_names = {field.name: f"data_{field.name}" for field in data if not _is_locked(field)}
        for field in data:
            if not _is_locked(field):
                self.fields[self.field_names[field.name]] = forms.CharField(
                    label=field.label,
                    help_text=field.help,
                    initial="\n".join(field.value),
                    required=False,
                    max_length=MAX_DATA,
                    strip=False,
                    widget=forms.Textarea(
                        attrs={"rows": min(12, len(field.value) + 2), "spellcheck": "false"}
                    ),
                )
        self.order_fields([*self.field_names.values(), "reason"])
        # The difference can be looked at before a reason is given.
        self.asks = self.is_bound and self.data.get("do") == "ask"
        self.fields["reason"].required = self.asks

    def field_of(self, name: str) -> str | None:
        """Return the form's field for a part of the data; None where it has none."""
        return self.field_names.get(name)

    def values(self) -> dict[str, list[str]]:
        """Return the lines of each part, as they were typed."""
        return {name: self.cleaned_data[field].splitlines() for name, field in self.field_names.items()}


def _is_locked(field: DataField) -> bool:
    return field.kind is FieldKind.LOCKED


# -- groups ------------------------------------------------------------------------------------------


class AssignForm(AdminForm):
    """Who looks after a group. Empty: nobody."""

    owner = forms.CharField(
        required=False,
        max_length=150,
        strip=True,
        help_text="A name of an account or a team. Leave it empty to take the owner away.",
    )


class SnoozeForm(AdminForm):
    """How long a group asks for no attention."""

    hours = forms.IntegerField(
        initial=24,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_SNOOZE_HOURS)],
        widget=forms.NumberInput(attrs={"min": 1, "max": MAX_SNOOZE_HOURS}),
        help_text=f"Up to {MAX_SNOOZE_HOURS}, two weeks. The group is back in the list then.",
    )
    reason = _reason(help_text="A ticket, an incident or a sentence. It becomes part of the group's history.")

    def until(self) -> Any:
        """Return the moment at which the snooze ends."""
        return timezone.now() + timedelta(hours=int(self.cleaned_data["hours"]))


class NoteForm(AdminForm):
    """What people should know about a group, as it is; of several, what is left empty stays as it is."""

    note = forms.CharField(
        required=False, max_length=MAX_TEXT, strip=True, widget=forms.Textarea(attrs={"rows": 4})
    )
    runbook_url = forms.CharField(
        required=False,
        max_length=MAX_LINK,
        strip=True,
        label="Runbook",
        widget=forms.URLInput(attrs={"placeholder": "https://"}),
        validators=[URLValidator(schemes=["http", "https"])],
        help_text="Where it is written what to do about this failure.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.leaves_empty = not self.initial
        if self.leaves_empty:
            for field in self.fields.values():
                field.help_text = f"{field.help_text} Left empty, each group keeps its own.".strip()

    def clean(self) -> dict[str, Any]:
        """Return the fields; None where what is there stays."""
        cleaned = super().clean() or {}
        if not self.leaves_empty:
            return cleaned
        if not self.errors and not any(cleaned.values()):
            self.add_error("note", "Write a note, give a runbook, or both.")
        return {name: value or None for name, value in cleaned.items()}


class GroupReasonForm(AdminForm):
    """Why a group's status changes."""

    reason = _reason(help_text="A ticket, an incident or a sentence. It becomes part of the group's history.")


# -- batches -----------------------------------------------------------------------------------------


class BatchForm(AdminForm):
    """What a replay of many letters is for."""

    reason = _reason(help_text="A ticket, an incident or a sentence. It is kept with the batch.")


def _whole(least: int, most: int, **kwargs: Any) -> forms.IntegerField:
    return forms.IntegerField(
        validators=[MinValueValidator(least), MaxValueValidator(most)],
        widget=forms.NumberInput(attrs={"min": least, "max": most}),
        **kwargs,
    )


class BatchSettingsForm(AdminForm):
    """What the steps of a batch's letters say, and how fast it goes."""

    category = forms.ChoiceField(
        choices=(("", "Each by what its error class suggests"), *CATEGORIES),
        required=False,
        label="Category of letters that are not triaged yet",
    )
    evidence_link = _evidence_link()
    evidence_note = forms.CharField(
        required=False,
        min_length=3,
        max_length=MAX_TEXT,
        strip=True,
        label="What was done",
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="A link, a sentence, or both: the evidence for letters that are not remediated yet.",
    )
    override_reason = _reason(
        required=False,
        label="Override failed checks because",
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Empty: letters whose checks fail are skipped. An override needs a second person, and "
        "does not hold against an open circuit: the batch stops at it.",
    )
    is_restart = forms.BooleanField(
        required=False,
        label="Begin at the first stage",
        help_text="Instead of the failed one: every change is fetched and reviewed anew. This needs a second "
        "person.",
    )
    canary_size = _whole(
        0, 100, label="Letters to try first", help_text="The batch stops if one fails again."
    )
    rate_per_minute = _whole(1, 6000, label="Letters a minute after that")
    max_in_flight = _whole(1, 500, label="At most at once")


class PaceForm(AdminForm):
    """How fast a batch goes from now on."""

    rate_per_minute = _whole(1, 6000, label="Letters a minute")
    max_in_flight = _whole(1, 500, label="At most at once")
    reason = _reason(required=False, help_text="Kept in the batch's history.")
