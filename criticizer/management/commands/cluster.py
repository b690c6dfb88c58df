"""`manage.py cluster QUEUE`: one django-q2 worker cluster in a process group of its own."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import psutil
import structlog
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections
from django.utils.module_loading import import_string

from criticizer.checks import TAG
from criticizer.db.error_hints import refuse_pooler
from criticizer.models import WorkerCluster
from criticizer.queue import outbox
from criticizer.workers import watchdog
from criticizer.workers.parent_death import die_with_parent

log = structlog.get_logger(__name__)
MONITOR_SECONDS = 2.0  # far more than a healthy monitor needs to end


class Command(BaseCommand):
    help = "Run the worker cluster of one queue until SIGTERM."
    requires_system_checks = [TAG]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("queue", choices=outbox.queues())

    def handle(self, *, queue: str, **options: object) -> None:
        refuse_pooler("workers")
        if os.environ.get("Q_CLUSTER_NAME") != queue:
            # django-q2 reads the name once, when it is imported.
            os.environ["Q_CLUSTER_NAME"] = queue
            os.execv(
                sys.executable, [sys.executable, *sys.orig_argv[1:], "--skip-checks"]
            )  # they were run above
        if os.getpgrp() != os.getpid():
            os.setpgrp()
        os.environ["CRITICIZER_CLUSTER_GROUP"] = str(os.getpgrp())
        # The claim finds a broken connection and is repeated; a check first costs a round trip per task.
        connections["default"].settings_dict["CONN_HEALTH_CHECKS"] = False
        os.register_at_fork(after_in_child=die_with_parent)

        from django_q.cluster import Cluster

        # Loaded before the fork, so that all workers share the memory.
        for path in (*settings.TASKS.values(), *(path for path, _ in settings.STAGES.values())):
            import_string(path)
        gc.freeze()

        class DrainingCluster(Cluster):  # type: ignore[misc]
            stop_event: Any
            start_event: Any

            def sig_handler(self, signum: int, frame: FrameType | None) -> None:
                mark_draining(queue)
                super().sig_handler(signum, frame)

            def stop(self) -> bool:
                if self.sentinel is None or not self.sentinel.is_alive():
                    return False
                self.stop_event.set()
                wait_for_workers(self.sentinel)
                self.start_event = self.stop_event = None
                return True

        watchdog.running_version()  # known before the fork, and before the next version replaces the code
        connections.close_all()
        cluster = DrainingCluster()
        cluster.start()
        if cluster.sentinel is None:
            return
        while cluster.sentinel.is_alive():
            cluster.sentinel.join(1)
        if not cluster.has_stopped:
            raise CommandError(f"the cluster {queue} ended unexpectedly")


def wait_for_workers(sentinel: BaseProcess) -> None:
    """Wait until the sentinel has ended or waits only for its monitor.

    A monitor whose predecessor was killed may wait forever for a lock that the dead process held,
    and the sentinel for the monitor. The monitor saves nothing here, so neither is waited for.
    """
    alone_since = 0.0
    while sentinel.is_alive():
        sentinel.join(0.1)
        if [role for role in roles(sentinel.pid) if role != "monitor"]:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > MONITOR_SECONDS:
            sentinel.kill()


def roles(sentinel_pid: int | None) -> list[str]:
    """Return the roles of the sentinel's living children, from django-q2's process titles."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(sentinel_pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append("monitor" if "monitor" in " ".join(child.cmdline()).split() else "worker")
    return found


def mark_draining(queue: str) -> None:
    """Mark this cluster as draining, so that its driver claims nothing new.

    The row may not exist yet: a cluster can be stopped before its first heartbeat. A lost database
    does not delay the stop.
    """
    try:
        WorkerCluster.objects.update_or_create(
            pk=watchdog.CLUSTER_ID,
            defaults={"draining": True},
            create_defaults={"draining": True, **watchdog.described(queue, os.getpid())},
        )
    except DatabaseError:
        log.warning("drain_not_marked")
    finally:
        connections.close_all()
