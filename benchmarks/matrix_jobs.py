"""Jobs with a prepared delivery to a rig's recipient."""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid5

from django.utils import timezone

from benchmarks.matrix_rig import Rig


def prepared_digest(rig: Rig, series: str, number: int) -> list[int]:
    """Make jobs with a prepared delivery each, in one digest that is due; return their ids."""
    from django.db.models.functions import Now

    from notifications.models import Digest

    jobs = [prepared_job(rig, f"{series}-{one}", number, digest_minutes=10) for one in range(rig.together)]
    Digest.objects.filter(deliveries__job_id__in=jobs).update(due_at=Now())
    return jobs


def prepared_job(rig: Rig, series: str, number: int, *, digest_minutes: int = 0) -> int:
    """Make a job with one prepared delivery to a rig's recipient; return its id.

    `number` is that of the recipient.
    """
    from notifications.delivery import prepare, snapshot
    from notifications.recipients import host_of, split
    from reviews.models import ReviewJob
    from tests.notifications.samples import reviewed

    changelist, recipient = f"{series}-{number}", rig.recipient(number)
    job = ReviewJob.objects.create(
        changelist_id=changelist,
        idempotency_key=f"key-{changelist}",
        request_sha256=hashlib.sha256(changelist.encode()).hexdigest(),
        recipients=[recipient],
        deadline_at=timezone.now() + timedelta(days=1),
    )
    token = snapshot.token_for(changelist, recipient, 1)
    message = replace(
        reviewed(2), token=token, address=split(recipient)[1], created_at_epoch=int(time.time())
    )
    if host_of(recipient):  # a pull request takes the review of its own pull request only
        data: Any = message.payload["data"]
        place = {"path": "app.py", "line": 14, "start_line": 12, "side": "new", "replacement": ""}
        pull = {
            "changelist_id": recipient.replace("-review:", ":"),
            "pull_request": {"repository_id": number + 1, "head_sha": "1" * 40},
            "findings": [{**finding, "in_diff": place} for finding in data["findings"]],
        }
        message = replace(message, payload={**message.payload, "data": {**data, **pull}})
    if recipient.startswith("swarm:"):
        at_line: Any = message.payload["data"]
        place = {
            "path": "//depot/main/app.py", "line": 14, "start_line": 12, "side": "new", "replacement": "",
            "content": ["lock.acquire()"],
        }  # fmt: skip
        findings = [
            {**finding, "identity": str(uuid5(token, str(n))), "in_diff": place}
            for n, finding in enumerate(at_line["findings"])
        ]
        message = replace(message, payload={**message.payload, "data": {**at_line, "findings": findings}})
    wish = {recipient: digest_minutes} if digest_minutes else {}
    prepare.create_deliveries(job.pk, changelist, 1, {recipient: message}, digest_minutes=wish)
    return job.pk
