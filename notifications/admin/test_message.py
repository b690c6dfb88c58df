"""Sends a test message to check a provider's configuration.

No delivery is recorded and no circuit consulted: operators test also while the circuit is open.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from uuid import UUID, uuid4

import structlog
from django import forms
from django.conf import settings
from django.http import QueryDict
from django.template.loader import render_to_string

from criticizer.redaction import clean
from criticizer.resilience.classification import classify
from criticizer.resilience.exchange import one_call
from criticizer.resilience.failures import Failure, UncertainFailure
from notifications import config
from notifications.providers.base import Message
from notifications.recipients import normalise, split

log = structlog.get_logger(__name__)

SUBJECT = "Test message from Criticizer"


@dataclass(frozen=True, slots=True)
class TestStep:
    """One step of the test. `advice`: what to do where it failed."""

    name: str
    is_ok: bool
    text: str
    advice: str = ""
    code: str = ""


class TestMessageForm(forms.Form):
    """The address of a test message. Cleaned, it is a normalised recipient."""

    address = forms.CharField(max_length=500, strip=True, label="Send a test message to")

    def __init__(self, data: QueryDict | None = None, *, channel: str) -> None:
        super().__init__(data, auto_id=f"id_{channel}_%s", label_suffix="")
        self._channel = channel

    def clean_address(self) -> str:
        text = self.cleaned_data["address"].removeprefix(f"{self._channel}:")
        try:
            return normalise(f"{self._channel}:{text}")
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error


def run(recipient: str, actor: str) -> list[TestStep]:
    """Check the provider of a normalised recipient; where that works, send a test message.

    Returns the steps in order. Raises nothing that a provider or its configuration may cause.
    """
    channel, _ = split(recipient)
    steps = _steps(recipient, actor)
    failed = next((step for step in steps if not step.is_ok), None)
    log.info("provider_tested", channel=channel, actor=actor, code=failed.code if failed else "")
    return steps


def sample(recipient: str, actor: str, token: UUID, now: float) -> Message:
    """Return the test message."""
    base_url = settings.BASE_URL.rstrip("/")
    text = f"{actor} asked Criticizer at {base_url}/ to send this test message. No action is needed."
    return Message(
        token=token,
        address=split(recipient)[1],
        subject=SUBJECT,
        text=f"{SUBJECT}\n\n{text}\n",
        html=render_to_string("notifications/test.html", {"subject": SUBJECT, "text": text}),
        payload={"type": "test", "timestamp": int(now), "data": {"message": text}},
        thread=f"test:{token}",
        created_at_epoch=int(now),
    )


def _steps(recipient: str, actor: str) -> list[TestStep]:
    channel, _ = split(recipient)
    reason, provider = config.problems().get(channel), config.providers().get(channel)
    if reason:
        advice = "Correct the setting and restart."
        return [TestStep("Configuration", is_ok=False, text=_sentence(reason), advice=advice)]
    if provider is None:
        text, advice = "Nothing is configured for this channel.", "Set the variables named here and restart."
        return [TestStep("Configuration", is_ok=False, text=text, advice=advice)]
    steps: list[TestStep] = []
    try:
        with one_call():
            steps.append(TestStep("Check", is_ok=True, text=_sentence(provider.probe())))
            message_id = provider.send(sample(recipient, actor, uuid4(), time.time()))
        steps.append(TestStep("Message", is_ok=True, text=f"Accepted: {message_id}"))
    except Exception as error:  # noqa: BLE001  any failure is a result of the test
        steps.append(_diagnosis("Message" if steps else "Check", classify(error)))
    return steps


def _diagnosis(name: str, failure: Failure) -> TestStep:
    kind = failure.kind
    text = _sentence(clean(failure.detail)) or kind.message
    if name == "Message" and isinstance(failure, UncertainFailure):
        text += " The message may have arrived anyway: check before you try again."
    return TestStep(name, is_ok=False, text=text, advice=kind.hint, code=kind.code)


def _sentence(text: str) -> str:
    text = text.strip()
    text = text[:1].upper() + text[1:]
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
