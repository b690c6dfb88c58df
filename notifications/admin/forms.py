"""The form of an operator's decision about uncertain deliveries."""

from __future__ import annotations

from django import forms

from notifications.delivery.operator_actions import OperatorAction

_CHOICES = (
    (OperatorAction.CONFIRM.value, "It arrived: confirm it as delivered"),
    (OperatorAction.RESEND.value, "Send it again: it may arrive twice, and the message says so"),
    (OperatorAction.ABANDON.value, "Abandon it: the review continues without this recipient"),
)


class DecisionForm(forms.Form):
    decision = forms.ChoiceField(choices=_CHOICES, widget=forms.RadioSelect, label="Action")
    reason = forms.CharField(
        min_length=3,
        max_length=1000,
        strip=True,
        label="Evidence or reason",
        widget=forms.Textarea(attrs={"rows": 4, "aria-describedby": "id_reason_helptext"}),
        help_text="For a confirmation, the evidence that it arrived: who saw it, a line of the mail"
        " server's log, a ticket. It is saved with the delivery and the review.",
    )
