"""Forms of the dead-letter console."""

from __future__ import annotations

from django import forms


class ReasonForm(forms.Form):
    """Why an operator acts. Kept in the letter's history."""

    reason = forms.CharField(
        min_length=3,
        max_length=2000,
        strip=True,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="A ticket, an incident or a sentence. It becomes part of the letter's history.",
    )
