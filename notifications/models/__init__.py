"""The tables of deliveries, digests, preferences and suppressed addresses."""

from notifications.models.deliveries import Delivery, DeliveryAttempt
from notifications.models.digests import Digest
from notifications.models.preferences import RecipientPreference
from notifications.models.suppressions import Suppression, UnarchivedMail
