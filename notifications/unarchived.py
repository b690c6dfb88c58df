"""The messages whose copy the archive refused, remembered in the database for every worker."""

from __future__ import annotations

from uuid import UUID

from django.db import Error as DatabaseTrouble

from criticizer.resilience.failures import classify
from notifications.models import UnarchivedMail


class UnarchivedMails:
    """Serves `providers.smtp.Unarchived`."""

    def add(self, token: UUID, /) -> None:
        """Write a token down, in a commit of its own. Raises RetryableFailure when that cannot be done."""
        try:
            UnarchivedMail.objects.bulk_create([UnarchivedMail(token=token)], ignore_conflicts=True)
        except DatabaseTrouble as error:
            raise classify(error) from error

    def __contains__(self, token: object, /) -> bool:
        return isinstance(token, UUID) and UnarchivedMail.objects.filter(token=token).exists()
