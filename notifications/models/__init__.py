"""The tables of deliveries and digests, of what recipients want, and of addresses that take no mail."""

from notifications.models.deliveries import Delivery, DeliveryAttempt
from notifications.models.digests import Digest
from notifications.models.preferences import RecipientPreference
from notifications.models.suppressions import Suppression, UnarchivedMail

__all__ = [
    "Delivery",
    "DeliveryAttempt",
    "Digest",
    "RecipientPreference",
    "Suppression",
    "UnarchivedMail",
]
