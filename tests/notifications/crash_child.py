"""Workers that deliver one job each and are killed at a chosen point.

    python -m tests.notifications.crash_child

For each line `JOB POINT CHANNEL PROVIDER-ARGUMENT` on standard input a worker is forked, and
the signal that ended it (0: none) is printed. A worker runs the product's own `deliver` over
a real provider; only the kill is added. Django is set up once: that takes longer than all
the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import django
from django.db import transaction

POINTS = (
    "before_the_attempt",
    "attempt_written",
    "accepted",  # inside the provider, which has not answered its caller yet
    "before_the_mark",
    "inside_the_mark",  # the UPDATE is executed, not committed
    "after_the_mark",
)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing(real: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if before:
            kill()
        result = real(*args, **kwargs)
        kill()
        return result

    return wrapper


def work(job_id: int, point: str, channel: str, argument: str) -> None:
    from notifications.delivery import send, store
    from notifications.providers.email import maildir, smtp
    from notifications.providers.webhook import provider as webhook
    from tests.notifications.crash import provider_for

    provider = provider_for(channel, argument)
    if point == "before_the_attempt":
        store.claim = killing(store.claim, before=True)
    elif point == "attempt_written":
        provider.send = killing(provider.send, before=True)  # type: ignore[method-assign]
    elif point == "accepted" and channel == "maildir":
        maildir.os.link = killing(os.link, before=False)  # type: ignore[attr-defined]
    elif point == "accepted" and channel == "webhook":
        webhook.Webhook._outcome = killing(webhook.Webhook._outcome, before=True)  # type: ignore[method-assign]
    elif point == "accepted":
        smtp.finish = killing(smtp.finish, before=False)
    elif point == "before_the_mark":
        store.mark_sent = killing(store.mark_sent, before=True)
    elif point == "inside_the_mark":
        marks = killing(store.mark_sent, before=False)

        def mark_uncommitted(*args: Any) -> Any:
            with transaction.atomic():
                return marks(*args)

        store.mark_sent = mark_uncommitted
    else:
        store.mark_sent = killing(store.mark_sent, before=False)
    recipients = "webhook" if channel == "webhook" else "mail"
    send.deliver(job_id, {recipients: provider}, may_continue=lambda: True)


def main() -> None:
    django.setup()
    for line in sys.stdin:
        job, *rest = line.split()
        worker = os.fork()
        if worker == 0:
            try:
                work(int(job), *rest)
            except BaseException:  # noqa: BLE001  said on standard error; the test sees no signal
                traceback.print_exc()
            os._exit(0)
        _, status = os.waitpid(worker, 0)
        print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


if __name__ == "__main__":
    main()
