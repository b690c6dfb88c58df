"""System checks of the channels that settings name."""

from __future__ import annotations

from django.conf import settings

from criticizer.checks import Messages, check, message
from criticizer.checks.settings import SIGN_WEBHOOKS
from notifications.recipients import VARIABLES


@check()
def configured_recipients() -> Messages:
    """Check the channels of the recipients named in settings (criticizer.W005, W006)."""
    for variable in ("DEFAULT_RECIPIENTS", "OPERATOR_ALERTS"):
        channels = {recipient.partition(":")[0].lower() for recipient in getattr(settings, variable)}
        if "webhook" in channels and not settings.WEBHOOK_SECRETS:
            problem = f"{variable} names webhooks, which are sent unsigned: receivers cannot verify them."
            yield message("W005", problem, SIGN_WEBHOOKS)
        for channel in sorted(channels & VARIABLES.keys()):
            for name in VARIABLES[channel]:
                if getattr(settings, name):
                    continue
                yield message(
                    "W006",
                    f"{variable} names a recipient of {channel}, but {name} is not set: its deliveries fail.",
                    f"Set {name}, or remove the recipient.",
                )
