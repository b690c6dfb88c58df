"""Forms of the dead-letter admin: steps, actions, batches. They check input only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.core.validators import URLValidator

from criticizer.admin_site.bulk_actions import AdminForm, reason_field
from deadletters.types import DataField, FieldKind

MAX_TEXT = 2000
MAX_DATA = 60_000  # characters of one part of a job's data
MAX_LINK = 500
MAX_SNOOZE_HOURS = 14 * 24
CATEGORIES = (
    ("transient", "Transient: a dependency was unavailable or busy, and recovers by itself"),
    ("data", "Data: the change, the recipients or the model's answer cannot be processed as they are"),
    ("auth_config", "Credentials or configuration: a key, a permission, an address or a setting is wrong"),
    ("code_defect", "Code defect: Criticizer itself has to be fixed"),
)


def _reason(**kwargs: Any) -> forms.CharField:
    help_text = "A ticket, an incident or a sentence. It becomes part of the dead letter's history."
    return reason_field(**{"max_length": MAX_TEXT, "help_text": help_text, **kwargs})


def _link(label: str, help_text: str = "") -> forms.CharField:
    return forms.CharField(
        required=False,
        max_length=MAX_LINK,
        strip=True,
        label=label,
        widget=forms.URLInput(attrs={"placeholder": "https://"}),
        validators=[URLValidator(schemes=["http", "https"])],
        help_text=help_text,
    )


def _text(rows: int, **kwargs: Any) -> forms.CharField:
    widget = forms.Textarea(attrs={"rows": rows})
    return forms.CharField(required=False, max_length=MAX_TEXT, strip=True, widget=widget, **kwargs)


_TICKET = "Link to the ticket or incident"


class ReasonForm(AdminForm):
    """The reason of an action, for the history."""

    reason = _reason()


class RowVersion(forms.Form):
    """Hidden fields that detect a change since the page was made.

    They hold the version of the row and the number of its newest event.
    """

    row_version = forms.IntegerField(min_value=0, widget=forms.HiddenInput)
    seen = forms.IntegerField(min_value=0, required=False, widget=forms.HiddenInput)


# -- the steps --------------------------------------------------------------------------------------


class TriageForm(AdminForm):
    """The category of a failure."""

    category = forms.ChoiceField(
        choices=CATEGORIES,
        widget=forms.RadioSelect,
        error_messages={"required": "Choose a category."},
    )
    note = _text(2, help_text="What you found out beyond the error itself.")


class TriageManyForm(TriageForm):
    """The category of many failures; empty: each by its own error class."""

    category = forms.ChoiceField(
        choices=(("", "Each as its error class suggests"), *CATEGORIES),
        required=False,
        initial="",
        widget=forms.RadioSelect,
    )


class RemediateForm(AdminForm):
    """The evidence of a remediation: what was done, and where it is documented."""

    checklist = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label="Done", choices=()
    )
    evidence_link = _link(_TICKET)
    evidence_note = _text(
        3,
        min_length=3,
        label="What was done",
        help_text="A link, a sentence, or both. A replay requires this evidence.",
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
            self.add_error("evidence_note", "Enter a link to a ticket, or what was done.")
        return cleaned


class OverrideForm(AdminForm):
    """The reason to validate a letter although a check failed."""

    override_reason = _reason(
        label="Reason for the override",
        help_text="The failed checks and this reason become part of the dead letter's history.",
    )


class ManyValidateForm(AdminForm):
    """The reason to validate letters although a check failed; without one they are skipped."""

    override_reason = _reason(
        required=False,
        label="Override failed checks because",
        help_text="Leave it empty to skip dead letters with failed checks.",
    )


class ReplayForm(AdminForm):
    """The stage where the job starts again, and the reason."""

    start = forms.ChoiceField(
        label="Start at",
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
                "The first stage: the change is fetched and reviewed again. Recipients that were notified "
                "already are not notified twice",
            ),
        ]


class ResolveForm(AdminForm):
    """The notes that close a letter."""

    resolution = _reason(
        label="Resolution",
        error_messages={"required": "A resolution is required."},
        help_text="What was wrong and what fixed it, for the next time this failure occurs.",
    )


class EditForm(AdminForm):
    """The new data of a job, one field for each part that is not locked, and the reason."""

    reason = _reason()

    def __init__(self, *args: Any, data: Sequence[DataField], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        editable = [field for field in data if field.kind is not FieldKind.LOCKED]
        self.field_names = {field.name: f"data_{field.name}" for field in editable}
        for field in editable:
            self.fields[self.field_names[field.name]] = forms.CharField(
                label=field.label,
                help_text=field.help,
                initial="\n".join(field.value),
                required=False,
                max_length=MAX_DATA,
                strip=False,
                widget=forms.Textarea(attrs={"rows": min(12, len(field.value) + 2), "spellcheck": "false"}),
            )
        self.order_fields([*self.field_names.values(), "reason"])
        # The changes can be shown before a reason is given.
        self.asks = self.is_bound and self.data.get("do") == "ask"
        self.fields["reason"].required = self.asks

    def values(self) -> dict[str, list[str]]:
        """Return the lines of each part, unchanged."""
        return {name: self.cleaned_data[field].splitlines() for name, field in self.field_names.items()}


# -- groups ------------------------------------------------------------------------------------------


class AssignForm(AdminForm):
    """The owner of a group; empty for none."""

    owner = forms.CharField(
        required=False,
        max_length=150,
        strip=True,
        help_text="An account or a team. Leave it empty to remove the owner.",
    )


class SnoozeForm(AdminForm):
    """The time for which a group asks for no attention, and the reason."""

    hours = forms.IntegerField(
        min_value=1,
        max_value=MAX_SNOOZE_HOURS,
        initial=24,
        help_text=f"Up to {MAX_SNOOZE_HOURS}, two weeks. Then the group returns to the list.",
    )
    reason = _reason(help_text="A ticket, an incident or a sentence. It becomes part of the group's history.")


class NoteForm(AdminForm):
    """Note and runbook of groups; for several groups an empty field leaves the present value."""

    note = _text(4)
    runbook_url = _link("Runbook", "The page that describes what to do about this failure.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.leaves_empty = not self.initial
        if self.leaves_empty:
            for field in self.fields.values():
                field.help_text = f"{field.help_text} If empty, each group keeps its own.".strip()

    def clean(self) -> dict[str, Any]:
        """Return the fields; None for those that do not change."""
        cleaned = super().clean() or {}
        if not self.leaves_empty:
            return cleaned
        if not self.errors and not any(cleaned.values()):
            self.add_error("note", "Enter a note, a runbook, or both.")
        return {name: value or None for name, value in cleaned.items()}


class CauseFixedForm(AdminForm):
    """The one text of a replay: what was done about the cause."""

    evidence = _reason(
        label="What was done",
        error_messages={"required": "Not saved. Say what was done, or link a ticket."},
        help_text="A sentence or a ticket: the evidence of the replay, and the resolution of what it proves.",
    )


class GroupReasonForm(AdminForm):
    """The reason of a change to a group."""

    reason = _reason(help_text="A ticket, an incident or a sentence. It becomes part of the group's history.")


# -- batches -----------------------------------------------------------------------------------------


class BatchForm(AdminForm):
    """The reason of a batch."""

    reason = _reason(help_text="A ticket, an incident or a sentence. It is stored with the batch.")


class BatchSettingsForm(AdminForm):
    """The settings of a draft: the data of the steps, and the rate."""

    category = forms.ChoiceField(
        choices=(("", "Each as its error class suggests"), *CATEGORIES),
        required=False,
        label="Category of dead letters that are not triaged yet",
    )
    evidence_link = _link(_TICKET)
    evidence_note = _text(
        2,
        min_length=3,
        label="What was done",
        help_text="A link, a sentence, or both: the evidence for dead letters that are not remediated yet.",
    )
    override_reason = _reason(
        required=False,
        label="Override failed checks because",
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="If empty, dead letters whose checks fail are skipped. An override needs a second person "
        "and does not apply to an open circuit: the batch stops there.",
    )
    is_restart = forms.BooleanField(
        required=False,
        label="Start at the first stage",
        help_text="Instead of the failed one: every change is fetched and reviewed again. Needs a second "
        "person.",
    )
    canary_size = forms.IntegerField(
        min_value=0,
        max_value=100,
        label="Canary size",
        help_text="This many dead letters are replayed first. The batch stops if one fails again.",
    )
    rate_per_minute = forms.IntegerField(
        min_value=1, max_value=6000, label="Dead letters per minute after that"
    )
    max_in_flight = forms.IntegerField(min_value=1, max_value=500, label="At most at once")


class PaceForm(AdminForm):
    """The rate of a batch from now on."""

    rate_per_minute = forms.IntegerField(min_value=1, max_value=6000, label="Dead letters per minute")
    max_in_flight = forms.IntegerField(min_value=1, max_value=500, label="At most at once")
    reason = _reason(required=False, help_text="Stored in the batch's history.")
