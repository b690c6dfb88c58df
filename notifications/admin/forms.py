"""The form of an operator's decision about uncertain deliveries."""

from __future__ import annotations

from django import forms

from criticizer.admin_site.bulk_actions import AdminForm, reason_field
from notifications.delivery.operator_actions import OperatorAction

_CHOICES = (
    (OperatorAction.CONFIRM.value, "It arrived: confirm it as delivered"),
    (OperatorAction.RESEND.value, "Send it again: it may arrive twice, and the message says so"),
    (OperatorAction.ABANDON.value, "Abandon it: the review continues without this recipient"),
)


class DecisionForm(AdminForm):
    decision = forms.ChoiceField(choices=_CHOICES, widget=forms.RadioSelect, label="Action")
    reason = reason_field(
        max_length=1000,
        label="Evidence or reason",
        help_text="For a confirmation, the evidence that it arrived: who saw it, a line of the mail"
        " server's log, a ticket. It is saved with the delivery and the review.",
    )
